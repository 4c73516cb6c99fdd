#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What an administrator installs of the kernel modules, staged in a temporary folder: source for DKMS
# that builds, modules, settings of modprobe, the group. Reports TAP.

set -euo pipefail

cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=../common/tap.sh
source tests/common/tap.sh
PATH=$PATH:/usr/sbin:/sbin

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
readonly output=$work/output stage=$work/stage
shown=("$output")

run()
{
    rc=0
    "$@" >"$output" 2>&1 || rc=$?
}

succeeds()
{
    run "$@"
    [[ $rc == 0 ]]
}

says()
{
    grep -Eq -- "$1" "$output"
}

# DKMS below $work, away from the machine's own: its trees, no signing key, no initial RAM file systems.
dkms_here()
{
    local as_root=()
    [[ $(id -u) == 0 ]] || as_root=(unshare --map-root-user)
    env sign_file=/nonexistent "${as_root[@]}" dkms --dkmstree "$work/dkms" --sourcetree "$stage/usr/src" \
        --installtree "$work/tree/lib/modules" --no-depmod "$@"
}

# loads FOLDER MODULE...: whether modprobe, with the settings of that stage, would load these, in this order
loads()
{
    local tree=$1
    shift
    depmod -b "$tree" "$release" 2>"$output" || return 1
    modprobe -d "$tree" -S "$release" -C "$stage/usr/lib/modprobe.d" --show-depends "$1" >"$output" 2>&1
    modprobe -d "$tree" -S "$release" -C "$stage/usr/lib/modprobe.d" -n -v "$1" >>"$output" 2>&1
    [[ $(sed -nE 's,^insmod .*/(angara_[a-z]+)\.ko.*,\1,p' "$output" | awk '!seen[$0]++' | paste -sd ' ') == "$*" ]]
}

for tool in dkms modprobe systemd-sysusers; do
    command -v "$tool" >/dev/null || {
        echo "1..0 # SKIP $tool is not here (Debian: dkms, kmod, systemd)"
        exit 0
    }
done
kernel=$(tests/vm/vm_kernel --headers 2>"$output") || {
    echo "1..0 # SKIP $(tail -n 1 "$output")"
    exit 0
}
release=$(basename -- "$(echo "$kernel"/lib/modules/*)")
mkdir -p "$work/dkms" "$work/tree/lib/modules/$release" "$stage/etc"

ok 'the source for DKMS can be staged' succeeds make install-dkms DESTDIR="$stage"
version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' kmod/dkms.conf)
library=$(sed -nE 's/^.define +ANGARA_VERSION_(MAJOR|MINOR|PATCH) +([0-9]+).*/\2/p' \
    userlib/include/angara/angara.h | paste -sd.)
ok 'the modules have the version of the library' [ "$version" == "$library" ]
ok 'DKMS builds and installs them, as we say' \
    succeeds dkms_here install "angara/$version" -k "$release" --kernelsourcedir "$kernel/build"
run dkms_here status
ok 'and says so' says "^angara/$version, ${release//+/[+]}, .*: installed"
modules=("$work/tree/lib/modules/$release"/updates/dkms/angara_{nic,memreg}.ko*)
run modinfo "${modules[@]}"
ok 'both are there, of this version' [ "$(grep -c "^version: *$version$" "$output")" == 2 ]
ok 'for this kernel' [ "$(grep -c "^vermagic: *$release " "$output")" == 2 ]
ok 'found by the PCI id of the NIC' says '^alias: *pci:v00001AF4d00001110'
ok 'loading the first loads the second' loads "$work/tree" angara_nic angara_memreg
run modprobe -C "$stage/usr/lib/modprobe.d" --showconfig
ok 'modprobe reads the settings' says '^softdep angara_nic post: angara_memreg$'
ok 'DKMS removes them' succeeds dkms_here remove "angara/$version" --all
ok 'nothing is left' [ -z "$(find "$work/tree" "$work/dkms" -name '*angara*.ko*')" ]

build=$(tests/vm/vm_modules "$kernel" 2>"$output") || echo "# $(tail -n 1 "$output")"
ok 'the modules can be staged without DKMS' \
    succeeds flock "$build.lock" make -C kmod install B="$build" KDIR="$kernel/build" DESTDIR="$work/made"
ok 'and loaded' loads "$work/made" angara_nic angara_memreg
ok 'with the rule for udev' [ -f "$work/made/usr/lib/udev/rules.d/90-angara.rules" ]

ok 'the group can be made' succeeds systemd-sysusers --root="$stage"
ok 'and is there' grep -q '^angara:' "$stage/etc/group"
finish
