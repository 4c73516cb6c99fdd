#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Containers and odd machines: PID namespaces that differ, /dev/shm full or missing, /proc not
# mounted, and a library of another version on the other side.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/faults/tap.sh
. tests/faults/tap.sh

pair=$faults/fault_pair
quiet() { all_of rc_is "$status_ok" -- only_messages . 0 0; }

# --- PID namespaces -------------------------------------------------------------------------------

if can_unshare -p -f --mount-proc; then
    run 20 unshare -p -f --mount-proc "$pair"
    ok 'both in a PID namespace of their own' quiet
    run 20 "$pair" --peer 'unshare -p -f --mount-proc'
    ok 'PID namespaces differ: named' all_of rc_is "$status_refused" -- \
        messages 'error: .*PID namespace' 1 2
    run 20 "$pair" --peer 'unshare -p -f'
    ok "the same, with the wrong /proc" all_of rc_is "$status_refused" -- messages '/proc|PID' 1 2
    run 20 unshare -p -f "$pair"
    ok 'both with the /proc of another namespace: said, with the cure' all_of rc_is "$status_refused" -- \
        messages '/proc is of another PID namespace.*mount -t proc' 1 2
else
    skip 'PID namespaces' 'unshare is not permitted'
fi

# --- user namespaces ------------------------------------------------------------------------------

# Rootless containers: the same user, but who is in one may not look into who isn't.
if can_unshare -U -r; then
    run 20 unshare -U -r "$pair"
    ok 'both in a user namespace of their own' quiet
    run 20 "$pair" --peer 'unshare -U -r'
    ok 'user namespaces differ: named' all_of rc_is "$status_refused" -- \
        messages 'error: .*user namespace' 1 2
else
    skip 'user namespaces' 'unshare is not permitted'
fi

# --- file systems ---------------------------------------------------------------------------------

if can_unshare -m; then
    for kind in full missing; do
        run 20 tests/faults/with_shm "$kind" "$pair"
        ok "/dev/shm is $kind: the library doesn't need it" quiet
    done
    run 20 unshare -m bash -c 'umount -l /proc && exec "$@"' bash "$pair" --pe
    ok '/proc is not mounted: said' all_of rc_is "$status_refused" -- messages '/proc' 1 1
else
    skip '/dev/shm and /proc' 'unshare is not permitted'
fi

# --- versions -------------------------------------------------------------------------------------

for kind in wire layout; do
    other=$faults/other-$kind
    version=$(sed -nE 's/^.define ANGARA_VERSION_(MAJOR|MINOR|PATCH) +([0-9]+).*/\2/p' \
        userlib/include/angara/angara.h | paste -sd.)
    run 20 "$pair" --peer-env "LD_LIBRARY_PATH=$other"
    ok "another $kind version: both versions are named" all_of rc_is "$status_refused" -- \
        has_line stderr 'version' -- has_line stderr '\b99\b' -- \
        messages "(^|[^0-9.])${version//./\\.}([^0-9.]|$)" 1 2
    run 20 env LD_LIBRARY_PATH="$other" "$pair" --peer-env "LD_LIBRARY_PATH=$LD_LIBRARY_PATH"
    ok "another $kind version, the other way round" all_of rc_is "$status_refused" -- \
        has_line stderr '\b99\b'
    run 20 env LD_LIBRARY_PATH="$other" "$pair"
    ok "both of the other $kind version" quiet
done

ok 'nothing is left' nothing_left

finish
