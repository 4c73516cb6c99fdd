#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Each resource limit tightened until it hurts, in a program that uses only the library: the message
# names the limit and what to do, the status is an error, and nothing crashes or hangs.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/faults/tap.sh
. tests/faults/tap.sh

pair=$faults/fault_pair
size=65536

# Either it works with right data, or it says why and names the limit. Nothing in between.
fine() { all_of rc_is "$status_ok" -- only_messages . 0 0; }
told()
{
    all_of rc_is "$status_refused" -- messages "$1" 1 4 -- no_line stdout 'wrong data'
}

# try_limit PRLIMIT-OPTION REGEX: one process of the pair starts under the limit, then both.
either()
{
    if [[ $rc == "$status_ok" ]]; then
        fine || messages "$1" 1 4
    else
        told "$1"
    fi
}

# --- RLIMIT_NOFILE: at every number of descriptors that the library gets along with, or not -------

failed_at=()
nofile()
{
    local limit
    for limit in {3..24}; do
        run 20 prlimit --nofile="$limit" "$pair" --size "$size" --rounds 1
        # Below 5 descriptors the dynamic linker or this program itself may fail.
        if [[ $limit -lt 6 ]] && ! grep -q . "$out/stderr"; then
            continue
        fi
        if [[ $rc == 127 || $rc == 12 ]]; then
            continue
        fi
        either 'ulimit -n' || why "with $limit descriptors" || return 1
        [[ $rc == "$status_ok" ]] || failed_at+=("$limit")
    done
    [[ ${#failed_at[@]} -ge 3 ]] || why "the limit was never reached: ${failed_at[*]}"
}
ok 'RLIMIT_NOFILE, 3 to 24' nofile
run 20 prlimit --nofile=64 "$pair" --size "$size"
ok 'RLIMIT_NOFILE 64 is enough' fine

# --- RLIMIT_FSIZE: would kill by SIGXFSZ ---------------------------------------------------------

# Through a pipe: the output itself must not meet the limit.
piped()
{
    local bytes=$1
    shift
    rc=0
    { in_time 20 prlimit --fsize="$bytes" "$@" 2>&3 | cat >"$out/stdout"; } 3>&1 </dev/null |
        cat >"$out/stderr" || rc=$?
}

for limit in 0 4096 65536 1000000 8000000; do
    piped "$limit" "$pair" --size "$size" --rounds 1
    ok "RLIMIT_FSIZE $limit" told 'ulimit -f'
done
run 20 prlimit --fsize=2147483648 "$pair" --size "$size" --rounds 1
ok 'RLIMIT_FSIZE 2 GiB is enough' fine

# --- RLIMIT_AS -----------------------------------------------------------------------------------

address_space()
{
    local kib refused=0
    for ((kib = 12 << 10; kib <= 64 << 10; kib += kib < 24 << 10 ? 128 : 4096)); do
        run 20 prlimit --as=$((kib << 10)) "$pair" --size 4194304 --rounds 1
        # The program's own malloc and its loader aren't what is tested.
        if [[ $rc == 12 || $rc == 127 ]]; then
            continue
        fi
        either 'ulimit -v' || why "with $kib KiB" || return 1
        [[ $rc == "$status_ok" ]] || refused=$((refused + 1))
    done
    [[ $refused -gt 0 ]] || why 'the limit was never reached'
}
ok 'RLIMIT_AS, 12 to 64 MiB' address_space

# --- RLIMIT_NPROC: no helper thread; its work waits for the owner's progress ----------------------

if [[ $(id -u) == 0 ]]; then
    share "$pair" "$B/lib/libangara.so.0"
    export LD_LIBRARY_PATH=$shared:$LD_LIBRARY_PATH
    # A user of its own, so that nobody else's processes count.
    run 20 setpriv --reuid=64999 --regid=64999 --clear-groups prlimit --nproc=2 \
        "$shared/fault_pair" --size "$size" --progress
    ok 'RLIMIT_NPROC: data is right without the helper' all_of rc_is "$status_ok" -- \
        messages 'ulimit -u' 1 2
    run 20 env ANGARA_SOFT_LOOPBACK=n setpriv --reuid=64999 --regid=64999 --clear-groups \
        prlimit --nproc=2 "$shared/fault_pair" --size "$size" --progress
    ok 'RLIMIT_NPROC without loopback' all_of rc_is "$status_ok" -- messages 'ulimit -u' 1 2
else
    skip 'RLIMIT_NPROC: data is right without the helper' 'needs root to become another user'
    skip 'RLIMIT_NPROC without loopback' 'needs root to become another user'
fi

# --- RLIMIT_MEMLOCK, RLIMIT_CORE, RLIMIT_STACK: the soft fabric needs none of them ----------------

run 20 prlimit --memlock=0 "$pair" --size "$size"
ok 'RLIMIT_MEMLOCK 0' fine
run 20 prlimit --stack=262144 "$pair" --size "$size"
ok 'RLIMIT_STACK 256 KiB' fine

# --- the library's own limits ---------------------------------------------------------------------

run 20 env ANGARA_MR_MAX=16 "$pair" --size "$size" --regions 20
ok 'ANGARA_MR_MAX reached' told 'ANGARA_MR_MAX'
run 20 env ANGARA_WINDOW_SIZE=1T "$pair" --pe
ok 'the largest window' either 'ulimit -v'
run 20 prlimit --as=$((1 << 30)) env ANGARA_WINDOW_SIZE=64G "$pair" --pe
ok 'a window that does not fit' told 'ulimit -v'

ok 'nothing is left' nothing_left

finish
