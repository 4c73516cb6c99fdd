#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In VM 0 of two with NICs in loopback mode and the kernel modules: libangara's provider for them, its
# choice and its absence, and two ranks in two VMs (guest/nic_pair.c). Reports TAP.

set -euo pipefail

# shellcheck source=../common/tap.sh
source tests/common/tap.sh
output=$(mktemp)
shown=("$output")

run()
{
    rc=0
    "$@" >"$output" 2>&1 || rc=$?
}

says() { grep -q -- "$1" "$output"; }

as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }

run "$B/bin/angara_info"
ok 'a NIC that is there is the default' says 'Device angara0 (provider nic)'
ok 'its link is known' says 'link *up'
run "$B/bin/angara_info" --device soft
ok 'the soft fabric can be had by name' says 'provider soft'
run env ANGARA_DEVICE=angara7 "$B/bin/angara_info"
ok 'a NIC that is not there is an error' [ "$rc" == 1 ]
ok 'with what to do' says 'ANGARA_DEVICE=soft'
chmod 0600 /dev/angara0
run as_nobody "$B/bin/angara_info" --device nic
ok 'so is one that may not be used' [ "$rc" == 1 ]
ok 'with what to do as well' says 'group angara'
run as_nobody "$B/bin/angara_info"
ok 'then the soft fabric is the default, with a warning' says 'provider soft'
ok 'that names the reason' says 'ANGARA_DEVICE=soft'
chmod 0666 /dev/angara0 /dev/angara_memreg
run as_nobody "$B/bin/angara_info" --device nic
ok 'any user can use a NIC that may be opened' [ "$rc" == 0 ]

# What angara_info advises, as it is printed, cures what it is about.
# shellcheck disable=SC2053
is_like() { [[ $1 == $2 ]]; } # a pattern
advice() { awk -v name=" $1: " 'found { print; exit } index($0, name) { found = 1 }' "$output" | sed 's/^ *-> //'; }

chgrp 4711 /dev/angara0 /dev/angara_memreg
chmod 0660 /dev/angara0 /dev/angara_memreg
run as_nobody "$B/bin/angara_info"
ok 'who may not open the NIC is told of its group' \
    is_like "$(advice NIC)" 'add the user to the group angara and log in again'
run setpriv --reuid 65534 --regid 65534 --groups 4711 "$B/bin/angara_info"
ok 'with that group it can be used' says '^  ok *NIC: '
chmod 0666 /dev/angara0 /dev/angara_memreg
run vm_kmod unload
run "$B/bin/angara_info"
ok 'without the modules there is advice to load them' \
    is_like "$(advice NIC)" '*load the modules angara_nic and angara_memreg'
run vm_kmod load
run "$B/bin/angara_info"
ok 'with them it can be used' says '^  ok *NIC: '
# shellcheck disable=SC2016 # the inner shell expands it
low=(bash -c 'ulimit -S -l 64 && eval "$1" && exec "$2"' bash)
run "${low[@]}" true "$B/bin/angara_info"
wanted=$(advice 'locked memory (ulimit -l)')
ok 'little memory may be locked: there is advice' is_like "$wanted" 'only with a NIC: ulimit -l unlimited, or *'
wanted=${wanted#only with a NIC: }
run "${low[@]}" "${wanted%%,*}" "$B/bin/angara_info"
ok 'it helps' says '^  ok *locked memory '
scope=/proc/sys/kernel/yama/ptrace_scope
if [[ -e $scope ]]; then
    echo 2 >"$scope"
    run as_nobody "$B/bin/angara_info"
    wanted=$(advice 'process_vm_readv between processes')
    ok 'Yama forbids process_vm: there is advice' is_like "$wanted" 'sysctl kernel.yama.ptrace_scope=0, or *'
    run setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=+sys_ptrace --ambient-caps=+sys_ptrace \
        "$B/bin/angara_info"
    ok 'the capability helps, which --cap-add=SYS_PTRACE gives' \
        says '^  ok *process_vm_readv between processes: '
    wanted=${wanted#sysctl kernel.yama.ptrace_scope=}
    echo "${wanted%%,*}" >"$scope"
    run as_nobody "$B/bin/angara_info"
    ok 'and so does that' says '^  ok *process_vm_readv between processes: '
fi

run timeout "$(slow 60)" "$B/bin/angara_perf" --device nic --iterations 20 --warm-up 5 \
    --check put_lat put_bw offload_put_lat offload_get_bw atomic_lat marker_lat notify_lat
ok 'angara_perf' [ "$rc" == 0 ]

vm_rsh vm1 "timeout $(slow 90) $B/bin/angara_perf --listen --device nic" >/tmp/vm1.out 2>&1 &
shown=("$output" /tmp/vm1.out)
for _ in {1..100}; do # what it prints comes when it has ended
    run timeout "$(slow 60)" "$B/bin/angara_perf" --host vm1 --device nic --iterations 20 --warm-up 5 --check \
        -s 8:4K put_lat offload_put_lat offload_get_bw atomic_lat marker_lat notify_lat
    says 'Connection refused' || break
    sleep 0.2
done
ok 'angara_perf between two nodes' [ "$rc" == 0 ]
wait $! || rc=$?
ok 'and its other side' [ "$rc" == 0 ]

timeout "$(slow 60)" "$B/bin/angara_perf" --device nic --cpu=none -n 1000000000 -s 8 offload_put_lat \
    >/tmp/perf.out 2>&1 &
counts()
{
    "$B/bin/angara_top" --once --all >"$output" &&
        awk '$1 == "puts" && $2 > 0 { n++ } END { exit n == 0 }' "$output"
}
for _ in {1..200}; do
    ! counts || break
    sleep 0.1
done
shown=("$output" /tmp/perf.out)
ok 'angara_top shows what a NIC does' says 'pe of PE [0-9]*: angara0'
ok 'and what was asked of a peer' counts
pkill -P $! || true
wait $! || true

vm_rsh vm1 "timeout $(slow 60) $B/tests/vm/nic_pair 1 10.0.0.1" \
    >/tmp/vm1.out 2>&1 &
run timeout "$(slow 60)" env ANGARA_LOG_LEVEL=info "$B/tests/vm/nic_pair" 0 10.0.0.1
wait $! || true # killed as part of the test
shown=("$output" /tmp/vm1.out)
ok 'two nodes' [ "$rc" == 0 ]
ok 'all chapters of it' says '^1\.\.8'
ok 'level info says which device was opened' says 'angara info: angara0 is open: node 0, with loopback$'
ok 'and which peer was reached' \
    says 'angara info: connected to pid [0-9]* (PE [0-9]* of node 1), window of [0-9]* bytes$'

run "$B/bin/angara_info"
ok 'after the loss of the device there is the soft fabric' says 'provider soft'
echo 1 >/sys/bus/pci/rescan
run "$B/bin/angara_info" --device nic
ok 'when it is back it can be used' [ "$rc" == 0 ]
rm -f "$output"
finish
