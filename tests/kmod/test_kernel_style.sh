#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The kernel modules by the kernel's own measures: built with all warnings for two kernels, with sparse for
# the first, and checkpatch, from its source. Reports TAP.

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
    grep -v '^Skipping BTF generation ' "$built.log" >"$output" || true
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
tried 'no warning with 6.1, nor from sparse' warnings_find own C=2
tried 'no warning with 6.12' warnings_find backports
tried 'checkpatch --strict finds nothing' checkpatch_run "${sources[@]}"

# That it would.
printf '// SPDX-License-Identifier: GPL-2.0-only\nint f(int a){ return(a); }\n' >"$work/bad.c"
if [[ $rc != 3 ]]; then
    checkpatch_run "$work/bad.c"
    ok 'and would' noticed 'space required before the open brace'
fi
finish
