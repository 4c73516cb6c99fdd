#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What scripts/check_debian13 counts and runs again, with a root that only pretends: nothing is installed.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/common/programs.sh
. tests/common/programs.sh

tree=$out/tree
mkdir -p "$tree/tests"
cp -r scripts "$tree"
cp -r tests/list.d "$tree/tests"
cat >"$tree/scripts/lib/root.sh" <<'END_OF_ROOT'
# shellcheck shell=bash
root_mirror=
root_possible() { :; }
root_make() { mkdir -p "$1"; }
root_inside()
{
    case $2 in
    *'make flavors') return "${BUILD:-0}" ;;
    *'--layer unit') echo "7 passed, 0 failed, 1 skipped" ;;
    *'--layer uct') echo "5 passed, 2 failed, 0 skipped" && return 1 ;;
    *'--layer mpi') echo "killed" && return 1 ;;
    *'--layer gpu') echo "3 passed, 0 failed, 0 skipped" && return 1 ;;
    esac
}
END_OF_ROOT

check() { run 60 env "$@"; }
last_is() { [[ $(tail -n 1 "$out/stdout") == "$1" ]]; }

check "$tree/scripts/check_debian13" unit
ok 'a layer passes' all_of "rc_is"$'\t'0 "last_is"$'\t'"7 passed, 0 failed, 1 skipped"
copied() { diff -r "$tree/scripts" "$tree/build/debian13/root/angara/scripts"; }
ok 'the root has the tree, without git too' copied
rm "$tree/scripts/plot"
check "$tree/scripts/check_debian13" unit
ok 'and, later, the tree as it is then' copied
check "$tree/scripts/check_debian13" unit uct mpi
ok 'what has passed is not run again' has_line stdout '^unit: has passed before: 7 passed'
ok 'what ends without a count is a failure' all_of "rc_is"$'\t'1 "last_is"$'\t'"12 passed, 3 failed, 1 skipped"
check "$tree/scripts/check_debian13" gpu
ok 'so is what fails with a count of none' all_of "rc_is"$'\t'1 "last_is"$'\t'"3 passed, 1 failed, 0 skipped"
ucx=$out/ucx
mkdir -p "$ucx"/src/{ucs,ucm,uct/{api,base},ucp/api}
touch "$ucx"/{configure.ac,LICENSE} "$ucx"/src/{uct/base/uct_iface.h,uct/api/version.h.in,ucp/api/ucp_version.h.in}
check UCX_SOURCE="$ucx" "$tree/scripts/check_debian13" unit
ok 'with a tree of UCX all is run again' has_line stdout '^build: running$'
check UCX_SOURCE="$ucx" "$tree/scripts/check_debian13" unit
ok 'once' has_line stdout '^build: has passed before: '
echo '/* changed */' >"$ucx/src/uct/base/uct_iface.h"
check UCX_SOURCE="$ucx" "$tree/scripts/check_debian13" unit
ok 'and with a changed one' has_line stdout '^build: running$'
rm -r "$tree/build/debian13/root"
check BUILD=1 "$tree/scripts/check_debian13" unit
ok 'in another root all is run again' has_line stdout '^demo: running$'
ok 'a build that fails is a failure, and what was before does not count' all_of "rc_is"$'\t'1 \
    "last_is"$'\t'"0 passed, 1 failed, 0 skipped"
finish
