# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Sourced by the scripts that run MPI programs: where things are, a temporary folder that goes
# away, and what the transport's counters say.

# shellcheck source=tests/common/tap.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../common/tap.sh"

: "${B:=build}"
export B

if ((EUID == 0)); then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Leaks in Open MPI and UCX are not ours to find; UCX handles SIGSEGV itself.
export ASAN_OPTIONS=detect_leaks=0:handle_segv=0:${ASAN_OPTIONS:-}

work=$(mktemp -d "${TMPDIR:-/tmp}/angara-mpi.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
trap 'exit 143' TERM INT

# stats_sum NAME...: the sum of these counters over all processes that wrote stats.* below $work
stats_sum()
{
    find "$work" -name 'stats.*' -exec cat {} + |
        awk -v names="$*" 'index(" " names " ", " " $1 " ") { sum += $2 } END { print sum + 0 }'
}

stats_files()
{
    find "$work" -name 'stats.*' | wc -l
}

# Prints a file as TAP comments.
as_comments()
{
    sed 's/^/# /' "$1"
}
