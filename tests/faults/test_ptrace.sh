#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What security settings forbid: process_vm_*, /proc entries of the peer, pidfds, membarrier,
# memfds, other users. Either the library falls back, warns once and the data is right, or it says
# what is forbidden.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/faults/tap.sh
. tests/faults/tap.sh

pair=$faults/fault_pair
restrict=$faults/fault_restrict
cma='process_vm_readv process_vm_writev'

# fallen_back N: right data; each of the N processes concerned warns once.
fallen_back() { all_of rc_is "$status_ok" -- only_messages 'warning: process_vm' "$1" "$1"; }
without_pidfd()
{
    if [[ $rc == "$status_ok" ]]; then
        only_messages 'pidfd_open' 0 2
    else
        all_of rc_is "$status_refused" -- messages 'pidfd_open' 1 2
    fi
}
quiet() { all_of rc_is "$status_ok" -- only_messages . 0 0; }

run 5 "$restrict" membarrier -- true
if [[ $rc != 0 ]]; then
    skip 'system calls refused by seccomp' "no seccomp filters here: $(head -n 1 "$out/stderr")"
else
    # shellcheck disable=SC2086 # a list of words
    run 20 "$restrict" $cma -- "$pair"
    ok 'process_vm_* refused to both' fallen_back 2
    # shellcheck disable=SC2086
    run 20 "$restrict" --errno ENOSYS $cma -- "$pair"
    ok 'process_vm_* unknown to the kernel' fallen_back 2
    run 20 "$pair" --peer "$restrict $cma --"
    ok 'process_vm_* refused to one' fallen_back 1
    run 20 "$pair" --peer "$restrict process_vm_writev --"
    ok 'only process_vm_writev refused' all_of rc_is "$status_ok" -- \
        only_messages 'warning: process_vm' 1 1
    # shellcheck disable=SC2086
    run 20 "$restrict" $cma -- env ANGARA_SOFT_CMA=n "$pair"
    ok 'no warning where the setting says so already' quiet
    # shellcheck disable=SC2086
    run 20 "$restrict" $cma -- "$pair" --size 300001 --rounds 20
    ok 'many odd transfers through the helper' fallen_back 2
    # shellcheck disable=SC2086
    run 30 "$restrict" $cma -- env ANGARA_CHAOS=5 "$pair" --size 65537 --rounds 2
    ok 'the same in chaos' fallen_back 2
    # shellcheck disable=SC2086
    run 30 "$restrict" $cma -- env ANGARA_SOFT_LOOPBACK=n "$pair" --rounds 2
    ok 'the same without loopback' fallen_back 2
    for us in 100 2000 10000 30000; do
        # shellcheck disable=SC2086
        run 20 "$restrict" $cma -- "$pair" --victim "$us"
        ok "the peer is killed after $us us while its helper works" rc_is "$status_ok"
    done

    run 20 "$restrict" membarrier -- "$pair"
    ok 'membarrier refused: senders fence' quiet
    run 20 "$restrict" pidfd_open -- "$pair"
    ok 'pidfd_open refused: right data without it, or named' without_pidfd
    run 20 "$restrict" pidfd_open -- "$pair" --victim 3000
    ok 'pidfd_open refused: the death of the peer is still seen' without_pidfd
    run 20 "$restrict" pidfd_open -- "$B/bin/angara_info"
    ok 'pidfd_open refused: angara_info says what that costs' all_of rc_is 0 -- \
        has_line stdout 'note +pidfd_open: not available .*ANGARA_PEER_CHECK'
    run 20 "$restrict" --errno ENOSYS memfd_create -- "$pair"
    ok 'memfd_create refused: named, with the cure' all_of rc_is "$status_refused" -- \
        messages 'creation of .*seccomp profile must allow' 1 2
    run 20 "$restrict" fallocate -- "$pair"
    ok 'fallocate refused: said' all_of rc_is "$status_refused" -- messages 'allocation' 1 2
    run 20 "$restrict" --errno ENOSYS epoll_create1 -- "$pair"
    ok 'epoll refused: said' all_of rc_is "$status_refused" -- messages 'descriptors' 1 2
    run 20 "$restrict" getrandom -- "$pair"
    ok 'getrandom refused: named' all_of rc_is "$status_refused" -- messages 'getrandom' 1 2
fi

if [[ $(id -u) == 0 ]] && "${as_nobody[@]}" true 2>/dev/null; then
    share "$pair" "$restrict" "$B/lib/libangara.so.0"
    export LD_LIBRARY_PATH=$shared:$LD_LIBRARY_PATH

    run 20 "${as_nobody[@]}" "$shared/fault_pair"
    ok 'an unprivileged user' quiet
    run 20 "${as_nobody[@]}" "$shared/fault_pair" --undumpable
    ok 'an undumpable process: the message says so' all_of rc_is "$status_refused" -- \
        messages 'dumpable' 1 2 -- messages 'same user' 1 2
    if can_unshare -p -f -m; then
        for hidepid in 1 2; do
            # A /proc of its own: the options of one are the same wherever it is mounted.
            # shellcheck disable=SC2016 # the inner shell expands it
            run 20 unshare -p -f -m bash -c 'mount -t proc -o "hidepid=$1" proc /proc && exec "${@:2}"' \
                bash "$hidepid" "${as_nobody[@]}" "$shared/fault_pair" --undumpable
            ok "an undumpable process that /proc hides, hidepid=$hidepid: the message says so" \
                all_of rc_is "$status_refused" -- messages 'hidepid.*same user.*dumpable' 1 2
        done
    else
        skip 'an undumpable process that /proc hides' 'unshare is not permitted'
    fi
    run 20 "$shared/fault_pair" --peer "${as_nobody[*]}"
    ok 'another user: the message says so' all_of rc_is "$status_refused" -- \
        messages 'same user' 1 2
    # shellcheck disable=SC2086
    run 20 "${as_nobody[@]}" "$shared/fault_restrict" $cma -- "$shared/fault_pair"
    ok 'an unprivileged user without process_vm_*' fallen_back 2
else
    skip 'an unprivileged user' 'needs root to become one'
    skip 'an undumpable process: the message says so' 'needs root to become another user'
    skip 'another user: the message says so' 'needs root to become one'
fi

ok 'nothing is left' nothing_left

finish
