#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In a VM with the emulated NIC and the modules loaded: what the driver does when the device, its users or
# its administrator misbehave. Reports TAP. Usage: kmod_trouble.sh FOLDER-OF-kmod_op

# Loop counters, and $shown, which is tap.sh's; writing to sysfs is what fails.
# shellcheck disable=SC2034,SC2320

set -euo pipefail

# shellcheck source=../../common/tap.sh
source tests/common/tap.sh
# shellcheck disable=SC1091
source /run/vm/config
op=$1/kmod_op
output=$(mktemp)
shown=("$output")
driver=/sys/bus/pci/drivers/angara_nic
rounds=3 # of what is done under load
thorough || rounds=1
times="$rounds times"
((rounds > 1)) || times=once
readonly rounds times
mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug

says() { grep -q -- "$1" "$output"; }

sysfs()
{
    local value
    value=$(<"/sys/class/angara/angara0/$1") && echo "$value"
}

sysfs_is() { [[ $(sysfs "$1") == "$2" ]]; }

counter() { awk -v name="$1" '$1 == name { print $2 }' /sys/kernel/debug/angara/angara0/counters; }

quota_was_refused() { (($(counter quota_refused) > 0)); }

pinned()
{
    echo 1 >/proc/sys/vm/stat_refresh
    awk '$1 == "nr_foll_pin_acquired" { n += $2 } $1 == "nr_foll_pin_released" { n -= $2 }
        END { print n }' /proc/vmstat
}

run_op()
{
    rc=0
    timeout "$(slow 60)" "$op" "$@" >"$output" 2>&1 || rc=$?
}

# The device starts anew.
rebind()
{
    [[ ! -e $driver/$slot ]] || echo "$slot" >"$driver/unbind"
    echo "$slot" >"$driver/bind"
}

reload()
{
    vm_kmod unload
    vm_kmod load "$@"
}

slot=$(basename "$(readlink /sys/class/angara/angara0/device)")

vm_kmod unload
for parameter in cmd_entries=100 cmd_entries=8 event_entries=8192 window_mb=0 window_mb=2048 \
    mr_entries=1 pes_per_user=65537 mrs_per_user=1048577 mem_mb_per_user=16777217 admin_timeout_ms=1; do
    /sbin/insmod "${vm_modules:?}/angara_nic.ko" "$parameter" >"$output" 2>&1 || true
    dmesg | tail -n 3 >>"$output"
    ok "$parameter is refused, with a message" says "angara_nic: $parameter: must be"
done
for ((round = 0; round < rounds; round++)); do
    reload
done
ok "loading and unloading, $times" sysfs_is state working
reload pes_per_user=3
run_op quota
ok 'a quota of PEs: EDQUOT' says 'pes 3 errno 122'
reload mem_mb_per_user=1
run_op quota
ok 'one of their memory' says 'pes [1-9] errno 122'
reload mrs_per_user=1
"$op" churn >/dev/null 2>&1 &
churn=$!
wait_until 20 quota_was_refused || true
kill "$churn"
wait "$churn" 2>/dev/null || true
ok 'one of regions' quota_was_refused
reload mr_entries=16
run_op fill
ok 'a full table of regions: ENOSPC' says 'regions 16 errno 28'
reload admin_timeout_ms=300

vm_host emu link 0 down
ok 'the link goes down' wait_until 20 sysfs_is link down
vm_host emu link 0 up

vm_host emu loseirq 0 1000
run_op pe
ok 'without interrupts it works' says 'create 0 commit 0'
vm_host emu loseirq 0 0

base=$(pinned)
vm_host emu admin 0 mr_invalidate never
run_op region
ok 'an invalidation without answer: DMA is stopped, so the memory is free' says 'reg 0 dereg 0'
ok 'the device has failed' sysfs_is state failed
ok 'nothing stays pinned' [ "$(pinned)" == "$base" ]
run_op pe
ok 'a failed device is refused' not says 'create 0'
vm_host emu admin 0 mr_invalidate 0
rebind
ok 'binding starts it anew' sysfs_is state working

vm_host emu admin 0 pe_reset never
run_op pe
ok 'a reset without answer ends' says 'create 0 commit 0'
ok 'and fails the device' sysfs_is state failed
vm_host emu admin 0 pe_reset 0
rebind
vm_host emu admin 0 pe_create never
run_op pe
ok 'a creation without answer is EIO' says 'create 5'
vm_host emu admin 0 pe_create 0
rebind
vm_host emu admin 0 window_sync never
run_op pe
ok 'so is window memory, which stays until the PE ends' says 'create 0 commit 5 pinned 116 closed 0'
ok 'and no longer' [ "$(counter window_pages) $(counter leaked_pages)" == '0 0' ]
vm_host emu admin 0 window_sync 0
rebind
run_op region
ok 'it works again' says 'reg 0 dereg 0'

vm_host emu admin 0 any 20
run_op region
ok 'slow answers are waited for' says 'reg 0 dereg 0'
vm_host emu admin 0 any 0

"$op" read >"$output" 2>&1 &
reader=$!
wait_until 20 says reading || true
echo "$slot" >"$driver/unbind"
wait "$reader" || true
ok 'removal wakes a reader: ENODEV' says 'read 19 state 2'
echo "$slot" >"$driver/bind"

# Starts three that do all calls, over and over.
churn_start()
{
    local i
    churners=()
    for i in 1 2 3; do
        "$op" churn >/dev/null 2>&1 &
        churners+=($!)
    done
}

unbind_under_load()
{
    local round
    for ((round = 0; round < rounds; round++)); do
        churn_start
        sleep 0.5
        echo "$slot" >"$driver/unbind"
        wait "${churners[@]}"
        echo "$slot" >"$driver/bind"
    done
}

unbind_under_load
ok "removal under load, $times" [ "$(pinned)" == "$base" ]
/sbin/insmod "${vm_modules:?}/hooks/angara_hooks.ko"
delay=/sys/module/angara_hooks/parameters/delay
for function in angara_mr_create angara_mr_destroy angara_pe_stop angara_domain_get; do
    echo "$function 1000" >"$delay"
done
unbind_under_load
ok 'the same with everybody delayed on the way' [ "$(<"$delay")" -gt 0 ]
ok 'nothing is pinned then either' [ "$(pinned)" == "$base" ]
/sbin/rmmod angara_hooks

for ((round = 0; round < rounds; round++)); do
    churn_start
    sleep 0.3
    kill -9 "${churners[@]}"
    wait "${churners[@]}" 2>/dev/null || true
done
ok "kill -9 under load, $times" [ "$(sysfs pe_used) $(sysfs mr_used)" == '0 0' ]
ok 'nothing is pinned' [ "$(pinned)" == "$base" ]

"$op" read >"$output" 2>&1 &
reader=$!
wait_until 20 says reading || true
vm_host emu remove 0
# Nobody asks the device for anything.
ok 'pulled out: the driver notices' wait_until 20 sysfs_is state failed
wait "$reader" 2>/dev/null || true
ok 'and who sleeps is told' says 'read 19 state 2'
run_op pe
ok 'what is new is refused: ENODEV' says 'errno 19'
echo "$slot" >"$driver/unbind"
echo "$slot" >"$driver/bind" 2>/dev/null || true
ok 'what reads all ones is no NIC' [ ! -e /dev/angara0 ]
vm_host emu replug 0
rebind
ok 'and comes back' sysfs_is state working

# Which comes first: the look at whether the device is there, or the end of the time for a command.
for timeout in 60000 300; do
    reload admin_timeout_ms="$timeout"
    churn_start
    sleep 0.3
    echo 'angara-vm: pulling it out' >/dev/kmsg
    vm_host emu remove 0
    late=$(counter admin_timeouts)
    ok "pulled out under load, $timeout ms for a command: noticed" \
        wait_until 30 sysfs_is state failed
    wait "${churners[@]}"
    ok 'all calls come back with nothing left' \
        [ "$(sysfs pe_used) $(sysfs mr_used) $(pinned)" == "0 0 $base" ]
    if [[ $late == 0 ]]; then
        ok 'no command was late' [ "$(counter admin_timeouts)" == 0 ]
        # What came after the last mark. All of the log is read: dmesg would die of SIGPIPE.
        dmesg | awk '/pulling it out/ { text = "" } { text = text $0 "\n" } END { printf "%s", text }' \
            >"$output"
        ok 'it says so' says 'the device failed (it was pulled out)'
    else
        skip 'no command was late' 'the host was too slow before'
        skip 'it says so' 'the host was too slow before'
    fi
    echo "$slot" >"$driver/unbind"
    vm_host emu replug 0
    rebind
    ok 'and it works again' sysfs_is state working
done

# Prints for how many milliseconds the device was mute, when it isn't any more.
muted_ms()
{
    local state
    until state=$(vm_host emu state 0) && [[ $state == *muted_ms=[1-9]* ]]; do sleep 0.05; done
    echo "${state##*muted_ms=}"
}

# The driver takes half a second for a removal. On a slow host it may be longer than was asked for.
reload
longest=0
for round in {1..5}; do
    vm_host emu mute 0 300
    ms=$(muted_ms)
    ((ms <= longest)) || longest=$ms
done
if ((longest < 400)); then
    ok 'reads that fail for a moment are no removal' sysfs_is state working
else
    skip 'reads that fail for a moment are no removal' "$longest ms"
fi
rebind
vm_host emu mute 0 300
echo "$slot" >"$driver/unbind"
ms=$(muted_ms)
vm_host emu state 0 >"$output"
if ((ms < 400)); then
    ok 'DMA is turned off when they work again' says 'dma=0'
else
    skip 'DMA is turned off when they work again' "$ms ms"
fi
rebind
run_op region
ok 'the device works on' says 'reg 0 dereg 0'
reload admin_timeout_ms=300

"$op" read >"$output" 2>&1 &
reader=$!
wait_until 20 says reading || true
# Only the refusal: virtio's 9p, which the VM runs from, doesn't come back from a real one. One device after
# the other, so that the NIC, which was found last, refuses before 9p has been stopped.
rc=0
echo 0 >/sys/power/pm_async
echo devices >/sys/power/pm_test 2>/dev/null || true
{ echo freeze >/sys/power/state; } 2>"$output" || rc=$?
ok 'suspend is refused while a PE is open' [ "$rc" != 0 ]
kill "$reader"
wait "$reader" 2>/dev/null || true

# run_vm_tests knows this line.
echo 'angara-vm: memory is lost on purpose' >/dev/kmsg
vm_host emu stuck 0 all on
echo "$slot" >"$driver/unbind"
rc=0
echo "$slot" >"$driver/bind" 2>/dev/null || rc=$?
ok 'a device that does nothing is not bound' [ "$rc" != 0 ]
vm_host emu stuck 0 all off
rebind
ok 'it is when it does' sysfs_is state working

vm_host emu admin 0 mr_invalidate never
vm_host emu stuck 0 dma on
run_op leak
ok 'if DMA cannot be stopped either: EIO' says 'dereg 5'
ok 'the device goes on writing to the pages' says 'reached 10'
ok 'which are nobody else'\''s' says 'intact 1'
ok 'as they stay pinned, after the end of their owner too' [ "$(pinned)" == $((base + 11)) ]
ok 'which is told' sysfs_is state 'failed, leaking'
ok 'and counted' [ "$(counter leaked_mrs)" == 2 ]
vm_host emu stuck 0 dma off
vm_host emu admin 0 mr_invalidate 0
rebind
run_op region
ok 'binding resets even that' says 'reg 0 dereg 0'
finish
