# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Roots of Debian releases below build/, for scripts/check_debian13 and scripts/check_deb, which have a
# function skip() for what this machine lacks.

# The archive: this machine's, if none is named. apt has a third party's too, and may have updates elsewhere.
# shellcheck disable=SC2016 # apt's own variables
root_mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(RELEASE) $(SITE)' 'Origin: Debian' 'Label: Debian' \
    2>/dev/null | sed -n 's/^[^- ]* //p' | sed -n 1p || true)}
readonly root_mirror

root_possible()
{
    [[ $(id -u) == 0 ]] || skip "needs root"
    unshare --mount true 2>/dev/null || skip "this machine gives no mount namespaces"
}

# The settings of this machine's apt that a root needs to reach the archive as well.
root_proxies()
{
    apt-config dump 2>/dev/null | grep -iE '^Acquire::https?::Proxy(::[^ ]*)? ' || true
}

# Makes the root $1 of the release $2 with the packages $3 (with commas), unless it is there, made of just these. An
# old one goes when the new one is there.
root_make()
{
    local proxies made
    made="$2 $3"
    [[ ! -e $1/.made || $(<"$1/.made") != "$made" ]] || return 0
    [[ -n $root_mirror ]] ||
        skip "no archive is known, apt has no list of Debian's: run apt-get update, or set DEBIAN_MIRROR"
    command -v mmdebstrap >/dev/null || skip "mmdebstrap isn't installed: apt-get install mmdebstrap"
    [[ -r /usr/share/keyrings/debian-archive-keyring.gpg ]] ||
        skip "Debian's keys are not here: apt-get install debian-archive-keyring"
    proxies=$(root_proxies)
    mkdir -p "$(dirname -- "$1")"
    rm -rf -- "$1.new"
    echo "${0##*/}: making $2 in $1"
    mmdebstrap --quiet --variant=minbase --include="$3" ${proxies:+--aptopt="$proxies"} \
        "$2" "$1.new" "$root_mirror" >"$1.log" 2>&1 ||
        skip "mmdebstrap failed, see $1.log: is $root_mirror to be reached?"
    echo "$made" >"$1.new/.made"
    rm -rf -- "$1"
    mv -- "$1.new" "$1"
}

# root_inside ROOT COMMAND [FOLDER INSIDE]: runs a command there, with /dev, /dev/shm, /tmp and /proc of its own,
# and processes that end with it; FOLDER is INSIDE there, read-only. Of the environment it gets proxies.
root_inside()
{
    # It is the inner shell that expands.
    # shellcheck disable=SC2016
    unshare --mount --pid --ipc --fork --kill-child --propagation private \
        bash -c '
            set -e
            root=$1 folder=$3
            mount --bind "$root" "$root"
            mount -t proc proc "$root/proc"
            mount -t sysfs -o ro sysfs "$root/sys"
            mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
            mount -t tmpfs -o mode=755 tmpfs "$root/dev"
            for name in null zero full random urandom tty; do
                : >"$root/dev/$name"
                mount --bind "/dev/$name" "$root/dev/$name"
            done
            mkdir "$root/dev/shm" "$root/dev/pts"
            mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
            mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
            ln -s pts/ptmx "$root/dev/ptmx"
            ln -s /proc/self/fd "$root/dev/fd"
            for number in 0:stdin 1:stdout 2:stderr; do
                ln -s "/proc/self/fd/${number%%:*}" "$root/dev/${number#*:}"
            done
            [[ -z $folder ]] || mount --bind -o ro "$folder" "$root/$4"
            exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
                LANG=C.UTF-8 TERM=dumb ${http_proxy:+"http_proxy=$http_proxy"} \
                ${https_proxy:+"https_proxy=$https_proxy"} ${no_proxy:+"no_proxy=$no_proxy"} \
                chroot "$root" bash -c "$2"' \
        bash "$1" "$2" "${3:-}" "${4:-}"
}
