# SPDX-License-Identifier: BSD-3-Clause
"""The run files of osu_configs/: KEY=value lines, parsed and checked, never executed."""

import copy
import glob
import os
import re


class ConfigError(Exception):
    """What is wrong with a file, with its name and line."""


class Contender:
    """A software stack to compare, from contenders/NAME.conf."""

    def __init__(self, name, values):
        self.name = name
        self.title = values["TITLE"]
        self.mpirun = values["MPIRUN"].split()
        self.env = values["ENV"]
        self.perftest = values["PERFTEST"].split()
        self.angara = values["ANGARA"] == "yes"
        self.counters = values["COUNTERS"]
        self.program = values["PROGRAM"]
        self.options = values["OPTIONS"]
        self.launch = values["LAUNCH"]
        self.build = None  # whose libraries it must run with; None: the launcher's, unchecked

    def of_build(self, build):
        """The same, bound to a build."""
        bound = copy.copy(self)
        bound.build = build
        return bound


class Run:
    """One run, from demo-*.conf or bench-*.conf, with its contenders."""

    def __init__(self, name, path, values, contenders):
        self.name = name
        self.path = path
        self.title = values["TITLE"]
        self.program = values["PROGRAM"]
        self.options = values["OPTIONS"]
        self.launch = values["LAUNCH"]
        self.ranks = None  # runs_by_ranks() sets it
        self.mpirun = values["MPIRUN"].split()
        self.env = values["ENV"]
        self.contenders = contenders
        self.against = values["AGAINST"].split()
        self.unit = values["UNIT"]
        self.better = values["BETTER"]
        self.column = values["COLUMN"]
        self.pattern = values["PATTERN"]
        self.compare = values["COMPARE"]
        self.goal = values["GOAL"]
        self.each = values["EACH"]
        self.quartiles = False  # beyond a limit only if the better quartiles are, too
        self.timeout = values["TIMEOUT"]
        self.repeats = values["REPEATS"]
        self.quick = values["QUICK"] == "yes"
        self.needs = values["NEEDS"]  # a program, and the reason if it isn't there; or None

    @property
    def subject(self):
        return self.contenders[0]


def parse_choice(*choices):
    def parse(text):
        if text not in choices:
            raise ValueError("must be one of: " + " ".join(choices))
        return text
    return parse


def parse_positive(text):
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise ValueError("must be a positive whole number")
    return int(text)


def parse_limit(text):
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        raise ValueError("must be a number")
    return float(text)


def parse_text(text):
    if not text:
        raise ValueError("is empty")
    return text


def parse_name(text):
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text):
        raise ValueError("must be a name of letters, digits, '_' and '-'")
    return text


def parse_environment(text):
    result = {}
    for word in text.split():
        name, sign, value = word.partition("=")
        if not sign or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError("'%s' is not NAME=value" % word)
        result[name] = value
    return result


def parse_variant(text):
    name, sign, options = text.partition(":")
    if not sign or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9, _-]*", name):
        raise ValueError("must be 'NAME: ARGUMENTS'")
    return name, options.split()


def parse_needs(text):
    name, sign, reason = text.partition(": ")
    if not sign or not reason:
        raise ValueError("must be 'PROGRAM: REASON'")
    return parse_name(name), reason


def parse_also(text):
    words = text.split()
    if len(words) != 3:
        raise ValueError("must be 'SUBJECT OTHER GOAL'")
    return words[0], words[1], parse_limit(words[2])


def parse_pattern(text):
    try:
        pattern = re.compile(text, re.MULTILINE)
    except re.error as error:
        raise ValueError("is no regular expression: %s" % error) from error
    if pattern.groups != 1:
        raise ValueError("must have one group")
    return pattern


def parse_ranks(text):
    return [parse_positive(word) for word in text.split()] or parse_positive(text)


REQUIRED = object()
REPEATABLE = {"OPTIONS": str.split, "VARIANT": parse_variant, "MORE": parse_variant}

LAUNCHES = parse_choice("mpirun", "pair", "alone")

# key: (parser, default)
RUN_KEYS = {
    "TITLE": (parse_text, REQUIRED),
    "PROGRAM": (parse_name, REQUIRED),
    "OPTIONS": (str, None),
    "VARIANT": (str, None),
    "MORE": (str, None),
    "LAUNCH": (LAUNCHES, "mpirun"),
    "RANKS": (parse_ranks, [2]),
    "MPIRUN": (str, ""),
    "ENV": (parse_environment, {}),
    "CONTENDERS": (parse_text, REQUIRED),
    "AGAINST": (str, ""),
    "UNIT": (parse_choice("us", "ns", "MB/s", "msg/s", "GUP/s", "instructions", "calls"), REQUIRED),
    "BETTER": (parse_choice("lower", "higher"), REQUIRED),
    "COLUMN": (parse_text, None),
    "PATTERN": (parse_pattern, None),
    "COMPARE": (parse_choice("ratio", "difference"), "ratio"),
    "GOAL": (parse_limit, None),
    "EACH": (parse_limit, None),
    "TIMEOUT": (parse_positive, 180),
    "REPEATS": (parse_positive, None),
    "QUICK": (parse_choice("yes", "no"), "yes"),
    "NEEDS": (parse_needs, None),
    "ALSO": (parse_also, None),
}

CONTENDER_KEYS = {
    "TITLE": (parse_text, REQUIRED),
    "MPIRUN": (str, ""),
    "ENV": (parse_environment, {}),
    "PERFTEST": (str, ""),
    "ANGARA": (parse_choice("yes", "no"), "no"),
    "COUNTERS": (parse_name, None),
    "PROGRAM": (parse_name, None),
    "OPTIONS": (str, None),
    "LAUNCH": (LAUNCHES, None),
}


def read_lines(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("%s: %s" % (path, getattr(error, "strerror", None) or error)) from error


def read_values(path, keys):
    """The checked values of all keys, with defaults."""
    values = {key: default for key, (_, default) in keys.items() if default is not REQUIRED}
    seen = set()
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip() or line.startswith("#"):
            continue
        key, sign, text = line.partition("=")
        where = "%s:%d: " % (path, number)
        if not sign:
            raise ConfigError(where + "expected KEY=value, found '%s'" % line)
        if key not in keys:
            raise ConfigError(where + "unknown key '%s'; known are: %s" % (key, " ".join(keys)))
        if key in seen and key not in REPEATABLE:
            raise ConfigError(where + "%s is given twice" % key)
        try:
            value = REPEATABLE.get(key, keys[key][0])(text.strip())
        except ValueError as error:
            raise ConfigError(where + "%s '%s': %s" % (key, text.strip(), error)) from error
        values[key] = (values[key] or []) + [value] if key in REPEATABLE else value
        seen.add(key)
    missing = [key for key in keys if key not in values]
    if missing:
        raise ConfigError("%s: missing: %s" % (path, " ".join(missing)))
    return values


def read_contender(folder, name):
    path = os.path.join(folder, "contenders", name + ".conf")
    return Contender(name, read_values(path, CONTENDER_KEYS))


def variants(run, values):
    """The run, or one for each of its variants, with their arguments behind its own."""
    quick = [(item, run.quick) for item in values["VARIANT"] or []]
    result = []
    for (name, options), in_quick in quick + [(item, False) for item in values["MORE"] or []]:
        variant = copy.copy(run)
        variant.name += "-" + re.sub("[^a-z0-9]+", "-", name.lower())
        variant.title += ", " + name
        variant.options = [before + options for before in run.options]
        variant.quick = in_quick
        variant.contenders = list(run.contenders)
        result.append(variant)
    return result or [run]


def runs_by_ranks(run, values):
    """The run, or one for each number of ranks."""
    result = []
    for ranks in values["RANKS"]:
        variant = copy.copy(run)
        variant.ranks = ranks
        if len(values["RANKS"]) > 1:
            variant.name += "-%d-ranks" % ranks
            variant.title += ", %d ranks" % ranks
        result += variants(variant, values)
    return result


def also_run(run, also, folder):
    """The same run between two others."""
    subject, other, goal = also
    result = copy.copy(run)
    result.contenders = [read_contender(folder, name) for name in (subject, other)]
    result.name += "-" + subject
    result.title += ": " + result.subject.title
    result.against, result.goal, result.each, result.quick = [other], goal, None, False
    return result


def read_run(path):
    """The runs of a file."""
    values = read_values(path, RUN_KEYS)
    folder = os.path.dirname(path)
    names = values["CONTENDERS"].split()
    strangers = [name for name in values["AGAINST"].split() if name not in names[1:]]
    if strangers:
        raise ConfigError("%s: AGAINST names '%s', which is not among the other CONTENDERS"
                          % (path, strangers[0]))
    if (values["GOAL"] is not None or values["EACH"] is not None) and not values["AGAINST"]:
        raise ConfigError("%s: a GOAL needs AGAINST" % path)
    values["OPTIONS"] = values["OPTIONS"] or [[]]
    name = os.path.basename(path)[:-len(".conf")]
    runs = runs_by_ranks(Run(name, path, values, [read_contender(folder, item) for item in names]), values)
    if values["ALSO"]:
        runs += [also_run(run, values["ALSO"], folder) for run in runs if run.quick]
    return runs


def read_runs(folder, prefixes, only=None):
    """All runs of PREFIX-*.conf in order of the names, or those with a part of only in the name."""
    paths = [path for prefix in prefixes.split()
             for path in sorted(glob.glob(os.path.join(glob.escape(folder), prefix + "-*.conf")))]
    if not paths:
        raise ConfigError("no %s-*.conf in %s" % (prefixes.split()[0], folder))
    runs = [run for path in paths for run in read_run(path)]
    for part in only or []:
        if not any(part in run.name for run in runs):
            raise ConfigError("no run named '%s' in %s" % (part, folder))
    return [run for run in runs if not only or any(part in run.name for part in only)]


def quick_runs(runs):
    """Runs for a first look: of the contenders those alone that the goal compares, and nothing that takes long."""
    result = [run for run in runs if run.quick]
    if not result:
        raise ConfigError("--quick leaves out %s" % " ".join(run.name for run in runs))
    for run in result:
        if run.against:
            run.contenders = [item for item in run.contenders if item is run.subject or item.name in run.against]
    return result


def against_runs(runs, build, older, limit):
    """Runs that compare each contender of ours, as it is in the build, with itself in an older one."""
    result, seen = [], []
    for run in runs:
        for contender in run.contenders:
            if not contender.angara:
                continue
            # What is measured without other contenders: once, though two runs have it.
            what = [contender.program or run.program, contender.launch or run.launch,
                    contender.options if contender.program else run.options, contender.name,
                    run.ranks, run.mpirun, run.env, run.column, run.pattern]
            if what in seen:
                continue
            seen.append(what)
            before = contender.of_build(older)
            before.name += "-before"
            before.title += " before"
            pair = copy.copy(run)
            pair.contenders = [contender.of_build(build), before]
            pair.against = [before.name]
            pair.compare = "ratio"
            pair.goal = limit if run.better == "lower" else 1 / limit
            pair.each = None
            pair.quartiles = True
            if contender is not run.subject:
                pair.name += "-" + contender.name
                pair.title += ": " + contender.title
            result.append(pair)
    if not result:
        raise ConfigError("--against: none of these runs has a contender of ours")
    return result
