#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Wrong values of ANGARA_* and of every UCX_ANGARA_* variable, unknown names, wrong devices, tight
# limits and mixed versions in an MPI job: a message that names the setting, and then either the job
# runs over what Open MPI falls back to (all ranks alike), or it ends with an error. Never a hang.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/faults/tap.sh
. tests/faults/tap.sh

program=$faults/fault_mpi
job=("$program" --seconds 0 --size 100)
well() { all_of rc_is 0 -- only_messages . 0 0 -- has_line stdout '^right after'; }

# The job ran over something else, or failed; data was right, nothing crashed or hung.
fallen_back() { all_of rc_is 0 -- has_line stdout '^right after'; }
ended()
{
    if [[ $rc == 0 ]]; then
        has_line stdout '^right after'
    else
        rc_error
    fi
}

# Each of the two ranks prints the line $1, once.
each_rank_says() { line_count "$1" 2 2; }

line_count()
{
    local count
    count=$(cat "$out/stdout" "$out/stderr" | grep -Ec -- "$1" || true)
    [[ $count -ge $2 && $count -le $3 ]] || why "$count lines with $1 instead of $2 to $3"
}

mpi 30 2 "${job[@]}"
ok 'the job runs' well

# --- variables of the library ---------------------------------------------------------------------

# One of each kind: all of them, and all kinds of wrong values, are test_values.sh's.
for name in ANGARA_DEVICE ANGARA_SOFT_CMA ANGARA_EVENTS; do
    mpi 30 2 -x "$name=nonsense" "${job[@]}"
    ok "$name=nonsense" all_of fallen_back -- \
        line_count "\] angara error: .*($name|\"nonsense\")" 1 1
done
mpi 30 2 -x ANGARA_DEVICE=angara0 "${job[@]}"
ok 'a NIC that is not there' all_of fallen_back -- \
    line_count 'error: .*no NIC behind /dev/angara0.*ANGARA_DEVICE' 1 1
mpi 30 2 --mca pml ucx -x ANGARA_EVENTS=7 "${job[@]}"
ok 'a wrong value where nothing else is allowed' all_of rc_error -- \
    line_count 'error: .*ANGARA_EVENTS' 1 2 -- nothing_left

# --- variables of the transport -------------------------------------------------------------------

preloaded 10 ucx_info -c -f
mapfile -t names < <(sed -n 's/^\(UCX_ANGARA_[A-Z0-9_]*\)=.*/\1/p' "$out/stdout" | sort -u)
ok 'ucx_info lists the variables of the transport' test "${#names[@]}" -gt 10
thorough || names=("${names[@]:0:8}")
for name in "${names[@]}"; do
    # A file name can be anything: see below.
    [[ $name != *_STATS ]] || continue
    preloaded 10 env "$name=nonsense" ucx_info -d
    # UCX's own parser leaves the prefix out.
    ok "$name=nonsense" all_of rc_no_crash -- \
        line_count "\b(UCX_ANGARA_)?${name#UCX_ANGARA_}\b" 1 4
done
mpi 60 8 -x UCX_ANGARA_RING_SLOTS=nonsense "${job[@]}"
ok 'UCX_ANGARA_RING_SLOTS=nonsense in 8 ranks: our line once' all_of fallen_back -- \
    line_count 'UCX_ANGARA_RING_SLOTS=nonsense: expected' 1 1
mpi 60 8 -x UCX_ANGARA_STATS=/nonexistent/stats.%p "${job[@]}"
ok 'UCX_ANGARA_STATS in a folder that is not there, in 8 ranks: one message of the node' all_of rc_is 0 -- \
    only_messages 'UCX_ANGARA_STATS: cannot write /nonexistent/stats\.%p: No such' 1 1
# shellcheck disable=SC2016 # the rank's shell expands it
mpi 60 8 bash -c '
    folder=/nonexistent
    ((OMPI_COMM_WORLD_RANK != 5)) || folder=/dev/null
    UCX_ANGARA_STATS=$folder/stats exec "$@"' rank "${job[@]}"
ok 'another UCX_ANGARA_STATS in one of the 8 ranks: that is said, too' all_of rc_is 0 -- \
    messages '/nonexistent/stats: No such' 1 1 -- messages '/dev/null/stats: Not a directory' 1 1 -- \
    only_messages 'UCX_ANGARA_STATS' 2 2
# Whether a file can be made is only seen when it is.
mpi 30 2 -x UCX_ANGARA_STATS=/proc/stats.%p "${job[@]}"
ok 'a file of UCX_ANGARA_STATS that cannot be made at the end' all_of rc_is 0 -- \
    only_messages 'UCX_ANGARA_STATS: cannot write /proc/stats' 1 2

# Right for the parser, wrong for the transport.
# (A window put has a largest size only in chaos.)
for setting in SLOT_SIZE=100 SLOT_SIZE=32 SLOT_SIZE=8192 SLOT_SIZE=inf RING_SLOTS=15 \
    RING_SLOTS=40000 RING_SLOTS=inf SEG_SIZE=0 SEG_SIZE=127 MAX_PEERS=0 MAX_PEERS=70000 PUT_MAX=10; do
    preloaded 10 env ANGARA_CHAOS=1 "UCX_ANGARA_$setting" ucx_info -d
    ok "UCX_ANGARA_$setting" all_of rc_no_crash -- \
        line_count "UCX_ANGARA_${setting%%=*}.*(must be|smaller)" 1 4
done
for setting in SLOT_SIZE=100 MAX_PEERS=0; do
    mpi 60 8 -x "UCX_ANGARA_$setting" "${job[@]}"
    ok "UCX_ANGARA_$setting in a job" all_of fallen_back -- \
        line_count "UCX_ANGARA_${setting%%=*}=.*must be" 1 1
done
settings=(BOUNCE_SIZE=1 BOUNCE_COUNT=0 SLOT_SIZE=64 RING_SLOTS=16 SEG_SIZE=128 MAX_PEERS=1)
! thorough || settings+=(MAX_IOV=0 BW=0 SLOT_SIZE=4096 RING_SLOTS=32768 SEG_SIZE=inf SELF_MARKER=y)
for setting in "${settings[@]}"; do
    mpi 30 2 -x "UCX_ANGARA_$setting" "$program" --seconds 0 --size 20000
    ok "UCX_ANGARA_$setting works, or says why not" all_of ended -- \
        line_count "hang|Assertion|backtrace" 0 0
done

# --- unknown names --------------------------------------------------------------------------------

mpi 30 2 -x ANGARA_NOSUCH=1 "${job[@]}"
ok 'an unknown ANGARA_ name is a warning' all_of fallen_back -- only_messages 'ANGARA_NOSUCH' 1 1
mpi 30 2 -x UCX_ANGARA_NOSUCH=1 "${job[@]}"
ok 'an unknown UCX_ANGARA_ name is a warning' all_of fallen_back -- \
    each_rank_says 'UCX_ANGARA_NOSUCH'

# --- ranks that differ ----------------------------------------------------------------------------

# unlike COMMAND... -- COMMAND...: of the first rank, and of the second. (Open MPI 5's mpirun may crash with
# several programs.)
unlike()
{
    # It is the rank's shell that expands.
    # shellcheck disable=SC2016
    run 40 mpirun -np 2 -x UCX_TLS=angara,self bash -c '
        num=0
        for word in "$@"; do
            [[ $word != -- ]] || break
            num=$((num + 1))
        done
        ((OMPI_COMM_WORLD_RANK == 1)) || exec "${@:1:num}"
        exec "${@:num + 2}"' rank "$@"
}

# differ NAME REGEX SETTING...: the second rank has the settings.
differ()
{
    local name=$1 regex=$2
    shift 2
    unlike "${job[@]}" -- env "$@" "${job[@]}"
    ok "$name: the job ends with an error" all_of rc_error -- \
        line_count "$regex" 1 4 -- nothing_left
}

differ 'a wrong value in one rank' 'error: .*ANGARA_EVENTS' ANGARA_EVENTS=7
differ 'another node' 'node.*\b3\b' ANGARA_SOFT_NODE=3
differ 'another wire version' 'error: .*version.*\b99\b|error: .*\b99\b.*version' \
    "LD_LIBRARY_PATH=$faults/other-wire:$LD_LIBRARY_PATH"
differ 'another layout' 'error: .*layout 99' \
    "LD_LIBRARY_PATH=$faults/other-layout:$LD_LIBRARY_PATH"
if can_unshare -p -f --mount-proc; then
    unlike "${job[@]}" -- unshare -p -f --mount-proc "${job[@]}"
    ok 'another PID namespace: the job ends with an error' all_of rc_error -- \
        line_count 'PID namespace' 1 4 -- nothing_left
else
    skip 'another PID namespace: the job ends with an error' 'unshare is not permitted'
fi
if can_unshare -U -r; then
    unlike "${job[@]}" -- unshare -U -r "${job[@]}"
    ok 'another user namespace: the job ends with an error' all_of rc_error -- \
        line_count 'user namespace' 1 4 -- nothing_left
    # Whoever allows another transport gets that.
    run 60 mpirun -np 8 -x UCX_TLS=angara,tcp,self unshare -U -r "${job[@]}"
    ok 'each of 8 ranks in a user namespace of its own: by tcp, with one line of the node' all_of rc_is 0 -- \
        line_count 'user namespace' 1 1 -- nothing_left
else
    skip 'another user namespace: the job ends with an error' 'unshare is not permitted'
fi
# shellcheck disable=SC2016 # the rank's shell expands it
run 60 mpirun -np 8 -x UCX_TLS=angara,tcp,self bash -c '
    ANGARA_SOFT_NODE=$((OMPI_COMM_WORLD_RANK % 2)) exec "$@"' rank "${job[@]}"
ok '8 ranks on two nodes: each node says why the other is out of reach' all_of rc_is 0 -- \
    messages 'unreachable: .*\(1, this is 0\)' 1 1 -- messages 'unreachable: .*\(0, this is 1\)' 1 1 -- \
    only_messages 'unreachable: ' 2 2
# shellcheck disable=SC2016 # the rank's shell expands it
run 60 mpirun -np 8 -x UCX_TLS=angara,tcp,self -x OTHER="$faults/other-wire" bash -c '
    ((OMPI_COMM_WORLD_RANK != 1)) || export LD_LIBRARY_PATH=$OTHER:$LD_LIBRARY_PATH
    exec "$@"' rank "${job[@]}"
ok 'another wire version in one of 8 ranks: each version is said once' all_of rc_is 0 -- \
    messages 'address is of version 99' 1 1 -- only_messages 'address is of version [0-9]+, this' 2 2
# The receiver sizes its rings, the sender its messages: the one must fit into the other.
rings() # SETTING... -- SETTING...: of the first rank and of the second
{
    local command=(env) setting
    for setting in "$@"; do
        if [[ $setting == -- ]]; then
            command+=("$program" --seconds 0 --size 20000 -- env)
        else
            command+=("UCX_ANGARA_$setting")
        fi
    done
    unlike "${command[@]}" "$program" --seconds 0 --size 20000
}
rings RING_SLOTS=512 -- RING_SLOTS=1024
ok 'rings of different size' well
rings RING_SLOTS=auto -- RING_SLOTS=300
ok 'automatic rings and others' well
rings RING_SLOTS=16 -- RING_SLOTS=1024 SEG_SIZE=512
ok 'small rings and large ones for short messages' well
rings SLOT_SIZE=64 -- SLOT_SIZE=128
ok 'slots of different size' well
# Nobody handles the refusal, so the rank that meets it aborts.
aborted() { [[ $rc != 0 && $rc != 124 && $rc != 137 ]] || why "the status is $rc"; }
rings RING_SLOTS=16 -- RING_SLOTS=1024
ok 'rings that the messages of the other do not fit into' all_of aborted -- \
    messages '^\[[0-9.]+\] \[[^ ]+:[0-9]+ rank [01]\] angara error: .* refused a receive ring: .*SEG_SIZE' 1 1

# --- limits and rules -----------------------------------------------------------------------------

mpi 60 8 -x UCX_ANGARA_MAX_PEERS=3 "$B/bench/osu_alltoall" -m 8:8 -i 5 -x 1
ok 'more peers than UCX_ANGARA_MAX_PEERS, and no other transport: the job ends, and that is why' all_of aborted -- \
    messages 'peers.*UCX_ANGARA_MAX_PEERS' 1 16

seccomp=("$faults/fault_restrict" process_vm_readv process_vm_writev --)
mpi 30 2 "${seccomp[@]}" "$program" --size 500000 --window 2 --seconds 0.1
ok 'process_vm_* refused: right data, one warning of the node' all_of fallen_back -- \
    only_messages 'warning: process_vm' 1 1
mpi 30 2 "${seccomp[@]}" "$program" --mode get --created --size 50000 --seconds 0.1
ok 'the same with one-sided traffic' all_of fallen_back -- only_messages 'warning: process_vm' 1 1

# What all ranks meet alike one of them says, though there is no descriptor left to ask the others with.
alike() # REGEX COMMAND...
{
    mpi 60 8 "${@:2}" "${job[@]}"
    alike_said "$1"
}
alike_said()
{
    all_of fallen_back -- messages "error: .*$1" 1 1 -- only_messages "$1|the transport isn't used" 2 2
}
# Which limit all ranks meet at the same place is Open MPI's and UCX's use of descriptors. At others they
# say different things, or what names a process.
alike_descriptors()
{
    local limit texts met=0
    for limit in {22..36}; do
        thorough || ((met == 0)) || break
        mpi 60 8 prlimit --nofile="$limit" "${job[@]}"
        texts=$(sed -n 's/.*\] angara error: //p' "$out/stdout" "$out/stderr" | sort -u)
        [[ $rc == 0 && $texts == *'ulimit -n'* && $texts != *$'\n'* ]] || continue
        [[ ! $texts =~ /proc/[0-9]|pidfd ]] || continue
        alike_said 'ulimit -n' || why "with $limit" || return 1
        met=$((met + 1))
    done
    [[ $met -gt 0 ]] || why 'no limit was met by all ranks alike'
}
ok 'RLIMIT_NOFILE in 8 ranks: one message, and what is used instead' alike_descriptors
ok 'memfd_create refused to 8 ranks: the same' alike 'seccomp profile' "$faults/fault_restrict" memfd_create --
if can_unshare -m; then
    # shellcheck disable=SC2016 # the inner shell expands it
    ok 'no /proc for 8 ranks: the same' alike 'needs it mounted' \
        unshare -m bash -c 'mount -t tmpfs tmpfs /proc && exec "$@"' bash
else
    skip 'no /proc for 8 ranks: the same' 'unshare is not permitted'
fi

descriptors()
{
    local limit met=0
    for limit in 24 26 28 30 32 34 36; do
        thorough || ((met == 0)) || break
        mpi 30 2 prlimit --nofile="$limit" "${job[@]}"
        # What Open MPI and UCX do with fewer than they need is theirs, and what the component says of it.
        cat "$out/stdout" "$out/stderr" | grep -E '\] angara (error|warning): ' |
            grep -Ev "the transport isn't used|MPI_Init failed" >/dev/null || continue
        all_of ended -- line_count 'ulimit -n' 1 20 || why "with $limit" || return 1
        met=$((met + 1))
    done
    [[ $met -gt 0 ]] || why 'the limit was never ours'
}
ok 'RLIMIT_NOFILE' descriptors
# Open MPI's own shared memory would be killed by SIGXFSZ.
mpi 30 2 --mca btl ^vader prlimit --fsize=8000000 "${job[@]}"
ok 'RLIMIT_FSIZE' all_of ended -- line_count 'ulimit -f' 1 4
preloaded 10 env UCX_LOG_LEVEL=diag prlimit --fsize=56000000 ucx_info -d
ok 'a limit that the window meets: what makes it smaller is named' all_of rc_no_crash -- \
    has_line stdout 'window of [0-9]+ bytes: .*UCX_ANGARA_MAX_PEERS'
preloaded 10 env UCX_ANGARA_MAX_PEERS=100 prlimit --fsize=56000000 ucx_info -d
ok 'and helps' all_of rc_is 0 -- has_line stdout 'Transport: angara' -- only_messages . 0 0
mpi 30 2 prlimit --memlock=0 "$program" --seconds 0 --size 300000 --window 2
ok 'RLIMIT_MEMLOCK is not needed' well
# Open MPI and UCX abort here and there when memory is short. We may not, nor hang, nor be silent.
address_space()
{
    local mib met=0
    for mib in 200 220 240 260 280; do
        thorough || ((met == 0)) || break
        mpi 30 2 prlimit --as=$((mib << 20)) "$program" --seconds 0 --size 1000000 --window 8
        [[ $rc != 124 && $rc != 137 ]] || why "it hangs with $mib MiB" || return 1
        line_count 'wrong data|libangara.*\+0x|libuct_angara.*\+0x' 0 0 || return 1
        ! grep -q '\] angara error: ' "$out/stderr" || met=$((met + 1))
        ! grep '\] angara error: ' "$out/stderr" | grep -v 'ulimit -v' || return 1
    done
    [[ $met -gt 0 ]] || why 'the limit was never ours'
}
ok 'RLIMIT_AS' address_space
ok 'nothing is left' nothing_left

finish
