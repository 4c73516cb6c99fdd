# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# What the fault scripts share: execution with a time limit, conditions, and the search for what a
# test has left behind. Sourced in the project's root. $rc and the files stdout and stderr in $out
# are those of the last `run`.

# shellcheck source=tests/common/tap.sh
. tests/common/tap.sh

root=$PWD
B=${B:-$root/build}
[[ $B == /* ]] || B=$root/$B
export B
# shellcheck disable=SC2034 # used by the scripts
faults=$B/tests/faults
out=$(mktemp -d "${TMPDIR:-/tmp}/angara-faults.XXXXXX")
trap 'rm -rf -- "$out" ${shared:+"$shared"}' EXIT
# shellcheck disable=SC2034 # used by tap.sh
shown=("$out/stdout" "$out/stderr")

# The environment of the tests, for a script that is run by hand.
if [[ :${LD_LIBRARY_PATH:-}: != *:$B/lib:* ]]; then
    if [[ -e $B/lib/libuct_angara.so ]]; then
        settings=$(scripts/angara_env)
        eval "$settings"
    else
        export LD_LIBRARY_PATH=$B/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    fi
fi
if [[ $(id -u) == 0 ]]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
export OMPI_MCA_rmaps_base_oversubscribe=${OMPI_MCA_rmaps_base_oversubscribe:-true}
export OMPI_MCA_hwloc_base_binding_policy=${OMPI_MCA_hwloc_base_binding_policy:-none}
# Every process of this script carries it, wherever it went.
export FAULT_MARK=$$.$RANDOM
# Open MPI's own memory is not what is tested with a sanitizer here.
export ASAN_OPTIONS=${ASAN_OPTIONS:-}${ASAN_OPTIONS:+:}detect_leaks=0

# Windows that Open MPI allocates within a node would stay with its osc/sm.
export OMPI_MCA_osc=ucx

# mpi SECONDS RANKS [mpirun's options] PROGRAM...: a plain job over the transport.
mpi()
{
    local seconds=$1 ranks=$2
    shift 2
    run "$seconds" mpirun -np "$ranks" -x UCX_TLS=angara,self "$@"
}

# preloaded SECONDS COMMAND...: a program that uses UCX without Open MPI.
preloaded()
{
    local seconds=$1 preload
    shift
    preload=$(eval "$(scripts/angara_env --preload)" && printf %s "$LD_PRELOAD")
    run "$seconds" env LD_PRELOAD="$preload" UCX_TLS=angara,self "$@"
}

# --- conditions ----------------------------------------------------------------------------------

# Exit statuses of the programs, see fault_common.h.
# shellcheck disable=SC2034 # used by the scripts
readonly status_ok=0 status_refused=11 status_gone=13
readonly status_names='0 ok, 10 wrong data, 11 refused, 12 harness, 13 gone, 14 late, 124 timeout'

why()
{
    echo "#   $*"
    return 1
}

rc_is() { [[ $rc == "$1" ]] || why "the status is $rc ($status_names) instead of $1"; }

# Ended by itself, with an error: neither by a signal nor by the time limit.
rc_error()
{
    [[ $rc != 0 && $rc -lt 124 ]] || why "the status is $rc: neither an error nor a clean end"
}

# The job ended with an error: one rank's abort (128 + SIGABRT) or mpirun's own.
rc_job_error()
{
    [[ $rc != 0 && $rc != 124 ]] || why "the job's status is $rc"
}

rc_no_crash() { [[ $rc -lt 124 ]] || why "the status is $rc: a crash or a hang"; }

has_line() { grep -Eq -- "$2" "$out/$1" || why "$1 has no line with $2"; }
no_line() { ! grep -E -- "$2" "$out/$1" || why "$1 has a line with $2"; }
lines_are() { [[ $(wc -l <"$out/$1") == "$2" ]] || why "$1 has not $2 lines"; }

# messages REGEX MIN MAX: so many lines of the library's or the transport's match.
messages()
{
    local count
    count=$(cat "$out/stdout" "$out/stderr" | grep -E "$angara_line" | grep -Ec -- "$1" || true)
    [[ $count -ge $2 && $count -le $3 ]] || why "$count messages with $1 instead of $2 to $3"
}

# Lines by which this stack speaks: the library's own and the Open MPI component's on stderr, and
# those of UCX's log that come from our files, on stdout.
angara_line='\] angara (error|warning): |UCX +[A-Z]+ +(angara: |UCX_ANGARA_)'

# only_messages REGEX MIN MAX: as messages, and there are no others.
only_messages()
{
    messages "$@" || return 1
    ! cat "$out/stdout" "$out/stderr" | grep -E "$angara_line" | grep -Ev -- "$1" |
        sed 's/^/#   other: /' | grep . || return 1
}

# all_of CONDITION... -- CONDITION... -- ...
all_of()
{
    local words=()
    while (($# > 0)); do
        if [[ $1 == -- ]]; then
            "${words[@]}" || return 1
            words=()
        else
            words+=("$1")
        fi
        shift
    done
    "${words[@]}"
}

# --- what is left behind -------------------------------------------------------------------------

# Living processes that carry this script's mark, besides the script and its children.
strays()
{
    local proc pid state
    for proc in /proc/[0-9]*; do
        pid=${proc#/proc/}
        [[ $pid != "$$" && $pid != "$BASHPID" ]] || continue
        grep -qsz "^FAULT_MARK=$FAULT_MARK\$" "$proc/environ" || continue
        state=$(sed -n 's/^State:\t\(.\).*/\1/p' "$proc/status" 2>/dev/null) || continue
        [[ -n $state && $state != [ZX] ]] || continue
        [[ $(sed -n 's/^PPid:\t//p' "$proc/status" 2>/dev/null) != "$$" ]] || continue
        echo "$pid $(tr '\0' ' ' <"$proc/cmdline" 2>/dev/null)"
    done
}

no_strays()
{
    local left tries
    for ((tries = 0; tries < $(slow 40); ++tries)); do
        left=$(strays)
        [[ -n $left ]] || return 0
        sleep 0.05
    done
    why "processes left after $tries looks: $left"
}

# True if this stack or UCX left something in /dev/shm, or anything is left in this test's folder
# for temporary files. Of other jobs' files, which come and go, nothing is seen here.
no_files()
{
    local left
    left=$(find /dev/shm -mindepth 1 -name '*angara*' 2>/dev/null || true)
    [[ -z $left ]] || why "left in /dev/shm: $left" || return 1
    if [[ -n ${TMPDIR:-} ]]; then
        left=$(find "$TMPDIR" -mindepth 1 -not -path "$out" -not -path "$out/*" 2>/dev/null || true)
        [[ -z $left ]] || why "left in TMPDIR: $left" || return 1
    fi
}

nothing_left() { no_strays && no_files; }

# --- namespaces ----------------------------------------------------------------------------------

# Can this user have namespaces of its own?
can_unshare() { unshare "$@" true 2>/dev/null; }

# Copies files to the folder $shared, where every user can read them: neither the build folder nor
# $TMPDIR need be such a place.
share()
{
    shared=$(mktemp -d /tmp/angara-shared.XXXXXX)
    cp -- "$@" "$shared/"
    chmod -R a+rX "$shared"
}

# As an unprivileged user: run 10 "${as_nobody[@]}" COMMAND...
# shellcheck disable=SC2034 # used by the scripts
as_nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
