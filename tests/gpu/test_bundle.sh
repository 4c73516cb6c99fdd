#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Makes a bundle and runs it as a stranger would: in an empty environment, on the stand-in runtimes.

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
env -i PATH=/usr/bin:/bin HOME="$work" TMPDIR="$work" LD_LIBRARY_PATH="$work/runtimes" ANGARA_TEST_QUICK=1 \
    ANGARA_TEST_MUST=1 \
    bundle/run logs
