#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The OSU-compatible programs with GPU memory (-d), on the stand-in runtimes: validated runs over
# angara, and what they refuse. And gpu_floor, which they are compared with.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/common/programs.sh
. tests/common/programs.sh

: "${B:=build}"
standin=$B/tests/gpu/standin

# mpi GPU RANKS PROGRAM OPTIONS...: over angara, with the stand-in for that kind of GPU.
mpi()
{
    local gpu=$1 ranks=$2 program=$3
    shift 3
    LD_LIBRARY_PATH=$standin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
        run 60 mpirun -np "$ranks" --oversubscribe -x UCX_TLS=angara,self -x ANGARA_GPU="$gpu" \
        "$B/bench/$program" -i 2 -x 1 "$@"
}

# passes ROWS PLACES PROGRAM...: every size was right, and the header names the places.
passes()
{
    local rows=$1 places=$2
    shift 2
    mpi "$@"
    ok "${*:3}" all_of "rc_is"$'\t'0 "line_count"$'\t'stdout$'\t'" Pass$"$'\t'"$rows" \
        "line_count"$'\t'stdout$'\t'"^# Send Buffer on $places$"$'\t'1
}

host='HOST \(H\)'
device='DEVICE \(D\)'
managed='MANAGED \(M\)'
between=' and Receive Buffer on '

# 0 bytes, short messages, fragments, rendezvous.
passes 18 "$device$between$device" cuda 2 osu_latency -d cuda -c -m 0:100000
passes 1 "$host$between$device" cuda 2 osu_latency -d cuda -c -m 20000:20000 H D
passes 1 "$device$between$host" cuda 2 osu_latency -c -m 100000:100000 D H --accelerator cuda
passes 2 "$host$between$device" cuda 2 osu_bw -d cuda -c -m 8000:16000 -W 8 H
passes 1 "$device$between$host" cuda 2 osu_bw -d cuda -c -m 20000:20000 -W 8 D H
passes 2 "$device$between$device" cuda 2 osu_bibw -d cuda -c -m 8000:16000 -W 8
passes 2 "$device$between$host" cuda 3 osu_mbw_mr -d cuda -c -m 8000:16000 -W 8 -p 1 D H
passes 1 "$device$between$host" cuda 4 osu_multi_lat -d cuda -c -m 20000:20000 D H
passes 2 "$host$between$device" cuda 3 osu_bcast -d cuda -c -m 8000:16000 H D
passes 1 "$managed$between$managed" cuda 2 osu_latency -d managed -c -m 20000:20000
passes 2 "$device$between$device" cuda 2 osu_bw -d pool -c -m 600000:1200000 -W 4 -M 64000000
passes 1 "$host$between$device" cuda 2 osu_latency -d mapped -c -m 20000:20000 P D
passes 1 "$host$between$host" cuda 2 osu_latency -d cuda -c -m 20000:20000 P H
passes 2 "$device$between$device" rocm 2 osu_latency -d rocm -c -m 4000:8000

# Validation reads the GPU's memory, and the memory is the runtime's.
ANGARA_BENCH_CORRUPT=1 mpi cuda 2 osu_latency -d cuda -c -m 8:8
ok "wrong data fail" all_of "rc_is"$'\t'1 "line_count"$'\t'stdout$'\t'"^8 .*Fail$"$'\t'1
STANDIN_FAIL=cuMemAlloc_v2:1:2 mpi cuda 2 osu_bw -d cuda -m 8:8 D H
ok "no GPU memory" all_of "rc_not"$'\t'0 \
    "line_count"$'\t'stderr$'\t'"^osu_bw: rank 0: no GPU memory for a buffer of 64 bytes$"$'\t'1
STANDIN_FAIL=cuMemAllocManaged:1:801 mpi cuda 2 osu_bw -d managed -m 8:8 H D
ok "no managed memory" all_of "rc_not"$'\t'0 \
    "line_count"$'\t'stderr$'\t'"^osu_bw: rank 1: no managed memory for a buffer"$'\t'1

# floor OPTIONS...: gpu_floor, on two GPUs.
floor() { LD_LIBRARY_PATH=$standin run 60 "$B/tests/gpu/gpu_floor" "$@"; }

row='^[0-9]+ +[0-9]+[.][0-9][0-9]$'
floor -s 8,4096 -r 1
ok "gpu_floor: all tables" all_of "rc_is"$'\t'0 "line_count"$'\t'stdout$'\t'"$row"$'\t'24 \
    "line_count"$'\t'stdout$'\t'"^# CUDA copies from "$'\t'12
floor -s 1000 -r 2 -b P D1
ok "gpu_floor: one table" all_of "rc_is"$'\t'0 "line_count"$'\t'stdout$'\t'"$row"$'\t'1 \
    "line_count"$'\t'stdout$'\t'"^# CUDA copies from pageable host memory to GPU 1$"$'\t'1 \
    "line_count"$'\t'stdout$'\t'"^# Size      Bandwidth \(MB/s\)$"$'\t'1
floor -l
ok "gpu_floor: GPUs" line_count stdout '^[01] 0000:[0-9a-f:.]+ Stand-in GPU$' 2
STANDIN_FAIL=cuMemcpyAsync:3:700 floor -s 8 D0 D0
ok "gpu_floor: a copy fails" all_of "rc_is"$'\t'1 "line_count"$'\t'stderr$'\t'"cuda.memcpy_async"$'\t'1
STANDIN_PEER=0 floor -s 8 D0 D1
ok "gpu_floor: no way between two GPUs" all_of "rc_is"$'\t'1 \
    "line_count"$'\t'stderr$'\t'"^gpu_floor: these GPUs don't reach each other's memory$"$'\t'1
floor D0 D2
ok "gpu_floor: no such GPU" all_of "rc_is"$'\t'1 "line_count"$'\t'stderr$'\t'"no such GPU: D2$"$'\t'1

# refused MESSAGE PROGRAM OPTIONS...: status 1 and this message, where there is no runtime. Without mpirun,
# which is quicker and takes no argument for its own.
refused()
{
    local message=$1 program=$2
    shift 2
    run_alone 60 "$B/bench/$program" "$@"
    ok "error: $program $*" all_of "rc_is"$'\t'1 \
        "line_count"$'\t'stderr$'\t'"^$program: $message"$'\t'1 "line_count"$'\t'stdout$'\t'"^#"$'\t'0
}

refused "wrong value 'opencl' of option -d" osu_bw -d opencl
refused "unexpected argument 'D'" osu_bw -d cuda D H D
refused "unexpected argument 'M'" osu_bw -d cuda D M
refused "argument 'H' needs option -d" osu_latency H
refused "unknown option '-d'" osu_allreduce -d cuda
if [[ -e /dev/nvidiactl || -e /dev/kfd ]]; then
    skip "no runtime" "this machine has a GPU"
else
    standin=/nonexistent
    mpi none 2 osu_bw -d managed -m 8:8 H D
    ok "no CUDA" all_of "rc_is"$'\t'1 "line_count"$'\t'stdout$'\t'"^#"$'\t'0 \
        "line_count"$'\t'stderr$'\t'"^osu_bw: there is no GPU of cuda: libcuda.so.1 isn't here"$'\t'1
    mpi none 2 osu_latency -d rocm -m 8:8
    ok "no ROCm" all_of "rc_is"$'\t'1 "line_count"$'\t'stdout$'\t'"^#"$'\t'0 \
        "line_count"$'\t'stderr$'\t'"^osu_latency: there is no GPU of rocm: "$'\t'1
    mpi none 2 osu_latency -d cuda -c -m 8:8 H H
    ok "two host buffers need no runtime" all_of "rc_is"$'\t'0 \
        "line_count"$'\t'stdout$'\t'" Pass$"$'\t'1
fi
finish
