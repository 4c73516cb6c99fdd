#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The proof that the tests of atomics see what they are for: each deliberate error of the mutants' build (see
# docs/protocols.md, "Mutants") must make them fail; without one they must pass. Prints TAP. $B is the mutants' build
# folder.

set -euo pipefail
# shellcheck source=tests/common/tap.sh
. "$(dirname -- "$(realpath -- "$0")")/../common/tap.sh"

readonly program=${B:-build/mutants}/tests/conformance/test_ways
readonly rounds=5 # until an error must have shown
export CMOCKA_MESSAGE_OUTPUT=TAP

# Does a test of it fail?
fails()
{
    ! in_time 60 "$program" >/dev/null 2>&1
}

fails_soon()
{
    local round
    for ((round = 0; round < rounds; round++)); do
        if fails; then
            return 0
        fi
    done
    return 1
}

if [[ ! -x $program ]]; then
    echo "1..0 # SKIP $program is not built (make FLAVOR=mutants mutant-tests)"
    exit 0
fi
ok "no mutant: it passes" not fails
ANGARA_MUTANT=atomic_in_two ok "an atomic that is a read and a write is caught" fails_soon
ANGARA_MUTANT=both_serve ok "a request that helper thread and progress both take is caught" fails_soon
finish
