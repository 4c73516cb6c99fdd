#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In VM 0 of two: stock Open MPI between them, over TCP, without sshd. Reports TAP.

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

tcp=(--host 'vm0,vm1' -np 2 --mca pml ob1 --mca btl 'tcp,self')

# In one file, since both are up to print at the same time.
run mpirun "${tcp[@]}" hostname
ok 'mpirun starts a program in both VMs' [ "$rc:$(sort "$output" | tr '\n' ' ')" == '0:vm0 vm1 ' ]

# The variable is the rank's.
# shellcheck disable=SC2016
run mpirun "${tcp[@]}" bash -c 'exit "$OMPI_COMM_WORLD_RANK"'
ok 'the exit status of a rank in the other VM comes back' [ "$rc" == 1 ]

if [[ -x $B/bench/osu_latency ]]; then
    run mpirun "${tcp[@]}" "$B/bench/osu_latency" -c -i 5 -x 1 -m 1:65536
    ok 'osu_latency ends well between the VMs' [ "$rc" == 0 ]
    ok 'and has measured all sizes' [ "$(grep -Ec '^[0-9]+ +[0-9.]+' "$output")" == 17 ]
else
    skip 'osu_latency' "$B/bench/osu_latency is not built"
fi
rm -f "$output"
finish
