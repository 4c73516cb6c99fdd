#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# scripts/bench, scripts/demo and scripts/plot: errors in run files, contenders that fail in all
# ways, ratios and goals, the proof by counters, the files that are written, and whose programs
# run. Most runs use a program that only prints what it is told, so that the expected numbers are
# known.

set -euo pipefail
cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=tests/common/programs.sh
. tests/common/programs.sh

build=${B:-build}
configs=$out/configs
mkdir -p "$configs/contenders" "$out/path"
export PATH=$out/path:$PATH
unset OSU_HOME
plots=no
if /usr/bin/python3 -c 'import matplotlib' 2>/dev/null; then
    plots=yes
fi

# A "benchmark": prints $FAKE_VALUES (size:value,...), counts, ends with $FAKE_STATUS or never.
cat >"$out/path/osu_fake" <<'END'
#!/bin/bash
echo "# Fake Test"
echo "# Size          Latency (us)        Validation"
for pair in ${FAKE_VALUES//,/ }; do
    echo "${pair%%:*}       ${pair#*:}        ${FAKE_VALIDATION:-Pass}"
done
if [[ -n ${FAKE_COUNTERS:-} ]]; then
    printf '%s\n' "eager_tx $FAKE_COUNTERS" "peers 5" "other 2x" >"${FAKE_STATS//%p/$$}"
fi
[[ -z ${FAKE_ERROR:-} ]] || echo "[host:1] ERROR: $FAKE_ERROR" >&2
[[ ${FAKE_STATUS:-0} != hang ]] || exec sleep 100
exit "${FAKE_STATUS:-0}"
END
cat >"$out/path/plain_fake" <<'END'
#!/bin/bash
echo "# a comment 8 9 ns"
echo "put_lat 8 $1 ns"
END
chmod +x "$out/path/osu_fake" "$out/path/plain_fake"

# contender NAME LINES...
contender()
{
    printf '%s\n' "TITLE=The $1" "${@:2}" >"$configs/contenders/$1.conf"
}

# run_file NAME LINES...
run_file()
{
    printf '%s\n' "# a comment" "" "${@:2}" >"$configs/$1.conf"
}

bench()
{
    run 120 scripts/bench --configs "$configs" --build "$build" --output "$out/results" \
        --repeats 2 "$@"
}

demo()
{
    run 120 scripts/demo --configs "$configs" --build "$build" --output "$out/demo" "$@"
}

common=(TITLE=A PROGRAM=osu_fake LAUNCH=alone UNIT=us BETTER=lower)
two=("${common[@]}" 'CONTENDERS=one two')
three=("${common[@]}" 'CONTENDERS=one two three' 'AGAINST=two three')

# config_error PATTERN LINES...: a run file with these lines is refused, with one message.
config_error()
{
    local pattern=$1
    shift
    rm -f "$configs"/bench-*.conf
    run_file bench-1 "$@"
    run 60 scripts/bench --configs "$configs" --dry-run
    ok "run file: $pattern" all_of "rc_is"$'\t'2 "line_count"$'\t'stderr$'\t'"^bench: .*$pattern"$'\t'1
}

# The processors are moved: their distance is what the first lines of $out/distances say, one each time it is looked at.
test_moved()
{
    mkdir -p "$out/build/bench"
    cat >"$out/build/bench/cacheline_pingpong" <<'END'
#!/bin/bash
file=${0%/build/*}/distances
read -r distance <"$file"
sed -i 1d "$file"
echo "cacheline_pingpong 8 $distance ns"
END
    chmod +x "$out/build/bench/cacheline_pingpong"
    contender one ENV=FAKE_VALUES=8:1
    contender two ENV=FAKE_VALUES=8:2
    rm -f "$configs"/bench-*.conf
    run_file bench-1 "${two[@]}"
    moved_bench "the same distance" 0 50 60 45
    moved_bench "another one after the first repeat" 0 50 400 390 390 410
    moved_bench "it never stays" 1 50 400 50 400 50 400 50 50 400
}

# moved_bench TEXT NOTES DISTANCES...: each of them is looked at once.
moved_bench()
{
    local text=$1 notes=$2
    shift 2
    printf '%s\n' "$@" >"$out/distances"
    run 120 scripts/bench --configs "$configs" --build "$out/build" --output "$out/results" --repeats 2 --no-plots
    ok "moved processors: $text" all_of "rc_is"$'\t'0 \
        "line_count"$'\t'stdout$'\t'"^- A: the processors were moved meanwhile"$'\t'"$notes" \
        test$'\t'!$'\t'-s$'\t'"$out/distances"
}

test_config_errors()
{
    contender one ENV=FAKE_VALUES=8:1
    contender two ENV=FAKE_VALUES=8:2
    config_error "unknown key 'COLOUR'" "${two[@]}" COLOUR=red
    config_error "bench-1.conf:9: expected KEY=value" "${two[@]}" nonsense
    config_error "BETTER 'more': must be one of: lower higher" "${two[@]/BETTER=lower/BETTER=more}"
    config_error "TITLE is given twice" "${two[@]}" TITLE=B
    config_error "missing: UNIT" "${two[@]/UNIT=us/#}"
    config_error "RANKS '0'" "${two[@]}" RANKS=0
    config_error "GOAL 'fast'" "${two[@]}" GOAL=fast
    config_error "a GOAL needs AGAINST" "${two[@]}" GOAL=1
    config_error "AGAINST names 'three'" "${two[@]}" AGAINST=three
    config_error "'novalue' is not NAME=value" "${two[@]}" ENV=novalue
    config_error "VARIANT 'nameless': must be 'NAME: ARGUMENTS'" "${two[@]}" VARIANT=nameless
    config_error "PATTERN '\(': is no regular expression" "${two[@]}" 'PATTERN=('
    config_error "PATTERN 'a': must have one group" "${two[@]}" PATTERN=a
    config_error "ALSO 'two one': must be 'SUBJECT OTHER GOAL'" "${two[@]}" 'ALSO=two one'
    config_error "NEEDS 'this:': must be 'PROGRAM: REASON'" "${two[@]}" NEEDS=this:
    config_error "contenders/three.conf: No such file" "${two[@]/one two/one three}"
    rm -f "$configs"/bench-*.conf
    run 60 scripts/bench --configs "$configs"
    ok 'no run files' all_of "rc_is"$'\t'2 "has_line"$'\t'stderr$'\t'"no bench-\*.conf"
    run 60 scripts/bench --build "$build" --dry-run
    ok 'the shipped run files are well-formed' rc_is 0
    run 60 scripts/bench --build "$build" --against "$build" --list
    ok 'with those that are for --against only' all_of "rc_is"$'\t'0 \
        "has_line"$'\t'stdout$'\t'"^against-1-put-latency "
    run 60 scripts/bench --dry-run nothing-like-that
    ok 'unknown run' all_of "rc_is"$'\t'2 "has_line"$'\t'stderr$'\t'"no run named"
    run 60 scripts/bench --skip vader --skip nobody --list
    ok 'unknown contender' all_of "rc_is"$'\t'2 "has_line"$'\t'stderr$'\t'"no such contender"
}

test_ratios()
{
    rm -f "$configs"/bench-*.conf
    contender one ENV=FAKE_VALUES=8:1,16:4
    contender two ENV=FAKE_VALUES=8:2,16:2
    contender three ENV=FAKE_VALUES=8:4,16:1
    contender bare
    contender plain PROGRAM=plain_fake OPTIONS=250
    run_file bench-1 "${three[@]}" GOAL=1.42
    run_file bench-2 "${three[@]}" GOAL=1.41
    run_file bench-3 "${three[@]}" GOAL=1.42 EACH=3.9
    run_file bench-4 TITLE=A PROGRAM=osu_fake LAUNCH=alone UNIT=us BETTER=higher \
        'CONTENDERS=two one' AGAINST=one GOAL=1.01
    run_file bench-5 TITLE=A PROGRAM=plain_fake OPTIONS=1000 LAUNCH=alone UNIT=ns BETTER=lower \
        'CONTENDERS=bare plain' AGAINST=plain COMPARE=difference GOAL=760
    bench --write-doc "$out/doc.md"
    ok 'bench: exit status' rc_is 0
    ok 'ratio: geometric mean, each size against the best' \
        has_line stdout '^A +1\.00x +1\.00x .* 1\.41x +<= 1\.42x +reached$'
    ok 'ratio: just missed' has_line stdout '1\.41x +<= 1\.41x +not reached$'
    ok 'ratio: one size too bad' has_line stdout 'each <= 3\.90x +not reached$'
    ok 'ratio: the bad size is named' has_line stdout '^- A: short of the limit at 16 B 4\.00x$'
    ok 'ratio: higher is better' has_line stdout '1\.00x +>= 1\.01x +not reached$'
    ok 'difference' has_line stdout '\+750 ns +<= 760 ns more +reached$'
    ok 'written: CSV' grep -q '^bench-1,osu_fake,16,three,us,1,1,1,2,.$' "$out/results/bench.csv"
    ok 'written: JSON' /usr/bin/python3 -c 'import json, sys
run = json.load(open(sys.argv[1]))["runs"][0]
sys.exit(run["samples"]["two"]["8"] != [2, 2] or run["verdict"] != "reached")' \
        "$out/results/bench.json"
    if [[ $plots == yes ]]; then
        ok 'written: plots' test -s "$out/results/bench-1.png"
    else
        skip 'written: plots' 'there is no matplotlib'
    fi
    bench --strict
    ok 'bench --strict: exit status' rc_is 1
}

test_patterns()
{
    rm -f "$configs"/bench-*.conf
    contender one ENV=FAKE_VALUES=8:1,16:4
    contender two ENV=FAKE_VALUES=8:2,16:2
    run_file bench-1 "${two[@]}" 'PATTERN=^16 +([0-9.]+) +Pass$'
    run_file bench-2 "${two[@]}" 'NEEDS=osu_nothing: it grows on trees'
    run_file bench-3 "${two[@]}" 'NEEDS=osu_fake: it grows on trees'
    bench --no-plots
    ok 'a value found by a pattern, and a run whose program is missing' all_of "rc_is"$'\t'0 \
        "has_line"$'\t'stdout$'\t'"^8 B +4 +2$" "line_count"$'\t'stdout$'\t'"^A \[us\]"$'\t'2 \
        "has_line"$'\t'stdout$'\t'"^skipped +A \(there is no osu_nothing: it grows on trees\)$"
    run 60 scripts/bench --configs "$configs" --build "$build" --dry-run bench-2
    ok '--dry-run tells of it, too' test "$(cat "$out/stdout")" == \
        '# skipped: A (there is no osu_nothing: it grows on trees)'
}

test_also()
{
    rm -f "$configs"/bench-*.conf
    contender one ENV=FAKE_VALUES=8:1
    contender two ENV=FAKE_VALUES=8:2
    contender three ENV=FAKE_VALUES=8:4
    run_file bench-1 "${two[@]}" 'VARIANT=first: -a' 'MORE=second: -b' 'ALSO=three two 1.9'
    bench --no-plots
    ok 'two others, too: not for what takes long' all_of "rc_is"$'\t'0 \
        "has_line"$'\t'stdout$'\t'"^A, first: The three +2\.00x .* <= 1\.90x +not reached$" \
        "line_count"$'\t'stdout$'\t'"^A, (first|second) .* 0\.50x$"$'\t'2 \
        "line_count"$'\t'stdout$'\t'"^A, second: "$'\t'0
    run 60 scripts/bench --configs "$configs" --list --quick
    ok 'two others, too: not for --quick' test "$(cut -d' ' -f1 "$out/stdout" | xargs)" == bench-1-first
}

# hpcc's executions find 0.02, 0.04 and 0.01 GUP/s.
test_hpcc()
{
    cat >"$out/path/hpcc" <<END
#!/bin/bash
[[ \$(sed -n 6p hpccinf.txt) == *' N' && \$(wc -l <hpccinf.txt) == 36 ]] || exit 3
values=(2 4 1)
count=\$(cat '$out/count' 2>/dev/null || true)
echo \$((count + 1)) >'$out/count'
printf '%s\n' 'MPIRandomAccess_LCG_GUPs=7' "MPIRandomAccess_GUPs=0.0\${values[count]}" >hpccoutf.txt
echo Success="\${FAKE_SUCCESS:-1}" >>hpccoutf.txt
END
    chmod +x "$out/path/hpcc"
    local lines=(TITLE=A PROGRAM=hpcc_values LAUNCH=alone UNIT=GUP/s BETTER=higher CONTENDERS=bare REPEATS=3
        'PATTERN=^MPIRandomAccess_GUPs=([-+.0-9e]+)$')
    rm -f "$configs"/bench-*.conf
    contender bare
    contender failing ENV=FAKE_SUCCESS=0
    run_file bench-1 "${lines[@]}"
    run 60 scripts/bench --configs "$configs" --build "$build" --output "$out/results" --no-plots
    ok 'HPCC: the median of as many as the run asks for, with the spread' all_of "rc_is"$'\t'0 \
        "has_line"$'\t'stdout$'\t'"^8 B +0\.02 \(0\.01 to 0\.04\)$"
    run_file bench-1 "${lines[@]/bare/failing}"
    bench --no-plots
    ok 'HPCC: not without success' all_of "rc_is"$'\t'1 "has_line"$'\t'stdout$'\t'"^The failing failed: exit status 1"
    rm "$out/path/hpcc"
}

# order_is TITLE...: the first column of the summary in stdout
order_is()
{
    [[ $(sed -n '/^run /,/^$/{ /^run /d; /^- /d; s/  .*//; /./p }' "$out/stdout" | xargs) == "$*" ]]
}

test_order()
{
    local fake=(PROGRAM=osu_fake LAUNCH=alone UNIT=us)
    local times=("${fake[@]}" BETTER=lower 'CONTENDERS=one two' AGAINST=two)
    local rates=("${fake[@]}" BETTER=higher 'CONTENDERS=two one' AGAINST=one)
    rm -f "$configs"/bench-*.conf
    contender one ENV=FAKE_VALUES=8:2,16:8
    contender two ENV=FAKE_VALUES=8:2,16:2
    contender same ENV=FAKE_VALUES=8:2,16:8
    contender broken ENV=FAKE_STATUS=1
    # The ratios are 1 and 4, in geometric mean 2.
    run_file bench-01 TITLE=reached "${times[@]}" GOAL=2.1
    run_file bench-02 TITLE=by-1.25 "${times[@]}" GOAL=1.6
    run_file bench-03 TITLE=ahead "${fake[@]}" BETTER=lower 'CONTENDERS=two one'
    run_file bench-04 TITLE=by-2-of-all "${fake[@]}" BETTER=lower 'CONTENDERS=one two broken'
    run_file bench-05 TITLE=each-by-2.5 "${times[@]}" GOAL=2.1 EACH=1.6
    # Rates of 1/2; 5 are compared with 2, and 4 are allowed.
    run_file bench-06 TITLE=rate-by-1.5 "${rates[@]}" GOAL=0.75
    run_file bench-07 TITLE=failed "${times[@]/two/broken}" GOAL=9
    run_file bench-08 TITLE=more-by-5/4 "${times[@]}" COMPARE=difference GOAL=2
    run_file bench-09 TITLE=rate-each-by-3 "${rates[@]}" GOAL=0.4 EACH=0.75
    run_file bench-10 TITLE=equal "${times[@]/two/same}"
    # 3 more, on 2: without a goal that is 2.5 times as much.
    run_file bench-11 TITLE=more-by-2.5 "${times[@]}" COMPARE=difference
    bench --write-doc "$out/order.md"
    ok 'summary: what is behind comes first, the worst at the top' order_is failed rate-each-by-3 each-by-2.5 \
        more-by-2.5 by-2-of-all rate-by-1.5 by-1.25 more-by-5/4 reached ahead equal
    ok 'summary: what is behind without a goal' all_of "line_count"$'\t'stdout$'\t'" behind$"$'\t'2 \
        "has_line"$'\t'stdout$'\t'"^by-2-of-all .* 2\.00x +behind$" \
        "has_line"$'\t'stdout$'\t'"^ahead .* 0\.50x$"
    ok 'summary: the same in the document' test \
        "$(grep -m 4 -E '^\| (failed|each|by-2|ahead)' "$out/order.md" | cut -d' ' -f2 | xargs)" == \
        'failed each-by-2.5 by-2-of-all ahead'
}

# commands_within COUNT: at most so many has --dry-run printed
commands_within() { (($(grep -c '^[^#]' "$out/stdout") <= $1)); }

test_quick()
{
    local quick=(scripts/bench --configs "$configs" --build "$build" --output "$out/results" --no-plots --quick)
    rm -f "$configs"/bench-*.conf
    contender one ENV=FAKE_VALUES=8:1
    contender two ENV=FAKE_VALUES=8:2
    contender three ENV=FAKE_VALUES=8:4
    run_file bench-1 "${three[@]/AGAINST=two three/AGAINST=two}"
    run_file bench-2 "${three[@]/AGAINST=*/}"
    run_file bench-3 "${two[@]}" QUICK=no
    run 120 "${quick[@]}"
    ok '--quick: one execution of what is compared' all_of "rc_is"$'\t'0 \
        "line_count"$'\t'"stdout"$'\t'"^A "$'\t'4 "has_line"$'\t'stdout$'\t'"medians of 1 "
    ok '--quick: whose values' test "$(cut -d, -f1,4,9 "$out/results/bench.csv" | xargs)" == \
        'run,contender,samples bench-1,one,1 bench-1,two,1 bench-2,one,1 bench-2,two,1 bench-2,three,1'
    run 120 "${quick[@]}" --repeats 2 --skip two bench-1
    ok '--quick: repeats, and contenders to skip' test "$(cut -d, -f4,9 "$out/results/bench.csv" | xargs)" == \
        'contender,samples one,2 three,2'
    run 120 "${quick[@]}" bench-3
    ok '--quick: nothing is left' all_of "rc_is"$'\t'2 "has_line"$'\t'stderr$'\t'"^bench: --quick leaves out bench-3$"
    config_error "QUICK 'maybe': must be one of: yes no" "${two[@]}" QUICK=maybe

    rm -f "$configs"/bench-*.conf
    run_file bench-1 "${two[@]}" OPTIONS=-a 'VARIANT=first kind: -b' 'VARIANT=second: -c d' 'MORE=third: -e'
    run 60 scripts/bench --configs "$configs" --list
    ok 'variants: a run for each' test "$(tr -s ' ' <"$out/stdout" | xargs)" == \
        'bench-1-first-kind A, first kind bench-1-second A, second bench-1-third A, third'
    run 60 scripts/bench --configs "$configs" --build "$build" --dry-run second
    ok 'variants: their arguments, one by its name' all_of "rc_is"$'\t'0 "line_count"$'\t'stdout$'\t'" -a -c d$"$'\t'2 \
        "commands_within"$'\t'2
    run 60 scripts/bench --configs "$configs" --list --quick
    ok 'variants: not all for --quick' test "$(grep -c ^bench "$out/stdout")" == 2

    rm -f "$configs"/bench-*.conf
    run_file bench-1 "${two[@]/LAUNCH=alone/LAUNCH=mpirun}" 'RANKS=2 3' 'VARIANT=kind: -b'
    run 60 scripts/bench --configs "$configs" --build "$build" --dry-run
    ok 'several numbers of ranks: a run for each' all_of "line_count"$'\t'stdout$'\t'" -np [23] .* -b$"$'\t'4 \
        "has_line"$'\t'stdout$'\t'"^# bench-1-3-ranks-kind: A, 3 ranks, kind$"

    # 1.4 seconds for each execution, of which there are five times as many.
    run 120 scripts/bench --build "$build" --dry-run
    ok 'all shipped runs: an hour will do' all_of "rc_is"$'\t'0 "commands_within"$'\t'500
    run 120 scripts/bench --build "$build" --dry-run --quick
    ok '--quick: five minutes will do' all_of "rc_is"$'\t'0 "commands_within"$'\t'160
}

test_doc()
{
    ok 'doc: a new file has the block' grep -q '^| A | ' "$out/doc.md"
    sed -i '1s/.*/# My title/' "$out/doc.md"
    echo 'My last line.' >>"$out/doc.md"
    bench --write-doc "$out/doc.md"
    ok 'doc: the block is replaced' test "$(grep -c 'bench:begin' "$out/doc.md")" == 1
    ok 'doc: what is around it stays' test \
        "$(head -n 1 "$out/doc.md")$(tail -n 1 "$out/doc.md")" == '# My titleMy last line.'
    # The path is the inner shell's.
    # shellcheck disable=SC2016
    ok 'doc: no path of this machine' bash -c '! grep -F "$PWD" "$0"' "$out/doc.md"
    sed -i '/bench:end/d' "$out/doc.md"
    bench --write-doc "$out/doc.md"
    ok 'doc: a marker is missing' all_of "rc_is"$'\t'2 \
        "has_line"$'\t'stderr$'\t'"must both be there"
}

# failing NAME PATTERN LINES...: one contender fails, everything else goes on.
failing()
{
    local name=$1 pattern=$2
    shift 2
    contender two "$@"
    bench bench-1
    ok "a contender fails: $name" all_of "rc_is"$'\t'0 \
        "has_line"$'\t'stdout$'\t'"^A +failed +1\.00x +.* failed$" \
        "has_line"$'\t'stdout$'\t'"^- A, The two: $pattern"
}

test_failures()
{
    rm -f "$configs"/bench-*.conf
    contender one ENV=FAKE_VALUES=8:1
    contender three ENV=FAKE_VALUES=8:1
    run_file bench-1 "${three[@]}" GOAL=1 TIMEOUT=2
    failing 'status and message' 'exit status 3: ERROR: trouble$' \
        'ENV=FAKE_VALUES=8:1 FAKE_STATUS=3 FAKE_ERROR=trouble'
    failing 'hangs' "not ended after $(slow 2) s$" 'ENV=FAKE_VALUES=8:1 FAKE_STATUS=hang'
    failing 'prints nothing' 'no values in the output' 'ENV=FAKE_VALUES='
    failing 'wrong data' 'wrong data at size 8' 'ENV=FAKE_VALUES=8:1 FAKE_VALIDATION=Fail'
    failing 'no program' 'there is no program osu_missing' PROGRAM=osu_missing
    failing 'no counters' 'the run ended well, but two did not carry it: there are no counters' \
        'ENV=FAKE_VALUES=8:1' COUNTERS=FAKE_STATS
    failing 'counters are zero' 'the run ended well, but two did not carry it: .* 0 messages' \
        'ENV=FAKE_VALUES=8:1 FAKE_COUNTERS=0' COUNTERS=FAKE_STATS
    contender two 'ENV=FAKE_VALUES=8:1 FAKE_COUNTERS=7' COUNTERS=FAKE_STATS
    bench bench-1
    ok 'counters that count' has_line stdout '1\.00x +<= 1\.00x +reached$'
    contender one 'ENV=FAKE_STATUS=1'
    bench
    ok 'the subject fails: exit status' rc_is 1
}

test_demo()
{
    contender one 'ENV=FAKE_VALUES=8:1,16:3 FAKE_COUNTERS=7' COUNTERS=FAKE_STATS
    contender two 'ENV=FAKE_VALUES=8:1' COUNTERS=FAKE_STATS
    run_file demo-1 "${common[@]}" CONTENDERS=one
    run_file demo-2 "${common[@]}" CONTENDERS=one
    demo
    ok 'demo: tables and the sum of counters' all_of "rc_is"$'\t'0 \
        "line_count"$'\t'stdout$'\t'"^16 +3 +Pass$"$'\t'2 \
        "has_line"$'\t'stdout$'\t'"\(eager_tx\) +7 +7 +14$" \
        "has_line"$'\t'stdout$'\t'"^All data were right"
    ok 'demo: written' test -s "$out/demo/demo.csv" -a -s "$out/demo/counters.csv"
    if [[ $plots == yes ]]; then
        ok 'demo: plots' test -s "$out/demo/demo-1.png" -a -s "$out/demo/demo-2.png"
    else
        skip 'demo: plots' 'there is no matplotlib'
    fi
    demo --contender two --no-plot
    ok 'demo: no counters, no success' all_of "rc_is"$'\t'1 \
        "line_count"$'\t'stdout$'\t'"two did not carry it"$'\t'2 \
        "line_count"$'\t'stdout$'\t'"^All data were right"$'\t'0
    contender one 'ENV=FAKE_VALUES=8:1,16:3 FAKE_COUNTERS=7 FAKE_VALIDATION=Fail' \
        COUNTERS=FAKE_STATS
    demo --no-plot
    ok 'demo: wrong data' all_of "rc_is"$'\t'1 "has_line"$'\t'stdout$'\t'"wrong data at size 8" \
        "has_line"$'\t'stdout$'\t'"^2 of 2 runs failed"
}

# Two builds, of which the second is a copy of ours. The program loads the library that it runs with, and
# tells whose that is: its n-th execution takes the n-th value of FAKE_NEW or FAKE_OLD.
test_against()
{
    local older=$out/older fake=(TITLE=A PROGRAM=osu_against LAUNCH=alone UNIT=us)
    rm -f "$configs"/*.conf
    mkdir -p "$older"
    cp -r "$build/lib" "$build/bin" "$older"
    cat >"$out/path/osu_against" <<END
#!/bin/bash
angara_info --device soft >/dev/null || exit
values=\${FAKE_NEW:-5}
[[ \$LD_LIBRARY_PATH != '$older'/* ]] || values=\${FAKE_OLD:-4}
values=(\${values//,/ })
turn=\$((\$(wc -l <'$out/turns') / 2))
value=\${values[turn % \${#values[@]}]}
echo "\$value" >>'$out/turns'
printf '# Size  Latency (us)\n8  4\n16  %s\n' "\$value"
END
    chmod +x "$out/path/osu_against"
    contender one ANGARA=yes
    contender two
    run_file bench-1 "${fake[@]}" BETTER=lower 'CONTENDERS=one two' AGAINST=two COMPARE=difference
    run_file bench-2 "${fake[@]}" BETTER=lower 'CONTENDERS=two one'
    run_file against-1 "${fake[@]/TITLE=A/TITLE=B}" BETTER=higher OPTIONS=more CONTENDERS=one
    run_file bench-3 "${fake[@]}" BETTER=lower CONTENDERS=two
    : >"$out/turns"
    bench --against "$older" --repeats 3 bench-1 bench-2
    ok '--against: old and new in turn, nobody else, nothing twice' all_of "rc_is"$'\t'0 \
        turns_are$'\t'5$'\t'4$'\t'5$'\t'4$'\t'5$'\t'4 \
        "has_line"$'\t'stdout$'\t'"^A +1\.12x +1\.12x +1\.25x at 16 B +<= 1\.05x +BEYOND$" \
        "has_line"$'\t'stdout$'\t'"^- beyond 1\.05x: 1 of 1 runs: A$" \
        "has_line"$'\t'stdout$'\t'"^- A: beyond it at 16 B 1\.25x$"
    bench --against "$older" --limit 1.2 --strict
    ok '--against: a limit; higher may be better' all_of "rc_is"$'\t'0 \
        "has_line"$'\t'stdout$'\t'"^A .* <= 1\.20x +within$" \
        "has_line"$'\t'stdout$'\t'"^B +1\.12x +1\.12x +1\.00x at 8 B +>= 0\.83x +within$" \
        "has_line"$'\t'stdout$'\t'"^- beyond 1\.2x: 0 of 2 runs$"
    bench --against "$older" --strict bench-1
    ok '--against --strict: exit status' rc_is 1

    two_speeds 2,2,8,8,8 2,2,2,8,8 bench-1
    ok '--against: two speeds, the median is chance' has_line stdout \
        '^A +2\.00x +1\.00x +1\.00x at 8 B +<= 1\.05x +within$'
    two_speeds 9,9,2,2,2 9,9,9,9,2 against-1
    ok '--against: the same for rates' has_line stdout \
        '^B +0\.47x +1\.00x +1\.00x at 8 B +>= 0\.95x +within$'
    two_speeds 3,3,3,9,9 2,2,2,8,8 bench-1
    ok '--against: slower at both speeds' has_line stdout \
        '^A +1\.22x +1\.22x +1\.50x at 16 B +<= 1\.05x +BEYOND$'
    two_speeds 2,9,9,9,9 2,2,2,2,9 bench-1
    ok '--against: the slow speed is now the usual one' has_line stdout \
        '^A +2\.12x +2\.12x +4\.50x at 16 B +<= 1\.05x +BEYOND$'

    contender one ANGARA=yes "ENV=LD_LIBRARY_PATH=$(realpath -- "$build/lib")"
    bench --against "$older" bench-1
    ok '--against: an older build that loads ours is found out' all_of "rc_is"$'\t'1 \
        "has_line"$'\t'stdout$'\t'"^- A, The one before: loaded .*/lib/libangara\.so\.0, which is not of $older"
    contender one ANGARA=yes 'ENV=FAKE_VALUES=8:1' PROGRAM=osu_fake
    bench --against "$older" bench-1
    ok '--against: so is one that loads nothing' all_of "rc_is"$'\t'1 \
        "has_line"$'\t'stdout$'\t'"^- A, The one before: .*/older/lib/libangara\.so\.0 was not loaded"

    against_error 'is not a folder' "$older.none"
    against_error 'is the build that is measured itself' "$build"
    rm "$older/lib/libuct_angara.so"
    against_error 'it has no lib/libuct_angara.so' "$older"
    cp "$build/lib/libuct_angara.so" "$older/lib"
    against_error 'has a contender of ours' "$older" bench-3
    against_error 'must be from 1 to 100' "$older" --limit 0.9
    against_error 'not --against' "$older" --write-doc "$out/doc.md"
}

# two_speeds NEW OLD RUN: what the five executions of each build print at 16 B
two_speeds()
{
    contender one ANGARA=yes "ENV=FAKE_NEW=$1 FAKE_OLD=$2"
    : >"$out/turns"
    bench --against "$older" --repeats 5 "$3"
    contender one ANGARA=yes
}

turns_are() { [[ $(xargs <"$out/turns") == "$*" ]]; }

# against_error PATTERN BUILD OPTION...
against_error()
{
    bench --against "${@:2}"
    ok "--against: $1" all_of "rc_is"$'\t'2 "line_count"$'\t'stderr$'\t'"^bench: .*$1"$'\t'1
}

# The real programs, over what every machine has.
test_real()
{
    rm -f "$configs"/*.conf
    cp osu_configs/contenders/*.conf "$configs/contenders"
    run_file bench-1 TITLE=A PROGRAM=osu_mbw_mr 'OPTIONS=-m 8:8 -i 20' 'OPTIONS=-m 16:16 -i 20' \
        'CONTENDERS=vader posix sysv tcp' AGAINST=posix COLUMN=Messages/s UNIT=msg/s \
        BETTER=higher GOAL=0.01
    run_file demo-1 TITLE=A PROGRAM=osu_bcast 'OPTIONS=-m 8:64 -i 20 -c -f' RANKS=3 \
        CONTENDERS=vader UNIT=us BETTER=lower
    bench
    ok 'real: bench over vader, posix, sysv, tcp' all_of "rc_is"$'\t'0 \
        "has_line"$'\t'stdout$'\t'"reached$" "has_line"$'\t'stdout$'\t'"^16 B" \
        "line_count"$'\t'stdout$'\t'"failed"$'\t'0
    demo --no-plot
    ok 'real: demo over vader' all_of "rc_is"$'\t'0 \
        "line_count"$'\t'stdout$'\t'"^(8|16|32|64) .*Pass$"$'\t'4
    if [[ $(nproc) -ge 2 ]]; then
        run_file bench-1 TITLE=A PROGRAM=ucx_perftest 'OPTIONS=-t am_lat -s 8 -n 1000' \
            LAUNCH=pair 'CONTENDERS=posix cacheline' AGAINST=cacheline UNIT=ns BETTER=lower \
            GOAL=1000
        bench
        ok 'real: ucx_perftest and the cache line' all_of "rc_is"$'\t'0 \
            "has_line"$'\t'stdout$'\t'"<= 1000.00x +reached$"
    else
        skip 'real: ucx_perftest and the cache line' 'needs two CPUs'
    fi
    rm -f "$configs"/bench-*.conf
    run_file against-1 TITLE=A PROGRAM=osu_latency 'OPTIONS=-m 8:16 -i 20 -x 2' CONTENDERS=angara \
        UNIT=us BETTER=lower ENV=ANGARA_NO_SUCH_VARIABLE=1
    run_file against-2 TITLE=B PROGRAM=ucx_perftest 'OPTIONS=-t am_lat -s 8 -n 100' LAUNCH=pair \
        CONTENDERS=angara UNIT=ns BETTER=lower
    if [[ $(nproc) -lt 2 ]]; then
        rm "$configs/against-2.conf"
    fi
    bench --against "$out/older"
    ok 'real: --against a copy of the build, with a variable that neither knows' all_of "rc_is"$'\t'0 \
        "has_line"$'\t'stdout$'\t'"^- beyond 1.05x: . of" "line_count"$'\t'stdout$'\t'"failed"$'\t'0
}

# An installation of the OSU micro-benchmarks 7.x. Its programs are ours, with the line more that
# theirs print, and leave their name behind.
osu_program() # FOLDER NAME
{
    local folder=$out/osu/libexec/osu-micro-benchmarks/mpi/$1
    mkdir -p "$folder"
    printf '%s\n' '#!/bin/bash' "echo $2 >>'$out/osu-used'" \
        "[[ \$OMPI_COMM_WORLD_RANK != 0 ]] || echo '# Datatype: MPI_CHAR.'" \
        "exec '$(realpath -- "$build/bench/$2")' \"\$@\"" >"$folder/$2"
    chmod +x "$folder/$2"
}

osu_used_is() # NAME...
{
    [[ $(sort -u "$out/osu-used" 2>/dev/null | xargs) == "$*" ]]
}

test_osu_home()
{
    rm -f "$configs"/*.conf
    osu_program pt2pt osu_latency
    osu_program collective osu_bcast
    osu_program one-sided osu_put_latency
    chmod -x "$out/osu/libexec/osu-micro-benchmarks/mpi/one-sided/osu_put_latency"
    local common=('CONTENDERS=vader' UNIT=us BETTER=lower 'OPTIONS=-m 8:16 -i 20 -x 2')
    run_file bench-1 TITLE=A PROGRAM=osu_latency "${common[@]}"
    run_file bench-2 TITLE=B PROGRAM=osu_bcast "${common[@]}"
    run_file bench-3 TITLE=C PROGRAM=osu_put_latency "${common[@]}"
    run_file bench-4 TITLE=D PROGRAM=osu_allreduce "${common[@]}"
    run_file demo-1 TITLE=A PROGRAM=osu_latency CONTENDERS=angara UNIT=us BETTER=lower \
        'OPTIONS=-m 8:16384 -i 20 -x 2 -c'

    export OSU_HOME=$out/osu
    bench --dry-run
    ok 'OSU_HOME: its programs, of the build only what it lacks' all_of "rc_is"$'\t'0 \
        "has_line"$'\t'stdout$'\t'"$OSU_HOME/libexec/osu-micro-benchmarks/mpi/pt2pt/osu_latency " \
        "has_line"$'\t'stdout$'\t'"$OSU_HOME/.*/mpi/collective/osu_bcast " \
        "has_line"$'\t'stdout$'\t'"bench/osu_put_latency " \
        "has_line"$'\t'stdout$'\t'"bench/osu_allreduce "
    bench
    ok 'OSU_HOME: bench runs them' all_of "rc_is"$'\t'0 osu_used_is$'\t'osu_bcast$'\t'osu_latency \
        "has_line"$'\t'stdout$'\t'"^programs +OSU micro-benchmarks" \
        "line_count"$'\t'stdout$'\t'"failed"$'\t'0
    rm -f "$out/osu-used"
    demo --no-plot
    ok 'OSU_HOME: demo runs them over angara' all_of "rc_is"$'\t'0 osu_used_is$'\t'osu_latency \
        "line_count"$'\t'stdout$'\t'"Pass$"$'\t'12 "has_line"$'\t'stdout$'\t'"^All data were right"

    export OSU_HOME=$out/none
    bench
    ok 'OSU_HOME: no such folder' all_of "rc_is"$'\t'2 \
        "line_count"$'\t'stderr$'\t'"^bench: OSU_HOME=.*/none is not a folder$"$'\t'1
    unset OSU_HOME
    bench --dry-run
    ok 'without OSU_HOME: all of the build' all_of "rc_is"$'\t'0 \
        "line_count"$'\t'stdout$'\t'"bench/osu_[a-z_]+ "$'\t'4 \
        "line_count"$'\t'stdout$'\t'"$out/osu"$'\t'0
}

test_config_errors
test_ratios
test_doc
test_patterns
test_also
test_hpcc
test_order
test_quick
test_moved
test_failures
test_demo
test_against
test_real
test_osu_home
finish
