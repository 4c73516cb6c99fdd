#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In VM 0 of two with NICs in loopback mode and the kernel modules: what goes wrong for users of the
# provider and of the transport over it, and how they are told. Reports TAP.

set -euo pipefail

# shellcheck source=../common/tap.sh
source tests/common/tap.sh
output=$(mktemp)
shown=("$output")
export ANGARA_DEVICE=nic ANGARA_TEST_DEVICE=nic

run()
{
    rc=0
    "$@" >"$output" 2>&1 || rc=$?
}

says() { grep -q -- "$1" "$output"; }

bring_back()
{
    echo 1 >/sys/class/angara/angara0/device/remove || true
    vm_host emu replug 0
    echo 1 >/sys/bus/pci/rescan
}

as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }

# A user with a small limit on locked memory.
chmod 0666 /dev/angara0 /dev/angara_memreg
run as_nobody bash -c "ulimit -l 64; exec timeout $(slow 60) $B/bin/angara_perf --device nic put_lat"
ok 'a limit on locked memory is an error' [ "$rc" != 0 ]
ok 'that names the limit' says 'RLIMIT_MEMLOCK is 64 KiB'
ok 'and what to do' says 'ulimit -l'

# The device is pulled out under traffic.
vm_rsh vm1 "timeout $(slow 90) $B/tests/vm/nic_pair 1 10.0.0.1 surprise" >/tmp/vm1.out 2>&1 &
run timeout "$(slow 90)" "$B/tests/vm/nic_pair" 0 10.0.0.1 surprise
other=0
wait $! || other=$?
shown=("$output" /tmp/vm1.out)
ok 'the device is pulled out: its user' [ "$rc" == 0 ]
ok 'its peer' [ "$other" == 0 ]
ok 'all chapters of it' says '^1\.\.3'
run "$B/bin/angara_info"
ok 'a device that is gone is an error' [ "$rc" != 0 ]
bring_back
run "$B/bin/angara_info"
ok 'it is back' [ "$rc" == 0 ]

# Programs of UCP outlive it, whether they use it or not.
shown=("$output")
preload=$(eval "$(scripts/angara_env --preload)" && printf %s "$LD_PRELOAD")

# lose_device MODE TLS: guest/ucp_gone.c; rc 125 if the device isn't lost meanwhile
lose_device()
{
    local program line lost=0
    : >"$output"
    rm -f /tmp/go && mkfifo /tmp/go
    rc=0
    env LD_PRELOAD="$preload" UCX_TLS="$2" timeout "$(slow 60)" "$B/tests/vm/ucp_gone" "$1" \
        </tmp/go >>"$output" 2>&1 &
    program=$!
    exec {line}>/tmp/go
    wait_until 20 says ready && device_is working && vm_host emu remove 0 &&
        wait_until 20 device_is failed || lost=125
    (echo go >&"$line") 2>/dev/null || true # it may be dead
    wait "$program" || rc=$?
    exec {line}>&-
    rm /tmp/go
    bring_back
    rc=$((rc > lost ? rc : lost))
}

device_is() { grep -qx "$1" /sys/class/angara/angara0/state; }

lose_device idle angara,self
ok 'UCP: no endpoint uses the device that is lost' [ "$rc" == 0 ]
lose_device used angara
ok 'UCP: one does, and its error is handled' [ "$rc" == 0 ]
rm -f "$output" /tmp/vm1.out
finish
