#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In a VM with a NIC in loopback mode and the kernel modules: programs of the conformance suite, or
# with --uct of the transport's tests, over the NIC. All that are named. Reports TAP.

set -euo pipefail

# shellcheck source=../common/tap.sh
source tests/common/tap.sh
output=$(mktemp)
trap 'rm -f "$output"' EXIT
# shellcheck disable=SC2034 # used by tap.sh
shown=("$output")
export ANGARA_TEST_DEVICE=nic ANGARA_DEVICE=nic CMOCKA_MESSAGE_OUTPUT=TAP
suite=conformance

if [[ ${1:-} == --uct ]]; then
    suite=uct
    shift
fi
for program in "$@"; do
    rc=0
    timeout "$(slow 100)" "$B/tests/$suite/test_$program" >"$output" 2>&1 || rc=$?
    count=$(grep -c '^ok ' "$output" || true)
    ok "$suite: $program ($count tests)" [ "$rc" == 0 -a "$count" -gt 0 ]
done
finish
