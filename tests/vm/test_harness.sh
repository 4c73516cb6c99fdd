#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# On the host: whether the harness reports guests that fail, panic or hang, and tidies up whatever
# happens to it. Reports TAP.

set -euo pipefail

here=$(dirname -- "$(realpath -- "$0")")
# shellcheck source=../common/tap.sh
source "$here/../common/tap.sh"

work=$(mktemp -d)
running= # the harness that runs in the background
trap '[[ -z $running ]] || kill "$running" 2>/dev/null || true; rm -rf "$work"' EXIT
readonly output=$work/output errors=$work/errors
shown=("$output" "$errors")
# All that is started below has this in its environment.
export VM_HARNESS_TEST=$$.$RANDOM

run()
{
    rc=0
    "$here/vm_run" "$@" >"$output" 2>"$errors" </dev/null || rc=$?
}

# The living QEMU processes of this test.
qemus()
{
    local file
    for file in /proc/[0-9]*/environ; do
        if grep -Fxqsz "VM_HARNESS_TEST=$VM_HARNESS_TEST" "$file" &&
            [[ $(cat "${file%environ}comm" 2>/dev/null) == qemu* ]]; then
            echo "$file"
        fi
    done
}

no_qemus() { [[ -z $(qemus) ]]; }

# Whether the harness $1 has left processes or files. What SIGKILL has hit may take a moment to go.
nothing_left()
{
    wait_until 10 no_qemus && ! compgen -G "/dev/shm/vm-run.$1.*" >/dev/null
}

contains()
{
    grep -Eq -- "$2" "$1"
}

at_work_or_gone() { contains "$output" 'at work' || not kill -0 "$running" 2>/dev/null; }

# Starts a harness in the background whose guest is at work when this returns.
start_running()
{
    "$here/vm_run" --timeout "$(slow 100)" 'echo at work; sleep 1000' >"$output" 2>"$errors" </dev/null &
    running=$!
    wait_until 90 at_work_or_gone || true
}

end_running()
{
    kill -s "$1" "$running"
    rc=0
    # The shell's own remark about it is not wanted.
    { wait "$running" || rc=$?; } 2>/dev/null
}

run --timeout "$(slow 100)" --output "$work/kept" 'echo printed; echo kept >/run/vm/file; exit 7'
if [[ $rc == 77 ]]; then
    echo "1..0 # SKIP $(sed -n 's/^vm: skipped: //p' "$errors")"
    exit 0
fi
ok 'the exit status is the command'"'"'s' [ "$rc" == 7 ]
ok 'so is the output' [ "$(<"$output")" == printed ]
ok 'the console of a guest that fails is shown' contains "$errors" '^vm0\| .*reboot: Power down'
ok 'results are kept where asked' [ "$(cat "$work/kept/vm0/file" 2>/dev/null)" == kept ]

run --timeout "$(slow 100)" 'echo c >/proc/sysrq-trigger'
ok 'a panic is a failure of its own' [ "$rc" == 125 ]
ok 'and said to be one' contains "$errors" '^vm: the kernel of vm0 panicked: '
ok 'with the console' contains "$errors" '^vm0\| .*sysrq_handle_crash'

run --timeout "$(slow 15)" 'sleep 1000'
ok 'a guest that hangs is ended' [ "$rc" == 124 ]
ok 'and said to be late' contains "$errors" '^vm: not ended after '"$(slow 15) s"
ok 'with what its processor does' contains "$errors" '^vm0\| .*(RIP=|Show backtrace)'

start_running
ok 'the harness runs' contains "$output" 'at work'
process=$running
end_running TERM
running=
ok 'SIGTERM ends it' [ "$rc" == 143 ]
ok 'and nothing is left' nothing_left "$process"

start_running
ok 'another one runs' contains "$output" 'at work'
process=$running
end_running KILL
running=
ok 'SIGKILL ends its VMs too' [ -z "$(nothing_left "$process" || qemus)" ]
run --timeout "$(slow 100)" --qemu=-no-such-option true
ok 'a QEMU that does not start is an error' [ "$rc" == 125 ]
ok 'with its message' contains "$errors" 'no-such-option'
ok 'the next run removes what the killed one has left' nothing_left "$process"

# A made-up list: one test of each kind, then a panic, then one that must run all the same.
cat >"$work/list" <<'END'
good    one 20 echo 'ok 1 - fine'; echo 1..1
bad     one 20 echo 'not ok 1 - wrong'; echo 1..1
skips   one 20 echo 'ok 1 - not here # SKIP no reason'; echo 1..1
silent  one 20 true
short   one 20 echo 'ok 1 - fine'; echo 1..2
status  one 20 echo 'ok 1 - fine'; echo 1..1; exit 3
late    one  1 sleep 100
leaves  one 20 setsid true & sleep 1000 & echo 'ok 1 - fine'; echo 1..1
panics  one 20 echo c >/proc/sysrq-trigger; sleep 20
after   one 20 echo 'ok 1 - fine'; echo 1..1
warns   one 20 echo 'WARNING: made up' >/dev/kmsg; echo 'ok 1 - fine'; echo 1..1
END
rc=0
export B=$work/build # the logs of the run around this one stay
"$here/run_vm_tests" --list-file "$work/list" >"$output" 2>"$errors" </dev/null || rc=$?
ok 'a run with failures fails' [ "$rc" == 1 ]
# Passed: good, status, leaves, short, after, warns. Failed: seven, and both boots' messages.
ok 'and counts them' [ "$(tail -n 1 "$output")" == '6 passed, 9 failed, 1 skipped' ]
for line in 'bad: 1 wrong' 'silent: TAP: no plan' 'short: TAP: 2 planned' 'late: not ended in time' \
    'status: all reported tests passed, exit status 3' 'leaves: left behind: process sleep' \
    'panics: the kernel of vm0 panicked' 'one/dmesg-vm0: .*Kernel panic' \
    'one/dmesg-vm0-boot2: .*WARNING: made up'; do
    ok "it tells '${line%%:*}'" contains "$output" "^  $line"
done
ok 'a test after a panic has run' contains "$output" '^after +ok '
rc=0
"$here/run_vm_tests" --release nosuchrelease --list-file "$work/list" >"$output" 2>"$errors" \
    </dev/null || rc=$?
ok 'without a kernel all is skipped' [ "$rc: $(tail -n 1 "$output")" == '0: 0 passed, 0 failed, 11 skipped' ]
ok 'with the reason' contains "$output" '^  good: .*nosuchrelease'
finish
