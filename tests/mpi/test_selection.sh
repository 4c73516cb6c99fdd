#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What Open MPI selects with the component hook/angara in place: TAP. select_probe prints which
# components a job uses and what is left in its environment.
#
# shellcheck disable=SC2317 # most functions are called by name

set -euo pipefail

here=$(dirname -- "$(realpath -- "$0")")
# shellcheck source=tests/mpi/common.sh
source "$here/common.sh"

readonly asked="UCX_TLS=angara,self"
probe=$(realpath -- "$B/tests/mpi/select_probe")
shmem=$(realpath -- "$B/tests/mpi/shmem_basic")
readonly probe shmem

openmpi=$(mpirun --version 2>/dev/null | sed -nE 's/.*Open MPI\) ([0-9]+)\..*/\1/p')
readonly openmpi

many=32 # ranks
thorough || many=8
readonly many

# Open MPI 5 ends a job whose processes find no room for the symmetric heap at the first try.
environment=()
[[ $openmpi == 4 ]] || environment=(OMPI_MCA_sshmem_base_start_address=0)
readonly environment

shown=("$work/out" "$work/err")

# Runs a command in a clean environment; what it prints is in $work/out and $work/err.
run()
{
    rm -f "$work"/stats.*
    rc=0
    in_time 60 env HOME="$work/home" UCX_ANGARA_STATS="$work/stats.%p" OMPI_MCA_btl_tcp_if_include=lo \
        "${environment[@]}" "$@" \
        >"$work/out" 2>"$work/err" </dev/null || rc=$?
}

launch() # VARIABLES... -- MPIRUN ARGUMENTS...
{
    local variables=()
    while [[ $1 != -- ]]; do
        variables+=("$1")
        shift
    done
    shift
    run "${variables[@]}" mpirun --oversubscribe --bind-to none -np 2 "$@"
}

# --- expectations ----------------------------------------------------------------------------------

uses() # FRAMEWORK COMPONENT
{
    grep -qE "^$1 (.* )?$2( |\$)" "$work/out"
}

is_right()
{
    ((rc == 0)) && grep -qx 'data right' "$work/out"
}

is_right_and() # COMMAND...
{
    is_right && "$@"
}

env_is_clean()
{
    ! grep -qE '^(child-)?env ' "$work/out"
}

is_angara()
{
    is_right && uses pml ucx && uses osc ucx && uses osc-allocated sm && uses osc-dynamic rdma && env_is_clean &&
        (($(stats_sum eager_tx) > 0)) &&
        (($(stats_sum put_short) + $(stats_sum put_bcopy) + $(stats_sum put_zcopy) > 0))
}

# A file for each rank, which says whose it is, and has counted one peer.
stats_are_described()
{
    [[ $(grep -hE '^(rank|peers|program) ' "$work"/stats.* | cut -d' ' -f1,2 | sort -u | paste -sd,) == \
        "peers 1,program ${probe##*/},rank 0,rank 1" ]] &&
        [[ $(grep -lx "host $(uname -n)" "$work"/stats.* | wc -l) == 2 ]] &&
        ! grep -hvE '^(host|pid|rank|program) [^ ]+$|^[a-z_]+ [0-9]+ [a-z]' "$work"/stats.*
}

# One process talks to itself by UCX's own means.
is_angara_alone()
{
    is_right && uses pml ucx && uses osc ucx && env_is_clean && (($(stats_files) == 1))
}

is_angara_without_osc()
{
    is_right && uses pml ucx && ! uses osc ucx
}

# The user's choice of ob1: nothing of ours may have touched the job.
is_ob1()
{
    is_right && uses pml ob1 && ! uses osc ucx && (($(stats_files) == 0))
}

uses_ours_silently()
{
    ((rc == 0)) && (($(stats_sum eager_tx) > 0)) && ! grep -q "isn't used" "$work/err"
}

uses_ours_silently_with_puts()
{
    ((rc == 0)) && (($(stats_sum put_short) > 0)) && ! grep -q "isn't used" "$work/err"
}

is_silent()
{
    [[ ! -s $work/err ]]
}

is_ob1_silent()
{
    is_ob1 && is_silent
}

is_ob1_clean_silent()
{
    is_ob1 && is_silent && env_is_clean
}

# The head of each line of ours in a job, then its level.
head="^\\[[0-9]+\\.[0-9]{6}\\] \\[$(uname -n):[0-9]+ rank [0-9]+\\] angara"
readonly head

warned_once() # TEXT: with time, host, process and rank before it
{
    (($(grep -c "$1" "$work/err") == 1)) && grep -qE "$head (warning|error): .*$1" "$work/err"
}

has_own_lines() # COUNT: said by the component, the transport or the library
{
    (($(grep -cE "$head (warning|error)" "$work/err") == $1))
}

has_lines() # COUNT PATTERN
{
    (($(grep -cE "$2" "$work/out") == $1))
}

has_lines_of() # AT LEAST, PATTERN: in all that was printed
{
    (($(cat "$work/out" "$work/err" | grep -cE "$2") >= $1))
}

# 124: it hung until it was killed
has_failed()
{
    ((rc != 0 && rc != 124))
}

has_ended_silently()
{
    ((rc == 0)) && is_silent
}

# --- the transport is asked for --------------------------------------------------------------------

test_asked()
{
    if (($(nproc) > 1)); then
        run mpirun -np 2 -x "$asked" "$probe"
        ok "a plain mpirun -np 2 -x UCX_TLS=angara,self" is_angara
    fi
    launch -- -x "$asked" "$probe"
    ok "mpirun -x UCX_TLS=angara,self selects UCX and the transport" is_angara
    ok "nothing is printed" is_silent
    launch OMPI_MCA_mtl=^none -- -x "$asked" "$probe" # run_tests leaves them out, users don't
    ok "so it does where Open MPI tries PSM and libfabric" is_angara
    ok "the files of counters say whose they are, and of what" stats_are_described
    launch "$asked" UCX_LOG_LEVEL=debug -- "$probe"
    ok "the log says at level debug how connections begin and end" \
        has_lines_of 4 'DEBUG.*angara: pid [0-9]+ .*: (GRANT; ring to it open|flushed; ring to it closing)'
    ok "and at level info what was decided about registrations" \
        has_lines_of 2 'INFO +angara: registrations are not cached, the last ones of put and get kept'
    launch "$asked" -- "$probe"
    ok "UCX_TLS in the environment" is_angara
    launch 'UCX_TLS=self,\angara' -- "$probe"
    ok "the strict form of the name" is_angara
    launch "MPI_UCX_TLS=angara,self" "UCX_TLS=tcp" -- "$probe"
    ok "MPI_UCX_TLS takes the place of UCX_TLS" is_angara
    launch "$asked" -- "$probe" -t
    ok "MPI_T_init_thread before MPI_Init" is_angara
    launch "$asked" -- --mca pml ucx "$probe"
    ok "--mca pml ucx needs no further variables" uses pml ucx
    # Without its mpirun Open MPI 5 leaves files, and a segment of the transport sm. (The others: see run_alone()
    # of tests/common/programs.sh.)
    run "$asked" TMPDIR="$work" OMPI_MCA_btl=^sm,uct,openib,ofi "$probe"
    ok "a program started without mpirun" is_angara_alone
    launch -- --mca hook_angara_enable 1 -x "$asked" "$probe"
    ok "hook_angara_enable=1" is_angara
    launch -- --mca opal_common_ucx_tls angara --mca hook_angara_verbose 1 "$probe"
    ok "Open MPI's own transport list asks too" grep -qE "$head info: loaded .*libuct_angara" "$work/err"
}

# --- the user decides ------------------------------------------------------------------------------

test_user_wins()
{
    launch "$asked" -- --mca pml ob1 "$probe"
    ok "--mca pml ob1 wins" is_ob1_silent
    launch "$asked" OMPI_MCA_pml=ob1 -- "$probe"
    ok "OMPI_MCA_pml=ob1 wins" is_ob1_silent
    launch "$asked" OMPI_MCA_pml='^ucx' -- "$probe"
    ok "OMPI_MCA_pml=^ucx wins, though it is the distribution's value" is_ob1_silent
    launch "$asked" -- --mca osc '^ucx' "$probe"
    ok "--mca osc ^ucx wins" is_angara_without_osc
    launch "$asked" -- --mca osc ucx "$probe"
    ok "--mca osc ucx: for allocated windows, too" uses osc-allocated ucx
    ok "--mca osc ucx: for dynamic windows, too" uses osc-dynamic ucx
    ok "whose memory peers map, large or small" uses large-window mapped
    launch "$asked" -- --mca osc_ucx_priority 60 "$probe"
    ok "--mca osc_ucx_priority: for dynamic windows, too" uses osc-dynamic ucx
    if ((openmpi < 5)); then
        run "$asked" mpirun --oversubscribe --bind-to none -np 1 "$probe" : \
            -np 1 -x OMPI_MCA_osc_ucx_priority=60 "$probe"
        ok "in one rank alone: all ranks take the same" is_right_and uses osc-dynamic ucx
    else
        skip "in one rank alone: all ranks take the same" "mpirun of Open MPI 5.0.7 crashes with two contexts"
    fi
    launch "$asked" UCX_ALLOC_PRIO=mmap -- --mca osc ucx "$probe"
    ok "unless the user wants other memory" uses large-window private

    # Open MPI 5's mpirun reads that file, and puts it into the environment.
    local unchanged=is_ob1_clean_silent dashes=-
    ((openmpi < 5)) || unchanged=is_ob1_silent
    mkdir -p "$work/home/.openmpi"
    echo 'pml = ob1' >"$work/home/.openmpi/mca-params.conf"
    launch "$asked" -- "$probe"
    ok "the user's mca-params.conf wins: ob1" "$unchanged"
    echo 'pml = ^ucx' >"$work/home/.openmpi/mca-params.conf"
    launch "$asked" -- "$probe"
    ok "the user's mca-params.conf wins: ^ucx" "$unchanged"
    rm -r "$work/home/.openmpi"

    echo 'pml = ob1' >"$work/file.conf"
    launch "$asked" OMPI_MCA_mca_base_param_files="$work/file.conf" -- "$probe"
    # It replaces the system's file, and with it the exclusion of osc/ucx.
    ok "a file named by mca_base_param_files wins" uses pml ob1
    if ((openmpi >= 5)); then
        skip "a file given by --am wins" "that is what Open MPI 5 calls --tune"
    else
        launch "$asked" -- --am "$work/file.conf" "$probe"
        ok "a file given by --am wins" is_ob1_clean_silent
    fi
    # Open MPI 5 wants two dashes, 4.1 one.
    ((openmpi < 5)) || dashes=--
    echo "${dashes}mca pml ob1" >"$work/tune.conf"
    launch "$asked" -- --tune "$work/tune.conf" "$probe"
    ok "a file given by --tune wins" is_ob1_silent

    launch "$asked" -- --mca opal_common_ucx_tls rc_verbs "$probe"
    ok "an explicit opal_common_ucx_tls stays" uses pml ob1
    launch "$asked" -- --mca hook_angara_enable 0 "$probe"
    ok "hook_angara_enable=0" is_ob1_clean_silent
    launch "$asked" -- --mca hook '^angara' "$probe"
    ok "--mca hook ^angara" is_ob1_clean_silent
}

# --- nobody asked ----------------------------------------------------------------------------------

as_without_us()
{
    cmp -s "$work/out" "$work/out.before" && cmp -s "$work/err" "$work/err.before" &&
        is_ob1_clean_silent
}

test_not_asked()
{
    local tls lists=(all ^angara)
    if [[ -e /dev/angara0 ]]; then
        number=$((number + 1))
        echo "ok $number - jobs that did not ask # SKIP this machine has a NIC"
        return
    fi
    launch -- --mca hook '^angara' "$probe"
    cp "$work/out" "$work/out.before"
    cp "$work/err" "$work/err.before"
    launch -- "$probe"
    ok "without UCX_TLS all is as without the component" as_without_us
    ! thorough || lists+=('tcp,self' ^tcp 'angara:aux,tcp' 'angaraXYZ,self')
    for tls in "${lists[@]}"; do
        launch "UCX_TLS=$tls" -- "$probe"
        ok "UCX_TLS=$tls does not ask" as_without_us
    done
    launch "MPI_UCX_TLS=tcp" "$asked" -- "$probe"
    ok "MPI_UCX_TLS excludes what UCX_TLS names" as_without_us
}

# --- what may go wrong -----------------------------------------------------------------------------

test_fallback()
{
    launch "$asked" ANGARA_TEST_UCX_VERSION=1.14.0 -- "$probe"
    ok "another UCX version: Open MPI's default is used" is_ob1
    ok "another UCX version: one message names it" warned_once 'UCX 1\.14\.0 runs here: it stays off'
    ok "another UCX version: another one says what is used instead" \
        warned_once "UCX of this process: see above): the job runs over"
    ok "another UCX version: nothing else is said" has_own_lines 2
    ok "another UCX version: the environment is clean" env_is_clean

    launch "$asked" ANGARA_UCT_PLUGIN=/nonexistent/libuct_angara.so -- "$probe"
    ok "no transport library: Open MPI's default is used" is_ob1
    ok "no transport library: one message" warned_once '/nonexistent/libuct_angara.so'

    echo 'no library' >"$work/broken.so"
    launch "$asked" -- --mca hook_angara_plugin "$work/broken.so" "$probe"
    ok "a broken transport library: Open MPI's default is used" is_ob1

    launch "$asked" ANGARA_TEST_OMPI_VERSION=4.1.99 -- "$probe"
    ok "another Open MPI: its default is used" is_ob1
    ok "another Open MPI: one message names both" \
        warned_once 'built for Open MPI v[0-9.]*, but Open MPI v4\.1\.99 runs here'
    ok "another Open MPI: nothing else is said" has_own_lines 1
    launch "$asked" ANGARA_TEST_OMPI_VERSION=4.1.99 ANGARA_STRICT=1 -- "$probe"
    ok "another Open MPI: the job ends with ANGARA_STRICT" has_failed
    ok "another Open MPI: one message says that it ends" warned_once 'ends because of ANGARA_STRICT'
    launch ANGARA_TEST_OMPI_VERSION=4.1.99 -- "$probe"
    ok "another Open MPI, and nobody asks: nothing is said" has_own_lines 0

    if ((openmpi >= 5)); then
        skip "only one rank has the transport" "mpirun of Open MPI 5 crashes when that job fails"
        return
    fi
    run mpirun --oversubscribe --bind-to none -np 1 "$probe" : -np 1 -x "$asked" "$probe"
    ok "only one rank has the transport: the job ends" has_failed
    ok "only one rank has the transport: the message says so" \
        grep -q 'mpirun -x UCX_TLS' "$work/err"
    # shellcheck disable=SC2016 # the rank's shell expands it
    run "$asked" mpirun --oversubscribe --bind-to none -np "$many" \
        bash -c 'ANGARA_SOFT_NODE=$OMPI_COMM_WORLD_RANK exec "$@"' rank "$probe"
    ok "nobody reaches anybody, $many ranks: the job ends" has_failed
    ok "nobody reaches anybody, $many ranks: one message about MPI_Init" warned_once 'MPI_Init failed in a process'
}

# --- asked for, and not used -----------------------------------------------------------------------

# Another way is said, once; ANGARA_STRICT makes it an error.
test_other_way()
{
    local setting settings few ucx="--mca pml ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any"

    settings=(ANGARA)
    ! thorough || settings+=(angara/soft0)
    for setting in "${settings[@]}"; do
        launch "UCX_TLS=$setting,self" -- "$probe"
        ok "UCX_TLS=$setting,self: one message" warned_once "names \"$setting\": is angara meant"
    done
    launch "UCX_TLS=angra,self" -- "$probe"
    ok "a name much like ours: Open MPI's default is used" is_ob1
    ok "a name much like ours: one message" warned_once 'names "angra": is angara meant'
    ok "a name much like ours: the environment is clean" env_is_clean
    run "UCX_TLS=angra,self" mpirun --oversubscribe --bind-to none -np "$many" "$probe"
    ok "a name much like ours, $many ranks: one message" warned_once 'names "angra": is angara meant'
    run "$asked" ANGARA_EVENTS=x mpirun --oversubscribe --bind-to none -np "$many" "$probe"
    ok "a wrong value, $many ranks: the library says so once" \
        test "$(cat "$work/out" "$work/err" | grep -c 'ANGARA_EVENTS="x" is not')" = 1
    ok "a wrong value, $many ranks: one message about the other way" warned_once "the transport isn't used"
    run "$asked" ANGARA_EVENTS=x ANGARA_STRICT=1 mpirun --oversubscribe --bind-to none -np "$many" "$probe"
    ok "a wrong value, $many ranks, ANGARA_STRICT=1: one message" warned_once "ends because of ANGARA_STRICT"
    if ((openmpi >= 5)); then
        skip "a wrong value in some of the ranks" "mpirun of Open MPI 5 crashes when that job fails"
    else
        run mpirun --oversubscribe --bind-to none -np 2 -x "$asked" "$probe" : \
            -np 2 -x "$asked" -x ANGARA_EVENTS=x "$probe"
        ok "a wrong value in some of the ranks: the library says so once" \
            test "$(cat "$work/out" "$work/err" | grep -c 'ANGARA_EVENTS="x" is not')" = 1
    fi
    launch "UCX_TLS=tcp,cuda_copy,self" -- "$probe"
    ok "other names: no message" is_ob1_silent
    settings=(ANGARA_EVENTS=x UCX_ANGARA_SEG_SIZE=x)
    ! thorough || settings+=(ANGARA_DEVICE=nic)
    for setting in "${settings[@]}"; do
        launch "$asked" "$setting" -- "$probe"
        ok "$setting: Open MPI's default is used" is_ob1
        ok "$setting: one message" warned_once "the transport isn't used"
        launch "$asked" "$setting" ANGARA_STRICT=1 -- "$probe"
        ok "$setting, ANGARA_STRICT=1: the job ends" has_failed
        ok "$setting, ANGARA_STRICT=1: the message says why" warned_once 'ends because of ANGARA_STRICT'
    done
    settings=(ANGARA_DEVICE=nic)
    ! thorough || settings+=('UCX_NET_DEVICES=angara0,angara1' ANGARA_DEVICE=angara0)
    for setting in "${settings[@]}"; do
        launch "$setting" -- "$probe"
        ok "no list, but $setting: Open MPI's default is used" is_ob1
        ok "no list, but $setting: one message" warned_once "names a NIC; UCX finds no device.*runs over pml/ob1"
        launch "$setting" ANGARA_STRICT=1 -- "$probe"
        ok "no list, but $setting, ANGARA_STRICT=1: the job ends" has_failed
        launch UCX_TLS=tcp,self "$setting" ANGARA_STRICT=1 -- "$probe"
        ok "$setting, and a list without it: no message" is_ob1_silent
    done
    settings=(UCX_NET_DEVICES=^angara0)
    ! thorough || settings+=(UCX_NET_DEVICES=angara 'UCX_NET_DEVICES=angara0,lo' ANGARA_DEVICE=soft)
    for setting in "${settings[@]}"; do
        launch "$setting" ANGARA_STRICT=1 -- "$probe"
        ok "no list, and $setting, which names no NIC: no message" is_ob1_silent
    done
    launch ANGARA_DEVICE=nic ANGARA_GPU=cuda -- "$probe"
    ok "no list, but a NIC and a GPU are named: the job runs" warned_once "names a NIC.*the job runs over pml/"
    launch ANGARA_DEVICE=nic ANGARA_STRICT=1 -- "$shmem"
    ok "no list, but a NIC is named, OpenSHMEM, ANGARA_STRICT=1: the job ends" has_failed
    # shellcheck disable=SC2086 # these are words
    launch UCX_TLS=angara,tcp,self ANGARA_DEVICE=nic -- $ucx "$probe"
    ok "UCX with other transports: one message" warned_once "the transport isn't used.*pml/ucx"
    few=("UCX_TLS=angara,tcp,self" UCX_ANGARA_MAX_PEERS=1)
    launch "${few[@]}" -- "$probe"
    ok "more ranks than it has room for: one message" \
        warned_once "UCX_ANGARA_MAX_PEERS has room for 1.*runs over another transport of UCX"
    ok "more ranks than it has room for: that is true" test "$rc $(stats_sum eager_tx)" = "0 0"
    launch "${few[@]}" ANGARA_STRICT=1 -- "$probe"
    ok "more ranks than it has room for, ANGARA_STRICT=1: the job ends" has_failed
    launch UCX_TLS=angara,self,cma UCX_ANGARA_MAX_PEERS=1 ANGARA_STRICT=1 -- "$probe"
    ok "the same, and nothing beside it carries messages: no message" uses_ours_silently
    settings=('angara,posix,self')
    ! thorough || settings+=('angara,\sysv,self' 'sm,angara')
    for setting in "${settings[@]}"; do
        launch "UCX_TLS=$setting" -- "$probe"
        ok "UCX_TLS=$setting: one message" \
            warned_once "UCX sends short messages by shared memory.*name no other"
        ok "UCX_TLS=$setting: that is true" test "$rc $(stats_sum eager_tx)" = "0 0"
        launch "UCX_TLS=$setting" ANGARA_STRICT=1 -- "$probe"
        ok "UCX_TLS=$setting, ANGARA_STRICT=1: the job runs" test "$rc" = 0
    done
    launch UCX_TLS=all,angara -- "$probe"
    ok "UCX_TLS=all,angara, which UCX refuses: one message, and not about the name" \
        warned_once "isn't used.*UCX finds no device"
    launch UCX_TLS=angara,tcp,self ANGARA_STRICT=1 -- "$probe"
    ok "tcp beside it: no message" uses_ours_silently
    # Of what is left, nothing carries messages, or something does.
    few=(UCX_ANGARA_MAX_PEERS=1 ANGARA_STRICT=1 OMPI_MCA_opal_common_ucx_tls=angara)
    settings=('^tcp,sm,ib')
    ! thorough || settings+=('^tcp,shm,ib' '^ib,tcp,posix,sysv')
    for setting in "${settings[@]}"; do
        launch "UCX_TLS=$setting" "${few[@]}" -- "$probe"
        ok "more ranks than it has room for, UCX_TLS=$setting: no message" uses_ours_silently
    done
    settings=('^tcp,posix')
    ! thorough || settings+=('^sm')
    for setting in "${settings[@]}"; do
        launch "UCX_TLS=$setting" "${few[@]}" -- "$probe"
        ok "more ranks than it has room for, UCX_TLS=$setting: the job ends" has_failed
    done
    # OpenSHMEM is UCX's alone.
    launch UCX_TLS=angara,tcp,self ANGARA_EVENTS=x -- "$shmem"
    ok "OpenSHMEM without a device: one message" warned_once "isn't used.*no device.*another transport of UCX"
    launch UCX_TLS=angara,tcp,self ANGARA_EVENTS=x ANGARA_STRICT=1 -- "$shmem"
    ok "OpenSHMEM without a device, ANGARA_STRICT=1: the job ends" has_failed
    launch UCX_TLS=angara,tcp,self ANGARA_EVENTS=x ANGARA_STRICT=1 -- --mca pml ob1 "$shmem"
    ok "the same, with another pml for MPI: the message says why" warned_once "no device.*ends because of ANGARA_STRICT"
    launch "$asked" ANGARA_STRICT=1 -- "$shmem"
    ok "OpenSHMEM over it, ANGARA_STRICT=1: no message" uses_ours_silently_with_puts
    launch UCX_TLS=angra,self -- env -u OMPI_COMM_WORLD_LOCAL_RANK SLURM_LOCALID=1 "$probe"
    ok "processes that aren't the first of their node, by Slurm: no message" test ! -s "$work/err"
    launch "UCX_TLS=angra,self" ANGARA_STRICT=1 -- "$probe"
    ok "a name much like ours, ANGARA_STRICT=1: the job ends" has_failed
    launch "$asked" -- --mca pml ob1 "$probe"
    ok "an explicit choice: no message" is_ob1_silent
    launch "$asked" ANGARA_STRICT=1 -- --mca pml ob1 "$probe"
    ok "an explicit choice, ANGARA_STRICT=1: it stands" is_ob1
    ok "an explicit choice, ANGARA_STRICT=1: one message" warned_once 'chosen explicitly.*runs over pml/ob1'
    launch "$asked" ANGARA_STRICT=1 -- --mca pml_monitoring_enable 1 "$probe"
    ok "a pml that watches another: no message, no end" uses_ours_silently
    launch "$asked" ANGARA_EVENTS=x ANGARA_STRICT=off -- "$probe"
    ok "ANGARA_STRICT=off: the job runs" is_ob1
    launch "$asked" ANGARA_STRICT=1 -- "$probe"
    ok "ANGARA_STRICT=1 where it is used: nothing else" is_angara
}

# --- Open MPI's tools ------------------------------------------------------------------------------

same_params()
{
    ompi_info --param pml all --level 9 >"$work/out.before"
    env "$asked" ompi_info --param pml all --level 9 >"$work/out"
    diff "$work/out.before" "$work/out" | sed 's/^/# /' # shown where they differ
    cmp -s "$work/out" "$work/out.before"
}

test_tools()
{
    run "$asked" ompi_info
    ok "ompi_info shows the component" grep -q 'MCA hook: angara (MCA' "$work/out"
    run "$asked" ompi_info --param hook angara --level 9
    ok "ompi_info shows its parameters" \
        has_lines 4 'parameter "hook_angara_(enable|plugin|verbose)|informational "hook_angara_version'
    ok "ompi_info is not changed otherwise" same_params
    run "$asked" mpirun --oversubscribe -np 2 true
    ok "mpirun of a program without MPI" has_ended_silently
}

mkdir -p "$work/home"
test_asked
test_user_wins
test_not_asked
test_fallback
test_other_way
test_tools
finish
