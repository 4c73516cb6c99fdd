#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# scripts/setup and `make demo` as an ordinary user: nothing is asked of sudo or apt-get where
# nothing is missing; where something is, sudo gets just that, and without sudo a message says what
# an administrator has to do. Nothing is installed: dpkg-query, apt-get and sudo are scripts here
# that write down what they are asked for. All happens in a copy of the tree.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/bench/tap.sh
. tests/bench/tap.sh

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
[[ " $* " == *' -f '* ]] || exec /usr/bin/dpkg-query "$@"
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
        LC_ALL=C.UTF-8 "${user[@]}" env MISSING= "$@"
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
    "has_line"$'\t'stderr$'\t'"    dnf install gcc make .*openmpi-devel ucx-devel openmpi .* ucx$" \
    "has_line"$'\t'stderr$'\t'"    dnf install clang-tools-extra .*valgrind-devel$"

path=$with
as_user 400 make demo
ok 'make demo: runs' all_of "rc_is"$'\t'0 asked_nothing \
    "has_line"$'\t'stdout$'\t'"^All data were right, and .* carried all of them" \
    test$'\t'-s$'\t'"$tree/build/demo/demo.csv"
finish
