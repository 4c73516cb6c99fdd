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

run timeout "$(slow 60)" "$B/bin/angara_perf" --device nic --iterations 20 --warm-up 5 \
    --check put_lat put_bw offload_put_lat offload_get_bw atomic_lat marker_lat notify_lat
ok 'angara_perf' [ "$rc" == 0 ]

vm_rsh vm1 "timeout $(slow 60) $B/tests/vm/nic_pair 1 10.0.0.1" \
    >/tmp/vm1.out 2>&1 &
run timeout "$(slow 60)" "$B/tests/vm/nic_pair" 0 10.0.0.1
wait $! || true # killed as part of the test
shown=("$output" /tmp/vm1.out)
ok 'two nodes' [ "$rc" == 0 ]
ok 'all chapters of it' says '^1\.\.8'

run "$B/bin/angara_info"
ok 'after the loss of the device there is the soft fabric' says 'provider soft'
echo 1 >/sys/bus/pci/rescan
run "$B/bin/angara_info" --device nic
ok 'when it is back it can be used' [ "$rc" == 0 ]
rm -f "$output"
finish
