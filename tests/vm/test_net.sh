#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In VM 0 of two: the network between them, and commands in the other one. Reports TAP.

set -euo pipefail

# shellcheck source=../common/tap.sh
source tests/common/tap.sh
output=$(mktemp)
shown=("$output")

# The output and the exit status of a command in VM 1.
remote()
{
    rc=0
    vm_rsh vm1 "$@" >"$output" 2>&1 || rc=$?
}

ok 'VM 1 answers' busybox ping -q -c 2 -W 10 vm1
remote hostname
ok 'a command runs there' [ "$(<"$output")" == vm1 ]
remote 'echo out; echo err >&2; exit 7'
ok 'its exit status comes back' [ "$rc" == 7 ]
ok 'its output comes back, stderr too' [ "$(<"$output")" == $'out\nerr' ]
# The variable is the other VM's.
# shellcheck disable=SC2016
remote 'printf "%s\n" "  two  blanks" "$vm_unset\\" ; printf "no end"'
ok 'as it was' [ "$(<"$output")" == $'  two  blanks\n\\\nno end' ]
remote 'seq 2000'
ok 'all of it' cmp -s "$output" <(seq 2000)
remote 'cat; kill -TERM $$'
ok 'stdin is empty, a signal is a status' [ "$rc" == 143 ]
rc=0
vm_rsh vm9 true >"$output" 2>&1 || rc=$?
ok 'a VM that is not there is an error' [ "$rc" == 255 ]
rm -f "$output"
finish
