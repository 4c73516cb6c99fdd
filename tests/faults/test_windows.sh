#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# One-sided calls that can't be performed: beyond the window, on memory that the target may not
# write or has unmapped. Nobody hangs or crashes elsewhere: the job ends, and says what was wrong.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/faults/tap.sh
. tests/faults/tap.sh

program=$faults/fault_window
# How long mpirun waits between SIGTERM and SIGKILL.
export OMPI_MCA_odls_base_sigkill_timeout=0

# refused WINDOW HARM CALLS REASON: rank 0 says why, where it fails and perhaps where it aborts; rank 1 at
# most that rank 0 died.
refused()
{
    local call
    for call in $3; do
        mpi 30 2 "$program" "$1" "$2" "$call"
        ok "$1 window, $2: $call" all_of ended -- messages "failed: $4" 1 2 -- \
            only_messages "failed: $4|pid [0-9]+ \(PE [0-9]+ of node [0-9]+\) died" 1 3 -- \
            no_line stdout 'went on' -- nothing_left
    done
}

# The job ended with an error, in time.
ended() { [[ $rc != 0 && $rc != 124 ]] || why "the job's status is $rc"; }

bounds='out of the bounds of the region' rights='access right not granted'
refused created beyond 'put put-long get acc fop cas' "$bounds"
refused allocated beyond 'put get-long fop' "$bounds"
refused created readonly 'put put-long acc' "$bounds"
refused created readonly 'fop cas' "$rights"
refused created gone 'put get-long acc fop' "$bounds"

# Open MPI and UCX refuse these by themselves.
mpi 30 2 "$program" created before put
ok 'created window, before: put' all_of ended -- no_line stdout 'went on' -- nothing_left
for window in created allocated; do
    for call in fop cas; do
        mpi 30 2 "$program" "$window" misaligned "$call"
        ok "$window window, misaligned: $call" all_of rc_no_crash -- \
            no_line stderr 'has changed' -- nothing_left
    done
done

finish
