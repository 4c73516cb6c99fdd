#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# GPU memory that fails. Messages that run past what they were given, and drivers that answer no more: the
# job ends, and a message says why; it neither hangs nor delivers something else. That a peer died is not
# such a message.

set -euo pipefail

readonly program=$B/tests/gpu/mpi_gpu_faults
num=0

# With ANGARA_TEST_QUICK, one end of those that differ little.
broken_ends=(SD RD SH RH) wild_ends=(WD DW WH HW) ends=(DD HD DH)
[[ -z ${ANGARA_TEST_QUICK:-} ]] || broken_ends=(SD RD) wild_ends=(WD HW) ends=(HD)
readonly broken_ends wild_ends ends

# A machine has one kind of GPUs: a UCX with a part for the other one finds none.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/cuda" "$work/rocm"
ln -s "$(realpath "$B/tests/gpu/standin/libcuda.so.1")" "$work/cuda"
ln -s "$(realpath "$B/tests/gpu/standin/libhsa-runtime64.so.1")" "$work/rocm"

# job SECONDS RUNTIME ARGUMENT...: runs two ranks with that runtime; sets output and status.
job()
{
    status=0
    output=$(LD_LIBRARY_PATH=$work/$2${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} timeout "$1" \
        mpirun -np 2 --oversubscribe -x UCX_TLS=angara,self -x ANGARA_GPU="$2" \
        -x ANGARA_TEST_GPU="$2" -x ANGARA_TEST_MUST=1 "${@:3}" 2>&1 | tr -d '\0') || status=$?
}

# report IS_BAD NAME: of that job, whose output is shown if it is bad.
report()
{
    local word=ok
    num=$((num + 1))
    if [[ $1 == 1 ]]; then
        word="not ok"
        printf '# %s\n' "${output//$'\n'/$'\n# '}"
    fi
    echo "$word $num - $2 (exit status $status)"
}

# refused NAME MESSAGE ARGUMENT...: a job that ends with that message.
refused()
{
    local bad=0
    job 30 cuda "${@:3}"
    [[ $status != 0 && $status != 124 && $output != *"nobody minds"* && $output =~ $2 &&
        $output != *"Segmentation fault"* && $output != *"end_address"* ]] || bad=1
    report "$bad" "$1"
}

# left_out WORD MESSAGE WHERE SIZE: an ANGARA_GPU that leaves out the GPU's memory.
left_out()
{
    refused "ANGARA_GPU=$1, $3, $4 bytes" "$2" -x ANGARA_GPU="$1" "$program" plain "$3" "$4"
}

# Ranks whose ANGARA_GPU differ: one that leaves GPUs out has a peer with memory of one, and none itself.
disagree()
{
    local bad=0
    # shellcheck disable=SC2016 # the rank's own
    job 30 cuda bash -c 'export ANGARA_GPU=${@:1+OMPI_COMM_WORLD_RANK:1}; exec "${@:3}"' - "$1" "$2" \
        "$program" plain "$3" "$4"
    [[ $status == 0 && $output == *"nobody minds"* && ! $output =~ error:|ERROR|aborting ]] || bad=1
    report "$bad" "ANGARA_GPU=$1 and $2, $3, $4 bytes"
}

readonly newline=$'\n'
# A place of each end (H or D), and a size: short, and by rendezvous.
try()
{
    refused "$1, $2 bytes" "angara[^$newline]*(GPU[^$newline]*failed|aren't one allocation of GPU|out of the bounds)" \
        "$program" beyond "$1" "$2"
}

# The driver of an end (S: the sender's, R: the receiver's; D or H: the other end) answers these calls
# with an error: the job goes on with the right data, or ends with a message.
broken()
{
    local bad=0
    job 30 cuda "${@:4}" "$program" broken "$1" "$2" "$3"
    [[ $status != 124 && $output != *"wrong data"* && $output != *"Segmentation fault"* &&
        ($status == 0 || $output =~ angara.*error:|MPI_ERRORS_ARE_FATAL) ]] || bad=1
    report "$bad" "$*: fails"
}

# The runtime has ended before MPI_Finalize: no word.
ended()
{
    local bad=0
    job 30 "$1" "$program" ended - "$2"
    [[ $status == 0 && ! $output =~ error:|ERROR|WARN|"wrong data" ]] || bad=1
    report "$bad" "MPI_Finalize after the end of $1, $2 bytes"
}

# Good messages: no word.
good()
{
    local bad=0
    job 30 cuda "$@"
    [[ $status == 0 && ! $output =~ error:|ERROR|WARN|aborting|"wrong data" ]] || bad=1
    report "$bad" "${*/"$program" }"
}

good "$program" lazy - 8
for size in 8 1000 100000 2000000; do
    good "$program" room - "$size"
done
for size in 8 100000; do
    good "$program" pack plain "$size"
    good "$program" pack managed "$size"
    good -x ANGARA_GPU=none "$program" pack managed "$size"
done
for size in 8 900000; do
    disagree none cuda HD "$size"
    disagree cuda none DH "$size"
    disagree rocm cuda HD "$size"
done
for size in 8 100000; do
    for runtime in cuda rocm; do
        ended "$runtime" "$size"
    done
    for places in "${broken_ends[@]}"; do
        broken "$places" "$size" cuPointerGetAttributes
        broken "$places" "$size" cuPointerGetAttributes,cuCtxPushCurrent_v2
        broken "$places" "$size" cuMemcpyAsync,cuMemcpyDtoHAsync_v2,cuMemcpyHtoDAsync_v2
    done
done
for size in 8 100000; do
    refused "in place, gaps, $size bytes" "of a type with gaps, in a GPU's memory" "$program" replace gaps "$size"
    refused "in place, freed, $size bytes" "there is no memory at .*it was freed" "$program" replace freed "$size"
    refused "in place, ANGARA_GPU=none, $size bytes" "which ANGARA_GPU leaves out" \
        -x ANGARA_GPU=none "$program" replace plain "$size"
done
broken RD 100000 cuPointerGetAttributes -x UCX_RNDV_SCHEME=put_zcopy
broken SD 100000 cuEventQuery,cuStreamQuery -x UCX_RNDV_SCHEME=put_zcopy
for places in "${wild_ends[@]}"; do
    for size in 8 900000; do
        refused "no memory, $places, $size bytes" "there is no memory at .*the pointer is wrong" \
            "$program" wild "$places" "$size"
    done
done
for places in "${ends[@]}"; do
    for size in 8 9000 900000; do
        refused "freed, $places, $size bytes" "there is no memory at .*it was freed, or" \
            "$program" freed "$places" "$size"
        left_out none "memory of a GPU, which ANGARA_GPU leaves out" "$places" "$size"
    done
    left_out rocm "memory of a GPU, which ANGARA_GPU leaves out" "$places" 8
    left_out cud "ends because of ANGARA_GPU" "$places" 8
    try "$places" 4000
    try "$places" 900000
done
echo "1..$num"
