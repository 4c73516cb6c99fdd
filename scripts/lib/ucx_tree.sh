# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Source trees of UCX: for scripts/setup, scripts/deb and scripts/check_ucx_api.

# The version of the tree $1, such as 1.13.1; nothing if it is none.
ucx_tree_version()
{
    local part version=
    for part in major minor patch; do
        version+=.$(sed -nE "s/.*define\(\[ucx_ver_$part\], *([0-9]+)\).*/\1/p" "$1/configure.ac" \
            2>/dev/null | tail -n 1)
    done
    [[ ! $version =~ ^\.[0-9]+\.[0-9]+\.[0-9]+$ ]] || echo "${version#.}"
}

# Copies the headers of the tree $1 to $2, with those that its configure would make, but config.h.
ucx_tree_headers()
{
    local version major minor patch header
    version=$(ucx_tree_version "$1")
    IFS=. read -r major minor patch <<<"$version"
    (cd "$1/src" && find ucs uct ucm ucp -type f \( -name '*.h' -o -name '*.inl' \) -print0 |
        xargs -0 cp -p --parents -t "$2")
    for header in uct/api/version.h ucp/api/ucp_version.h; do
        sed -e "s/@MAJOR_VERSION@/$major/g; s/@MINOR_VERSION@/$minor/g; s/@PATCH_VERSION@/$patch/g" \
            -e "s/@VERSION@/$version/g; s/@SCM_VERSION@/0000000/g" "$1/src/$header.in" >"$2/$header"
    done
}

# Lists what ucx_tree_version and ucx_tree_headers read of the tree $1, each path with a NUL behind it.
ucx_tree_files()
{
    (cd "$1" && find configure.ac LICENSE src/ucs src/uct src/ucm src/ucp -type f \( -name configure.ac -o \
        -name LICENSE -o -name '*.h' -o -name '*.inl' -o -name '*.h.in' \) -print0)
}

# Copies that to the folder $2: it is a tree for them.
ucx_tree_reduce()
{
    mkdir -p "$2"
    ucx_tree_files "$1" | (cd "$1" && xargs -0 cp -p --parents -t "$2")
}

# A checksum of that: the same for a tree and its reduced copy.
ucx_tree_digest()
{
    ucx_tree_files "$1" | LC_ALL=C sort -z | (cd "$1" && xargs -0 sha256sum) | sha256sum | cut -d ' ' -f 1
}

# What the folder $1 lacks to be a tree, in one line; nothing if it is whole.
ucx_tree_lacks()
{
    local part lacks=()
    for part in configure.ac LICENSE src/{ucs,ucm} src/uct/{base/uct_iface.h,api/version.h.in} \
        src/ucp/api/ucp_version.h.in; do
        [[ -r $1/$part ]] || lacks+=("$part")
    done
    echo "${lacks[*]}"
}
