#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs an MPI test program over UCX_TLS=angara,self as a user would, passes its TAP on, and adds
# tests: that it ended well, that neither UCX nor the library reported an error, and that the
# transport carried its traffic, by the transport's own counters.

set -euo pipefail

here=$(dirname -- "$(realpath -- "$0")")
# shellcheck source=tests/mpi/common.sh
source "$here/common.sh"

usage()
{
    cat <<'END'
Usage: run_mpi.sh [-n RANKS] [-H HOSTS] [-v VARIATION] [-e COUNTER]... [-spz] PROGRAM [ARGUMENT...]

  -n RANKS      default 2
  -H HOSTS      in virtual machines: these, such as vm0,vm1, instead of here alone
  -v VARIATION  default      as a user gets it
                get_zcopy    rendezvous reads (UCX_RNDV_SCHEME)
                put_zcopy    rendezvous writes
                rndv         rendezvous for all sizes
                eager        rendezvous for none: fragments
                alone        UCX_TLS=angara: messages to oneself too
                few          fewer peers than ranks, and tcp at hand
                tiny         small rings, so that senders have to wait
                chaos        the soft fabric delays and reorders what the model leaves open
                noloop       the own node can't be read: requests to the peer instead
                nocma        process_vm_readv and process_vm_writev are forbidden
                nic          the NIC, not the soft fabric
                cuda, rocm   GPU memory of the stand-in runtimes
                gpu_staged   it isn't registered: all goes through the host
                gpu_eager    short messages out of it are eager
                several may be joined by '+'
  -e COUNTER    this counter of the transport must not be 0
  -s            an OpenSHMEM program: oshrun
  -p            the program prints no TAP: it passes if it ends well
  -z            the transport must carry nothing: a single rank whose messages UCX's transport
                for oneself, or Open MPI, delivers
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
    few) variables+=("UCX_TLS=angara,tcp,self" UCX_ANGARA_MAX_PEERS=2) ;;
    tiny) variables+=(UCX_ANGARA_RING_SLOTS=16) ;;
    chaos) variables+=(ANGARA_CHAOS="${ANGARA_TEST_SEED:-20251121}") ;;
    noloop) variables+=(ANGARA_SOFT_LOOPBACK=n) ;;
    nocma) variables+=(ANGARA_SOFT_CMA=n) ;;
    nic) variables+=(ANGARA_DEVICE=nic) ;;
    gpu_eager) variables+=(UCX_ANGARA_GPU_RNDV_THRESH=inf) ;;
    gpu_staged) variables+=(UCX_ANGARA_GPU_ZCOPY=n) ;;
    cuda | rocm)
        variables+=(ANGARA_GPU="$1" ANGARA_TEST_GPU="$1")
        export LD_LIBRARY_PATH=$B/tests/gpu/standin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        ;;
    *) die "unknown variation $1" ;;
    esac
}

ranks=2
hosts=()
variation=default
launcher=mpirun
plain=no
carries=yes
counters=()
while getopts n:H:v:e:spzh option; do
    case $option in
    n) ranks=$OPTARG ;;
    H) IFS=, read -r -a hosts <<<"$OPTARG" ;;
    v) variation=$OPTARG ;;
    e) counters+=("$OPTARG") ;;
    s) launcher=oshrun ;;
    p) plain=yes ;;
    z) carries=no ;;
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

# osc/ucx for all windows: those that Open MPI allocates within a node would stay with its osc/sm.
variables=("UCX_TLS=angara,self" "UCX_ANGARA_STATS=$work/stats.%p" OMPI_MCA_osc=ucx)
IFS=+ read -r -a parts <<<"$variation"
for part in "${parts[@]}"; do
    variation_apply "$part"
done
exports=()
# Open MPI 5 patches functions that are the sanitizer's own.
[[ ${B:-} != */asan ]] || export OMPI_MCA_memory=^patcher
# Where one process has no room at the address that another has chosen for the symmetric heap, Open MPI 5 ends the job,
# unless told to try another one.
[[ $launcher != oshrun || $(mpirun --version) == *'Open MPI) 4.'* ]] || export OMPI_MCA_sshmem_base_start_address=0
for variable in "${variables[@]}"; do
    exports+=(-x "$variable")
done

# UCX logs to stdout, unless UCX_LOG_FILE says otherwise; the library and the sanitizers to stderr.
error_lines='UCX +(ERROR|FATAL)|\] angara error:|Assertion|runtime error:|Sanitizer'

# shellcheck disable=SC2317 # called by ok
no_error_logged()
{
    ! grep -qE "$error_lines" "$work/out" "$work/err"
}

placement=(--oversubscribe)
others=()
if ((${#hosts[@]} > 0)); then
    placement+=(--host "$(IFS=, && echo "${hosts[*]}")")
    mapfile -t others < <(printf '%s\n' "${hosts[@]}" | grep -Fvx "$(uname -n)")
fi
# Each VM has files of its own.
for host in "${others[@]}"; do
    vm_rsh "$host" "mkdir -p $work"
done

echo "# $launcher -np $ranks ${variables[*]} $*"
"$launcher" "${placement[@]}" --bind-to none -np "$ranks" "${exports[@]}" "$@" \
    >"$work/out" 2>"$work/err" </dev/null || rc=$?
for host in "${others[@]}"; do
    mkdir "$work/$host"
    vm_rsh "$host" "tar -C $work -c . | base64; rm -r $work" | base64 -d | tar -C "$work/$host" -x
done

if [[ $plain == yes ]]; then
    as_comments "$work/out"
else
    grep -v '^1\.\.[0-9]' "$work/out" || true
    number=$(grep -cE '^(not )?ok ' "$work/out" || true)
    failures=$(grep -c '^not ok ' "$work/out" || true)
    ok "the program ran all its tests" grep -q '^1\.\.[1-9]' "$work/out"
fi
as_comments "$work/err"
ok "the program ended with status 0" test "$rc" -eq 0
ok "no error was logged" no_error_logged
ok "every process used the transport" test "$(stats_files)" -ge "$ranks"
messages=$(stats_sum eager_tx sar_tx)
if [[ $carries == yes ]]; then
    ok "the transport carried messages ($messages)" test "$messages" -gt 0
else
    traffic=$(stats_sum eager_tx sar_tx put_{short,bcopy,zcopy} get_{short,bcopy,zcopy} atomics)
    ok "the transport carried nothing ($traffic)" test "$traffic" -eq 0
fi
for counter in "${counters[@]}"; do
    count=$(stats_sum "$counter")
    ok "$counter was used ($count)" test "$count" -gt 0
done
finish
