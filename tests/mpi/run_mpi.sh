#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs an MPI test program over UCX_TLS=angara,self as a user would, passes its TAP on, and adds
# tests: that it ended well, that UCX reported no error, and that the transport carried its
# traffic, by the transport's own counters.

set -euo pipefail

here=$(dirname -- "$(realpath -- "$0")")
# shellcheck source=tests/mpi/common.sh
source "$here/common.sh"

usage()
{
    cat <<'END'
Usage: run_mpi.sh [-n RANKS] [-v VARIATION] [-e COUNTER]... [-s] [-p] PROGRAM [ARGUMENT...]

  -n RANKS      default 2
  -v VARIATION  default      as a user gets it
                get_zcopy    rendezvous reads (UCX_RNDV_SCHEME)
                put_zcopy    rendezvous writes
                rndv         rendezvous for all sizes
                eager        rendezvous for none: fragments
                alone        UCX_TLS=angara: messages to oneself too
                tiny         small rings, so that senders have to wait
                chaos        the soft fabric delays and reorders what the model leaves open
                noloop       the own node can't be read: requests to the peer instead
                nocma        process_vm_readv and process_vm_writev are forbidden
                several may be joined by '+'
  -e COUNTER    this counter of the transport must not be 0
  -s            an OpenSHMEM program: oshrun
  -p            the program prints no TAP: it passes if it ends well
END
}

die()
{
    echo "run_mpi.sh: $*" >&2
    exit 2
}

# Adds the environment of one variation.
variation_apply()
{
    case $1 in
    default) ;;
    get_zcopy | put_zcopy) variables+=(UCX_RNDV_SCHEME="$1") ;;
    rndv) variables+=(UCX_RNDV_THRESH=1) ;;
    eager) variables+=(UCX_RNDV_THRESH=inf) ;;
    alone) variables+=(UCX_TLS=angara) ;; # the later one counts
    tiny) variables+=(UCX_ANGARA_RING_SLOTS=16) ;;
    chaos) variables+=(ANGARA_CHAOS="${ANGARA_TEST_SEED:-20251121}") ;;
    noloop) variables+=(ANGARA_SOFT_LOOPBACK=n) ;;
    nocma) variables+=(ANGARA_SOFT_CMA=n) ;;
    *) die "unknown variation $1" ;;
    esac
}

ranks=2
variation=default
launcher=mpirun
plain=no
counters=()
while getopts n:v:e:sph option; do
    case $option in
    n) ranks=$OPTARG ;;
    v) variation=$OPTARG ;;
    e) counters+=("$OPTARG") ;;
    s) launcher=oshrun ;;
    p) plain=yes ;;
    h)
        usage
        exit 0
        ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
done
shift $((OPTIND - 1))
(($# > 0)) || die "no program"

variables=("UCX_TLS=angara,self" "UCX_ANGARA_STATS=$work/stats.%p")
IFS=+ read -r -a parts <<<"$variation"
for part in "${parts[@]}"; do
    variation_apply "$part"
done
exports=()
for variable in "${variables[@]}"; do
    exports+=(-x "$variable")
done

number=0
failed=0
verdict() # ok|not_ok NAME [EXPLANATION]
{
    number=$((number + 1))
    if [[ $1 == ok ]]; then
        echo "ok $number - $2"
    else
        echo "not ok $number - $2"
        [[ -z ${3:-} ]] || echo "# $3"
        failed=1
    fi
}

verdict_if() # NAME EXPLANATION COMMAND...
{
    local name=$1 explanation=$2
    shift 2
    if "$@"; then
        verdict ok "$name"
    else
        verdict not_ok "$name" "$explanation"
    fi
}

# shellcheck disable=SC2317 # called by verdict_if
no_error_logged()
{
    ! grep -qE 'UCX +(ERROR|FATAL)|Assertion|runtime error:|Sanitizer' "$work/err"
}

echo "# $launcher -np $ranks ${variables[*]} $*"
status=0
"$launcher" --oversubscribe --bind-to none -np "$ranks" "${exports[@]}" "$@" \
    >"$work/out" 2>"$work/err" </dev/null || status=$?

if [[ $plain == yes ]]; then
    as_comments "$work/out"
else
    grep -v '^1\.\.[0-9]' "$work/out" || true
    number=$(grep -cE '^(not )?ok ' "$work/out" || true)
    verdict_if "the program ran all its tests" "it ended without a plan" \
        grep -q '^1\.\.[1-9]' "$work/out"
fi
as_comments "$work/err"
verdict_if "the program ended with status 0" "status $status" test "$status" -eq 0
verdict_if "no error was logged" "see above" no_error_logged
verdict_if "every process used the transport" "$(stats_files) of $ranks wrote their counters" \
    test "$(stats_files)" -ge "$ranks"
# A single rank talks to itself by UCX's own means.
if ((ranks > 1)); then
    messages=$(($(stats_sum eager_tx) + $(stats_sum sar_tx)))
    verdict_if "the transport carried messages ($messages)" "the counters are 0" \
        test "$messages" -gt 0
    for counter in "${counters[@]}"; do
        count=$(stats_sum "$counter")
        verdict_if "$counter was used ($count)" "the counter is 0" test "$count" -gt 0
    done
fi
echo "1..$number"
exit "$failed"
