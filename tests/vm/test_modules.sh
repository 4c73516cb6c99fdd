#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In VM 0 of two with NICs, GPUs and the kernel modules loaded: the modules find their devices and let
# go of them. Reports TAP.

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

# Prints the name of the driver of the folder $1 in sysfs.
driver()
{
    [[ ! -e $1/driver ]] || basename -- "$(realpath -- "$1/driver")"
}

for device in /sys/bus/pci/devices/*; do
    [[ $(<"$device/vendor"):$(<"$device/device") == 0x1af4:0x1110 ]] || continue
    if [[ -e $device/resource1 ]]; then
        nic=$device
    else
        gpu=$device
    fi
done
modules=(/sys/module/angara_nic /sys/module/angara_memreg)
nodes=(/dev/angara0 /dev/angara_memreg)

ok 'the modules are loaded' [ -d "${modules[0]}" -a -d "${modules[1]}" ]
ok 'the NIC has its driver' [ "$(driver "${nic:?}")" == angara_nic ]
ok 'the GPU has not' [ -z "$(driver "${gpu:?}")" ]
ok 'the devices can be opened' [ -c "${nodes[0]}" -a -c "${nodes[1]}" ]
run vm_rsh vm1 "ls ${nodes[*]}"
ok 'in VM 1 too' [ "$rc" == 0 ]

run vm_kmod unload
ok 'the modules can be unloaded' [ "$rc" == 0 ]
ok 'then there are no devices' [ ! -e "${nodes[0]}" -a ! -e "${nodes[1]}" ]
run vm_kmod load
ok 'and loaded again' [ "$rc" == 0 ]
ok 'then there are' [ -c "${nodes[0]}" -a -c "${nodes[1]}" ]

echo 1 >"$nic/remove"
ok 'without the NIC there is no device' [ ! -e "${nodes[0]}" ]
echo 1 >/sys/bus/pci/rescan
ok 'it comes back' [ -c "${nodes[0]}" ]

vm_host emu remove 0
run vm_kmod unload
ok 'the modules can be unloaded when the NIC has gone by surprise' [ "$rc" == 0 ]
vm_host emu replug 0
run vm_kmod load
ok 'and loaded when it is back' [ "$rc" == 0 ]
ok 'and work' [ -c "${nodes[0]}" ]
rm -f "$output"
finish
