#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The kernel modules by the kernel's own measures: built with all warnings for two kernels, with sparse for
# the first, and checkpatch, from its source. Also, that devices stay behind kmod/nic/hw.h. Reports TAP.

set -euo pipefail

cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=../common/tap.sh
source tests/common/tap.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
readonly output=$work/output
shown=("$output")

# Builds for the release $1, with more settings, and puts what is said about our files into the output.
warnings_find()
{
    local kernel built
    command -v sparse >/dev/null || {
        echo 'sparse is not here (Debian: sparse)' >"$output"
        return 3
    }
    kernel=$(tests/vm/vm_kernel --release "$1" --headers 2>"$output") || return
    built=$(B=$work/$1 tests/vm/vm_modules "$kernel" W=1 "${@:2}" 2>"$output") || return
    grep -Ev '^(Skipping BTF generation|modules for Linux) ' "$built.log" >"$output" || true
}

# Puts what checkpatch says about the files that are given into the output.
checkpatch_run()
{
    local archive folder name
    archive=$(tests/vm/vm_kernel --source 2>"$output") || return
    name=$(basename -- "$archive" .tar.xz)
    folder=$(dirname -- "$archive")/checkpatch
    if [[ ! $folder -nt $archive ]]; then
        rm -rf "$folder"
        mkdir "$work/scripts"
        tar -xJf "$archive" -C "$work/scripts" --strip-components=2 --no-same-owner \
            "$name"/scripts/{checkpatch.pl,spelling.txt,const_structs.checkpatch}
        mv "$work/scripts" "$folder"
        touch "$folder"
    fi
    # It looks for its configuration in the current folder.
    (cd kmod && "$folder/checkpatch.pl" --terse --no-summary --file "$@") >"$output" 2>&1 || true
}

# Puts into the output what in the folder $1, a copy of kmod/, knows a device from outside its folder:
# registers of the emulated one, its constants, what it is made of, how registers are read and written. The one
# exception is the list of devices, which includes ids.h.
door_leaks_find()
{
    local names='ivshmem|1af4|\b(emu_|angara_hw_(control|cmd|resp|mr|pe)\b)'
    local access='\b(io)?(read|write)(8|16|32|64|[bwlq])\('
    (cd "$1" && find . -name '*.[ch]' ! -path './nic/emu/*' ! -path './hooks/*' ! -path ./include/angara_hw.h \
        -exec grep -EniH "include.*(angara_hw\.h|emu/)|$names|$access" {} +) |
        grep -vE '^\./nic/pci\.c:[0-9]+:#include "emu/ids\.h"$' >"$output" || true
}

# tried NAME COMMAND...: the test is passed if that says nothing, skipped if it ends with status 3
tried()
{
    local name=$1
    shift
    rc=0
    "$@" || rc=$?
    if [[ $rc == 3 ]]; then
        skip "$name" "$(tail -n 1 "$output")"
    else
        ok "$name" [ "$rc" == 0 -a ! -s "$output" ]
    fi
}

noticed()
{
    grep -q -- "$1" "$output"
}

mapfile -t sources < <(cd kmod && find . -name '*.[ch]' | sort)
tried 'no warning with the distribution'"'"'s kernel, nor from sparse' warnings_find own C=2
tried 'no warning with the kernel of backports' warnings_find backports
tried 'checkpatch --strict finds nothing' checkpatch_run "${sources[@]}"

tried 'devices are known in their own folders only' door_leaks_find kmod

# That they would.
printf '// SPDX-License-Identifier: GPL-2.0-only\nint f(int a){ return(a); }\n' >"$work/bad.c"
if [[ $rc != 3 ]]; then
    checkpatch_run "$work/bad.c"
    ok 'and would' noticed 'space required before the open brace'
fi
mkdir -p "$work/leaky/nic/emu"
echo 'writel(0, bell);' >"$work/leaky/nic/emu/device.c"
door_leaks_find "$work/leaky"
ok 'a device may know itself' [ ! -s "$output" ]
for line in '#include <angara_hw.h>' '#include "emu/emu.h"' 'u32 up = readl(&ctl->link);' \
    'struct angara_hw_mr *entry;' '/* behind ivshmem */'; do
    echo "$line" >"$work/leaky/nic/mr.c"
    door_leaks_find "$work/leaky"
    ok "others don't: $line" noticed 'nic/mr.c:1:'
done
finish
