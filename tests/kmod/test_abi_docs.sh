#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The errors that docs/abi.md names for each call are those that the user interface's header names and
# that tests have seen. Reports TAP.

set -euo pipefail

cd -- "$(dirname -- "$(realpath -- "$0")")/../.."
# shellcheck source=../common/tap.sh
source tests/common/tap.sh

readonly docs=docs/abi.md program=tests/vm/guest/kmod_errno.c
readonly header=kmod/include/uapi/misc/angara.h
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
readonly output=$work/output
shown=("$output")

# What it takes more than a call to see: `call errno file-with-the-test pattern`.
elsewhere()
{
    cat <<'END_OF_LIST'
all ENODEV tests/vm/guest/kmod_trouble.sh failed.device.is.refused
PE_CREATE EDQUOT tests/vm/guest/kmod_trouble.sh quota.of.PEs
PE_CREATE EIO tests/vm/guest/kmod_trouble.sh creation.without.answer
WINDOW_COMMIT EDQUOT tests/vm/guest/kmod_test_limits.c WINDOW_COMMIT.EDQUOT
WINDOW_COMMIT EINTR tests/vm/guest/kmod_test_memory.c WINDOW_COMMIT.EINTR
WINDOW_COMMIT EIO tests/vm/guest/kmod_trouble.sh commit.5
MR_REG EDQUOT tests/vm/guest/kmod_trouble.sh quota_refused
MR_REG EINTR tests/vm/guest/kmod_test_race.c kill_register
MR_DEREG EIO tests/vm/guest/kmod_trouble.sh dereg.5
MR_CHECK EINTR tests/vm/guest/kmod_test_stale.c kill_checker
JOB_ADD ENOMEM tests/vm/guest/kmod_test_alloc.c call_job
END_OF_LIST
}

# `call errno` of the table of calls.
documented()
{
    sed -nE 's/^\| (all|[A-Z_]+) \| (E[A-Z0-9]+) \| .*/\1 \2/p' "$docs" | sort -u
}

# The same of the test program, which has what every call refuses in a table of its own.
tested()
{
    {
        sed -nE 's/^ .*REFUSED\(([A-Z_]+), (E[A-Z0-9]+),.*/\1 \2/p' "$program"
        sed -nE 's/.*refusal_check\("([A-Z_]+) (E[A-Z0-9]+):.*/\1 \2/p' "$program"
        sed -nE 's/^ +\{"(E[A-Z0-9]+)", ".*/all \1/p' "$program"
        elsewhere | cut -d ' ' -f 1,2
    } | sort -u
}

# `call errno` of the header's text: the head comment, and the part of each call that follows "Errors".
in_header()
{
    awk '
        /^ \* Errors that every call/ { call = "all"; on = 1 }
        match($0, /ANGARA_IOC_[A-Z_]+: /) { call = substr($0, RSTART + 11, RLENGTH - 13) }
        /^ \* Errors:/ { on = 1 }
        on { text = $0; while (match(text, /E[A-Z0-9]+[A-Z]/)) {
            word = substr(text, RSTART, RLENGTH)
            before = RSTART > 1 ? substr(text, RSTART - 1, 1) : " "
            if (before ~ /[ (]/) print call, word
            text = substr(text, RSTART + RLENGTH) } }
        /\*\// { on = 0 }
        /^ \*$/ { on = 0 }' "$header" | sort -u
}

# uncovered FILE: standard input without lines `CALL ERRNO` that `all ERRNO` of the file stands for
uncovered()
{
    awk 'NR == FNR { if ($1 == "all") all[$2] = 1; known[$0] = 1; next } known[$0] || !all[$2]' "$1" -
}

same()
{
    diff <(sort "$1") <(sort "$2") >"$output"
}

documented >"$work/documented"
tested | uncovered "$work/documented" >"$work/tested"
in_header >"$work/header"
ok 'there are such errors' [ "$(wc -l <"$work/documented")" -gt 20 ]
ok 'each documented error is tested, and the other way round' same "$work/documented" "$work/tested"
# EINTR is what a signal does to any call; EINVAL and ENODEV are repeated for one call or not.
grep -Ev ' (EINTR|EINVAL|ENODEV)$' "$work/documented" >"$work/documented.most" || true
grep -Ev ' (EINTR|EINVAL|ENODEV)$' "$work/header" >"$work/header.most" || true
ok 'and named in the header, and the other way round' same "$work/documented.most" "$work/header.most"
while read -r call error file pattern; do
    ok "$call $error is tested in $(basename -- "$file")" grep -q -- "$pattern" "$file"
done < <(elsewhere)
finish
