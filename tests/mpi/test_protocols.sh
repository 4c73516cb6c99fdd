#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Which protocol carries a message of which size, by the transport's counters: the limits are where
# docs/protocols.md says, and follow the variables. The programs check the data on both sides of
# each limit. UCX adds 8 bytes to a plain MPI message. UCP's second generation of protocols goes by
# estimates instead: it isn't asked here.

set -euo pipefail

here=$(dirname -- "$(realpath -- "$0")")
# shellcheck source=tests/mpi/common.sh
source "$here/common.sh"

shown=("$work/out")

# job NAME=VALUE... PROGRAM...: counters are then in $work/stats.*
job()
{
    local options=()
    rc=0
    rm -f "$work"/stats.*
    while [[ $1 == *=* ]]; do
        options+=(-x "$1")
        shift
    done
    mpirun --oversubscribe --bind-to none -np 2 -x UCX_TLS=angara,self -x UCX_PROTO_ENABLE=n \
        -x UCX_ANGARA_STATS="$work/stats.%p" "${options[@]}" "$@" >"$work/out" 2>&1 </dev/null || rc=$?
}

# below NAME COUNTERS LIMIT [NAME=VALUE]: the sum of the counters is higher with messages of
# LIMIT + 1 bytes than with messages of LIMIT bytes, by more than the job's own messages vary.
below()
{
    local name="$1: up to $3 bytes${4:+ ($4)}" limit=$3 at above counters
    read -r -a counters <<<"$2"
    shift 3
    job "$@" "$B/tests/mpi/pt2pt_modes" -i 1 -s "$limit"
    at=$(stats_sum "${counters[@]}")
    ((rc != 0)) || job "$@" "$B/tests/mpi/pt2pt_modes" -i 1 -s $((limit + 1))
    above=$(stats_sum "${counters[@]}")
    ok "$name" test "$rc" -eq 0 -a "$above" -ge $((at + 10))
}

below 'one slot' sar_tx 112
below 'one slot' sar_tx 48 UCX_ANGARA_SLOT_SIZE=64
below 'one slot' sar_tx 240 UCX_ANGARA_SLOT_SIZE=256
below 'one run' 'eager_tx sar_tx' 8432
below 'one run' 'eager_tx sar_tx' 8432 UCX_RNDV_THRESH=inf
below 'one run' 'eager_tx sar_tx' 4080 UCX_ANGARA_SEG_SIZE=4096
# A quarter of the ring is the limit too.
below 'one run' 'eager_tx sar_tx' 496 UCX_ANGARA_RING_SLOTS=16
below 'no rendezvous' get_zcopy 8439
below 'no rendezvous' put_zcopy 8439 UCX_RNDV_SCHEME=put_zcopy

# Transfers that are outstanding together share their markers.
burst()
{
    local counter=$1 transfers
    shift
    job "$@" "$B/tests/mpi/pt2pt_flood" -i 2
    transfers=$(stats_sum "$counter")
    ok "bursts of $counter are batched" \
        test "$rc" -eq 0 -a "$transfers" -gt $((2 * $(stats_sum markers)))
}

burst get_zcopy UCX_RNDV_SCHEME=get_zcopy
burst put_zcopy UCX_RNDV_SCHEME=put_zcopy
finish
