#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In VM 0 of two with emulated NICs and GPUs, no driver loaded: the devices as the kernel sees them.
# Reports TAP.

set -euo pipefail

# shellcheck source=../common/tap.sh
source tests/common/tap.sh
# shellcheck disable=SC1091
source /run/vm/config
output=$(mktemp)
shown=("$output")

fails()
{
    ! "$@" >"$output" 2>&1
}

# Prints the folders in sysfs of the NIC (has interrupts, in BAR 1) and of the GPU (hasn't).
device_find()
{
    local device
    for device in /sys/bus/pci/devices/*; do
        [[ $(<"$device/vendor"):$(<"$device/device") == 0x1af4:0x1110 ]] || continue
        if [[ $1 == nic && -e $device/resource1 || $1 == gpu && ! -e $device/resource1 ]]; then
            echo "$device"
        fi
    done
}

# Prints the first eight 32-bit words of the folder $1's BAR 2.
bar_words()
{
    echo 1 >"$1/enable"
    python3 - "$1/resource2" <<'END'
import mmap, struct, sys
with open(sys.argv[1], "r+b") as file:
    with mmap.mmap(file.fileno(), 4096) as bar:
        print(*("%x" % word for word in struct.unpack("<8I", bar[:32])))
END
}

nic=$(device_find nic)
gpu=$(device_find gpu)
ok 'there is one NIC' [ "$(wc -l <<<"$nic")" == 1 -a -n "$nic" ]
ok 'and one GPU' [ "$(wc -l <<<"$gpu")" == 1 -a -n "$gpu" ]
bar_words "$nic" >"$output"
read -r -a words <"$output"
ok 'BAR 2 of the NIC begins with the magic number' [ "${words[1]}:${words[0]}" == 304152:41474e41 ]
ok "the node is the VM's number" [ "${words[4]}" == 0 ]
bar_words "$gpu" >"$output"
ok "BAR 2 of the GPU doesn't" not grep -q 41474e41 "$output"
vm_rsh vm1 "$(declare -f device_find bar_words); bar_words \"\$(device_find nic)\"" >"$output" 2>&1
read -r -a words <"$output"
ok 'VM 1 has node 1' [ "${words[4]}" == 1 ]
vm_host emu state 0 >"$output" 2>&1 || true
ok 'the emulator answers' grep -q 'vm=1 .*link=1' "$output"
vm_host emu link 0 down
vm_host emu state 0 >"$output" 2>&1 || true
ok 'and does what it is told' grep -q 'link=0' "$output"

vm_host emu remove 0
bar_words "$nic" >"$output"
read -r -a words <"$output"
ok 'gone by surprise, it reads all ones' [ "${words[1]}:${words[0]}" == ffffffff:ffffffff ]
vm_host emu replug 0
echo 1 >"$nic/remove"
ok 'the kernel can let go of it' [ ! -e "$nic" ]
echo 1 >/sys/bus/pci/rescan
ok 'and find it again' [ "$(device_find nic)" == "$nic" ]
bar_words "$nic" >"$output"
read -r -a words <"$output"
ok 'as it was' [ "${words[1]}:${words[0]}" == 304152:41474e41 ]
vm_host qmp 0 device_del '{"id": "gpu0"}' >"$output"
wait_until 30 [ ! -e "$gpu" ] || true
ok 'the GPU can be pulled out' [ ! -e "$gpu" ]
vm_host kill 1
ok 'a VM can be killed' fails busybox ping -q -c 1 -W 2 vm1
vm_host emu kill
ok 'so can the emulator' fails vm_host emu state 0
bar_words "$nic" >"$output"
ok 'which the VM survives' grep -q 41474e41 "$output"
rm -f "$output"
finish
