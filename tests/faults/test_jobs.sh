#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What must not be taken for a fault: ranks that stand still, ends in order again and again, fork
# and system() during the traffic, many ranks on few cores, odd places for temporary files.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/faults/tap.sh
. tests/faults/tap.sh

program=$faults/fault_mpi

# Right data, and not a word from the stack.
well() { all_of rc_is 0 -- only_messages . 0 0 -- has_line stdout '^right after'; }

mpi 30 2 -x UCX_ANGARA_STATS="$out/stats.%p" "$program" --seconds 0.1 --size 10000
ok 'the transport carries these jobs' all_of well -- \
    test -s "$(echo "$out"/stats.* | cut -d' ' -f1)"

# --- standing still ------------------------------------------------------------------------------

modes=(msg put acc)
thorough || modes=(msg)
for mode in "${modes[@]}"; do
    mpi 30 2 "$program" --mode "$mode" --size 3000 --seconds 1.5 --harm stop --stop-ms 1000 \
        --after 100000
    ok "$mode: a rank stands still for a second" well
done
mpi 30 2 -x ANGARA_PEER_CHECK=1 "$program" --mode msg --size 200000 --window 4 --seconds 1.2 \
    --harm stop --stop-ms 700 --after 100000
ok 'rendezvous, with dead peers looked for each millisecond' well
mpi 30 2 -x ANGARA_SOFT_CMA=n "$program" --mode msg --size 200000 --window 4 --seconds 1.2 \
    --harm stop --stop-ms 700 --after 100000
ok 'the same when the helper stands still, too' well

# --- ends in order -------------------------------------------------------------------------------

ends()
{
    local i
    for ((i = 1; i <= $2; i++)); do
        mpi 30 $((2 + i % 3)) "$program" --seconds 0 --mode "$1" --size $((8 + i * 700)) --window 4
        well || why "in job $i" || return 1
    done
}
jobs=6
thorough || jobs=3
ok "$jobs jobs end in order: messages" ends msg $jobs
ok "$jobs jobs end in order: one-sided" ends put $jobs
ok 'nothing is left' nothing_left

# --- children ------------------------------------------------------------------------------------

mpi 30 2 "$program" --fork --seconds 0.5
ok 'fork and system() during eager traffic' all_of well -- has_line stdout ' [1-9][0-9]* forks'
mpi 30 2 "$program" --fork --size 300000 --window 4 --seconds 0.5
ok 'fork and system() during rendezvous' all_of well -- has_line stdout ' [1-9][0-9]* forks'
mpi 30 2 "$program" --fork --mode put --size 30000 --window 4 --seconds 0.5
ok 'fork and system() during one-sided traffic' all_of well -- has_line stdout ' [1-9][0-9]* forks'
mpi 30 2 -x ANGARA_SOFT_CMA=n "$program" --fork --size 300000 --window 4 --seconds 0.5
ok 'fork and system() while the helper works' all_of well -- has_line stdout ' [1-9][0-9]* forks'

# --- many ranks ----------------------------------------------------------------------------------

# All of them to all: tests/bench/test_oversubscribed.sh.
mpi 100 32 "$program" --mode msg --size 5000 --window 4 --seconds 0
ok '32 ranks in a ring' well
ok 'nothing is left of them' nothing_left

# --- file systems --------------------------------------------------------------------------------

if can_unshare -m; then
    for kind in full missing; do
        run 30 tests/faults/with_shm "$kind" mpirun -np 2 -x UCX_TLS=angara,self "$program" \
            --size 100000 --window 4
        ok "/dev/shm is $kind: messages" well
        run 30 tests/faults/with_shm "$kind" mpirun -np 2 -x UCX_TLS=angara,self "$program" \
            --mode put --size 1000
        ok "/dev/shm is $kind: one-sided" well
    done
    run 30 tests/faults/with_shm full mpirun -np 2 --mca osc ucx -x UCX_TLS=angara,self "$program" \
        --mode put --size 1000000
    ok '/dev/shm is full: large windows, by osc/ucx' well
    run 30 tests/faults/with_shm empty bash -c '"$@" && ls -A /dev/shm' bash \
        mpirun -np 2 -x UCX_TLS=angara,self "$program"
    ok '/dev/shm is empty afterwards' all_of well -- lines_are stdout 1
else
    skip '/dev/shm is full or missing' 'unshare is not permitted'
fi

finish
