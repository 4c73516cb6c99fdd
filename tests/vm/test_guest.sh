#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In a VM: what the other tests rely on. Reports TAP.

set -euo pipefail

# shellcheck source=../common/tap.sh
source tests/common/tap.sh
# shellcheck disable=SC1091
source /run/vm/config

writable()
{
    (: >"$1/vm-test") 2>/dev/null && rm "$1/vm-test"
}

same()
{
    [[ $1 == "$2" ]]
}

ok 'the kernel is the one that was asked for' \
    same "$(uname -r)" "$(basename -- "$(echo "${vm_kernel:?}"/lib/modules/*)")"
ok 'the host name is set' same "$(uname -n)" vm0
ok "the host's files are there" [ -x "$PWD/scripts/run_tests" ]
ok 'and cannot be changed' not writable "$PWD"
ok "nor can the root's" not writable /usr
for folder in /tmp /run /dev/shm /var/tmp; do
    ok "$folder can be written" writable "$folder"
    ok "and is the guest's own" same "$(stat -f -c %T "$folder")" tmpfs
done
ok 'the share can be written' writable /run/vm
ok 'there is a console' [ -c /dev/ttyS0 ]
ok 'a module of the kernel can be loaded' vm_modprobe crc_itu_t
ok 'and unloaded' vm_modprobe -r crc_itu_t
ok 'the harness answers' grep -q '"running": true' <(vm_host qmp 0 query-status)
ok 'and refuses what it does not know' not vm_host nonsense 2>/dev/null
finish
