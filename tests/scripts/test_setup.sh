#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# scripts/setup and `make demo` as an ordinary user: nothing is asked of sudo or apt-get where
# nothing is missing; where something is, sudo gets just that, and without sudo a message says what
# an administrator has to do. Nothing is installed: dpkg-query, apt-get and sudo are scripts here
# that write down what they are asked for. And the headers of UCX: no other version is taken for the
# installed one, and what UCX_SOURCE names is taken or refused. All happens in a copy of the tree.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/common/programs.sh
. tests/common/programs.sh

build=$(realpath -- "${B:-build}")
# A place that another user can reach, as $TMPDIR need not be.
place=$(mktemp -d /tmp/angara-setup.XXXXXX)
trap 'rm -rf -- "$out" "$place"' EXIT
tree=$place/tree
user=()
[[ $(id -u) != 0 ]] || user=(setpriv --reuid=65534 --regid=65534 --clear-groups)

copy_tree()
{
    mkdir -p "$tree/build" "$place/tmp" "$place/bin" "$place/sudo"
    tar -c --exclude=./build --exclude=./.git . | tar -x -C "$tree"
    cp -a build/ucx "$tree/build"
    for part in .flags bench bin lib obj; do
        cp -a "$build/$part" "$tree/build"
    done
}

# fake FOLDER/NAME: a program of that name, from stdin; it appends its arguments to $place/log.
fake()
{
    {
        printf '%s\n' '#!/bin/bash' "echo \"${1##*/} \$*\" >>'$place/log'"
        cat
    } >"$place/$1"
    chmod +x "$place/$1"
}

# Every program of this machine, but no sudo.
make_path()
{
    ln -s /usr/bin/* "$place/bin/"
    rm -f "$place"/bin/{sudo,dpkg-query,apt-get}
    fake bin/dpkg-query <<'END'
if [[ "$*" == '-W -f ${Version} '* && -n $PACKAGED ]]; then
    echo "$PACKAGED"
    exit
fi
[[ " $* " == *'Status'* ]] || exec /usr/bin/dpkg-query "$@"
for package in "${@:4}"; do
    [[ " $MISSING " == *" $package "* ]] || echo "installed $package"
done
END
    fake bin/apt-get <<'END'
exit "${APT_STATUS:-0}"
END
    fake sudo/sudo <<'END'
[[ ${SUDO_STATUS:-0} == 0 ]] || exit "$SUDO_STATUS"
exec "$@"
END
}

# as_user SECONDS [NAME=VALUE]... COMMAND...: in the copy, with a clean environment. PATH is $path.
as_user()
{
    local seconds=$1
    shift
    : >"$place/log"
    chmod a+w "$place/log"
    run "$seconds" env -i -C "$tree" PATH="$path" HOME="$place/tmp" TMPDIR="$place/tmp" \
        LC_ALL=C.UTF-8 "${user[@]}" env MISSING= PACKAGED= "$@"
    cp "$place/log" "$out/log"
}

# Conditions: what was asked of the fakes.
asked_nothing() { line_count log '^(sudo|apt-get) ' 0; }

copy_tree
make_path
[[ ${#user[@]} == 0 ]] || chown -R 65534:65534 "$place"
chmod a+rx "$place"
without=$place/bin with=$place/sudo:$place/bin

path=$without
as_user 60 scripts/setup
ok 'nothing is missing, no sudo: it works' all_of "rc_is"$'\t'0 asked_nothing \
    "line_count"$'\t'stderr$'\t'.$'\t'0
path=$with
as_user 60 scripts/setup
ok 'nothing is missing: sudo is not asked' all_of "rc_is"$'\t'0 asked_nothing

path=$without
as_user 60 MISSING='ucx-utils valgrind' scripts/setup
ok 'something is missing, no sudo: the packages are named' all_of "rc_is"$'\t'1 asked_nothing \
    "has_line"$'\t'stderr$'\t'"^setup: error: these packages are missing: ucx-utils valgrind$" \
    "has_line"$'\t'stderr$'\t'"    apt-get install --no-install-recommends ucx-utils valgrind$"
as_user 60 MISSING='valgrind' scripts/setup --build
ok 'what only the tests need does not stop a build' all_of "rc_is"$'\t'0 asked_nothing
as_user 60 MISSING='ucx-utils valgrind' make demo
ok 'make demo stops with the same message' all_of "rc_not"$'\t'0 asked_nothing \
    "has_line"$'\t'stderr$'\t'"^setup: error: these packages are missing: ucx-utils$"

path=$with
as_user 60 MISSING='ucx-utils valgrind' scripts/setup
ok 'something is missing: sudo installs just that' all_of "rc_is"$'\t'0 \
    "line_count"$'\t'log$'\t'"^apt-get "$'\t'2 \
    "has_line"$'\t'log$'\t'"^sudo env [A-Z_]+=[a-z]+ apt-get .*update$" \
    "has_line"$'\t'log$'\t'"^apt-get .* install ucx-utils valgrind$"
as_user 60 MISSING='ucx-utils' SUDO_STATUS=1 scripts/setup
ok 'sudo refuses: the packages are named' all_of "rc_is"$'\t'1 \
    "has_line"$'\t'stderr$'\t'"^setup: error: apt-get could not install: ucx-utils$" \
    "line_count"$'\t'log$'\t'"^apt-get "$'\t'0
as_user 60 MISSING='ucx-utils' APT_STATUS=100 scripts/setup
ok 'apt-get fails: the packages are named' all_of "rc_is"$'\t'1 \
    "has_line"$'\t'stderr$'\t'"^setup: error: apt-get could not install: ucx-utils$"

# A machine with rpm.
mkdir "$place/rpm"
ln -s "$place"/bin/* "$place/rpm/"
rm -f "$place"/rpm/{dpkg-query,apt-get,mpicc,ucx_info}
path=$place/rpm
as_user 60 scripts/setup
ok 'without dpkg: what is missing is named, with the names of rpm packages' all_of "rc_is"$'\t'1 \
    "has_line"$'\t'stderr$'\t'"^setup: error: not found: mpicc ucx_info$" \
    "has_line"$'\t'stderr$'\t'"    dnf install gcc make .*openmpi-devel ucx-devel openmpi perl .* ucx$" \
    "has_line"$'\t'stderr$'\t'"    dnf install clang-tools-extra .*valgrind-devel$"
as_user 60 PKG_CONFIG_LIBDIR=/nonexistent scripts/setup
ok 'a library without a file for pkg-config is there' has_line stderr "^setup: error: not found: mpicc ucx_info$"
mv "$place"/rpm/python3 "$place/tmp/"
as_user 60 scripts/setup
ok 'Python 3 is missing: it is named' has_line stderr "^setup: error: not found: python3 mpicc ucx_info$"
mv "$place/tmp/python3" "$place/rpm/"
rm "$place/rpm/cc"
fake rpm/cc <<'END'
[[ " $* " != *' - '* ]] || ! grep -q jansson || exit 1
exec /usr/bin/cc "$@"
END
as_user 60 PKG_CONFIG_LIBDIR=/nonexistent scripts/setup
ok 'one without its headers is missing' \
    has_line stderr "^setup: error: not found: mpicc ucx_info jansson\\.h$"
ln -s /usr/bin/ucx_info "$place/rpm/"
fake rpm/mpicc <<<"echo /no/such $place/openmpi"
for part in ompi_config.h ompi/mca/hook/hook.h; do
    as_user 60 scripts/setup
    ok "Open MPI without $part: what was looked for, where, and what helps" all_of "rc_is"$'\t'1 \
        "has_line"$'\t'stderr$'\t'"^setup: error: this Open MPI has no private headers" \
        "has_line"$'\t'stderr$'\t'"^setup: +not found: (.* )?$part" \
        "has_line"$'\t'stderr$'\t'"^setup: +in: +/no/such $place/openmpi$" \
        "has_line"$'\t'stderr$'\t'"--with-devel-headers"
    mkdir -p "$(dirname -- "$place/openmpi/$part")"
    touch "$place/openmpi/$part"
done
as_user 60 scripts/setup
ok 'with them: it is taken' all_of "rc_is"$'\t'0 "line_count"$'\t'stderr$'\t'.$'\t'0

path=$with
as_user 400 make demo
ok 'make demo: runs' all_of "rc_is"$'\t'0 asked_nothing \
    "has_line"$'\t'stdout$'\t'"^All data were right, and .* carried all of them" \
    test$'\t'-s$'\t'"$tree/build/demo/demo.csv"

# Two installations of UCX: one has the version $version, the other $other.
version=$(<build/ucx/VERSION)
other=${version%.*}.$((${version##*.} + 1))
# The tree as it is with another UCX than before: 1.22 finds the transport by a name of its own, older ones don't.
loader_name=$tree/build/lib/libuct_angara.so.0
# link_for VERSION: links the transport as for that UCX.
link_for()
{
    echo "$1" >"$tree/build/ucx/VERSION"
    rm "$tree/build/lib/libuct_angara.so"
    as_user 60 make build/lib/libuct_angara.so
}
link_for 1.22.0
ok 'built for UCX 1.22: the transport has the name for its loader' test -e "$loader_name"
link_for 1.21.0
ok 'then for an older one: it has that name no more' all_of "rc_is"$'\t'0 "test"$'\t'!$'\t'-L$'\t'"$loader_name"
echo "$version" >"$tree/build/ucx/VERSION"
mkdir "$place/mixed"
fake mixed/ucx_info <<END
/usr/bin/ucx_info "\$@" | sed 's/${version//./\\.}/$other/'
END
# source_tree NAME [VERSION]: a folder with a source tree.
source_tree()
{
    cp -a build/ucx/source "$place/$1"
    [[ -z ${2:-} ]] || sed -i -E "s/(define\(\[ucx_ver_patch\], *)[0-9]+/\1${2##*.}/" "$place/$1/configure.ac"
    [[ ${#user[@]} == 0 ]] || chown -R 65534:65534 "$place/$1"
}
# headers_folder NAME UCT UCP: a folder as that of an installation with headers of these versions.
headers_folder()
{
    mkdir -p "$place/$1"/{uct,ucp}/api
    echo "#define UCT_VERNO_STRING           \"$2\"" >"$place/$1/uct/api/version.h"
    echo "#define UCP_API_VERSION  UCP_VERSION(${3%%.*}, ${3#*.})" >"$place/$1/ucp/api/ucp_version.h"
    printf '%s\n' 'Name: ucx' 'Description: UCX' 'Version: 1' "Cflags: -I$place/$1" >"$place/$1/ucx.pc"
}
source_tree same
source_tree next "$other"

# in_tree_refuses NAME UCX_SOURCE LINE: with that, make check-in-tree gets past the build, and says LINE.
in_tree_refuses()
{
    as_user 120 make check-in-tree UCX_SOURCE="$2"
    ok "check-in-tree, UCX_SOURCE is $1: the reason is told" all_of "rc_not"$'\t'0 "has_line"$'\t'stderr$'\t'"$3" \
        "line_count"$'\t'stderr$'\t'"^setup: error"$'\t'0
}
in_tree_refuses 'nothing' '' '^check_in_tree: no tree is named'
in_tree_refuses 'no folder' /no/such/folder '^check_in_tree: found:  nothing at /no/such/folder$'
if thorough; then
    in_tree_refuses 'a file' README.md '^check_in_tree: found:  README.md, which is no folder$'
    in_tree_refuses 'another folder' docs \
        '^check_in_tree: found:  docs, which lacks configure.ac .*src/uct/configure.m4$'
fi
in_tree_refuses 'a part of a tree of another version' "$place/next" \
    "^check_in_tree: found:  $place/next, which lacks src/uct/configure.m4$"

# A UCX of the same version in a folder of its own: what is built takes no library, and no header, of another folder's.
mkdir "$place/elsewhere"
printf '%s\n' 'Name: ucx' 'Description: UCX' 'Version: 1' "Cflags: -I$place/elsewhere/include" \
    "Libs: -L$place/elsewhere/lib -lucp -luct -lucs -lucm" >"$place/elsewhere/ucx.pc"
as_user 100 PKG_CONFIG_PATH="$place/elsewhere" make -nB V=1 tests
grep -E ' -luc[pt]' "$out/stdout" >"$out/links"
ok 'UCX is in a folder of its own: what is linked with UCX looks there' all_of "has_line"$'\t'links$'\t'-lucp \
    "line_count"$'\t'links$'\t'"-L$place/elsewhere/lib (.* )?-luc"$'\t'"$(wc -l <"$out/links")"
grep -rlE '#include (<uc[pstm]/|".*ucp_wait.h")' uct_transport tests --include='*.c' |
    sed 's,\.c$,.o,; s,^,-o build/obj/,' >"$out/objects"
grep -F -f "$out/objects" "$out/stdout" | grep -e ' -c ' >"$out/compiled"
ok 'and what is compiled with its headers takes those of build/ucx' all_of "has_line"$'\t'compiled$'\t'hook_angara \
    "line_count"$'\t'compiled$'\t'' (-I|-isystem )build/ucx/include '$'\t'"$(wc -l <"$out/objects")"

# Condition: headers $2 and $3 in the folder $1 are refused for the program $4 of version $5.
mixture_named()
{
    all_of "rc_is"$'\t'1 "has_line"$'\t'stderr$'\t'"^setup: error: UCX at run time is $5, but the installed headers" \
        "has_line"$'\t'stderr$'\t'"^setup: +$5: $4$" "has_line"$'\t'stderr$'\t'"^setup: +$2: $1/uct/api/version.h$" \
        "has_line"$'\t'stderr$'\t'"^setup: +$3: $1/ucp/api/ucp_version.h$" \
        "has_line"$'\t'stderr$'\t'"^setup: +apt-get install --reinstall libucx-dev ucx-utils$" \
        "has_line"$'\t'stderr$'\t'"^setup: +export LD_LIBRARY_PATH=PREFIX/lib$"
}
if [[ -f /usr/include/uct/api/version.h ]]; then
    path=$place/mixed:$with
    as_user 60 UCX_SOURCE="$place/next" scripts/setup --headers
    ok 'ucx_info and source of a version, headers of another: all are named' \
        mixture_named /usr/include "$version" "${version%.*}" "$place/mixed/ucx_info" "$other"
    path=$with
else
    skip 'ucx_info and source of a version, headers of another: all are named' 'no headers in /usr/include'
fi
ucx_info=$place/bin/ucx_info
headers_folder uct-other "$other" "${version%.*}"
as_user 60 PKG_CONFIG_PATH="$place/uct-other" scripts/setup --headers
ok "headers of another version, by pkg-config: all are named" \
    mixture_named "$place/uct-other" "$other" "${version%.*}" "$ucx_info" "$version"
headers_folder ucp-other "$version" 1.99
as_user 60 PKG_CONFIG_PATH="$place/ucp-other" scripts/setup --headers
ok "headers of UCP of another version: all are named" \
    mixture_named "$place/ucp-other" "$version" 1.99 "$ucx_info" "$version"

# Trees that UCX_SOURCE can't mean, while build/ucx is whole.
# refuses NAME PATH FOUND: UCX_SOURCE=PATH is refused, with what was found.
refuses()
{
    as_user 60 UCX_SOURCE="$2" scripts/setup --headers
    ok "UCX_SOURCE is $1: what was found, is needed and helps" all_of "rc_is"$'\t'1 asked_nothing \
        "has_line"$'\t'stderr$'\t'"^setup: error: UCX_SOURCE=$2 is not a source tree of the installed UCX$" \
        "has_line"$'\t'stderr$'\t'"^setup: +found:  $3$" \
        "has_line"$'\t'stderr$'\t'"^setup: +needed: .* UCX $version," \
        "has_line"$'\t'stderr$'\t'"    git clone --depth 1 --branch v$version https://[^ ]+/ucx$" \
        "line_count"$'\t'stderr$'\t'"^[^s]|^s[^e]"$'\t'0
}
refuses 'no folder' /no/such/folder 'nothing at /no/such/folder'
refuses 'a file' "$tree/README.md" "$tree/README.md, which is no folder"
refuses 'another folder' /etc '/etc, which lacks configure.ac LICENSE .*'
refuses 'another folder, relative' docs "$tree/docs, which lacks configure.ac LICENSE .*"
parts=(configure.ac LICENSE src/ucs src/uct src/ucm src/ucp)
thorough || parts=(src/ucp)
for part in "${parts[@]}"; do
    source_tree "without-${part##*/}"
    rm -r "$place/without-${part##*/}/$part"
    refuses "a tree without $part" "$place/without-${part##*/}" "$place/without-${part##*/}, which lacks $part.*"
done
refuses 'a tree of another version' "$place/next" "$place/next, of UCX $other"
as_user 60 MISSING=valgrind UCX_SOURCE="$place/next" scripts/setup
ok 'UCX_SOURCE is wrong, and something is missing: nothing is installed' all_of "rc_is"$'\t'1 asked_nothing \
    "has_line"$'\t'stderr$'\t'"^setup: +found:  $place/next, of UCX $other$"
as_user 60 UCX_SOURCE=/no/such/folder make build/obj/uct_transport/base/status.o
ok 'UCX_SOURCE is wrong: make says so, though build/ucx is whole' all_of "rc_not"$'\t'0 \
    "has_line"$'\t'stderr$'\t'"^setup: +found:  nothing at /no/such/folder$"
wrong=(/no/such/folder "$tree/README.md" /etc)
thorough || wrong=(/etc)
for named in "${wrong[@]}"; do
    as_user 60 UCX_SOURCE="$named" scripts/check_debian13
    ok "UCX_SOURCE is $named: check_debian13 begins with nothing" all_of "rc_is"$'\t'1 \
        "has_line"$'\t'stderr$'\t'"^check_debian13: error: UCX_SOURCE=$named is not a source tree of UCX$" \
        "has_line"$'\t'stderr$'\t'"git clone " "test"$'\t'!$'\t'-e$'\t'"$tree/build/debian13"
done

# Trees that are right. Condition: the headers were made; with a line $1 in one of them.
made()
{
    all_of "rc_is"$'\t'0 asked_nothing "has_line"$'\t'stdout$'\t'"^setup: made build/ucx/include for UCX $version$" \
        "test"$'\t'-f$'\t'"$tree/build/ucx/LICENSE" "test"$'\t'-f$'\t'"$tree/build/ucx/source/LICENSE" \
        "grep"$'\t'-q$'\t'"${1:-UCS}"$'\t'"$tree/build/ucx/include/ucs/sys/sys.h"
}
made_nothing() { all_of "rc_is"$'\t'0 asked_nothing "line_count"$'\t'stdout$'\t'.$'\t'0; }
for trees in "$place/tmp" "$place/none"; do
    as_user 60 UCX_TREES="$trees" scripts/check_ucx_api
    ok "check_ucx_api in ${trees##*/}, where no tree is: skipped with the reason" all_of "rc_is"$'\t'0 \
        "has_line"$'\t'stdout$'\t'"^1..0 # SKIP UCX_TREES=$trees holds no source tree of UCX$"
done
source_tree changed
echo '/* changed */' >>"$place/changed/src/ucs/sys/sys.h"
cp -a "$place/same" "$tree/ucx"
as_user 60 UCX_SOURCE=ucx scripts/setup --headers
ok 'UCX_SOURCE is the tree that the headers are of: nothing is made' made_nothing
as_user 60 UCX_SOURCE="$place/changed" scripts/setup --headers
ok 'UCX_SOURCE is another tree: it is taken' made '/. changed ./'
# compiled NUMBER: so many objects were.
compiled() { all_of "rc_is"$'\t'0 "line_count"$'\t'stdout$'\t'"^  CC "$'\t'"$1"; }
as_user 60 make build/obj/uct_transport/base/status.o
ok 'headers of another tree: what was compiled with the old ones is compiled again' compiled 1
as_user 60 make build/obj/uct_transport/base/status.o
ok 'the same headers: nothing is compiled' compiled 0
as_user 60 scripts/setup --headers
ok 'UCX_SOURCE is unset again: nothing is made' made_nothing
for part in LICENSE source source/src/ucm; do
    rm -rf "$tree/build/ucx/$part"
    as_user 60 UCX_SOURCE="$place/changed" scripts/setup --headers
    ok "build/ucx/$part is missing: it is made" made '/. changed ./'
done
rm -r "$tree/build/ucx"
as_user 60 UCX_SOURCE=ucx scripts/setup --headers
ok 'build/ucx is missing: it is made of UCX_SOURCE, a relative path' made

# Without UCX_SOURCE, from the source package. Condition: no source of version $version was to be had but $1.
not_offered()
{
    all_of "rc_is"$'\t'1 "has_line"$'\t'stderr$'\t'"^setup: error: the configured apt sources do not offer the source" \
        "has_line"$'\t'stderr$'\t'"^setup: +found:  $1" \
        "has_line"$'\t'stderr$'\t'"^setup: +needed: ${exact//+/[+]}, or another revision of $version$" \
        "has_line"$'\t'stderr$'\t'"^setup: +Or name a source tree of UCX $version in UCX_SOURCE:$" \
        "has_line"$'\t'stderr$'\t'"    git clone --depth 1 --branch v$version https://[^ ]+/ucx$"
}
if exact=$(dpkg-query -W -f '${source:Version}' libucx-dev 2>/dev/null); then
    rm -f "$place"/bin/{apt-cache,dpkg-source}
    # shellcheck disable=SC2016 # the program expands it
    fake bin/apt-cache <<<'[[ -z $OFFERED ]] || printf "Version: %s\n" $OFFERED'
    fake bin/dpkg-source <<<"cp -a '$place/same' \"\${@: -1}\""
    rm -r "$tree/build/ucx"
    as_user 60 OFFERED= scripts/setup --headers
    ok 'no source package is offered: what is needed and helps' not_offered none
    as_user 60 OFFERED="1$version-1 $version.1-1 $other-1" scripts/setup --headers
    ok 'those of other versions are: what was found, is needed and helps' not_offered ".*$other-1.*"
    as_user 60 OFFERED="$version~rc2-1" scripts/setup --headers
    ok 'a pre-release is: it is no revision' not_offered "$version~rc2-1"
    as_user 60 OFFERED="$version-0 $version+ds-0.2 $other-1" scripts/setup --headers
    ok 'another revision is: it is taken' all_of "rc_is"$'\t'0 \
        "has_line"$'\t'log$'\t'"^apt-get .* source --download-only ucx=$version.*-0" \
        "has_line"$'\t'stderr$'\t'"^setup: warning: ${exact//+/[+]} is gone, taking $version.*-0" \
        "test"$'\t'-f$'\t'"$tree/build/ucx/include/config.h"
    rm -r "$tree/build/ucx"
    as_user 60 OFFERED="$version-0 $exact $version-999" scripts/setup --headers
    ok 'the very one is: it is taken' all_of "rc_is"$'\t'0 \
        "has_line"$'\t'log$'\t'"^apt-get .* source --download-only ucx=${exact//+/[+]}$"
else
    skip 'no source package is offered: what is needed and helps' 'UCX is not a Debian package here'
fi

if [[ -f /usr/share/dpkg/architecture.mk ]] && dpkg-query -W libucx-dev >/dev/null 2>&1; then
    configure=(make -f debian/rules override_dh_auto_configure)
    as_user 60 "${configure[@]}"
    ok 'debian/rules: configures for the installed UCX' rc_is 0
    as_user 60 PACKAGED="$other-1" "${configure[@]}"
    ok 'debian/rules: the library is of another version: both are named' all_of "rc_is"$'\t'2 \
        "has_line"$'\t'stderr$'\t'"^debian/rules: error: " \
        "has_line"$'\t'stderr$'\t'"^  built for:  UCX $version, that of $ucx_info$" \
        "has_line"$'\t'stderr$'\t'"^  depend on:  [^ ]+ $other, that of /usr/lib/.*/libuct.so$" \
        "has_line"$'\t'stderr$'\t'"    apt-get install --reinstall libucx-dev ucx-utils$"
else
    skip 'debian/rules: the library is of another version: both are named' 'UCX is not a Debian package here'
fi
finish
