#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The kernel modules' binary interfaces are the ones that abi_frozen.c has written down, for callers of
# 64 and 32 bits, and all of them are there. Reports TAP.

set -euo pipefail

cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=../common/tap.sh
source tests/common/tap.sh

readonly frozen=tests/kmod/abi_frozen.c
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
readonly output=$work/output
shown=("$output")
# The headers of this machine serve for the others too: their types are the same.
machine=$(gcc -print-multiarch)
readonly flags=(-Wall -Wextra -Werror -Wpadded -fsyntax-only -isystem "/usr/include/$machine")

# as_frozen FOLDER COMPILER...: whether the headers below FOLDER are those that are written down
as_frozen()
{
    local include=$1
    shift
    rc=0
    "$@" "${flags[@]}" "-I$include" "-I$include/uapi" "$frozen" >"$output" 2>&1 || rc=$?
    [[ $rc == 0 ]]
}

# What the header $1 defines, in the words of abi_frozen.c, without the numbers.
defined_in()
{
    awk '
        { gsub(/\/\*.*\*\//, "") }
        /^#define[ \t]+ANGARA_[A-Z0-9_]+[ \t]+[^ \t]/ { print "CONSTANT(" $2 }
        /^struct [a-z_]+ {$/ { type = $2; print "STRUCT(" type; next }
        /^}/ { type = "" }
        type != "" && /;[ \t]*$/ && !/^[ \t]*}/ {
            sub(/(\[[^]]*\])?;.*/, ""); print "FIELD(" type " " $NF
        }' "$1" | sort
}

# The same of abi_frozen.c.
written_down()
{
    sed -nE 's/^((CONSTANT|STRUCT)\([A-Za-z0-9_]+|FIELD\([a-z0-9_]+, [a-z0-9_]+),.*/\1/p' "$frozen" |
        tr -d , | sort
}

# complete FOLDER: whether each name of the headers below FOLDER is written down, and no other
complete()
{
    local header
    for header in angara_hw.h uapi/misc/angara.h uapi/misc/angara_formats.h; do
        defined_in "$1/$header"
    done | sort >"$work/defined"
    rc=0
    diff "$work/defined" <(written_down) >"$output" || rc=$?
    [[ $rc == 0 ]]
}

# A copy of the headers with the sed program $2 applied to the file $1.
changed()
{
    rm -rf "$work/include"
    cp -r kmod/include "$work/include"
    sed -i -E "$2" "$work/include/$1"
    ! cmp -s "kmod/include/$1" "$work/include/$1" || echo "# nothing was changed in $1: $2"
}

ok 'for 64-bit callers' as_frozen kmod/include gcc
ok 'for 32-bit callers' as_frozen kmod/include gcc -m32
ok 'for 64-bit callers with 32-bit pointers' as_frozen kmod/include gcc -mx32
ok 'in C++' as_frozen kmod/include g++ -x c++
for target in aarch64-linux-gnu arm-linux-gnueabihf; do
    if command -v clang >/dev/null; then
        ok "for $target" as_frozen kmod/include clang "--target=$target"
    else
        skip "for $target" 'clang is not here'
    fi
done
ok 'every name of the headers is written down' complete kmod/include

# That a change is noticed.
changed uapi/misc/angara_formats.h 's/^(#define ANGARA_OP_GET[ \t]+)3/\14/'
ok 'another number of an operation is noticed' not as_frozen "$work/include" gcc
changed uapi/misc/angara_formats.h '/^struct angara_put \{/,/^\}/s/__le32 token/__le64 token/'
ok 'a wider field is noticed' not as_frozen "$work/include" gcc
changed uapi/misc/angara.h '/^struct angara_ioc_mr_reg \{/,/^\}/s/__u32 handle/unsigned long handle/'
ok 'a field that depends on the caller is noticed' not as_frozen "$work/include" gcc
changed uapi/misc/angara.h '/^struct angara_ioc_mr_reg \{/,/^\}/s/__u32 reserved;/void *reserved;/'
ok 'a pointer is noticed' not as_frozen "$work/include" gcc
changed angara_hw.h '/^struct angara_hw_pe \{/,/^\}/s/__le32 vector;/__le16 vector, more;/'
ok 'a divided field is noticed' not as_frozen "$work/include" gcc
changed uapi/misc/angara_formats.h 's/^#define ANGARA_OP_PAIR.*/&\n#define ANGARA_OP_NEW 17/'
ok 'a number that is not written down is noticed' not complete "$work/include"
changed angara_hw.h '/^struct angara_hw_resp \{/,/^\}/s/__le32 generation;/&\n\t__le64 more;/'
ok 'a field that is not written down is noticed' not complete "$work/include"
finish
