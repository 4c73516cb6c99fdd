#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# angara_info, angara_perf, angara_top and angara_jobkey as a user meets them: options, output, JSON, errors, man pages.
# Functions are called through `check`.
# shellcheck disable=SC2317
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
# shellcheck source=tests/unit/tap.sh
source tests/unit/tap.sh

bin=${B:-build}/bin
standin=${B:-build}/tests/gpu/standin
jobkey=${B:-build}/sbin/angara_jobkey
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# exits STATUS WORD COMMAND...: the command ends with STATUS and says WORD.
exits() {
    local want=$1 word=$2 got=0
    shift 2
    "$@" >"$work/out" 2>&1 || got=$?
    if ((got != want)); then
        echo "status $got, expected $want"
        cat "$work/out"
        return 1
    fi
    if ! grep -qF -- "$word" "$work/out"; then
        echo "the output lacks: $word"
        cat "$work/out"
        return 1
    fi
}

json() {
    python3 -c '
import json, sys
data = json.load(open(sys.argv[1]))
sys.exit(0 if eval("(" + sys.argv[2] + ")", {"d": data}) else 1)' "$work/json" "$1"
}

info_json() {
    "$bin/angara_info" --json >"$work/json"
    json 'd["devices"][0]["provider"] == "soft" and d["devices"][0]["inline_max"] >= 8 and
          all(c["state"] in ("ok", "note", "missing", "error") for c in d["checks"]) and
          len(d["checks"]) >= 10 and any(v["name"] == "ANGARA_CHAOS" for v in d["variables"])'
}

# The Open MPI component as angara_info sees it with some settings.
info_component() { env "$@" "$bin/angara_info" | grep -A 1 'Open MPI component:'; }

# Told by the environment, by the user's folder, and not at all: then its advice cures that.
info_component_found() {
    local name=mca_hook_angara.so advice
    eval "$(scripts/angara_env)"
    info_component | grep "^  ok .*/openmpi/$name\$"
    mkdir -p "$work/home/.openmpi/components"
    touch "$work/home/.openmpi/components/$name"
    unset OMPI_MCA_opal_mca_base_component_path
    info_component HOME="$work/home" OMPI_MCA_mca_base_component_path=/none:USER_DEFAULT |
        grep "^  ok .*$work/home/.openmpi/components/$name\$"
    info_component HOME="$work" OMPI_MCA_mca_base_component_path=/none | grep '^  note'
    mkdir -p "$work/alone/bin" "$work/alone/lib"
    cp "$bin/angara_info" "$work/alone/bin"
    cp "$bin/../lib/libangara.so.0" "$work/alone/lib"
    HOME="$work" LD_LIBRARY_PATH="$work/alone/lib" "$work/alone/bin/angara_info" |
        grep -F "nor in $(ompi_info --parsable --path pkglibdir | sed 's/^path:pkglibdir://')"
    advice=$(info_component HOME="$work" OMPI_MCA_mca_base_component_path=/none | sed -n 's/^ *-> //p')
    (
        export HOME="$work" OMPI_MCA_mca_base_component_path=/none
        info=$(realpath -- "$bin/angara_info")
        # only a build folder elsewhere doesn't know the source tree
        [[ $advice == *' scripts/'* ]] || cd "$work"
        eval "$advice"
        "$info" | grep "^  ok .*Open MPI component"
        [[ $(printenv OMPI_MCA_opal_mca_base_component_path) == */openmpi:/none ]]
    )
}

# Its advice names folders, with whatever is in their names: of an installation, and of a build elsewhere.
info_component_quoted() {
    local place="$work/it's a \$HOME" advice wanted FOUND
    mkdir -p "$place/bin" "$place/lib/openmpi" "$work/source/scripts"
    cp "$bin/angara_info" "$place/bin"
    cp "$bin/../lib/libangara.so.0" "$place/lib"
    touch "$place/lib/openmpi/mca_hook_angara.so"
    # shellcheck disable=SC2016 # the script expands it
    printf '#!/bin/bash\nprintf "FOUND=%%q" "${B:-installed}"\n' >"$work/source/scripts/angara_env"
    chmod +x "$work/source/scripts/angara_env"
    cd "$work/source"
    unset B
    for wanted in "$place" installed; do
        advice=$(HOME="$work" OMPI_MCA_opal_mca_base_component_path=/none LD_LIBRARY_PATH="$place/lib" \
            "$place/bin/angara_info" | sed -n '/Open MPI component:/{n; s/^ *-> //p}')
        echo "advice: $advice"
        FOUND=
        eval "$advice"
        [[ $FOUND == "$wanted" ]]
        cp scripts/angara_env "$place/bin"
    done
}

# No command that has a part of the path only.
info_component_long() {
    local place advice part
    part=$(printf 'x%.0s' {1..240})
    for place in "$work/$part/$part/$part/$part/x" "$work/it's $part/$part/$part/$part/x"; do
        mkdir -p "$place/bin" "$place/lib/openmpi"
        cp "$bin/angara_info" "$place/bin"
        cp "$bin/../lib/libangara.so.0" "$place/lib"
        touch "$place/lib/openmpi/mca_hook_angara.so"
        advice=$(HOME="$work" OMPI_MCA_opal_mca_base_component_path=/none LD_LIBRARY_PATH="$place/lib" \
            "$place/bin/angara_info" | sed -n '/Open MPI component:/{n; s/^ *-> //p}')
        echo "advice: $advice"
        [[ $advice == 'run the script angara_env: its path is too long to be printed here' ]]
    done
}

# In the place of a tree with this build.
env_preload() {
    env -u B -u FLAVOR -u UCX_PLUGIN_PATH "$work/tree/scripts/angara_env" --preload >"$work/env" 2>/dev/null
}

# UCX from 1.22 on finds the transport by itself, where the build has given it the name for that.
env_plugin() {
    local lib=$work/tree/build/lib
    mkdir -p "$work/tree/scripts" "$lib"
    cp scripts/angara_env "$work/tree/scripts"
    touch "$lib/libuct_angara.so"
    env_preload
    grep -q "^export LD_PRELOAD='$lib/libuct_angara.so'" "$work/env"
    [[ $(<"$work/env") != *UCX_PLUGIN_PATH* ]]
    ln -s libuct_angara.so "$lib/libuct_angara.so.0"
    env_preload
    [[ $(<"$work/env") != *LD_PRELOAD* ]]
    grep "^export UCX_PLUGIN_PATH='$lib'\$" "$work/env"
}

info_config_json() {
    ANGARA_EVENTS=512 "$bin/angara_info" --config --json >"$work/json"
    json '[v["value"] for v in d["variables"] if v["name"] == "ANGARA_EVENTS"] == ["512"]'
}

# info_env PYTHON VARIABLE=VALUE...: of the variables, by name, that --env lists.
info_env() {
    env "${@:2}" "$bin/angara_info" --env --json >"$work/json" 2>"$work/err"
    json "(lambda v: $1)({v['name']: v for v in d['variables']})"
}

info_env_origins() {
    info_env "v['ANGARA_EVENTS']['origin'] == 'environment' and v['ANGARA_EVENTS']['value'] == '512' and \
        v['ANGARA_CHAOS'] == {'name': 'ANGARA_CHAOS', 'value': '0', 'origin': 'default', 'default': '0'} and \
        v['ANGARA_STRICT']['origin'] == 'environment'" ANGARA_EVENTS=512 ANGARA_STRICT=1 &&
        info_env "v['ANGARA_EVNTS']['origin'] == 'unknown, ignored' and v['ANGARA_EVNTS']['value'] == '3' and \
            'ANGARA_TEST_X' not in v" ANGARA_EVNTS=3 ANGARA_TEST_X=1 &&
        info_env "all(v[n]['origin'] == 'unknown, ignored' for n in ('ANGARA_STRICTER', 'ANGARA_UCT_PLUG'))" \
            ANGARA_STRICTER=1 ANGARA_UCT_PLUG=1 ANGARA_STRICT=0 ANGARA_UCT_PLUGIN=/none &&
        # the library takes the same for unknown
        [[ $(grep -oE '[A-Z_]+ is not a variable' "$work/err" | sort) == \
            $'ANGARA_STRICTER is not a variable\nANGARA_UCT_PLUG is not a variable' ]] &&
        info_env "v['ANGARA_CHAOS']['origin'] == 'refused' and v['ANGARA_CHAOS']['value'] == '0'" ANGARA_CHAOS=maybe
}

info_env_ucx() {
    info_env "v['UCX_ANGARA_SEG_SIZE']['origin'] == 'environment' and \
        v['UCX_ANGARA_SEG_SIZE']['value'] == '4K' and v['UCX_ANGARA_SEG_SIZE']['default'] == '8448' and \
        v['UCX_ANGARA_FAILURE']['origin'] == 'UCX_*' and v['UCX_ANGARA_FAILURE']['value'] == 'ERROR' and \
        v['UCX_ANGARA_SEGSIZE']['origin'] == 'unknown, ignored' and \
        v['UCX_ANGARA_MAX_IOV']['origin'] == 'default' and v['UCX_ANGARA_RING_SLOTS']['origin'] == 'default' and \
        v['MPI_UCX_ANGARA_MAX_IOV']['origin'] == 'environment, in MPI' and not d['lacks']" \
        UCX_ANGARA_SEG_SIZE=4K UCX_FAILURE=ERROR UCX_ANGARA_SEGSIZE=$'1\377' UCX_RING_SLOTS=64 \
        MPI_UCX_ANGARA_MAX_IOV=4 &&
        info_env "'another UCX' in d['lacks'] and 'UCX_ANGARA_SEG_SIZE' not in v" \
            UCX_ANGARA_SEG_SIZE=4K ANGARA_TEST_UCX_VERSION=1.2.3 &&
        info_env "v['UCX_ANGARA_SEG_SIZE']['origin'].startswith('not in force')" UCX_ANGARA_SEG_SIZE=many &&
        grep -q SEG_SIZE "$work/err"
}

# Every line of a short run is `test size value unit` with a number above zero.
perf_lines() {
    "$bin/angara_perf" "$@" --iterations=200 --warm-up=20 >"$work/out"
    [[ -s $work/out ]]
    awk 'NF != 4 || $2 !~ /^[0-9]+$/ || $3 + 0 <= 0 || $4 !~ /^(ns|MB\/s|Mop\/s)$/ { print; bad = 1 }
         END { exit bad }' "$work/out"
}

perf_all() {
    perf_lines "$@" --all --size=1:70000
    [[ $(cut -d' ' -f1 "$work/out" | sort -u | wc -l) -eq $("$bin/angara_perf" --list | wc -l) ]]
}

# perf_gpu RUNTIME KIND:ENDS: validated, on a stand-in, offload operations alone.
perf_gpu() {
    LD_LIBRARY_PATH=$standin ANGARA_GPU=$1 "$bin/angara_perf" -g "$2" -c -n 20 -w 2 -s 8:64K >"$work/out"
    [[ $(cut -d' ' -f1 "$work/out" | sort -u | paste -sd' ') == \
        'offload_get_bw offload_get_lat offload_put_bw offload_put_lat' ]]
}

perf_json() {
    "$bin/angara_perf" -n 100 -w 10 -s 8:64 --json put_lat atomic_lat >"$work/json"
    json '[r["size"] for r in d["results"] if r["test"] == "put_lat"] == [8, 16, 32, 64] and
          all(r["min"] <= r["value"] <= r["max"] for r in d["results"]) and d["memory"] == "shared" and
          d["target"] == "sleeps"'
}

perf_sizes() {
    "$bin/angara_perf" -n 10 -w 0 -s 3:20 put_lat | cut -d' ' -f2 | paste -sd' ' >"$work/out"
    [[ $(<"$work/out") == "3 4 8 16 20" ]]
}

# Each name of stdin, put for % into the expression, is in the man page.
man_has() { # FILE EXPRESSION [PAGE]: its text, if not that of the file
    local name page missing=0

    page=$(<"${3:-$1}")
    while read -r name; do
        if ! grep -qE -- "${2//%/$name}" <<<"$page"; then
            echo "$1 lacks $name"
            missing=1
        fi
    done
    return "$missing"
}

# Options of --help and of the man page are the same.
man_has_options() {
    "$1" --help | grep -oE -- '--[a-z][a-z-]+' | sort -u |
        man_has "$2" '%\b' <(sed 's/\\-/-/g; s/\\f.//g; s/ "/ /g; s/" / /g' "$2")
}

man_has_exports() {
    grep -oE 'export [A-Za-z_]+=' scripts/angara_env | sed 's/^export //; s/=$//' | sort -u |
        man_has userlib/man/angara_env.1 '^\.B %$'
}

man_has_tests() { "$bin/angara_perf" --list | man_has userlib/man/angara_perf.1 '^\.BR? .*\b%\b'; }

man_is_clean() {
    local warnings
    warnings=$(groff -man -ww -z "$1" 2>&1)
    echo "$warnings"
    [[ -z $warnings ]]
}

overview_has_headers() {
    local header
    for header in userlib/include/angara/*.h; do
        grep -qF "#include <angara/${header##*/}>" userlib/man/angara.7 || return 1
    done
}

# The examples of a page that need nothing but this machine, as they are printed. The one that asks for what wants
# attention ends with 1 where nothing does.
man_examples_run() # PAGE
{
    local example status count=0
    while read -r example; do
        echo "example: $example"
        status=0
        PATH=$bin:$PATH bash -o pipefail -c "$example" >/dev/null </dev/null || status=$?
        [[ $status == 0 || $status == 1 && $example == "angara_info | grep "*'(note|missing|error)'* ]]
        count=$((count + 1))
    done < <(sed -n '/^.SH EXAMPLES/,/^.SH SEE/s/^\.B *"\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "$1" | sed 's/\\-/-/g' |
        grep -vE 'node1|--listen|gpu|4711|/var/lib|^angara_top$|--check$')
    ((count > 0))
}

# On a machine where nothing wants attention.
man_examples_healthy() {
    bin=$work/healthy
    mkdir "$bin"
    printf '%s\n' '#!/bin/sh' 'echo "  ok       all"' >"$bin/angara_info"
    chmod +x "$bin/angara_info"
    man_examples_run userlib/man/angara_info.1
}

# One process of the two is killed: the other ends soon, with an error.
perf_killed() {
    local pid child status=0

    "$bin/angara_perf" --cpu=none -n 1000000000 -s 1:1048576 put_lat >"$work/out" 2>&1 &
    pid=$!
    for _ in {1..200}; do
        child=$(pgrep -P "$pid" || true)
        [[ -n $child ]] && break
        sleep 0.02
    done
    sleep 0.3
    kill -9 "$child"
    for _ in {1..100}; do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    if kill -9 "$pid" 2>/dev/null; then
        echo 'still running 10 s later'
        return 1
    fi
    wait "$pid" || status=$?
    ((status == 1))
}

# perf_listener PORT [OPTION]...: one in the background; its pid is $listener.
perf_listener() {
    : >"$work/listener" # of the one before
    "$bin/angara_perf" --listen=":$1" "${@:2}" >"$work/listener" 2>&1 &
    listener=$!
    listener_said waiting 1
}

# listener_said TEXT N: soon, so often.
listener_said() {
    for _ in {1..400}; do
        (($(grep -c -- "$1" "$work/listener") < $2)) || return 0
        sleep 0.05
    done
    cat "$work/listener"
    return 1
}

# A port that nobody listens at just now.
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }

perf_remote() {
    local port
    port=$(free_port)
    perf_listener "$port"
    perf_lines --host="localhost:$port" -s 8:64K --check -m private
    [[ $(cut -d' ' -f1 "$work/out" | sort -u | wc -l) -eq $("$bin/angara_perf" --list | wc -l) ]]
    wait "$listener"
}

# What strangers send harms nobody: the listener waits for the next one.
perf_strangers() {
    local port answer line request
    port=$(free_port)
    perf_listener "$port"
    request='{"program":"angara_perf","version":"'$("$bin/angara_perf" -V | cut -d' ' -f2)'",'
    request+='"size_min":8,"size_max":8,"iterations":100,"warm_up":1,"shared":false,"polls":false,'
    request+='"check":false,"gpu":"cuda",'
    request+='"managed":true,"buf_on_gpu":true,"mem_on_gpu":true,"tests":["offload_put_lat"]}'
    for line in hello '[]' "${request/offload_put_lat/atomic_lat}" "${request/cuda/rocm}" "${request/cuda/}" \
        "${request/\"offload_put_lat\"/}" "${request/\"offload_put_lat\"/8}" "${request/\[*\]/8}" \
        "${request/\"size_max\":8/\"size_max\":7}" "${request/:100/:0}" "${request/:true/:1}" \
        '{"program":"angara_perf","version":"0.0.0"}' '' \
        "{\"program\":\"angara_perf\",\"version\":\"$("$bin/angara_perf" -V | cut -d' ' -f2)\"}" \
        "$(head -c 5000 /dev/zero | tr '\0' x)"; do
        answer=$(exec 3<>"/dev/tcp/localhost/$port" && printf '%s\n' "$line" >&3 && head -1 <&3)
        [[ $answer == '{"answer":"'* && $answer != *'"ok"'* ]] || [[ ${#line} -gt 4000 ]]
    done
    perf_lines --host="localhost:$port" -s 8 put_lat
    wait "$listener"
}

# One of the two is killed: the other ends with an error.
perf_remote_killed() {
    local port status=0
    port=$(free_port)
    perf_listener "$port"
    "$bin/angara_perf" --host="localhost:$port" -n 1000000000 -s 1:1048576 put_lat >"$work/out" 2>&1 &
    is_seen "$listener"
    is_seen $!
    sleep 0.2 # they have met
    kill -9 $!
    for _ in {1..200}; do
        kill -0 "$listener" 2>/dev/null || break
        sleep 0.1
    done
    kill -9 "$listener" 2>/dev/null && return 1
    wait "$listener" || status=$?
    ((status == 1))
}

# One that says nothing, one that asks and then says nothing, and one that stops in the middle: none holds the
# listener for ever.
perf_stalled() {
    local port client
    port=$(free_port)
    perf_listener "$port" --patience=3
    exec 3<>"/dev/tcp/localhost/$port"
    listener_said 'refused: no request' 1
    exec 4<>"/dev/tcp/localhost/$port"
    printf '%s\n' '{"program":"angara_perf","version":"'"$("$bin/angara_perf" -V | cut -d' ' -f2)"'","size_min":8,
        "size_max":8,"iterations":100,"warm_up":1,"shared":true,"polls":true,"check":false,"gpu":"","managed":false,
        "buf_on_gpu":false,"mem_on_gpu":false,"tests":["put_lat"]}' | tr -d '\n' >&4
    echo >&4
    [[ $(head -1 <&4) == '{"answer":"ok"}' ]]
    listener_said "the other side hasn't gone on" 1
    listener_said waiting 2
    "$bin/angara_perf" --host="localhost:$port" -n 1000000000 -s 1:1048576 put_lat >"$work/out" 2>&1 &
    client=$!
    measures "$client"
    kill -STOP "$client"
    listener_said "the other side hasn't gone on" 2
    listener_said waiting 3
    kill -9 "$client"
    perf_lines --host="localhost:$port" -s 8 put_lat
    wait "$listener"
}

# Has it computed for a second? Then it is in the middle of a batch: what the other waits for there isn't behind many
# operations, as a barrier is, for which its patience is longer.
measures() {
    for _ in {1..600}; do
        (($(awk '{ print $14 + $15 }' "/proc/$1/stat") < $(getconf CLK_TCK))) || return 0
        sleep 0.05
    done
    return 1
}

# The listener waits for the other most of the time. Whatever stops it meanwhile, it goes on. (The search for leaks at
# its end is by ptrace and hangs where a SIGCONT comes meanwhile.)
perf_goes_on() {
    local port client
    port=$(free_port)
    ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0" perf_listener "$port"
    "$bin/angara_perf" --host="localhost:$port" -n 2000000 -s 8 offload_put_lat >"$work/out" 2>&1 &
    client=$!
    while kill -0 "$client" && kill -STOP "$listener" && kill -CONT "$listener"; do
        sleep 0.02
    done 2>/dev/null
    wait "$client"
    wait "$listener"
}

# is_seen PID: soon, by angara_top.
is_seen() {
    for _ in {1..400}; do
        [[ $("$bin/angara_top" --once --all) != *"pid $1 "* ]] || return 0
        sleep 0.05
    done
    return 1
}

# top_of COMMAND...: angara_top's view of an angara_perf that runs meanwhile, in $work/out.
top_of() {
    local pid status=0
    "$bin/angara_perf" --cpu=none -n 1000000000 -s 1:1048576 offload_put_lat >"$work/perf" 2>&1 &
    pid=$!
    is_seen "$pid"
    sleep 0.3
    "$@" --pid="$pid" >"$work/out" 2>&1 || status=$?
    kill "$pid"
    wait "$pid" || true
    return "$status"
}

# The columns of a process's line, and of that of its peer.
top_table() {
    top_of "$bin/angara_top" --samples=5 --delay=0.3
    awk '/angara_perf/ && $8 + 0 > 0 && $9 == 0 && $12 + 0 > 0 { process++ }
         /^   pid .*PE .* of node/ { peer++ }
         END { exit process < 1 || peer < 1 }' "$work/out" || { cat "$work/out"; return 1; }
}

top_json() {
    top_of "$bin/angara_top" --once --json
    cp "$work/out" "$work/json"
    json 'len(d["processes"]) == 1 and d["processes"][0]["program"] == "angara_perf" and
          sorted(o["kind"] for o in d["processes"][0]["objects"]) == ["pe", "peer", "peers"] and
          all(o["counters"]["offload_puts" if o["kind"] == "pe" else "puts"] > 0 and o["age_s"] < 5
              for o in d["processes"][0]["objects"])'
}

# Each sample is of a counter whose type stands before; nothing comes twice.
top_prometheus() {
    top_of "$bin/angara_top" --prometheus
    awk 'BEGIN { labels = "pid=\"[0-9]+\",rank=\"[0-9]*\",program=\"angara_perf\",host=\"[^\"]*\",pe=\"[0-9]+\","
                 sample = "^[a-z_]+[{]" labels "name=\"[^\"]*\"[}] [0-9]+$" }
         /^# TYPE [a-z_]+ counter$/ { if (type[$3]++) { print "twice: " $3; exit 1 } now = $3; next }
         !match($0, sample) || substr($0, 1, length(now) + 1) != now "{" { print; exit 1 }
         { samples++ } END { exit samples < 20 }' "$work/out"
}

top_hidden() {
    local status=0
    ANGARA_WATCH=n "$bin/angara_perf" --cpu=none -n 1000000000 -s 1:1048576 put_lat >"$work/perf" 2>&1 &
    for _ in {1..400}; do # until its PE is there
        [[ $(ls -l "/proc/$!/fd") != *memfd:angara-pe* ]] || break
        sleep 0.05
    done
    "$bin/angara_top" --once --pid=$! >"$work/out" 2>&1 || status=$?
    [[ $(ls -l "/proc/$!/fd") == *memfd:angara-pe* ]]
    kill $!
    wait $! || true
    ((status == 1)) && grep -q 'ANGARA_WATCH=n' "$work/out"
}

check 'angara_info prints the device' exits 0 'provider soft' "$bin/angara_info"
check 'angara_info shows what is missing' exits 0 'This machine' "$bin/angara_info"
check 'angara_info --json is JSON' info_json
check 'angara_info --config lists variables' exits 0 'ANGARA_SOFT_LOOPBACK=y' "$bin/angara_info" --config
check 'angara_env has no preload where UCX loads the transport by itself' env_plugin
check 'angara_info --config --json shows values in force' info_config_json
check 'angara_info --env tells origins' info_env_origins
if [[ -e $bin/../lib/libuct_angara.so ]]; then
    check 'angara_info --env lists the variables of the transport' info_env_ucx
else
    skip 'angara_info --env lists the variables of the transport' 'the transport is not built'
fi
check 'angara_info --version' exits 0 "$("$bin/angara_info" --version)" "$bin/angara_info" -V
check 'angara_info refuses unknown options' exits 2 '--help' "$bin/angara_info" --bogus
check 'angara_info refuses arguments' exits 2 'unexpected' "$bin/angara_info" soft
check 'angara_info without the device' exits 1 'no such device' "$bin/angara_info" --device=bogus
check 'angara_info with a wrong setting' exits 1 'ANGARA_CHAOS' env ANGARA_CHAOS=maybe "$bin/angara_info"
if command -v ompi_info >/dev/null && [[ -e $bin/../lib/openmpi/mca_hook_angara.so ]]; then
    check 'angara_info finds the Open MPI component, or says how Open MPI does' info_component_found
    check 'its advice works in folders of any name' info_component_quoted
    check 'its advice has no command where the name is too long' info_component_long
else
    skip 'angara_info finds the Open MPI component, or says how Open MPI does' 'Open MPI is not here'
fi
if [[ -z ${ANGARA_TEST_QUICK:-} ]]; then
    check 'angara_perf runs all tests' perf_all
    check 'angara_perf runs all tests, to a target that polls' perf_all --memory=private --target=polls --check
fi
check 'angara_perf runs all tests on private memory, validated' perf_all --memory=private --check
check 'angara_perf refuses other states of the target' \
    exits 2 "the target polls or sleeps, not 'x'" "$bin/angara_perf" -t x
check 'angara_perf without process_vm' env ANGARA_SOFT_CMA=n "$bin/angara_perf" -n 50 -w 5 -s 8:64K -c -m private
check 'angara_perf without loopback' env ANGARA_SOFT_LOOPBACK=n "$bin/angara_perf" -n 50 -w 5 -s 8:64K -c
check 'angara_perf in chaos mode' env ANGARA_CHAOS=5 "$bin/angara_perf" -n 50 -w 5 -s 8:1K -c
for ends in DD HD DH; do
    check "angara_perf on GPU memory, CUDA's, $ends" perf_gpu cuda "cuda:$ends"
    check "angara_perf on GPU memory, ROCm's, $ends" perf_gpu rocm "rocm:$ends"
done
check 'angara_perf on managed memory' perf_gpu cuda managed
check 'angara_perf refuses GPU memory for window puts' exits 2 'leave out --gpu' "$bin/angara_perf" -g cuda put_lat
check 'angara_perf refuses wrong kinds of GPU memory' exits 2 'cuda, rocm or managed' "$bin/angara_perf" -g vulkan
check 'angara_perf refuses wrong ends' exits 2 'DD or HH' "$bin/angara_perf" -g cuda:DX
check 'angara_perf says that there is no GPU' exits 1 'no GPU of cuda' env STANDIN_GPUS=0 \
    LD_LIBRARY_PATH="$standin" "$bin/angara_perf" -g cuda
check 'angara_perf --json is JSON' perf_json
check 'angara_perf measures the sizes asked for' perf_sizes
check 'angara_perf refuses unknown tests' exits 2 'no test' "$bin/angara_perf" bogus_lat
check 'angara_perf refuses wrong sizes' exits 2 'no size' "$bin/angara_perf" -s 8:4 put_lat
check 'angara_perf refuses sizes beyond its limit' exits 2 'no size' "$bin/angara_perf" -s 1T put_lat
check 'angara_perf refuses wrong counts' exits 2 'iterations' "$bin/angara_perf" -n 0
check 'angara_perf refuses wrong memory' exits 2 'shared or private' "$bin/angara_perf" -m gpu
check 'angara_perf refuses a CPU that is not there' exits 1 'CPU' "$bin/angara_perf" --cpu=0,1023 put_lat
check 'angara_perf refuses a wrong device' exits 1 'no such device' "$bin/angara_perf" -d bogus put_lat
check 'angara_perf ends when its partner is killed' perf_killed
check 'angara_perf runs all tests with one that listens, validated' perf_remote
check 'an angara_perf that listens refuses strangers, and waits on' perf_strangers
check 'an angara_perf that listens ends when its partner is killed' perf_remote_killed
check 'an angara_perf that listens gives up one that stalls, and waits on' perf_stalled
check 'an angara_perf that listens goes on after it was stopped' perf_goes_on
check 'angara_perf refuses a wrong patience' exits 2 'no number of seconds' "$bin/angara_perf" --patience=0
check 'angara_perf says how to start the other side' exits 1 'angara_perf --listen there first' \
    "$bin/angara_perf" --host="localhost:$(free_port)"
check 'angara_perf refuses hosts that are not there' exits 1 'host nosuch.invalid' "$bin/angara_perf" -H nosuch.invalid
check 'angara_perf refuses a port without its colon' exits 2 'listen=:PORT' "$bin/angara_perf" --listen=7470
check 'angara_perf is one side only' exits 2 'is said on the other side' "$bin/angara_perf" --listen --host=localhost
check 'angara_perf that listens is told what to measure' exits 2 'is said on the other side' \
    "$bin/angara_perf" --listen put_lat
check 'angara_perf says that it can not listen there' exits 1 'port nosuch' "$bin/angara_perf" --listen='[::1]:nosuch'
check 'angara_top shows rates of a process and its peer' top_table
check 'angara_top --json is JSON' top_json
check 'angara_top --prometheus is as Prometheus wants it' top_prometheus
check 'angara_top sees no process that does not want it' top_hidden
check 'angara_top refuses wrong delays' exits 2 'no number of seconds' "$bin/angara_top" -d never
check 'angara_top refuses wrong process ids' exits 2 'no process id' "$bin/angara_top" -p 0
check 'angara_top refuses arguments' exits 2 'unexpected' "$bin/angara_top" now
check 'angara_top says that a process is not there' exits 1 'no PE' "$bin/angara_top" --once -p $$
check 'angara_jobkey refuses unknown options' exits 2 '--help' "$jobkey" --bogus
check 'angara_jobkey refuses unknown commands' exits 2 'no such command: grant' "$jobkey" grant root 1
check 'angara_jobkey wants a command' exits 2 'add, del or list' "$jobkey"
check 'angara_jobkey wants a user and a value' exits 2 'number of arguments' "$jobkey" add root
check 'angara_jobkey refuses unknown users' exits 2 'no such user: who?' "$jobkey" add 'who?' 1
check 'angara_jobkey refuses value 0' exits 2 'no value' "$jobkey" add root 0
check 'angara_jobkey refuses values that are too large' exits 2 'no value' "$jobkey" add root 0x100000000000000
check 'angara_jobkey refuses words as values' exits 2 'no value' "$jobkey" del 0 1x
check 'angara_jobkey refuses other devices' exits 2 'no name of a NIC' "$jobkey" -d soft0 list
if [[ -e /dev/angara_jobkey ]]; then
    skip 'angara_jobkey without the module' 'the module is loaded'
else
    check 'angara_jobkey without the module' exits 1 'load the module angara_nic' "$jobkey" list
fi
for tool in "$bin/angara_info" "$bin/angara_perf" "$bin/angara_top" "$jobkey" scripts/angara_env; do
    page=$(compgen -G "userlib/man/${tool##*/}.[18]")
    check "$page has all options" man_has_options "$tool" "$page"
    if command -v groff >/dev/null; then
        check "$page has no mistakes" man_is_clean "$page"
    else
        skip "$page has no mistakes" 'groff is not installed'
    fi
done
check 'the man page of angara_perf has all tests' man_has_tests
check 'the man page of angara_env has all variables' man_has_exports
check 'angara(7) names all public headers' overview_has_headers
for tool in angara_info angara_perf; do
    check "the examples of $tool's man page run" man_examples_run "userlib/man/$tool.1"
done
check "those of angara_info's run where nothing wants attention" man_examples_healthy
tap_end
