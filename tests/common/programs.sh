# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# What test scripts of several layers share: execution of a program and conditions on what it
# printed. Sourced in the project's root. Sets $out to a folder that is removed at exit; the files
# stdout and stderr in it and the variable $rc are those of the last `run`.

# shellcheck source=tests/common/tap.sh
. tests/common/tap.sh

out=$(mktemp -d "${TMPDIR:-/tmp}/angara-test.XXXXXX")
trap 'rm -rf -- "$out"' EXIT
# shellcheck disable=SC2034 # used by tap.sh
shown=("$out/stdout" "$out/stderr")

if [[ $(id -u) == 0 ]]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# How long mpirun waits between SIGTERM and SIGKILL, for all ranks that it ends.
export OMPI_MCA_odls_base_sigkill_timeout=0

# run() for an MPI program without mpirun. Open MPI 5 leaves its folder then, and a segment of the
# transport sm: the one goes with $out, the other isn't made. The others aren't by Debian's own
# setting: openib would sleep for a second at its end.
run_alone()
{
    TMPDIR=$out OMPI_MCA_btl=^sm,uct,openib,ofi run "$@"
}

# Conditions.
rc_is() { [[ $rc == "$1" ]]; }
rc_not() { [[ $rc != "$1" ]]; }
has_line() { grep -Eq -- "$2" "$out/$1"; }
line_count() { [[ $(grep -Ec -- "$2" "$out/$1") == "$3" ]]; }
all_of()
{
    local condition words
    for condition in "$@"; do
        IFS=$'\t' read -r -a words <<<"$condition"
        "${words[@]}" || return 1
    done
}
