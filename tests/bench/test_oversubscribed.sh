#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# 64 ranks on whatever cores there are, over the angara transport, data checked: every rank is
# connected to every other, and most of them are not running at any time. UCX_TLS in the
# environment selects another transport.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/bench/tap.sh
. tests/bench/tap.sh

bench=${B:-build}/bench
ranks=64
export UCX_TLS=${UCX_TLS:-angara,self}
export ASAN_OPTIONS="${ASAN_OPTIONS:-}${ASAN_OPTIONS:+:}detect_leaks=0"

# many PROGRAM ROWS OPTIONS...
many()
{
    run 140 mpirun -np "$ranks" --oversubscribe --bind-to none -x UCX_TLS "$bench/$1" -c -u 0 \
        "${@:3}"
    ok "$1: $ranks ranks over $UCX_TLS" all_of "rc_is"$'\t'0 \
        "line_count"$'\t'stdout$'\t'" Pass$"$'\t'"$2"
}

many osu_barrier 1 -i 20 -x 2
many osu_alltoall 15 -m 1:16384 -i 3 -x 1
many osu_allreduce 13 -m 4:16384 -i 3 -x 1
many osu_bcast 17 -m 1:65536 -i 3 -x 1
finish
