#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A rank of an MPI job is killed in the middle of traffic of each kind. The others notice it by
# themselves within a bounded time, say which process it was, and the job ends; nothing is left.
# FAULT_KILLS sets how often each kind is tried (3, with ANGARA_TEST_QUICK 1), FAULT_SEED the moments.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/faults/tap.sh
. tests/faults/tap.sh

program=$faults/fault_mpi
thorough || FAULT_KILLS=${FAULT_KILLS:-1}
kills=${FAULT_KILLS:-3}
first=500 # microseconds: at the begin, when the ranks connect
RANDOM=${FAULT_SEED:-$((SECONDS + $$))}
echo "# FAULT_SEED=${FAULT_SEED:-$((SECONDS + $$))}"

# How long a job may go on after the death, on a machine that does other work too. It is kept from
# mpirun for longer than that, so a job that ends in time has noticed by itself.
bound=$(slow 25)
hidden=$(slow 40)
# How long mpirun waits between SIGTERM and SIGKILL.
export OMPI_MCA_odls_base_sigkill_timeout=0
death='pid [0-9]+ \(PE [0-9]+ of node [0-9]+\) died'

ended_in_time()
{
    local spent=$((SECONDS - started))
    echo "# $spent s"
    [[ $spent -le $bound ]] || why "the job took $spent s"
}

# died RANKS: each survivor that says something says who died, and at least one does.
died() { only_messages "$death" 1 $(($1 - 1)); }

# killed NAME RANKS [mpirun's options --] PROGRAM-OPTIONS...
killed()
{
    local name=$1 ranks=$2 options=() i after
    shift 2
    while [[ $1 != --mode ]]; do
        options+=("$1")
        shift
    done
    for ((i = 0; i < kills; i++)); do
        after=$((RANDOM * (i + 1) % 60000))
        [[ $i != 0 ]] || after=$((RANDOM % first))
        started=$SECONDS
        mpi 60 "$ranks" "${options[@]}" tests/faults/linger "$hidden" "$program" --seconds 10 \
            --harm kill --after "$after" "$@"
        ok "$name, killed after $after us" all_of ended_in_time -- rc_job_error -- \
            died "$ranks" -- no_line stderr 'wrong data|sum of' -- nothing_left
    done
}

killed 'eager messages' 2 --mode msg --size 8 --window 64
((kills > 1)) || first=60000 # tried once: at any time
killed 'segmented messages' 2 --mode msg --size 10000 --window 32
killed 'rendezvous by get' 2 -x UCX_RNDV_SCHEME=get_zcopy --mode msg --size 500000 --window 4
killed 'rendezvous by put' 2 -x UCX_RNDV_SCHEME=put_zcopy --mode msg --size 500000 --window 4
killed 'one-sided put' 2 --mode put --size 50000 --window 8
killed 'one-sided get from private memory' 2 --mode get --size 50000 --window 8 --created
killed 'atomics on private memory' 2 --mode acc --created
killed 'without process_vm' 2 -x ANGARA_SOFT_CMA=n --mode msg --size 500000 --window 4
killed 'without loopback' 2 -x ANGARA_SOFT_LOOPBACK=n --mode get --size 50000 --window 8
kills=1 first=500

# GPU memory: the dead one's was mapped, or it had mapped ours.
on_gpu=(2 -x "LD_LIBRARY_PATH=$B/tests/gpu/standin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
for gpu in cuda rocm; do
    export ANGARA_GPU=$gpu
    killed "eager messages, $gpu" "${on_gpu[@]}" --mode msg --gpu "$gpu" --size 1000 --window 8
    thorough || [[ $gpu == cuda ]] || continue
    killed "rendezvous by get, $gpu" "${on_gpu[@]}" -x UCX_RNDV_SCHEME=get_zcopy --mode msg --gpu "$gpu" \
        --size 500000 --window 4
    killed "rendezvous by put, $gpu" "${on_gpu[@]}" -x UCX_RNDV_SCHEME=put_zcopy --mode msg --gpu "$gpu" \
        --size 500000 --window 4
done
unset ANGARA_GPU

killed 'four ranks' 4 --mode alltoall --size 2000
killed 'tiny rings' 2 -x UCX_ANGARA_RING_SLOTS=16 --mode msg --size 100 --window 64
killed 'chaos' 2 -x ANGARA_CHAOS=11 --mode msg --size 300 --window 8

if can_unshare -m; then
    # shellcheck disable=SC2016 # expanded by the inner shell
    run 60 tests/faults/with_shm empty bash -c '"$@"; rc=$?; ls -A /dev/shm; exit $rc' bash \
        mpirun -np 2 -x UCX_TLS=angara,self tests/faults/linger "$hidden" "$program" --seconds 10 \
        --harm kill --after 5000
    ok '/dev/shm is empty after a kill' all_of rc_job_error -- died 2 -- lines_are stdout 0
else
    skip '/dev/shm is empty after a kill' 'unshare is not permitted'
fi

# --- the settings --------------------------------------------------------------------------------

started=$SECONDS
mpi 60 2 -x UCX_ANGARA_DEAD_PEER=error tests/faults/linger "$(slow 2)" "$program" --seconds 10 --harm kill \
    --after 20000
ok 'UCX_ANGARA_DEAD_PEER=error says it and goes on' all_of ended_in_time -- rc_is 137 -- \
    only_messages "$death" 1 1 -- nothing_left
started=$SECONDS
mpi 60 2 -x UCX_ANGARA_DEAD_PEER=ignore tests/faults/linger "$(slow 2)" "$program" --seconds 10 --harm kill \
    --after 20000
ok 'UCX_ANGARA_DEAD_PEER=ignore is quiet' all_of ended_in_time -- rc_is 137 -- \
    only_messages . 0 0 -- nothing_left

# --- other ends, with mpirun looking on -----------------------------------------------------------

for harm in kill exit abort segv; do
    started=$SECONDS
    mpi 60 3 "$program" --seconds 10 --harm "$harm" --after 20000
    ok "a rank ends by $harm: the job ends" all_of ended_in_time -- rc_job_error -- \
        only_messages "$death|has left while it was still needed" 0 2 -- \
        no_line stderr 'wrong data' -- nothing_left
done

# A receiver has no endpoint to the sender and goes on when that is dead: mpirun ends the job.
started=$SECONDS
mpi 60 2 "$program" --mode oneway --size 64 --harm kill --after 50000
ok 'a receiver that waits for a killed sender: the job ends' all_of ended_in_time -- rc_job_error -- \
    no_line stderr 'wrong data' -- nothing_left

finish
