# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Waiting in test scripts. Sourced by what reports their results.

[[ ${ANGARA_TEST_SLOW:-1} =~ ^[1-9][0-9]{0,2}$ ]] || {
    echo "ANGARA_TEST_SLOW is '$ANGARA_TEST_SLOW', not a number from 1 to 999" >&2
    exit 2
}

# slow SECONDS: prints how many are to be waited where all takes ANGARA_TEST_SLOW times as long. No script
# waits for anything that it expects without this, or what is built on it.
slow() { echo $(($1 * ${ANGARA_TEST_SLOW:-1})); }

# in_time SECONDS COMMAND...: its exit status; 124 or 137 if it had to be ended.
in_time() { timeout -k 5 "$(slow "$1")" "${@:2}"; }

# wait_until SECONDS CONDITION...
wait_until()
{
    local end=$((SECONDS + $(slow "$1")))
    shift
    until "$@"; do
        if ((SECONDS > end)); then
            echo "# waited in vain: $*"
            return 1
        fi
        sleep 0.1
    done
}
