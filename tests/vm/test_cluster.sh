#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# On the host: scripts/vm_cluster, as somebody at a terminal uses it. Reports TAP.

set -euo pipefail

here=$(dirname -- "$(realpath -- "$0")")
# shellcheck source=../common/tap.sh
source "$here/../common/tap.sh"

work=$(mktemp -d)
output=$work/output
trap 'rm -rf -- "$work"' EXIT
shown=("$output")

# cluster INPUT OPTION...
cluster()
{
    local input=$1
    shift
    rc=0
    # The format is the text that is typed.
    # shellcheck disable=SC2059
    printf "$input" | "$here/../../scripts/vm_cluster" "$@" >"$output" 2>&1 || rc=$?
}

cluster 'uname -n; vm_rsh vm1 uname -n; exit\n' --no-nic 2
if [[ $rc == 77 ]]; then
    echo "1..0 # SKIP $(sed -n 's/^vm: error: //p' "$output")"
    exit 0
fi
ok 'the cluster ends with its shell' [ "$rc" == 0 ]
ok 'the shell is in vm0' grep -q $'vm0\r$' "$output"
ok 'that there is no NIC is at the prompt' grep -qF 'vm0 (no NIC):' "$output"
ok 'that the guests see files is said' grep -q 'see all files of this machine' "$output"
ok 'commands run in vm1' grep -q $'vm1\r$' "$output"
cluster '\035' --no-nic 1
ok 'the escape key ends it' [ "$rc" == 0 ]
ok 'at once' [ "$(grep -c 'Power down' "$output")" == 0 ]
rc=0
"$here/../../scripts/vm_cluster" --help >"$output" || rc=$?
ok 'there is help' grep -q 'number of VMs' "$output"
rc=0
"$here/../../scripts/vm_cluster" 1 </dev/null >"$output" 2>&1 || rc=$?
ok 'nobody can type: nothing is started' [ "$rc" == 1 ]
ok 'that is said' grep -q '^vm: .*terminal or a pipe' "$output"
rc=0
"$here/../../scripts/vm_cluster" 0 >"$output" 2>&1 || rc=$?
ok 'no VMs: a usage error' [ "$rc" == 2 ]
export B=$work/empty
PATH=/nowhere cluster 'exit\n' 1
ok 'a build folder without programs: that is said' grep -q "^vm: warning: the project isn't built" "$output"
ok 'no QEMU: the status of what is skipped' [ "$rc" == 77 ]
ok 'no QEMU: what to do is said' grep -q '^vm: error: .*scripts/setup --vm' "$output"
# An emulator that is there already, and a make that says what it is asked for and fails.
mkdir -p "$B/tests/emu" "$work/bin"
install -m 755 /dev/stdin "$B/tests/emu/angara_emu" <<<'#!/bin/false'
install -m 755 /dev/stdin "$work/bin/make" <<<'#!/bin/sh
echo "make $*"
exit 2'
PATH=$work/bin:$PATH cluster 'exit\n' 1
ok 'make is asked for the emulator, which may be older than its source' \
    grep -q '^make .*/tests/emu/angara_emu$' "$output"
ok 'it fails: that is said, and the one that is there is tried' \
    grep -q "^vm: warning: the emulated NIC can't be built" "$output"
ok 'which is none' [ "$rc" == 125 ]
rm "$B/tests/emu/angara_emu"
PATH=$work/bin:$PATH cluster 'exit\n' 1
ok 'none is there: nothing is started' [ "$rc" == 1 ]
ok 'that is said' grep -q "^vm: the emulated NIC can't be built" "$output"
finish
