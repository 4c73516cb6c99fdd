#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Which messages out of GPU memory go by rendezvous from the first byte, and which are eager: by the
# transport's counters. On the stand-in runtime of CUDA.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."

export LD_LIBRARY_PATH=$B/tests/gpu/standin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
readonly work
num=0
rounds=100 # each with a message in either direction

# try WAY PLACE PLACE NAME=VALUE...: is WAY (get_zcopy, put_zcopy, am_zcopy) that of nearly all of the
# messages of 8 bytes between those places? (The first one may come before its sender knows the peer.)
try()
{
    local way=$1 from=$2 to=$3 word=ok exports=() counts
    shift 3
    for variable in "$@"; do
        exports+=(-x "$variable")
    done
    num=$((num + 1))
    if ! mpirun -np 2 --oversubscribe -x UCX_TLS=angara,self -x ANGARA_GPU=cuda \
        -x "UCX_ANGARA_STATS=$work/stats.%p" "${exports[@]}" \
        "$B/bench/osu_latency" -d cuda -c -m 8:8 -i "$rounds" -x 0 "$from" "$to" >"$work/out" 2>&1; then
        word="not ok"
        sed 's/^/# /' "$work/out"
    fi
    counts=$(cat -- "$work"/stats.* | awk '/^(get|put|am)_zcopy / { sum[$1] += $2 }
        END { for (name in sum) print name, sum[name] }')
    rm -f -- "$work"/stats.*
    awk -v way="$way" '{ all += $2 } $1 == way { taken = $2 } END { exit taken == 0 || taken < 0.9 * all }' \
        <<<"$counts" || word="not ok"
    echo "$word $num - $way for $from $to ${*:-by default} (${counts//$'\n'/, })"
}

# By a threshold of the transport's where it takes UCP's choice (gpu_rndv.c); by UCP's estimates, which know no
# receiver, elsewhere; not at all by the first generation of protocols there.
by=estimates
if grep -q ucp_request_send_start "$B/lib/libuct_angara.so"; then
    by=threshold
elif [[ ${UCX_PROTO_ENABLE:-y} == n ]]; then
    by=nothing
fi
readonly by

case $by in
threshold)
    try get_zcopy D D
    try get_zcopy D D UCX_ANGARA_GPU_RNDV_THRESH=8
    try am_zcopy D D STANDIN_GPUS=1
    try am_zcopy D H
    ;;
estimates)
    try get_zcopy D D
    try get_zcopy D H
    ;;
nothing)
    try am_zcopy D D
    try am_zcopy D H
    ;;
esac
[[ $by == nothing ]] || try put_zcopy D D UCX_RNDV_SCHEME=put_zcopy
try am_zcopy D D UCX_ANGARA_GPU_RNDV_THRESH=inf
try am_zcopy D D UCX_ANGARA_GPU_RNDV_THRESH=9
try am_zcopy D D UCX_RNDV_THRESH=1k
if [[ $by == threshold ]]; then
    rounds=1 # the first message of some memory
    try am_zcopy D D
fi
echo "1..$num"
