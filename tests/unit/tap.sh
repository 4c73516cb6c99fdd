# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# TAP for shell tests. Source it, call `check` and `skip`, end with `tap_end`.

# shellcheck source-path=SCRIPTDIR
. "$(dirname -- "${BASH_SOURCE[0]}")/../common/wait.sh"

tap_count=0
tap_failed=0

# check NAME COMMAND...: ok if the command succeeds; its output is shown if it doesn't. A function
# stops at its first failing command, which it would not do inside an `if`.
check() {
    local name=$1 output status
    shift
    tap_count=$((tap_count + 1))
    set +e
    output=$(
        set -e
        "$@" 2>&1
    )
    status=$?
    set -e
    if ((status == 0)); then
        echo "ok $tap_count - $name"
        return 0
    fi
    echo "not ok $tap_count - $name"
    head -40 <<<"$output" | while IFS= read -r line; do echo "# $line"; done
    tap_failed=$((tap_failed + 1))
}

# skip NAME REASON
skip() {
    tap_count=$((tap_count + 1))
    echo "ok $tap_count - $1 # SKIP $2"
}

tap_end() {
    echo "1..$tap_count"
    exit $((tap_failed > 0))
}
