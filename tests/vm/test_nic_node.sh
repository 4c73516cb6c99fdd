#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In VM 0 of two with NICs that aren't in loopback mode: a NIC doesn't reach its own node, so UCX gets
# the soft fabric from the transport as well, and UCX_TLS=angara alone works. Reports TAP.

set -euo pipefail

# shellcheck source=../common/tap.sh
source tests/common/tap.sh
output=$(mktemp)
shown=("$output")

run()
{
    rc=0
    "$@" >"$output" 2>&1 || rc=$?
}

says() { grep -q -- "$1" "$output"; }

failed() { [[ $rc != 0 && $rc != 124 ]]; } # and in time

run "$B/bin/angara_info"
ok 'the NIC is the default' says 'Device angara0 (provider nic)'
ok 'without loopback' says 'loopback.*no'
run env LD_PRELOAD="$B/lib/libuct_angara.so" ucx_info -d
ok 'UCX sees the NIC' says 'Device: angara0'
ok 'and the soft fabric' says 'Device: soft0'

ranks=(-np 4 --host 'vm0:2,vm1:2' --map-by ppr:2:node -x UCX_TLS=angara -x 'UCX_ANGARA_STATS=/tmp/stats.%p')
run timeout "$(slow 150)" mpirun "${ranks[@]}" "$B/bench/osu_alltoall" -c -i 5 -x 1 -m 1:65536
ok 'two ranks on each node talk to all' [ "$rc" == 0 ]
ok 'all sizes were measured' [ "$(grep -Ec '^[0-9]+ +[0-9.]+' "$output")" == 17 ]
ok 'by the transport: both ranks of this node' [ \
    "$(awk '$1 == "eager_tx" && $2 > 0 { print FILENAME }' /tmp/stats.* | sort -u | wc -l)" == 2 ]
run timeout "$(slow 100)" mpirun -np 2 --host vm0:2 -x UCX_TLS=angara -x UCX_NET_DEVICES=angara0 \
    "$B/bench/osu_latency" -c -i 5 -x 1 -m 1:64
ok 'the NIC alone does not reach the own node, which is an error' failed
ok 'that UCX tells' says 'no .*transport'
rm -f "$output" /tmp/stats.*
finish
