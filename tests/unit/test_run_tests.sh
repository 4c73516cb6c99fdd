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
rounds=6 # of what is killed at any time
[[ -z ${ANGARA_TEST_QUICK:-} ]] || rounds=3
readonly rounds
unset FLAVOR B ANGARA_TEST_SLOW ANGARA_TEST_QUICK
trap 'rm -rf -- "$shared" "$work"' EXIT

mkdir -p "$project/scripts" "$project/tests/list.d"
cp -r scripts/run_tests scripts/angara_env scripts/lib "$project/scripts/"

# lists LAYER LINE...: the only list
lists()
{
    rm -f "$project"/tests/list.d/*
    printf '%s\n' "${@:2}" >"$project/tests/list.d/$1.list"
}

# lists_many COUNT COMMAND...: a list with so many tests of each
lists_many()
{
    local i command lines=()
    for ((i = 0; i < $1; ++i)); do
        for command in "${@:2}"; do
            lines+=("test${#lines[@]} 9 $command")
        done
    done
    lists unit "${lines[@]}"
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

# start ARGUMENT...: run_tests, as process $pid
start()
{
    "$project/scripts/run_tests" "$@" >"$project/out" 2>&1 &
    pid=$!
}

# soon CONDITION...: waits until it holds.
soon()
{
    wait_until 30 "$@" || {
        cat "$project/out"
        return 1
    }
}

# sleeping NUMBER: so many stray processes do.
sleeping() { [[ $(pgrep -cfx "sleep $naps") == "$1" ]]; }

# ends STATUS PID: so does that child, and soon.
ends()
{
    local status=0
    timeout 30 tail --pid="$2" -s 0.05 -f /dev/null || kill -KILL "$2"
    wait "$2" || status=$?
    [[ $status == "$1" ]] || {
        echo "exit status $status, not $1"
        cat "$project/out"
        return 1
    }
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
        'early 9 printf "not ok 1 - lost\n1..1\nok 1\n1..1\nok 1\n"' \
        'todo 9 printf "1..2\nnot ok 1 - later # \x54ODO\nnot ok 2 # SKIP never\n"' \
        'status 9 printf "1..1\nok 1\n"; exit 3' \
        "late 1 printf '1..1\\nok 1\\n'; sleep $naps" \
        "stray 9 printf '1..1\\nok 1\\n'; sleep $naps >/dev/null 2>&1 &" \
        'file 9 printf "1..1\nok 1\n"; : >$TMPDIR/a' \
        "shared 9 printf '1..1\\nok 1\\n'; : >$shared"
    run 1
    [[ $(tail -n 1 "$project/out") == '11 passed, 10 failed, 2 skipped' ]]
    said 'bench/bad: 2 of a pear'
    said 'bench/skip: 1 x: no apples'
    said 'bench/planless: TAP: No plan found'
    said 'bench/early: 1 lost'
    said 'bench/early: TAP: No plan found'
    said 'bench/todo: 1 later'
    said 'bench/todo: 2: never'
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
    refused "there is no layer 'nonsense'" -l unit -l nonsense
    lists unit 'good 9'
    refused 'unit.list:1: not `name seconds command`'
}

long_lists_run_if_asked()
{
    lists unit 'good 9 printf "1..1\nok 1\n"'
    mkdir "$project/tests/list.d/long"
    printf '%s\n' 'rare 9 printf "1..2\nok 1\nok 2\n"' >"$project/tests/list.d/long/unit.list"
    run 0
    [[ $(tail -n 1 "$project/out") == '1 passed, 0 failed, 0 skipped' ]]
    run 0 --long -l unit
    [[ $(tail -n 1 "$project/out") == '2 passed, 0 failed, 0 skipped' ]]
    run 0 rare good
    [[ $(tail -n 1 "$project/out") == '3 passed, 0 failed, 0 skipped' ]]
    rm -r "$project/tests/list.d/long"
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

# Each of many processes starts the next one and ends, in a session of its own.
a_chain_is_found()
{
    local chain='setpgrp; for (1 .. 4000) { exit if fork; POSIX::setsid(); sleep 0.002 }'
    lists bench "chain 9 printf '1..1\\nok 1\\n'; perl -MPOSIX -MTime::HiRes=sleep -e '$chain' >/dev/null 2>&1 &"
    run 1
    said 'bench/chain: left behind: process'
    nothing_left
}

# Who is told to end can tidy up, though it isn't the first process, and before who it has started.
the_end_is_told_from_the_top()
{
    local child='trap "echo child >>$PWD/told; exit" TERM; while :; do sleep 0.1; done'
    local parent="trap 'echo parent >>\$PWD/told; kill \$c; wait; exit' TERM; bash -c '$child' & c=\$!; wait"
    rm -f "$project/told"
    printf '%s\n' "$parent" >"$project/parent.sh"
    lists bench 'top 5 bash parent.sh; true' # they have come so far by then
    run 1
    [[ $(head -n 1 "$project/told") == parent && $(grep -c child "$project/told") == 1 ]]
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

# At any moment, too: each test is counted once.
lanes_die()
{
    local pid lane round
    lists_many 60 'sleep 0.02; printf "1..1\nok 1\n"'
    for ((round = 3; round <= rounds; round += 3)); do
        start --jobs 3
        for _ in {1..8}; do
            sleep "0.0$((10 + RANDOM % 90))"
            for lane in $(pgrep -P "$pid" run_tests | shuf -n 1); do
                kill -KILL "$lane" 2>/dev/null || true # it may have ended
            done
        done
        ends 1 "$pid"
        awk '{ exit !($1 + $3 == 60 && $3 > 0) }' <<<"$(tail -n 1 "$project/out")"
        nothing_left
    done
}

# A process whose first thread has ended.
a_headless_process_is_found()
{
    local program='import threading, time, ctypes
threading.Thread(target=time.sleep, args=(30,)).start()
ctypes.CDLL(None).pthread_exit(None)'
    printf '%s\n' "$program" >"$project/headless.py"
    lists bench "headless 9 printf '1..1\\nok 1\\n'; setsid python3 headless.py $naps >/dev/null 2>&1 & sleep 1"
    run 1
    said 'bench/headless: left behind: process'
    nothing_left
    ! pgrep -fx "python3 headless.py $naps"
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
    local round pid signal
    lists_many 200 'printf "1..1\nok 1\n"' 'sleep 0.05; printf "1..1\nok 1\n"'
    for ((round = 1; round <= rounds; round++)); do
        : >"$project/out"
        start --jobs 4
        soon test -s "$project/out" # from then on signals are expected
        sleep "0.$((10 + RANDOM % 60))"
        signal=TERM
        ((round % 3)) || signal=HUP
        kill "-$signal" "$pid"
        ((round % 2)) || kill -INT "$pid" 2>/dev/null || true # it may have ended
        ends $((128 + $(kill -l "$signal"))) "$pid"
        said "ended by SIG$signal"
        nothing_left
    done
}

# What is ignored where run_tests is started does nothing.
nohup_is_kept()
{
    local pid
    lists unit 'one 9 sleep 1; printf "1..1\nok 1\n"'
    : >"$project/out"
    nohup "$project/scripts/run_tests" >"$project/out" 2>&1 &
    pid=$!
    soon pgrep -P "$pid" >/dev/null
    kill -HUP "$pid"
    ends 0 "$pid"
    said '1 passed, 0 failed'
}

# Of an end that nobody could wait for.
soon_nothing_left()
{
    soon nothing_left >"$project/left" || {
        tail -n 5 "$project/left"
        return 1
    }
}

# Who runs all is killed: its lanes notice, and end.
main_dies()
{
    local pid round
    lists unit "one 60 printf '1..1\\nok 1\\n'; sleep $naps" "two 60 env -i sleep $naps"
    start --jobs 2
    soon sleeping 2
    kill -KILL "$pid"
    wait "$pid" || true
    soon_nothing_left

    lists_many 200 'printf "1..1\nok 1\n"'
    for ((round = 2; round < rounds; round++)); do
        start --jobs 3
        sleep "0.$((10 + RANDOM % 80))"
        kill -KILL "$pid"
        wait "$pid" || true
        soon_nothing_left
    done
}

# A lane that is stopped, and output that nobody reads, don't keep from ending.
the_end_waits_for_nobody()
{
    local pid
    lists unit "stop 60 kill -STOP \$PPID; sleep $naps" "long 60 sleep $naps"
    start --jobs 2
    soon sleeping 2
    kill -TERM "$pid"
    ends 143 "$pid"
    nothing_left

    lists unit "loud 60 head -c 3000000 /dev/zero | tr '\\0' x; exit 1" "long 60 sleep $naps"
    mkfifo "$project/pipe"
    exec 5<>"$project/pipe"
    "$project/scripts/run_tests" --jobs 2 >"$project/pipe" 2>"$project/out" &
    pid=$!
    soon sleeping 1
    sleep 1 # until the pipe is full, if nobody else is busy
    kill -TERM "$pid"
    ends 143 "$pid"
    exec 5<&-
    nothing_left
}

nobody_reads()
{
    lists unit 'one 9 printf "1..1\nok 1\n"' "long 60 sleep $naps" \
        'two 9 sleep 0.5; printf "1..1\nok 1\n"' "longer 60 sleep $naps"
    timeout 30 bash -c 'set -o pipefail; "$0" --jobs 2 2>"$1" | head -n 1' \
        "$project/scripts/run_tests" "$project/out" || [[ $? == 141 ]]
    nothing_left
}

slow_is_given_time()
{
    lists unit 'one 1 sleep 2; echo "1..1"; echo "ok 1 - slow $ANGARA_TEST_SLOW"'
    run 1
    said 'not ended after 1 s'
    ANGARA_TEST_SLOW=9 run 0 -v
    said 'slow 9'
    ANGARA_TEST_SLOW=much refused "ANGARA_TEST_SLOW is 'much'"
}

check 'each kind of result is counted and named' counts_add_up
check 'wrong arguments and lists are refused' arguments_are_checked
check 'the long lists run only if they are asked for' long_lists_run_if_asked
check 'a slow machine is given time' slow_is_given_time
check 'processes that start each other are found' a_chain_is_found
check 'processes are told to end from the top' the_end_is_told_from_the_top
check 'what one of many left is reported once' a_file_is_reported_once
check 'the death of who watches a test fails that test' a_lane_dies
check 'nor are tests lost where many of those die' lanes_die
check 'a process without its first thread is found' a_headless_process_is_found
check 'a log that cannot be written fails its test' logs_have_no_place
check 'a signal at any time leaves nothing' signals_leave_nothing
check 'a signal that is ignored stays so' nohup_is_kept
check 'nor does the death of who runs all' main_dies
check 'nor do a lane that is stopped and output that waits' the_end_waits_for_nobody
check 'an end of the output leaves nothing' nobody_reads
tap_end
