#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The OSU-compatible programs: output format, options and their errors, and that validation notices
# wrong data. Runs over Open MPI's own shared memory, so that it tests the programs alone.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/common/programs.sh
. tests/common/programs.sh

bench=${B:-build}/bench
# Leaks of Open MPI are not what is tested here.
export ASAN_OPTIONS="${ASAN_OPTIONS:-}${ASAN_OPTIONS:+:}detect_leaks=0"

mpi()
{
    local ranks=$1 program=$2 stack=(--mca pml ob1 --mca btl "vader,self")
    # OpenSHMEM is UCX's; in Open MPI 4 its programs crash at their end with memory hooks of Open MPI's.
    [[ $program != osu_oshm_* ]] ||
        stack=(--mca pml ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any
            --mca opal_common_ucx_opal_mem_hooks 0 -x "UCX_TLS=posix,cma,self")
    shift 2
    run 60 mpirun -np "$ranks" --oversubscribe "${stack[@]}" "$bench/$program" "$@"
}

float='[0-9]+\.[0-9][0-9]'

# Prints whether stdout is exactly: the header lines $1 (one a line, literal), then the sizes $3
# (blank-separated, or "none") each followed by fields matching the expression $2.
table_is()
{
    local headers=$1 row=$2 sizes=$3 expected lines size i=0
    mapfile -t expected <<<"$headers"
    mapfile -t lines <"$out/stdout"
    for header in "${expected[@]}"; do
        [[ ${lines[i]:-} == "$header" ]] || { echo "# line $i is not '$header'"; return 1; }
        i=$((i + 1))
    done
    if [[ $sizes == none ]]; then
        [[ ${lines[i]:-} =~ ^\ +$row$ ]] || return 1
        i=$((i + 1))
    else
        for size in $sizes; do
            [[ ${lines[i]:-} =~ ^$size\ +$row$ ]] ||
                { echo "# line $i is not a row of size $size"; return 1; }
            i=$((i + 1))
        done
    fi
    [[ ${#lines[@]} == "$i" ]]
}

# format PROGRAM TITLE COLUMN-LINE FIELDS [HEADER-LINES]: plain and validated output, and wrong data. In quick mode
# the first and the last of some programs only.
format()
{
    local program=$1 title="# $2 v7.x-compatible (angara)" columns=$3 fields=$4 extra=${5:-}
    local sizes='4 8 16' options=(-m 4:16)
    title+=${extra:+$'\n'$extra}
    case $program in
    osu_barrier) sizes=none options=() ;;
    osu_fop_latency) sizes=8 options=() ;;
    osu_cas_latency) sizes=8 options=(-w create) ;; # Open MPI 4's osc/rdma crashes in an allocated one
    osu_acc_latency | osu_get_acc_latency) sizes='8 16' ;;
    osu_oshm_atomics) sizes='shmem_longlong_fadd shmem_longlong_cswap' options=() ;;
    esac
    if thorough || [[ $program == osu_latency ]]; then
        mpi 2 "$program" "${options[@]}" -i 5 -x 1
        ok "$program: format" table_is "$title"$'\n'"$columns" "$fields" "$sizes"
    fi
    mpi 2 "$program" "${options[@]}" -i 5 -x 1 -c
    ok "$program: format with validation" \
        table_is "$title"$'\n'"$columns        Validation" "$fields +Pass" "$sizes"
    ok "$program: validated exit status" rc_is 0
    thorough || [[ $program =~ _(latency|bw|bcast|iallreduce|put_mr|atomics)$ ]] || return 0
    ANGARA_BENCH_CORRUPT=1 mpi 2 "$program" "${options[@]}" -i 5 -x 1 -c
    ok "$program: wrong data fail" all_of "rc_not"$'\t'0 \
        "line_count"$'\t'stdout$'\t'"^[a-z_0-9 ]+ +$fields +Fail$"$'\t'1 \
        "has_line"$'\t'stdout$'\t'"^DATA VALIDATION ERROR: $program exited with status 1" \
        "has_line"$'\t'stderr$'\t'"^$program: rank [01]: size [0-9]+, iteration -?[0-9]+: "
}

latency='# Size          Latency (us)'
bandwidth='# Size      Bandwidth (MB/s)'
collective='# Size       Avg Latency(us)'
overlap='# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)'
overlaps="$float +$float +$float +$float"
overall=$'# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n'
window=$'# Window creation: MPI_Win_allocate\n# Synchronization: MPI_Win_flush'

test_formats()
{
    format osu_latency 'OSU MPI Latency Test' "$latency" "$float"
    format osu_multi_lat 'OSU MPI Multi Latency Test' "$latency" "$float"
    format osu_bw 'OSU MPI Bandwidth Test' "$bandwidth" "$float"
    format osu_bibw 'OSU MPI Bi-Directional Bandwidth Test' "$bandwidth" "$float"
    format osu_mbw_mr 'OSU MPI Multiple Bandwidth / Message Rate Test' \
        '# Size                  MB/s        Messages/s' "$float +$float" \
        '# [ pairs: 1 ] [ window size: 64 ]'
    format osu_bcast 'OSU MPI Broadcast Latency Test' "$collective" "$float"
    format osu_reduce 'OSU MPI Reduce Latency Test' "$collective" "$float"
    format osu_allreduce 'OSU MPI Allreduce Latency Test' "$collective" "$float"
    format osu_reduce_scatter 'OSU MPI Reduce_scatter Latency Test' "$collective" "$float"
    format osu_allgather 'OSU MPI Allgather Latency Test' "$collective" "$float"
    format osu_alltoall 'OSU MPI All-to-All Personalized Exchange Latency Test' "$collective" \
        "$float"
    format osu_ibcast 'OSU MPI Non-blocking Broadcast Latency Test' "$overlap" "$overlaps" "$overall"
    format osu_iallreduce 'OSU MPI Non-blocking Allreduce Latency Test' "$overlap" "$overlaps" "$overall"
    format osu_ireduce_scatter 'OSU MPI Non-blocking Reduce_scatter Latency Test' "$overlap" "$overlaps" "$overall"
    format osu_iallgather 'OSU MPI Non-blocking Allgather Latency Test' "$overlap" "$overlaps" "$overall"
    format osu_ialltoall 'OSU MPI Non-blocking All-to-All Latency Test' "$overlap" "$overlaps" "$overall"
    format osu_barrier 'OSU MPI Barrier Latency Test' '# Avg Latency(us)' "$float"
    format osu_put_latency 'OSU MPI_Put Latency Test' "$latency" "$float" "$window"
    format osu_get_latency 'OSU MPI_Get latency Test' "$latency" "$float" "$window"
    format osu_put_bw 'OSU MPI_Put Bandwidth Test' "$bandwidth" "$float" "$window"
    format osu_get_bw 'OSU MPI_Get Bandwidth Test' "$bandwidth" "$float" "$window"
    format osu_acc_latency 'OSU MPI_Accumulate latency Test' "$latency" "$float" "$window"
    format osu_get_acc_latency 'OSU MPI_Get_accumulate latency Test' "$latency" "$float" "$window"
    format osu_fop_latency 'OSU MPI_Fetch_and_op latency Test' "$latency" "$float" "$window"
    format osu_cas_latency 'OSU MPI_Compare_and_swap latency Test' "$latency" "$float" \
        "${window/allocate/create}"
}

test_shmem()
{
    if [[ ! -x $bench/osu_oshm_put ]]; then
        skip 'OpenSHMEM' 'there is no oshcc'
        return
    fi
    format osu_oshm_put 'OSU OpenSHMEM Put Test' "$latency" "$float"
    format osu_oshm_get 'OSU OpenSHMEM Get Test' "$latency" "$float"
    format osu_oshm_put_mr 'OSU OpenSHMEM Put Message Rate Test' '# Size            Messages/s' "$float"
    format osu_oshm_atomics 'OSU OpenSHMEM Atomic Operation Rate Test' \
        '# Operation              Million ops/s      Latency (us)' "$float +$float"
}

test_options()
{
    local full='   Min Latency(us)   Max Latency(us)  Iterations' long

    mpi 3 osu_bcast -m 4:8 -i 5 -x 1 -f
    ok 'full statistics' table_is \
        "# OSU MPI Broadcast Latency Test v7.x-compatible (angara)"$'\n'"$collective$full" \
        "$float +$float +$float +5" '4 8'
    long=(--message-size 1:2 --iterations 3 --warmup 0 --validation --full
        --validation-warmup 0 --mem-limit 1000000)
    mpi 2 osu_allgather "${long[@]}"
    ok 'long options' all_of "rc_is"$'\t'0 "line_count"$'\t'stdout$'\t'" 3 +Pass$"$'\t'2
    mpi 2 osu_bw -m 0:3 -i 2 -x 0 -W 3 -b multiple -c
    ok 'sizes from zero, not a power of two at the end' line_count stdout '^(0|1|2) .* Pass$' 3
    mpi 2 osu_latency -m 24: -i 1 -x 0 -M 200
    ok 'a memory limit leaves sizes out, and says so' all_of \
        "line_count"$'\t'stdout$'\t'"^[0-9]"$'\t'3 \
        "line_count"$'\t'stderr$'\t'"^osu_latency: sizes above 100 bytes are left out"$'\t'1
    mpi 2 osu_latency -m 8:16 -i 10 -x 0 -c -U 4194304
    ok 'a long message waits' all_of "rc_is"$'\t'0 "line_count"$'\t'stdout$'\t'" Pass$"$'\t'2
    mpi 4 osu_mbw_mr -m 8:8 -i 2 -x 0 -p 1 -R 0 -c
    ok 'one pair of four ranks, no rate' all_of "rc_is"$'\t'0 \
        "has_line"$'\t'stdout$'\t'"^# \[ pairs: 1 \] \[ window size: 64 \]$" \
        "has_line"$'\t'stdout$'\t'"^8 +$float +Pass$"
    mpi 4 osu_mbw_mr -m 8:16 -i 2 -x 1 -o -c
    ok 'one sender, three receivers' all_of "rc_is"$'\t'0 \
        "has_line"$'\t'stdout$'\t'"^# \[ pairs: 3 \] \[ window size: 64 \]$" \
        "line_count"$'\t'stdout$'\t'"^(8|16) +$float +$float +Pass$"$'\t'2
    mpi 4 osu_multi_lat -m 8:8 -i 2 -x 0 -c
    ok 'two pairs' all_of "rc_is"$'\t'0 "has_line"$'\t'stdout$'\t'"^8 +$float +Pass$"
    mpi 5 osu_alltoall -m 1:32768 -i 2 -x 0 -c
    ok 'five ranks' all_of "rc_is"$'\t'0 "line_count"$'\t'stdout$'\t'" Pass$"$'\t'16
    mpi 3 osu_reduce_scatter -m 4:4096 -i 2 -x 0 -c
    ok 'a sum is scattered in unequal parts' all_of "rc_is"$'\t'0 "line_count"$'\t'stdout$'\t'" Pass$"$'\t'11
    mpi 3 osu_reduce -m 3:9 -i 2 -x 0 -c
    ok 'reductions take multiples of four bytes' all_of "rc_is"$'\t'0 \
        "line_count"$'\t'stdout$'\t'"^[48] .*Pass$"$'\t'2
    ANGARA_BENCH_PRECISION=4 mpi 2 osu_latency -m 8:8 -i 10 -x 0
    ok 'more digits' has_line stdout '^8 +[0-9]+\.[0-9]{4}$'
    mpi 2 osu_get_bw -h
    ok 'help' all_of "rc_is"$'\t'0 "line_count"$'\t'stdout$'\t'"^Usage: "$'\t'1 \
        "has_line"$'\t'stdout$'\t'"^  -s, --sync-option SYNC "
    mpi 2 osu_bw --version
    ok 'version' all_of "rc_is"$'\t'0 "line_count"$'\t'stdout$'\t'"v7.x-compatible"$'\t'1
}

# rma PROGRAM WINDOW SYNC SIZES OPTIONS...
rma()
{
    local program=$1 options=(-i 3 -x 1 -c -w "$2" -s "$3" "${@:5}")
    mpi 2 "$program" "${options[@]}"
    ok "$program -w $2 -s $3" all_of "rc_is"$'\t'0 "line_count"$'\t'stdout$'\t'" Pass$"$'\t'"$4"
}

test_rma()
{
    local type sync program programs=(put_latency get_bw) types=(allocate create dynamic)
    thorough || programs=(put_latency) types=(dynamic)
    for program in "${programs[@]}"; do
        local options=(-m 1:16384)
        [[ $program == put_latency ]] || options+=(-W 4)
        for sync in flush_local lock lock_all pscw fence; do
            rma "osu_$program" allocate "$sync" 15 "${options[@]}"
        done
        for type in create dynamic; do
            rma "osu_$program" "$type" flush 15 "${options[@]}"
        done
    done
    for type in allocate create; do
        rma osu_put_latency "$type" lock 15 -m 1:16384 -t 100
        rma osu_acc_latency "$type" flush 12 -m 8:16384 -t 100
    done
    for type in "${types[@]}"; do
        rma osu_get_latency "$type" flush 15 -m 1:16384
        rma osu_put_bw "$type" flush 15 -m 1:16384 -W 4
        for program in acc_latency get_acc_latency; do
            rma "osu_$program" "$type" flush 12 -m 8:16384
            rma "osu_$program" "$type" fence 12 -m 8:16384
        done
        for program in fop_latency cas_latency; do
            [[ $program$type != cas_latencyallocate ]] || continue # see above
            rma "osu_$program" "$type" flush 1
            rma "osu_$program" "$type" lock 1
        done
    done
}

# wrong PATTERN RANKS PROGRAM OPTIONS...: one message from one rank, status 1; with usage, if $usage.
# 0 ranks: without mpirun, which is quicker and takes no argument for its own.
wrong()
{
    local pattern=$1
    shift
    if [[ $1 == 0 ]]; then
        run_alone 60 "$bench/$2" "${@:3}"
    else
        mpi "$@"
    fi
    ok "error: ${*:2} (on $1)" all_of "rc_is"$'\t'1 \
        "line_count"$'\t'stderr$'\t'"^$2: $pattern"$'\t'1 \
        "line_count"$'\t'stderr$'\t'"^Usage: "$'\t'"$usage" \
        "line_count"$'\t'stdout$'\t'"^#"$'\t'0
}

test_errors()
{
    local usage=1
    wrong "unknown option '-Z'" 2 osu_latency -Z
    wrong "unknown option '--nonsense'" 0 osu_latency --nonsense
    wrong "unknown option '-W'" 0 osu_latency -W 5
    wrong "unknown option '-U'" 0 osu_bw -U 5
    wrong "wrong value 'x' of option -U" 0 osu_latency -U x
    wrong "unknown option '-m'" 0 osu_barrier -m 5
    wrong "option '-m' needs a value" 0 osu_bw -m
    wrong "argument 'D' needs option -d" 0 osu_bw D D
    wrong "unexpected argument 'D'" 0 osu_allreduce D D
    wrong "wrong value '4x' of option -m" 0 osu_bw -m 4x
    wrong "wrong value '-4' of option -m" 0 osu_bw -m -4
    wrong "wrong value ':' of option -m" 0 osu_bw -m :
    wrong "wrong value '4294967296' of option -m" 0 osu_bw -m 4294967296
    wrong "wrong value '99999999999999999999' of option -m" 0 osu_bw -m 99999999999999999999
    wrong "the smallest message size, 9, is above the largest, 8" 0 osu_bw -m 9:8
    wrong "the smallest message size, 4, is above the largest, 2" 0 osu_allreduce -m 2
    wrong "wrong value '0' of option -i" 0 osu_bw -i 0
    wrong "wrong value '' of option -x" 0 osu_bw -x ''
    wrong "wrong value '0' of option -W" 0 osu_bw -W 0
    wrong "wrong value 'two' of option -b" 0 osu_bw -b two
    wrong "wrong value '2' of option -R" 0 osu_mbw_mr -R 2
    wrong "wrong value '0' of option -M" 0 osu_bcast -M 0
    wrong "wrong value 'malloc' of option -w" 0 osu_put_latency -w malloc
    wrong "wrong value 'hope' of option -s" 0 osu_get_bw -s hope
    usage=0
    wrong 'this test requires exactly 2 processes, there are 3' 3 osu_latency
    wrong 'this test requires at least 2 processes, there are 1' 1 osu_bcast
    wrong 'this test requires an even number of processes, there are 3' 3 osu_multi_lat
    wrong '2 pairs need 4 processes, there are 3' 3 osu_mbw_mr -p 2
    wrong 'a target that computes \(-t\) takes no part in pscw and fence' 2 osu_put_latency -s fence -t 5
    wrong 'messages of 512 bytes need 1024 bytes of buffers' 2 osu_latency -m 512: -M 1000
}

test_cacheline()
{
    run 60 "$bench/cacheline_pingpong" -n 1000
    if [[ $(nproc) -lt 2 ]]; then
        ok 'cacheline_pingpong: needs two CPUs' all_of "rc_is"$'\t'1 \
            "has_line"$'\t'stderr$'\t'"two CPUs are needed"
    else
        ok 'cacheline_pingpong: format' all_of "rc_is"$'\t'0 \
            "line_count"$'\t'stdout$'\t'"^cacheline_pingpong 8 [0-9]+\.[0-9] ns$"$'\t'1
    fi
    run 60 "$bench/cacheline_pingpong" -c 0,0
    ok 'cacheline_pingpong: the same CPU twice' all_of "rc_is"$'\t'1 \
        "has_line"$'\t'stderr$'\t'"wrong value '0,0' of option -c"
    run 60 "$bench/cacheline_pingpong" -c 0,99999
    ok 'cacheline_pingpong: no such CPU' all_of "rc_is"$'\t'1 \
        "has_line"$'\t'stderr$'\t'"CPU 99999"
    run 60 "$bench/cacheline_pingpong" -n 1x
    ok 'cacheline_pingpong: wrong count' all_of "rc_is"$'\t'1 \
        "has_line"$'\t'stderr$'\t'"wrong value '1x' of option -n"
}

test_formats
test_shmem
test_options
test_rma
test_errors
test_cacheline
finish
