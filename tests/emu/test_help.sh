#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# docs/emulator.md shows what angara_emu --help says, and that names each command of the control socket.
# Reports TAP.

set -euo pipefail

cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=../common/tap.sh
source tests/common/tap.sh
emu=${B:-build}/tests/emu/angara_emu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shown=("$work/diff")

"$emu" --help >"$work/help"
sed -n '/^<!-- help begin -->$/,/^<!-- help end -->$/{/^<!--/d;s/^    //;p}' docs/emulator.md >"$work/doc"
diff "$work/help" "$work/doc" >"$work/diff" || true
ok 'docs/emulator.md shows angara_emu --help' [ -s "$work/doc" -a ! -s "$work/diff" ]

grep -oE '\{"[a-z]+", do_' tests/emu/control.c | grep -oE '[a-z]{3,}' | while IFS= read -r name; do
    grep -qE "^  (|.*, )$name( |\$)" "$work/help" || echo "$name"
done >"$work/diff"
ok 'it names all commands' [ ! -s "$work/diff" ]
finish
