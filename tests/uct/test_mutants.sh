#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The proof of the completion rules: each deliberate error of the mutants' build (see
# docs/protocols.md, "Mutants") must make the data-integrity tests fail in chaos mode, with every
# seed; without one they must pass. Prints TAP. $B is the mutants' build folder.

set -euo pipefail
# shellcheck source=tests/common/tap.sh
. "$(dirname -- "$(realpath -- "$0")")/../common/tap.sh"

readonly build=${B:-build/mutants}
readonly program=$build/tests/uct/test_complete
seeds=(1 2)
thorough || seeds=(1)

# Long delays, so that a busy machine doesn't hide an early completion.
export ANGARA_CHAOS_DELAY=200
export UCX_LOG_LEVEL=fatal CMOCKA_MESSAGE_OUTPUT=TAP

# Which tests are about the rule that a mutant breaks.
declare -rA filters=(
    [marker_before_data]='test_??t_zcopy_done*'
    [batch_after_marker]='test_??t_zcopy_done*'
    [self_marker_put]='test_put_zcopy_done*'
    [self_marker_flush]='test_put_flushed*'
    [slot_reuse]='test_flush_pipeline*'
    [fence_nowait]='test_fence*'
)

# Runs the program with filter $1; prints the number of its tests that failed, or the reason why it
# can't be said.
count_failures()
{
    local output
    output=$(in_time 60 "$program" "$1" 2>/dev/null) || true
    if ! grep -q '^1\.\.[1-9]' <<<"$output"; then
        echo "no plan"
    else
        grep -c '^not ok' <<<"$output" || true
    fi
}

is_some() { [[ $1 == [1-9]* ]]; }

if [[ ! -x $program ]]; then
    echo "1..0 # SKIP $program is not built (make FLAVOR=mutants tests)"
    exit 0
fi

for seed in "${seeds[@]}"; do
    export ANGARA_CHAOS=$seed
    unset ANGARA_MUTANT
    count=$(count_failures '*')
    ok "no mutant, seed $seed: $count tests fail" [ "$count" == 0 ]
    for mutant in "${!filters[@]}"; do
        export ANGARA_MUTANT=$mutant
        count=$(count_failures "${filters[$mutant]}")
        ok "mutant $mutant, seed $seed: caught by $count tests" is_some "$count"
    done
done
finish
