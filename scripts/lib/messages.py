# SPDX-License-Identifier: BSD-3-Clause
"""Prints the errors and warnings of C sources that a guide lacks.

    messages.py GUIDE SOURCE...

Of each text in a call that prints one, or composes one, all that stands between two conversions must be in
the guide, but what is too short to say anything. Blanks, backticks and backslashes don't count."""

import re
import sys

# The calls, and how their arguments begin where not all of them are for a message.
CALLS = {
    "ang_error": "", "ang_warn": "", "ang_log": "", "ang_log_alike": "",
    "ucs_error": "", "ucs_warn": "", "ucs_fatal": "", "UCT_CHECK_PARAM": "", "uct_md_log_mem_reg_error": "",
    "uct_angara_stays_off": "", "uct_angara_abort": "", "uct_angara_log_alike": "",
    "uct_angara_peer_fail": "", "uct_angara_peer_set_reason": "",
    "uct_angara_channel_nonsense": "", "uct_angara_rx_garbage": "", "uct_angara_hear_complain": "",
    "hook_angara_warn": "", "hook_angara_print": "",
    "snprintf": "(why|reason|text|hook_angara_missing) ,",
}
TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|\w+|\S', re.DOTALL)
MACRO = "\0"  # stands for one between two literals: PRIu64, say
CONVERSION = re.compile(r"%[^a-zA-Z%\0]*(?:hh?|ll?|[zjt])?[a-zA-Z%\0]|\0")
MIN_LENGTH = 12
MIN_PIECES = 150  # with fewer in all sources the calls aren't found any more


def plain(text):
    return " ".join(re.sub(r"[`\\]", "", text).split())


def texts_of(tokens):
    """The texts among the arguments of a call; its name and parenthesis have been taken."""
    texts, text, depth = [], "", 1
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token, 0)
        if token[0] == '"':
            text += token[1:-1].replace("\\n", " ")
        elif text and token[0].isupper():
            text += MACRO
        else:
            texts.append(text)
            text = ""
        if depth == 0:
            return texts
    return texts


def pieces_of(path, calls=None):
    calls = calls or CALLS
    with open(path, encoding="utf-8") as stream:
        tokens = [token for token in TOKEN.findall(stream.read()) if token[:2] not in ("/*", "//")]
    for i, name in enumerate(tokens[:-4]):
        if name in calls and tokens[i + 1] == "(" and re.match(calls[name], " ".join(tokens[i + 2:i + 5])):
            for text in texts_of(tokens[i + 2:]):
                yield from (plain(piece) for piece in CONVERSION.split(text))


def main(guide, sources):
    with open(guide, encoding="utf-8") as stream:
        known = plain(stream.read())
    found = [(path, piece) for path in sources for piece in pieces_of(path) if len(piece) >= MIN_LENGTH]
    if len(found) < MIN_PIECES:
        print("only %d pieces of messages were found" % len(found))
    for path, piece in found:
        if piece not in known:
            print("%s: %s lacks: %s" % (path, guide, piece))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
