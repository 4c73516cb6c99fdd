#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Which protocol carries a message of which size, by the transport's counters: the limits are where
# docs/protocols.md says, and follow the variables. The programs check the data on both sides of
# each limit. UCX adds 8 bytes to a plain MPI message. UCP's second generation of protocols goes by
# estimates instead: of it the ranges are looked at that it tells.

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

# got COUNTER SIZE: gets of that size from an allocated window are counted there.
got()
{
    OMPI_MCA_osc=ucx job "$B/bench/osu_get_latency" -w allocate -i 100 -x 0 -m "$2:$2"
    ok "gets of $2 bytes go by $1" test "$rc" -eq 0 -a "$(stats_sum "$1")" -ge 100
}

# Later ones don't ask what a registration costs.
if [[ $(ucx_info -v) =~ [Vv]ersion\ 1\.1[345]\. ]]; then
    got get_bcopy 4096
else
    skip 'gets of 4096 bytes go by get_bcopy' 'this UCX chooses otherwise'
fi
got get_zcopy 65536

# Reads tables of UCX_PROTO_INFO, and prints what isn't sensible in those of messages from host memory over the
# transport: short ones begin, rendezvous ends and begins between a run and 256 KiB, and all is eager between.
ranges_judge()
{
    awk -F '|' '
        function bytes(text) { return text * (text ~ /K$/ ? 1024 : text ~ /M$/ ? 1048576 : 1) }
        / by ucp_/ { is_message = /[|] tagged message by .* from host memory/ && / (intra|inter)-node / }
        is_message && $(NF - 1) ~ /angara/ && match($0, /[0-9]+[KM]?[.][.]([0-9]+[KM]?|inf)/) {
            split(substr($0, RSTART, RLENGTH), ends, "[.][.]")
            first = bytes(ends[1])
            if (ends[2] == "inf") {
                tables++
                is_right = /rendezvous zero-copy/ && first > 8432 && first <= 262144
            } else if (first == 0) {
                is_right = /eager short/ && bytes(ends[2]) >= 112
            } else {
                is_right = / eager /
            }
            if (!is_right) print
        }
        END { if (!tables) print "no table of the transport" }' "$@"
}

if [[ $(env -u UCX_PROTO_ENABLE ucx_info -caf) == *$'\n'UCX_PROTO_ENABLE=y* ]]; then
    mpirun --oversubscribe --bind-to none -np 2 -x UCX_TLS=angara,self -x UCX_PROTO_ENABLE=y -x UCX_PROTO_INFO=y \
        -x UCX_LOG_FILE="$work/proto.%p" "$B/tests/mpi/pt2pt_modes" -i 1 -s 8 >"$work/out" 2>&1 </dev/null || true
    cat "$work"/proto.* >>"$work/out"
    ok "the second generation's ranges are sensible" test -z "$(ranges_judge "$work/out")"
else
    skip "the second generation's ranges are sensible" "this UCX prefers the first"
fi
finish
