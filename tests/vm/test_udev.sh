#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In a VM with a NIC and the kernel modules: who may open the devices, once udev has our rule and the
# machine our group. Reports TAP.

set -euo pipefail

# shellcheck source=../common/tap.sh
source tests/common/tap.sh

readonly udevd=/lib/systemd/systemd-udevd
for tool in udevadm "$udevd" systemd-sysusers setpriv; do
    command -v "$tool" >/dev/null || {
        echo "1..0 # SKIP $tool is not here (Debian: udev, systemd)"
        exit 0
    }
done
output=$(mktemp)
shown=("$output")
nodes=(/dev/angara0 /dev/angara_memreg)

# as GROUP: whether a user who is in this group besides, can open both devices for writing
as()
{
    rc=0
    # Its $ are those of the shell that is started.
    # shellcheck disable=SC2016
    setpriv --reuid=nobody --regid=nogroup --groups="$1" bash -c 'for node in "$@"; do exec 3<>"$node"; done' \
        bash "${nodes[@]}" >"$output" 2>&1 || rc=$?
    [[ $rc == 0 ]]
}

modes_are()
{
    stat -c '%a %U:%G' "${nodes[@]}" >"$output"
    [[ $(sort -u "$output") == "$1" ]]
}

ok 'without udev they are for root only' modes_are '600 root:root'

# The group, as systemd-sysusers makes it from our file; the host's own are read-only.
mkdir -p /tmp/group/etc
cp /etc/group /etc/passwd /tmp/group/etc
rc=0
systemd-sysusers --root=/tmp/group "$PWD/kmod/angara.sysusers" >"$output" 2>&1 || rc=$?
ok 'the group is made' grep -q '^angara:' /tmp/group/etc/group
mount --bind /tmp/group/etc/group /etc/group

mkdir -p /run/udev/rules.d
cp kmod/90-angara.rules /run/udev/rules.d/
vm_kmod unload
"$udevd" >"$output.udevd" 2>&1 &
daemon=$!
shown+=("$output.udevd")
until udevadm control --ping 2>/dev/null || ! kill -0 "$daemon" 2>/dev/null; do
    sleep 0.1
done
vm_kmod load
udevadm settle
ok 'udev gives them to the group' modes_are '660 root:angara'
ok 'a member can open them' as angara
ok 'another user cannot' not as nogroup
ok 'udev has no complaint about the rule' not grep -i angara "$output.udevd"

# On a busy machine it was seen not to end, with nothing left to do.
udevadm control --exit --timeout="$(slow 10)" || kill -KILL "$daemon"
wait "$daemon" || true
umount /etc/group
vm_kmod unload
vm_kmod load
ok 'after that they are for root only again' modes_are '600 root:root'
rm -rf "$output" "$output.udevd" /tmp/group /run/udev
finish
