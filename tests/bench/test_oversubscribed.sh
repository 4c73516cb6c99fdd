#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Many more ranks than cores, over the angara transport, data checked: 64 (24 with ANGARA_TEST_QUICK) of which every
# one is connected to every other, and most are not running at any time. UCX_TLS in the environment selects another
# transport.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/common/programs.sh
. tests/common/programs.sh

bench=${B:-build}/bench
export UCX_TLS=${UCX_TLS:-angara,self}
export ASAN_OPTIONS="${ASAN_OPTIONS:-}${ASAN_OPTIONS:+:}detect_leaks=0"

# many RANKS PROGRAM ROWS OPTIONS...
many()
{
    run 140 mpirun -np "$1" --oversubscribe --bind-to none -x UCX_TLS "$bench/$2" -c -u 0 "${@:4}"
    ok "$2: $1 ranks over $UCX_TLS" all_of "rc_is"$'\t'0 \
        "line_count"$'\t'stdout$'\t'" Pass$"$'\t'"$3"
}

all=64
thorough || all=24
many $all osu_alltoall 15 -m 1:16384 -i 1 -x 0
many 24 osu_allreduce 13 -m 4:16384 -i 3 -x 1
! thorough || many 24 osu_bcast 17 -m 1:65536 -i 3 -x 1
finish
