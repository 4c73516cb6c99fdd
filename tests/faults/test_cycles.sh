#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Connect and disconnect many times, and outlive peers that die: no descriptors, mappings or memory
# are gathered. libangara alone, and UCP over the transport in a program that handles errors.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/faults/tap.sh
. tests/faults/tap.sh

well() { all_of rc_is 0 -- only_messages . 0 0; }

run 60 "$faults/fault_cycles" 400 20
ok 'library: 400 cycles, 20 deaths' well
run 60 env ANGARA_SOFT_CMA=n "$faults/fault_cycles" 200 20
ok 'library: the same through the helper' well
if thorough; then
    run 60 env ANGARA_SOFT_LOOPBACK=n "$faults/fault_cycles" 200 20
    ok 'library: the same without loopback' well
    run 60 env ANGARA_CHAOS=7 ANGARA_CHAOS_DELAY=20 "$faults/fault_cycles" 100 10
    ok 'library: the same in chaos' well
fi
for us in 0 50 500 3000 20000; do
    run 30 "$faults/fault_pair" --victim "$us" --size 200000
    ok "library: the peer is killed after $us us" rc_is "$status_ok"
done

ucp() { preloaded 60 env "$@"; }

ucp "$faults/fault_ucp" cycles 300
ok 'UCP: 300 endpoints on both sides' well
ucp "$faults/fault_ucp" workers 60
ok 'UCP: 60 workers come and go' well
ucp "$faults/fault_ucp" kills 20
ok 'UCP: 20 peers die, the error handler is called, all sends end' well
ucp ANGARA_SOFT_CMA=n "$faults/fault_ucp" kills 10
ok 'UCP: the same through the helper' well
ucp UCX_ANGARA_RING_SLOTS=16 "$faults/fault_ucp" kills 10
ok 'UCP: the same with tiny rings' well
ok 'nothing is left' nothing_left

finish
