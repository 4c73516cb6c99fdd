# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# TAP output of test scripts. Sourced by each layer's own helpers, which set $rc and $shown.

# shellcheck source-path=SCRIPTDIR
. "$(dirname -- "${BASH_SOURCE[0]}")/wait.sh"

number=0
failures=0
rc=0     # exit status of the last command that was run for a test
shown=() # files with its output, to show where a test fails

# run SECONDS COMMAND...: keeps the output in $out, a folder of the caller's, and the exit status; 124 and 137
# mean that it took too long.
run()
{
    rc=0
    in_time "$@" >"$out/stdout" 2>"$out/stderr" </dev/null || rc=$?
    # What prterun passes on may have a NUL at its begin. Then grep finds no first line, or none.
    sed -i 's/\x00//g' -- "$out/stdout" "$out/stderr"
}

# ok NAME CONDITION...: one test; shows the last command's output where the condition does not hold.
ok()
{
    local name=$1 file
    shift
    number=$((number + 1))
    if "$@"; then
        echo "ok $number - $name"
        return
    fi
    echo "not ok $number - $name"
    failures=$((failures + 1))
    {
        echo "condition: $*; exit status of the last command: $rc"
        for file in "${shown[@]}"; do
            head -n 40 "$file"
        done
    } | cut -c -600 | sed 's/^/#   /'
}

# Is all of it to be tried? Else, with ANGARA_TEST_QUICK, less of what is much alike.
thorough() { [[ -z ${ANGARA_TEST_QUICK:-} ]]; }

# Conditions for ok().
not() { ! "$@"; }

skip()
{
    number=$((number + 1))
    echo "ok $number - $1 # SKIP $2"
}

finish()
{
    echo "1..$number"
    [[ $failures == 0 ]]
}
