#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In VM 0 of two with NICs: MPI jobs between them while something breaks. The link goes away for a
# while, or for good; a rank is killed; at last VM 1 loses its power. Reports TAP.

set -euo pipefail

# shellcheck source=../common/tap.sh
source tests/common/tap.sh
output=$(mktemp)
shown=("$output")
job= # mpirun's process
trap 'job_kill; rm -f "$output"' EXIT

readonly patience=60 # seconds, by ANGARA_TEST_SLOW more, for a job with a dead peer to end: see DEAD_PEER
readonly death='\] angara error: .*pid [0-9]+ \(PE [0-9]+ of node 1\) died'
export OMPI_MCA_odls_base_sigkill_timeout=0

# job_start MPIRUN-ARGUMENT...
job_start()
{
    mpirun --host vm0,vm1 -np 2 -x UCX_TLS=angara,self -x ANGARA_DEVICE=nic "$@" >"$output" 2>&1 \
        </dev/null &
    job=$!
}

# With what it has started: the connection to a VM that has gone.
job_kill()
{
    [[ -n $job ]] || return 0
    pkill -KILL -P "$job" || true
    kill -KILL "$job" 2>/dev/null || true
    wait "$job" 2>/dev/null || true
}

alive() { kill -0 "$job" 2>/dev/null; }

# Ends when the job has, or after SECONDS; $rc is 124 then.
job_wait()
{
    rc=124
    wait_until "$1" not alive || return 0
    rc=0
    wait "$job" || rc=$?
    job=
}

# Puts of node 0's PEs, as the NIC counts them.
puts_done()
{
    local pe sum=0 counters
    while read -r pe _; do
        counters=$(vm_host emu counters 0 "$pe" 2>/dev/null) || continue
        [[ ! $counters =~ (^| )puts=([0-9]+) ]] || sum=$((sum + BASH_REMATCH[2]))
    done < <(grep '^[0-9]' /sys/kernel/debug/angara/angara0/pes)
    echo "$sum"
}

under_way_or_gone() { (($(puts_done) >= $1)) || not alive; }

# Until the job's traffic is under way: COUNT puts.
traffic_wait() { wait_until "$patience" under_way_or_gone "$1" && alive; }

has() { grep -Eq -- "$1" "$output"; }
has_not() { ! has "$1"; }
ended_with_error() { [[ $rc != 0 && $rc != 124 ]]; }
rows_passed() { [[ $(grep -Ec '^[0-9]+ .* Pass$' "$output") == "$1" ]]; }

# --- the link ------------------------------------------------------------------------------------

vm_host emu timeout 100000 # operations wait as long as this machine may take below
job_start "$B/bench/osu_bw" -c -m 1:65536 -i 60 -x 2
ok 'osu_bw is at work' traffic_wait 500
for round in 1 2 3; do
    vm_host emu link 1 down
    before=$(puts_done)
    sleep 0.3
    [[ $round != 3 ]] || during=$(($(puts_done) - before))
    vm_host emu link 1 up
    sleep 0.2
done
# What was on its way when the link went may be counted still.
ok 'while the link is down nothing moves' [ "$during" -lt 100 ]
job_wait 200
ok 'it ends well although the link was down at times' [ "$rc" == 0 ]
ok 'with right data at all sizes' rows_passed 17
ok 'and no complaint' has_not '\] angara error: |UCX +ERROR'

vm_host emu timeout 300
job_start "$B/bench/osu_bw" -c -m 1:65536 -i 100000 -x 2
ok 'another one is at work' traffic_wait 500
vm_host emu link 1 down
job_wait "$patience"
ok 'when the link stays down it ends' ended_with_error
ok 'and says why' has '\] angara error: .*of node [01]\).*(unreachable|can.t be reached)'
vm_host emu link 1 up

# --- a rank --------------------------------------------------------------------------------------

# The death is kept from mpirun for longer than the transport may take.
# killed NAME OPTION...
killed()
{
    local name=$1
    shift
    job_start tests/faults/linger "$(slow $((2 * patience)))" "$B/tests/faults/fault_mpi" --seconds 1000 \
        --harm kill "$@"
    job_wait $((patience + 20))
    ok "$name: the job ends when a rank is killed" ended_with_error
    ok "$name: it says who died" has "$death"
    ok "$name: no wrong data" has_not 'wrong data|sum of'
}

killed 'rendezvous' --after 50000 --mode msg --size 500000 --window 4
killed 'eager messages' --after 20000 --mode msg --size 8 --window 64
killed 'one-sided' --after 30000 --mode get --size 50000 --window 8 --created

# --- a machine -----------------------------------------------------------------------------------

job_start "$B/tests/faults/fault_mpi" --seconds 1000 --mode msg --size 100000 --window 4
ok 'messages are exchanged' traffic_wait 500
vm_host kill 1
# mpirun would wait for its daemon: what counts is the rank.
ok 'when a machine loses its power the other rank says who died' wait_until "$patience" has "$death"
ok 'and ends' wait_until "$patience" not pgrep -x fault_mpi
ok 'no wrong data' has_not 'wrong data|sum of'
finish
