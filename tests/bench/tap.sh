# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# What the test scripts of this folder share: TAP output and execution of a program under mpirun.
# Sourced. Sets $out to a folder that is removed at exit; the files stdout and stderr in it and the
# variable $rc are those of the last `run`.

number=0
failures=0
out=$(mktemp -d "${TMPDIR:-/tmp}/angara-bench-test.XXXXXX")
trap 'rm -rf -- "$out"' EXIT

if [[ $(id -u) == 0 ]]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# run SECONDS COMMAND...: keeps output and exit status.
run()
{
    rc=0
    timeout -k 5 "$@" >"$out/stdout" 2>"$out/stderr" </dev/null || rc=$?
}

# ok NAME CONDITION...: one test; shows the last run's output where the condition does not hold.
ok()
{
    local name=$1
    shift
    number=$((number + 1))
    if "$@"; then
        echo "ok $number - $name"
        return
    fi
    echo "not ok $number - $name"
    failures=$((failures + 1))
    {
        echo "condition: $*; exit status of the program: $rc"
        head -n 30 "$out/stdout"
        head -n 30 "$out/stderr"
    } | sed 's/^/#   /'
}

skip()
{
    number=$((number + 1))
    echo "ok $number - $1 # SKIP $2"
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

finish()
{
    echo "1..$number"
    [[ $failures == 0 ]]
}
