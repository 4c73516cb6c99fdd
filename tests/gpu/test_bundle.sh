#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Makes a bundle and runs it as a stranger would: in an empty environment, on the stand-in of CUDA. (With
# that of ROCm most of them are in tests/list.d, gpu.list and gpu_mpi.list.)

set -euo pipefail

work=$(mktemp -d)
readonly work
trap 'rm -rf -- "$work"' EXIT

cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
scripts/gpu_bundle "$work/bundle" >&2
size=$(du -sm -- "$work/bundle" | cut -f1)
((size <= 40)) || {
    echo "the bundle has $size MiB, 40 are allowed" >&2
    exit 1
}
cp -r -- "$B/tests/gpu/standin" "$work/runtimes"
cd -- "$work"

# bundle VARIABLES ARGUMENTS: as a stranger would.
bundle()
{
    env -i PATH=/usr/bin:/bin HOME="$work" TMPDIR="$work" ANGARA_TEST_QUICK=1 "$@"
}

# What the benchmark prints and how it ends; its figures are not looked at.
# bench STATUS ROWS FAILED MARKED: rows of its table, those that have failed, those of ranks on one GPU.
bench()
{
    local wanted=$1 rows=$2 failed=$3 marked=$4 status=0
    shift 4
    bundle ANGARA_GPU=cuda "$@" bundle/run --bench logs >bench 2>bench.err || status=$?
    if [[ $status != "$wanted" || $(grep -c '^| osu_' bench) != "$rows" ||
        $(grep -c '^| osu_.* | failed |$' bench) != "$failed" ||
        $(grep -cE '^\| osu_.*\| [0-9.]+x \| .*reached \|$' bench) != $((rows - failed)) ||
        $(grep -c '^| osu_.*, one GPU |' bench) != "$marked" ]]; then
        echo "the benchmark with $* ended with status $status:" >&2
        cat -- bench bench.err >&2
        exit 1
    fi
}

bench 0 10 0 0 LD_LIBRARY_PATH="$work/runtimes"
# Whatever wants GPU memory fails.
bench 1 10 7 3 LD_LIBRARY_PATH="$work/runtimes" STANDIN_GPUS=1 STANDIN_FAIL=cuMemAlloc_v2:1:2
[[ -e /dev/nvidiactl ]] || bench 1 0 0 0

# Without a GPU there is nothing to measure. Else both, in one command.
if [[ ! -e /dev/nvidiactl ]]; then
    bundle bundle/run bare >bare.out || cat bare.out
    grep -q SKIP bare.out
    [[ ! -e bare/bench.md ]]
fi
bundle LD_LIBRARY_PATH="$work/runtimes" ANGARA_TEST_MUST=1 ANGARA_TEST_STANDIN=cuda bundle/run all >out || status=$?
sed '/^- GPUs:/,$d' out
[[ -z ${status:-} ]] || {
    cat -- out >&2
    exit 1
}
grep -q '^- GPUs:' out
files=$(find all -type f | wc -l)
((files <= 8)) || {
    echo "$files files of logs and figures, 8 are allowed" >&2
    exit 1
}
