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

# refused WINDOW HARM CALLS REASON [mpirun's options]: rank 0 says why, where it fails and perhaps where it
# aborts; rank 1 at most that rank 0 died. Beyond a created window all calls are tried, else in quick mode the first.
refused()
{
    local window=$1 harm=$2 calls=$3 reason="failed: $4" call
    shift 4
    thorough || [[ $window-$harm-$# == created-beyond-0 ]] || calls=${calls%% *}
    for call in $calls; do
        mpi 30 2 "$@" "$program" "$window" "$harm" "$call"
        ok "$window window, $harm: $call${*:+ $*}" all_of ended -- messages "$reason" 1 2 -- \
            only_messages "$reason|pid [0-9]+ \(PE [0-9]+ of node [0-9]+\) died" 1 3 -- \
            unchanged -- no_line stdout 'went on' -- nothing_left
    done
}

ended() { rc_job_error && { [[ $rc != 139 ]] || why 'a rank crashed'; }; }
unchanged() { no_line stdout 'has changed'; }

bounds='out of the bounds of the region' rights='access right not granted'
refused created beyond 'put put-long get acc fop cas' "$bounds"
refused allocated beyond 'put get-long fop' "$bounds"
refused created readonly 'put put-long acc' "$bounds"
refused created readonly 'fop cas' "$rights"
refused created gone 'put get-long acc fop' "$bounds"

# By requests to the target, which answers later: so the failure is found in a later call.
for option in ANGARA_SOFT_CMA=n ANGARA_SOFT_LOOPBACK=n; do
    refused created beyond 'put put-long fop' "$bounds" -x $option
    refused created gone 'put fop' "$bounds" -x $option
done

# Open MPI refuses a place in front of the window.
mpi 30 2 "$program" created before put
ok 'created window, before: put' all_of ended -- unchanged -- no_line stdout 'went on' -- nothing_left

# UCX refuses an atomic on a misaligned word, and Open MPI 4 doesn't tell; Open MPI 5 performs it, behind a lock.
for window in created allocated; do
    for call in fop cas; do
        mpi 30 2 "$program" "$window" misaligned "$call"
        ok "$window window, misaligned: $call" all_of rc_no_crash -- unchanged -- nothing_left
    done
done

finish
