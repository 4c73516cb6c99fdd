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
op=$1/kmod_op
output=$(mktemp)
shown=("$output")
driver=/sys/bus/pci/drivers/angara_nic
mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug

says() { grep -q -- "$1" "$output"; }

not() { ! "$@"; }

sysfs() { cat "/sys/class/angara/angara0/$1"; }

sysfs_is() { [[ $(sysfs "$1") == "$2" ]]; }

counter() { awk -v name="$1" '$1 == name { print $2 }' /sys/kernel/debug/angara/angara0/counters; }

pinned()
{
    echo 1 >/proc/sys/vm/stat_refresh
    awk '$1 == "nr_foll_pin_acquired" { n += $2 } $1 == "nr_foll_pin_released" { n -= $2 }
        END { print n }' /proc/vmstat
}

run_op()
{
    rc=0
    timeout 60 "$op" "$@" >"$output" 2>&1 || rc=$?
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

for parameter in cmd_entries=100 cmd_entries=8 event_entries=8192 window_mb=0 window_mb=2048 \
    mr_entries=1 pes_per_user=0 mrs_per_user=0 admin_timeout_ms=1; do
    vm_kmod unload
    vm_kmod load "$parameter" >"$output" 2>&1 || true
    dmesg | tail -n 3 >>"$output"
    ok "$parameter is refused, with a message" says "angara_nic: $parameter: must be"
done
for round in {1..5}; do
    reload
done
ok 'loading and unloading, five times' sysfs_is state working
reload pes_per_user=3
run_op quota
ok 'a quota of PEs: EDQUOT' says 'pes 3 errno 122'
reload mrs_per_user=1
"$op" churn >/dev/null 2>&1 &
churn=$!
for round in {1..100}; do
    [[ $(counter quota_refused) == 0 ]] || break
    sleep 0.05
done
kill "$churn"
wait "$churn" 2>/dev/null || true
ok 'one of regions' [ "$(counter quota_refused)" -gt 0 ]
reload admin_timeout_ms=300

run_op random
ok 'random calls are survived' says 'good 1'
ok 'and leave nothing' [ "$(sysfs pe_used) $(sysfs mr_used)" == '0 0' ]

vm_host emu link 0 down
for round in {1..100}; do
    [[ $(sysfs link) == up ]] || break
    sleep 0.05
done
ok 'the link goes down' sysfs_is link down
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
ok 'so is window memory' says 'create 0 commit 5'
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
until says reading; do sleep 0.05; done
echo "$slot" >"$driver/unbind"
wait "$reader" || true
ok 'removal wakes a reader: ENODEV' says 'read 19 state 2'
echo "$slot" >"$driver/bind"

for round in {1..5}; do
    for i in 1 2 3; do
        "$op" churn >/dev/null 2>&1 &
    done
    sleep 0.5
    echo "$slot" >"$driver/unbind"
    wait
    echo "$slot" >"$driver/bind"
done
ok 'removal under load, five times' [ "$(pinned)" == "$base" ]
for round in {1..5}; do
    pids=()
    for i in 1 2 3; do
        "$op" churn >/dev/null 2>&1 &
        pids+=($!)
    done
    sleep 0.3
    kill -9 "${pids[@]}"
    wait "${pids[@]}" 2>/dev/null || true
done
ok 'kill -9 under load, five times' [ "$(sysfs pe_used) $(sysfs mr_used)" == '0 0' ]
ok 'nothing is pinned' [ "$(pinned)" == "$base" ]

"$op" read >"$output" 2>&1 &
reader=$!
until says reading; do sleep 0.05; done
vm_host emu remove 0
kill "$reader"
wait "$reader" 2>/dev/null || true
ok 'pulled out: the end of a PE fails the device' sysfs_is state failed
echo "$slot" >"$driver/unbind"
echo "$slot" >"$driver/bind" 2>/dev/null || true
ok 'what reads all ones is no NIC' [ ! -e /dev/angara0 ]
vm_host emu replug 0
rebind
ok 'and comes back' sysfs_is state working

"$op" read >"$output" 2>&1 &
reader=$!
until says reading; do sleep 0.05; done
# Only the refusal: virtio's 9p, which the VM runs from, doesn't come back from a real one.
rc=0
echo devices >/sys/power/pm_test 2>/dev/null || true
{ echo freeze >/sys/power/state; } 2>"$output" || rc=$?
ok 'suspend is refused while a PE is open' [ "$rc" != 0 ]
kill "$reader"
wait "$reader" 2>/dev/null || true

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
run_op region
ok 'if DMA cannot be stopped either: EIO' says 'reg 0 dereg 5'
ok 'and the pages stay pinned' [ "$(pinned)" == $((base + 10)) ]
ok 'which is told' sysfs_is state 'failed, leaking'
ok 'and counted' [ "$(counter leaked_mrs)" == 1 ]
vm_host emu stuck 0 dma off
vm_host emu admin 0 mr_invalidate 0
rebind
run_op region
ok 'binding resets even that' says 'reg 0 dereg 0'
finish
