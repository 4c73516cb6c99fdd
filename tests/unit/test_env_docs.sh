#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# docs/environment.md is in step with the code: the generated tables, and a row for every other
# variable that something in the tree reads.
# Functions are called through `check`; backquotes are meant.
# shellcheck disable=SC2317,SC2016
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
# shellcheck source=tests/unit/tap.sh
source tests/unit/tap.sh

# Names that C code and scripts read from the environment.
read_names() {
    grep -rhoE 'getenv\("ANGARA_[A-Z0-9_]+"\)' --include='*.c' --include='*.h' userlib uct_transport tests |
        grep -oE 'ANGARA_[A-Z0-9_]+'
    grep -rhoE '\$\{?ANGARA_[A-Z0-9_]+|environ[^ ]*\[?.?ANGARA_[A-Z0-9_]+' scripts tests |
        grep -oE 'ANGARA_[A-Z0-9_]+'
}

every_name_has_a_row() {
    local name missing=0

    while read -r name; do
        if ! grep -q "^| \`$name\` |" docs/environment.md; then
            echo "$name is read by the code but has no row in docs/environment.md"
            missing=1
        fi
    done < <(read_names | sort -u)
    return "$missing"
}

# A file out of step is noticed: else the check above proves nothing.
notices_changes() {
    local work status=0

    work=$(mktemp)
    sed 's/^| `ANGARA_CHAOS` | `0` |/| `ANGARA_CHAOS` | `1` |/' docs/environment.md >"$work"
    if scripts/gen_env_docs --check "$work" >/dev/null 2>&1; then
        status=1
    fi
    rm -f "$work"
    return "$status"
}

check 'the generated tables are those of the code' scripts/gen_env_docs --check
check 'a wrong table is noticed' notices_changes
check 'every variable that is read has a row' every_name_has_a_row
if [[ -e ${B:-build}/lib/libuct_angara.so ]] && command -v ucx_info >/dev/null; then
    check 'the table of the transport is not empty' grep -q '^| `UCX_ANGARA_' docs/environment.md
else
    skip 'the table of the transport is not empty' 'the transport or ucx_info is missing'
fi
tap_end
