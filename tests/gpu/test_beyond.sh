#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Messages that run past the GPU memory that they were given: the job ends, with a message that says
# so: the transport's, or MPI's, where UCP registers short buffers, too, and that is refused. It neither
# hangs nor delivers something else.

set -euo pipefail

export LD_LIBRARY_PATH=$B/tests/gpu/standin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
num=0

# A place of each end (H or D), and a size: short, and by rendezvous.
try()
{
    local status=0 output word=ok
    num=$((num + 1))
    output=$(timeout 60 mpirun -np 2 --oversubscribe -x UCX_TLS=angara,self -x ANGARA_GPU=cuda \
        -x ANGARA_TEST_GPU_BEYOND="$1" "$B/tests/gpu/mpi_gpu" -m "$2" 2>&1 | tr -d '\0') || status=$?
    if [[ $status == 0 || $status == 124 || $output == *"nobody minds"* ||
        ! $output =~ angara:.*aborting|MPI_ERRORS_ARE_FATAL || $output == *"Segmentation fault"* ]]; then
        word="not ok"
        printf '# %s\n' "${output//$'\n'/$'\n# '}"
    fi
    echo "$word $num - $1, $2 bytes (exit status $status)"
}

for places in DD HD DH; do
    try "$places" 4000
    try "$places" 900000
done
echo "1..$num"
