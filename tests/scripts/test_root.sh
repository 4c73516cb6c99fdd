#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Roots of Debian releases: from which archive, by which proxy, and when one is made. Nothing is installed: apt-get,
# apt-config and mmdebstrap are scripts here.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/common/programs.sh
. tests/common/programs.sh

mkdir "$out/bin"
# fake NAME: a program of that name, from stdin
fake()
{
    cat >"$out/bin/$1"
    chmod +x "$out/bin/$1"
}

# Those that apt has, each with its origin and label.
fake apt-get <<'END'
#!/bin/bash
while read -r origin label release site; do
    [[ "$*" != *"Origin: "* || "$*" == *"Origin: $origin Label: $label" ]] || continue
    line=${3//'$(SITE)'/$site}
    echo "${line//'$(RELEASE)'/$release}"
done <<<"${SITES-}"
END
fake apt-config <<'END'
#!/bin/sh
printf '%s' 'APT "";
Acquire::http::Proxy "http://proxy.invalid:3128";
Acquire::http::Proxy::near.invalid "DIRECT";
Acquire::http::Proxy-Auto-Detect "/not/in/the/root";
'
END
fake mmdebstrap <<'END'
#!/bin/bash
printf '%s\n' "$@"
mkdir "${@: -2:1}"
[[ -z ${FAILS-} ]]
END

namespace=()
# What follows is run as a script has it that makes roots.
with_roots() # COMMAND [NAME=VALUE...]
{
    # shellcheck disable=SC2016 # that shell expands it
    run 60 "${namespace[@]}" env PATH="$out/bin:$PATH" "${@:2}" bash -euo pipefail -c '
        skip() { echo "skipped: $*"; exit 0; }
        source scripts/lib/root.sh
        eval "$1"' check "$1"
}
readonly root=$out/place/root make="root_make $out/place/root suite one,two"
debian='Debian Debian bookworm-updates http://updates.invalid/debian
Debian Debian bookworm http://debian.invalid/debian'
sites="Other Other stable http://other.invalid/debian
Debian Debian-Security bookworm-security http://security.invalid/debian
$debian"

# shellcheck disable=SC2016 # that shell expands it
archive='echo "archive: $root_mirror"'
with_roots "$archive" SITES="$sites"
ok "the archive is Debian's own" has_line stdout '^archive: http://debian.invalid/debian$'
with_roots "$archive" SITES="$sites" DEBIAN_MIRROR=http://named.invalid/debian
ok 'or the one that is named' has_line stdout '^archive: http://named.invalid/debian$'
with_roots "$make" SITES="${sites%"$debian"}"
ok 'where apt has none, that is said' has_line stdout '^skipped: no archive is known, .*apt-get update'
with_roots "$make" SITES="$sites"
ok 'a root is made' all_of "rc_is"$'\t'0 "test"$'\t'-e$'\t'"$root/.made"
cp "$root.log" "$out/stdout"
ok "with apt's proxies" all_of \
    "has_line"$'\t'stdout$'\t''^--aptopt=Acquire::http::Proxy "http://proxy.invalid:3128";$' \
    "has_line"$'\t'stdout$'\t''^Acquire::http::Proxy::near.invalid "DIRECT";$' \
    "line_count"$'\t'stdout$'\t'Detect$'\t'0
touch "$root/kept"
with_roots "$make" SITES="$sites"
ok 'it is made once' test -e "$root/kept"
# made_anew WHAT COMMAND [NAME=VALUE...]
made_anew()
{
    touch "$root/kept"
    with_roots "$2" SITES="$sites" "${@:3}"
    ok "for $1 it is made anew" test ! -e "$root/kept"
}
made_anew 'another release' "${make/suite/other}"
made_anew 'other packages' "${make/suite/other},three"
touch "$root/kept"
with_roots "${make/suite/other},three" DEBIAN_MIRROR=http://named.invalid/debian
ok 'for another archive it is not' test -e "$root/kept"
with_roots "$make" SITES="$sites" FAILS=1
ok 'the old one stays where there is no new one' all_of "has_line"$'\t'stdout$'\t''^skipped: mmdebstrap failed' \
    "test"$'\t'-e$'\t'"$root/kept"
if [[ $(id -u) == 0 ]] && unshare --mount true 2>/dev/null; then
    namespace=(unshare --mount)
    mkdir "$out/host"
    with_roots "mount --bind / $out/host && root_inside $out/host env" \
        http_proxy=http://proxy.invalid:1 https_proxy=http://proxy.invalid:2 no_proxy='a, b'
    ok "a command in it has the environment's" all_of "line_count"$'\t'stdout$'\t'proxy$'\t'3 \
        "has_line"$'\t'stdout$'\t''^http_proxy=http://proxy.invalid:1$' \
        "has_line"$'\t'stdout$'\t''^https_proxy=http://proxy.invalid:2$' "has_line"$'\t'stdout$'\t''^no_proxy=a, b$'
else
    skip "a command in it has the environment's" 'not root, or no mount namespaces'
fi
finish
