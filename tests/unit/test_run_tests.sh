#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What runs the tests, on lists of its own: scripts/run_tests counts right, says whose fault it was,
# and leaves nothing whichever process is killed, and when.

# Functions are called by name; programs in single quotes are of the tests' own shells.
# shellcheck disable=SC2016,SC2317

set -euo pipefail

cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source-path=SCRIPTDIR
. tests/unit/tap.sh

work=$(mktemp -d)
export TMPDIR=$work # of the tests' folders, too
readonly work project=$work/project
readonly naps=77$$                               # seconds that the stray processes of this test sleep
readonly shared=/dev/shm/ucx_test_run_tests.$$ # neither of them is anybody else's
unset FLAVOR B
trap 'rm -rf -- "$shared" "$work"' EXIT

mkdir -p "$project/scripts" "$project/tests/list.d"
cp -r scripts/run_tests scripts/angara_env scripts/lib "$project/scripts/"

# lists LAYER LINE...: the only list
lists()
{
    rm -f "$project"/tests/list.d/*
    printf '%s\n' "${@:2}" >"$project/tests/list.d/$1.list"
}

# run STATUS ARGUMENT...: run_tests, which is to end like that; its output is in $project/out
run()
{
    local status=0
    "$project/scripts/run_tests" "${@:2}" >"$project/out" 2>&1 || status=$?
    cat "$project/out"
    [[ $status == "$1" ]]
}

said()
{
    grep -qF -- "$1" "$project/out"
}

# refused LINE ARGUMENT...
refused()
{
    if "$project/scripts/run_tests" "${@:2}" >"$project/out" 2>&1; then
        cat "$project/out"
        return 1
    fi
    said "$1"
}

# Processes of a test below $TMPDIR, or those that hide from their mark; folders of tests.
nothing_left()
{
    local left
    left=$(
        grep -lsaF "ANGARA_TEST_MARK=$TMPDIR/" /proc/[0-9]*/environ || true
        pgrep -afx "sleep $naps" || true
        ls -d "$TMPDIR"/at.* 2>/dev/null || true
    )
    [[ -z $left ]] || {
        echo "left: $left"
        return 1
    }
}

counts_add_up()
{
    lists bench \
        'good 9 printf "1..2\nok 1\nok 2\n"' \
        'bad 9 printf "1..2\nok 1\nnot ok 2 - of a pear\n"' \
        'skip 9 printf "1..1\nok 1 - x # SKIP no apples\n"' \
        'planless 9 printf "ok 1\n"' \
        'status 9 printf "1..1\nok 1\n"; exit 3' \
        "late 1 printf '1..1\\nok 1\\n'; sleep $naps" \
        "stray 9 printf '1..1\\nok 1\\n'; sleep $naps >/dev/null 2>&1 &" \
        'file 9 printf "1..1\nok 1\n"; : >$TMPDIR/a' \
        "shared 9 printf '1..1\\nok 1\\n'; : >$shared"
    run 1
    [[ $(tail -n 1 "$project/out") == '9 passed, 7 failed, 1 skipped' ]]
    said 'bench/bad: 2 of a pear'
    said 'bench/skip: 1 x: no apples'
    said 'bench/planless: TAP: No plan found'
    said 'bench/status: all reported tests passed, exit status 3'
    said 'bench/late: not ended after 1 s'
    said 'bench/stray: left behind: process'
    said 'bench/file: left behind: $TMPDIR/a'
    said "bench/shared: left behind: $shared"
    rm "$shared"
    nothing_left
}

arguments_are_checked()
{
    lists unit 'good 9 printf "1..1\nok 1\n"'
    run 0 good
    refused '--jobs needs a number above 0' --jobs 0
    refused "there is no test 'nonsense'" nonsense
    lists unit 'good 9'
    refused 'unit.list:1: not `name seconds command`'
}

# While others run beside it.
a_file_is_reported_once()
{
    lists unit \
        "leaves 9 : >$shared; printf '1..1\\nok 1\\n'" \
        'beside 9 sleep 1; printf "1..1\nok 1\n"' \
        'after 9 printf "1..1\nok 1\n"'
    run 1 --jobs 2
    rm "$shared"
    [[ $(tail -n 1 "$project/out") == '3 passed, 1 failed, 0 skipped' ]]
    said "left behind by one of 3 tests (see --jobs): $shared"
}

# Who watches a test dies: the test doesn't go on, nothing of it stays, the others don't notice.
a_lane_dies()
{
    lists unit \
        "victim 60 echo a; env -i sleep $naps & : >\$TMPDIR/a; kill -KILL \$PPID; sleep $naps" \
        'other 9 sleep 0.5; printf "1..1\nok 1\n"' \
        'after 9 printf "1..1\nok 1\n"'
    mkdir -p "$project/build/test-logs"
    echo 'of an earlier run' >"$project/build/test-logs/unit.victim.log"
    run 1 --jobs 2
    [[ $(tail -n 1 "$project/out") == '2 passed, 1 failed, 0 skipped' ]]
    said 'unit/victim: the process that watched it has died, killed by signal 9'
    [[ ! -s $project/build/test-logs/unit.victim.log ]]
    nothing_left
}

logs_have_no_place()
{
    lists unit 'one 9 printf "1..1\nok 1\n"' 'two 9 printf "1..1\nok 1\n"'
    rm -rf "$project/build"
    mkdir "$project/build"
    : >"$project/build/test-logs"
    run 1
    rm "$project/build/test-logs"
    [[ $(tail -n 1 "$project/out") == '2 passed, 2 failed, 0 skipped' ]]
    said 'unit/one: run_tests: '"$project"'/build/test-logs/unit.one.log: Not a directory'
}

# At any moment: when a lane is being made, a test is being started, has ended, leaves something.
signals_leave_nothing()
{
    local round pid status lines=()
    for round in {1..200}; do
        lines+=("quick$round 9 printf '1..1\\nok 1\\n'" "slow$round 9 sleep 0.05; printf '1..1\\nok 1\\n'")
    done
    lists unit "${lines[@]}"
    for round in {1..20}; do
        : >"$project/out"
        "$project/scripts/run_tests" --jobs 4 >"$project/out" 2>&1 &
        pid=$!
        until [[ -s $project/out ]]; do # from then on signals are expected
            sleep 0.01
        done
        sleep "0.$((10 + RANDOM % 60))"
        case $((round % 3)) in
        0) kill -TERM "$pid" ;;
        1) kill -HUP "$pid" ;;
        2)
            kill -TERM "$pid"
            kill -INT "$pid" 2>/dev/null || true # it may have ended
            ;;
        esac
        status=0
        wait "$pid" || status=$?
        [[ $status == 130 ]] || {
            echo "round $round: exit status $status"
            cat "$project/out"
            return 1
        }
        said 'ended by SIG'
        nothing_left
    done
}

# Who runs all is killed: its lanes notice, and end.
main_dies()
{
    local pid
    lists unit "one 60 printf '1..1\\nok 1\\n'; sleep $naps" "two 60 env -i sleep $naps"
    "$project/scripts/run_tests" --jobs 2 >"$project/out" 2>&1 &
    pid=$!
    sleep 0.5
    kill -KILL "$pid"
    wait "$pid" || true
    for _ in {1..100}; do
        ! nothing_left >"$project/left" || return 0
        sleep 0.1
    done
    cat "$project/left"
    return 1
}

# A lane that is stopped, and output that nobody reads, don't keep from ending.
the_end_waits_for_nobody()
{
    local pid status=0
    lists unit "stop 60 kill -STOP \$PPID; sleep $naps" "long 60 sleep $naps"
    timeout 30 "$project/scripts/run_tests" --jobs 2 >"$project/out" 2>&1 &
    pid=$!
    sleep 0.5
    kill -TERM "$pid"
    wait "$pid" || status=$?
    [[ $status == 130 ]]
    nothing_left

    lists unit "loud 60 head -c 3000000 /dev/zero | tr '\\0' x; exit 1" "long 60 sleep $naps"
    mkfifo "$project/pipe"
    exec 5<>"$project/pipe"
    timeout 30 "$project/scripts/run_tests" --jobs 2 >"$project/pipe" 2>"$project/out" &
    pid=$!
    sleep 1
    kill -TERM "$pid"
    status=0
    wait "$pid" || status=$?
    exec 5<&-
    [[ $status == 130 ]]
    nothing_left
}

nobody_reads()
{
    lists unit 'one 9 printf "1..1\nok 1\n"' "long 60 sleep $naps" \
        'two 9 sleep 0.5; printf "1..1\nok 1\n"' "longer 60 sleep $naps"
    timeout 30 bash -c 'set -o pipefail; "$0" --jobs 2 2>"$1" | head -n 1' \
        "$project/scripts/run_tests" "$project/out" || [[ $? == 130 ]]
    nothing_left
}

check 'each kind of result is counted and named' counts_add_up
check 'wrong arguments and lists are refused' arguments_are_checked
check 'what one of many left is reported once' a_file_is_reported_once
check 'the death of who watches a test fails that test' a_lane_dies
check 'a log that cannot be written fails its test' logs_have_no_place
check 'a signal at any time leaves nothing' signals_leave_nothing
check 'nor does the death of who runs all' main_dies
check 'nor do a lane that is stopped and output that waits' the_end_waits_for_nobody
check 'an end of the output leaves nothing' nobody_reads
tap_end
