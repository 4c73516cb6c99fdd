#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# That run_mpi.sh fails where it should: errors in the output, traffic that is missing or should
# not be there, counters of 0, programs that end badly. Its own TAP is captured and looked at.

set -euo pipefail

here=$(dirname -- "$(realpath -- "$0")")
# shellcheck source=tests/mpi/common.sh
source "$here/common.sh"

modes=("$B/tests/mpi/pt2pt_modes" -i 1 -s 8)
alone=("$B/tests/mpi/collectives" -m 64)
shown=("$work/tap")

# run [NAME=VALUE]... [OPTIONS] PROGRAM...
run()
{
    local variables=()
    while [[ $1 == *=* ]]; do
        variables+=("$1")
        shift
    done
    rc=0
    env "${variables[@]}" "$here/run_mpi.sh" "$@" >"$work/tap" 2>&1 </dev/null || rc=$?
}

# verdicts_are VERDICT...: of the last run, just these are "not ok".
verdicts_are()
{
    local found
    found=$(sed -nE 's/^not ok [0-9]+ - ([^(]*[^ (]).*/\1/p' "$work/tap")
    [[ $found == "$(printf '%s\n' "$@")" && $((rc != 0)) == $(($# > 0)) ]]
}

refused() # NAME VERDICT...
{
    ok "$1" verdicts_are "${@:2}"
}

run "${modes[@]}"
refused 'all is well'
run -e eager_tx "${modes[@]}"
refused 'a counter that counts'
run -e get_zcopy "${modes[@]}"
refused 'a counter of 0' 'get_zcopy was used'
run -p true
refused 'a program that uses no MPI' 'every process used the transport' \
    'the transport carried messages'

# Errors that UCX and the library really print. The job goes on over another transport.
fallback=('no error was logged' 'every process used the transport' 'the transport carried messages')
run UCX_ANGARA_SLOT_SIZE=100 "${modes[@]}"
refused "an error of UCX's log" "${fallback[@]}"
run ANGARA_EVENTS=7 "${modes[@]}"
refused 'an error of the library' "${fallback[@]}"

# Any other, wherever it is printed.
cat >"$work/speaker" <<'END'
#!/bin/bash
echo "$1"
echo "$2" >&2
END
chmod +x "$work/speaker"
run -p "$work/speaker" 'no error' '[1.5] [host:1] angara warning: nothing bad'
refused 'harmless lines' "${fallback[@]:1}"
for line in '[1.5] [host:1:0] x.c:1  UCX  ERROR bad' '[1.5] [host:1:0] x.c:1 UCX FATAL bad' \
    "x: x.c:1: f: Assertion \`0' failed." '[1.5] [host:1 rank 0] angara error: bad' \
    'x.c:1:2: runtime error: signed integer overflow' 'ERROR: AddressSanitizer: stack-overflow'; do
    run -p "$work/speaker" "$line" ''
    refused "on stdout: $line" "${fallback[@]}"
    run -p "$work/speaker" '' "$line"
    refused "on stderr: $line" "${fallback[@]}"
done

# One rank talks to itself, over the transport or not.
run -n 1 -z "${alone[@]}"
refused 'one rank, nothing carried, as announced'
run -n 1 "${alone[@]}"
refused 'one rank, nothing carried' 'the transport carried messages'
run -z "${modes[@]}"
refused 'traffic where none was announced' 'the transport carried nothing'

run -p false
refused 'an exit status' 'the program ended with status 0' "${fallback[@]:1}"
run "$work/speaker" 'ok 1 - a test' ''
refused 'no plan' 'the program ran all its tests' "${fallback[@]:1}"

finish
