#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Wrong device names and wrong values of every ANGARA_* variable, in a program that uses only the
# library: one message that names the variable, an error, and nothing worse.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/faults/tap.sh
. tests/faults/tap.sh

pair=$faults/fault_pair

# Wrong for every variable, whatever its type.
wrong_values=('' nonsense -1 '5 apples' 99999999999999999999999 '%s%n' "$(printf 'x%.0s' {1..5000})")
! thorough || wrong_values+=(' 5' 0x 1e3)

# Just outside of what the help text allows.
declare -A outside=(
    [ANGARA_SOFT_NODE]='4294967295'
    [ANGARA_CHAOS]='18446744073709551616'
    [ANGARA_CHAOS_DELAY]='1000001'
    [ANGARA_WINDOW_SIZE]='4095 2T 1P'
    [ANGARA_EVENTS]='8 100 131072'
    [ANGARA_MR_MAX]='15 16777217'
    [ANGARA_PEER_CHECK]='0 60001'
    [ANGARA_SOFT_ANSWER]='99 3600001'
    [ANGARA_TURN_BYTES]='8191 2T'
    [ANGARA_JOINT_MIN]='4095 2T'
    [ANGARA_ASKED_MAX]='4095 2T'
    [ANGARA_PEER_WAIT]='0 60001'
    [ANGARA_JOB_KEY]='72057594037927936'
)
declare -A inside=(
    [ANGARA_DEVICE]='soft soft0 auto'
    [ANGARA_GPU]='auto rocm CUDA none'
    [ANGARA_LOG_LEVEL]='error warn INFO debug'
    [ANGARA_SOFT_NODE]='0 4294967294'
    [ANGARA_SOFT_LOOPBACK]='n NO 0 off false y'
    [ANGARA_SOFT_CMA]='n y'
    [ANGARA_SOFT_CATCH]='n y'
    [ANGARA_WATCH]='n y'
    [ANGARA_SOFT_ANSWER]='100 3600000'
    [ANGARA_TURN_BYTES]='8K 1T'
    [ANGARA_JOINT_MIN]='4K 1T'
    [ANGARA_ASKED_MAX]='4K 1T'
    [ANGARA_PEER_WAIT]='1 60000'
    [ANGARA_JOB_KEY]='0 1 72057594037927935'
    [ANGARA_CHAOS]='0 18446744073709551615'
    [ANGARA_CHAOS_DELAY]='0 1000000'
    [ANGARA_WINDOW_SIZE]='4096 4K 4k 1M 64MB 1T'
    [ANGARA_EVENTS]='16 65536 0x100'
    [ANGARA_MR_MAX]='16 16777216'
    [ANGARA_PEER_CHECK]='1 60000'
)

refused() { all_of rc_is "$status_refused" -- only_messages "$1" 1 1; }

run 10 "$pair" --vars
ok 'the library lists its variables' all_of rc_is "$status_ok" -- has_line stdout '^ANGARA_DEVICE'
mapfile -t names < <(cut -f1 "$out/stdout")

# Reports "all is well" for a whole list of values as one test: there are hundreds.
each_value()
{
    local name=$1 value
    shift
    for value in "$@"; do
        run 10 env "$name=$value" "$pair" --open
        refused "\\b$name\\b" || why "with $name=${value:0:40}" || return 1
    done
}

each_good()
{
    local name=$1 value
    shift
    for value in "$@"; do
        run 10 env "$name=$value" "$pair" --open
        all_of rc_is "$status_ok" -- only_messages . 0 0 || why "with $name=$value" || return 1
    done
}

for name in "${names[@]}"; do
    ok "$name: wrong values" each_value "$name" "${wrong_values[@]}"
    # shellcheck disable=SC2086 # lists of words
    [[ -z ${outside[$name]:-} ]] ||
        ok "$name: out of range" each_value "$name" ${outside[$name]}
    if [[ -n ${inside[$name]:-} ]]; then
        # shellcheck disable=SC2086
        ok "$name: the limits are allowed" each_good "$name" ${inside[$name]}
    else
        ok "$name: this script knows its range" false
    fi
done

for device in nosuch soft1 /dev/angara0 ../soft; do
    run 10 env ANGARA_DEVICE="$device" "$pair" --open
    ok "ANGARA_DEVICE=$device" refused "ANGARA_DEVICE.*|\"$device\""
    run 10 "$pair" --open --device "$device"
    ok "device $device" refused "\"$device\""
done
for device in nic angara0; do
    run 10 env ANGARA_DEVICE="$device" "$pair" --open
    ok "ANGARA_DEVICE=$device" refused 'no NIC behind /dev/angara0.*angara_nic.*ANGARA_DEVICE=soft'
    run 10 "$pair" --open --device "$device"
    ok "device $device" refused 'no NIC behind /dev/angara0'
done

run 10 env ANGARA_EVENTS=7 ANGARA_MR_MAX=many "$pair" --open
ok 'two wrong values, two messages' all_of rc_is "$status_refused" -- only_messages ANGARA_ 2 2 -- \
    messages ANGARA_EVENTS 1 1 -- messages ANGARA_MR_MAX 1 1

run 10 env ANGARA_NOSUCH=1 "$pair"
ok 'an unknown variable is named, nothing else happens' all_of rc_is "$status_ok" -- \
    only_messages 'warning: .*\bANGARA_NOSUCH\b' 2 2 # by each of the two processes
run 10 env ANGARA_EVENT=64 ANGARA_="" "$pair" --open
ok 'so is one that is nearly right' all_of rc_is "$status_ok" -- messages '\bANGARA_EVENT\b' 1 1
run 10 env ANGARA_LOG_LEVEL=error ANGARA_NOSUCH=1 "$pair" --open
ok 'no warning is printed at level error' all_of rc_is "$status_ok" -- only_messages . 0 0
run 10 env ANGARA_TEST_X=1 ANGARA_UCT_PLUGIN=x NOT_ANGARA_X=1 "$pair" --open
ok 'no warning about names of others' all_of rc_is "$status_ok" -- only_messages . 0 0

# Nothing of the two processes agrees, and still the data is right or an error is clear.
run 20 "$pair" --peer-env ANGARA_SOFT_NODE=5
ok 'peers of different nodes' all_of rc_is "$status_refused" -- has_line stdout "can't be reached"
run 20 "$pair" --peer-env ANGARA_EVENTS=1024
ok 'peers with different event rings' rc_is "$status_ok"
run 20 "$pair" --peer-env ANGARA_MR_MAX=16
ok 'peers with different region tables' rc_is "$status_ok"
run 20 "$pair" --peer-env ANGARA_SOFT_CMA=n
ok 'one peer without process_vm' rc_is "$status_ok"
run 20 "$pair" --peer-env ANGARA_SOFT_LOOPBACK=n
ok 'one peer without loopback' rc_is "$status_ok"
run 20 "$pair" --size 65536 --rounds 1 --peer-env ANGARA_CHAOS=3
ok 'one peer in chaos' rc_is "$status_ok"
ok 'nothing is left' nothing_left

finish
