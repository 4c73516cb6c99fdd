# SPDX-License-Identifier: BSD-3-Clause
"""Medians, ratios and goals of measured runs, as text, CSV, JSON and Markdown."""

import csv
import datetime
import json
import math
import os
import platform
import re
import statistics
import subprocess


def doc_markers(program):
    """The lines between which the program writes into a document."""
    return ("<!-- %s:begin (written by scripts/%s --write-doc; edits here are lost) -->"
            % (program, program), "<!-- %s:end -->" % program)


class ReportError(Exception):
    """A file that can't be written, or has no place for the report."""


class Measurement:
    """All samples of one run: contender -> size -> values, and why contenders failed."""

    def __init__(self, run):
        self.run = run
        self.samples = {contender.name: {} for contender in run.contenders}
        self.errors = {}
        self.moved = False  # the processors, to another distance
        self.counters = {}
        self.commands = {}

    def add(self, contender, result):
        for size, value in result.values.items():
            self.samples[contender.name].setdefault(size, []).append(value)
        for name, value in result.counters.items():
            self.counters[name] = self.counters.get(name, 0) + value

    def fail(self, contender, reason):
        self.errors.setdefault(contender.name, reason)
        self.samples[contender.name] = {}

    def median(self, name, size):
        values = self.samples[name].get(size)
        return statistics.median(values) if values else None

    def quartile(self, name, size):
        """What the better quarter of the samples reaches: a quantile of 25 % of times, 75 % of rates."""
        values = self.samples[name].get(size)
        if not values or len(values) == 1:
            return values[0] if values else None
        quantiles = statistics.quantiles(values, n=4, method="inclusive")
        return quantiles[0 if self.run.better == "lower" else 2]

    def median_text(self, name, size):
        """With the spread, where the run asks for it."""
        values = self.samples[name].get(size, [])
        spread = " (%s to %s)" % (number(min(values)), number(max(values))) if len(values) > 1 else ""
        return number(self.median(name, size)) + (spread if self.run.repeats else "")

    def sizes(self):
        found = set()
        for by_size in self.samples.values():
            found.update(by_size)
        return sorted(found)

    # --- comparing --------------------------------------------------------------------------------

    def ratio(self, size, names, statistic=None):
        """Subject over the best of names at this size, by median; None where one is missing."""
        statistic = statistic or self.median
        subject = statistic(self.run.subject.name, size)
        others = [statistic(name, size) for name in names]
        others = [value for value in others if value]
        if subject is None or not others:
            return None
        best = min(others) if self.run.better == "lower" else max(others)
        return subject - best if self.run.compare == "difference" else subject / best

    def ratios(self, names, statistic=None):
        pairs = [(size, self.ratio(size, names, statistic)) for size in self.sizes()]
        return {size: value for size, value in pairs if value is not None}

    def judged(self):
        """What each size is judged by: the ratio of medians; with run.quartiles that of the better
        quartiles where it is milder."""
        ratios = self.ratios(self.run.against)
        if not self.run.quartiles:
            return ratios
        quartiles = self.ratios(self.run.against, self.quartile)
        return {size: self.milder(value, quartiles[size]) for size, value in ratios.items()}

    def milder(self, *values):
        return min(values) if self.run.better == "lower" else max(values)

    def combined(self, names, statistic=None):
        """One number over all sizes: geometric mean of ratios, mean of differences."""
        values = list(self.ratios(names, statistic).values())
        if not values:
            return None
        if self.run.compare == "difference":
            return statistics.mean(values)
        return math.exp(statistics.mean(math.log(max(value, 1e-12)) for value in values))

    def worst(self):
        """(size, ratio) where the subject does worst."""
        ratios = self.judged()
        if not ratios:
            return None
        pick = max if self.run.better == "lower" else min
        return pick(ratios.items(), key=lambda item: item[1])

    def rivals(self):
        """Whom the subject is compared with: those of the goal; without one all others will do."""
        run = self.run
        if run.against or run.goal is not None or run.each is not None:
            return run.against
        return [contender.name for contender in run.contenders[1:]]

    def overall(self):
        """What the goal is compared with; with run.quartiles that of the better quartiles where it is milder."""
        value = self.combined(self.rivals())
        if value is not None and self.run.quartiles:
            value = self.milder(value, self.combined(self.rivals(), self.quartile))
        return value

    def meets(self, value, limit):
        return value <= limit if self.run.better == "lower" else value >= limit

    def verdict(self):
        """'reached', 'not reached' or 'failed'; None without a goal."""
        run = self.run
        if run.goal is None and run.each is None:
            return None
        if any(name in self.errors for name in [run.subject.name] + run.against):
            return "failed"
        value = self.overall()
        if value is None:
            return "failed"
        good = run.goal is None or self.meets(value, run.goal)
        if run.each is not None:
            good = good and self.meets(self.worst()[1], run.each)
        return "reached" if good else "not reached"

    def excess(self, value, limit):
        """How many times as much as the limit allows; for rates how many times as little."""
        if self.run.compare == "difference":
            subject = statistics.mean(self.median(self.run.subject.name, size) for size in self.ratios(self.rivals()))
            value, limit = subject, subject - value + limit
        if self.run.better == "higher":
            value, limit = limit, value
        return value / max(limit, 1e-12)

    def behind(self):
        """By how much the subject is beyond the limit that it misses most, or without any worse than the best;
        0 if it isn't."""
        run, verdict, value = self.run, self.verdict(), self.overall()
        if verdict == "failed" or run.subject.name in self.errors:
            return math.inf
        if verdict == "reached" or value is None:
            return 0
        limits = [] if run.goal is None else [(value, run.goal)]
        if run.each is not None:
            limits.append((self.worst()[1], run.each))
        excess = max(self.excess(*pair) for pair in limits or [(value, 0 if run.compare == "difference" else 1)])
        return excess if verdict or excess > 1 else 0

    def result_text(self):
        return self.verdict() or ("behind" if self.behind() else "")

    def goal_text(self):
        run = self.run
        if run.goal is None:
            return ""
        sign = "<=" if run.better == "lower" else ">="
        if run.compare == "difference":
            return "%s %g %s more" % (sign, run.goal, run.unit)
        text = "%s %.2fx" % (sign, run.goal)
        return text + (", each %s %.2fx" % (sign, run.each) if run.each is not None else "")

    def compared_text(self, value):
        if value is None:
            return "-"
        if self.run.compare == "difference":
            return "%+.0f %s" % (value, self.run.unit)
        return "%.2fx" % value


# --- tables ---------------------------------------------------------------------------------------

def number(value):
    if value is None:
        return "-"
    if value >= 1000:
        return "%.0f" % value
    return "%.3g" % value if value < 10 else "%.1f" % value


def size_text(size):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and size % factor == 0:
            return "%d %s" % (size // factor, unit)
    return "%d B" % size


def align(rows):
    """Text lines of a table: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                      for i, (cell, width) in enumerate(zip(row, widths))).rstrip()
            for row in rows]


def markdown(rows):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|---" + "|--:" * (len(rows[0]) - 1) + "|"] + lines[1:]


def detail_rows(item):
    """One run: medians of all contenders at each size."""
    run = item.run
    rows = [["%s [%s]" % (run.title, run.unit)] +
            [contender.title for contender in run.contenders] +
            ([run.compare] if run.against else [])]
    for size in item.sizes():
        row = [size_text(size)] + [item.median_text(contender.name, size)
                                   for contender in run.contenders]
        if run.against:
            row.append(item.compared_text(item.ratio(size, run.against)))
        rows.append(row)
    return rows


def worst_first(items):
    """Those that are behind, the worst first; then the others, as they are."""
    return sorted(items, key=lambda item: -item.behind())


def summary_rows(items):
    """One line per run, the worst first: the subject against every other contender, and the goal."""
    contenders = {}
    for item in items:
        for contender in item.run.contenders[1:]:
            contenders.setdefault(contender.name, contender.title)
    rows = [["run"] + list(contenders.values()) + ["best", "goal", "result"]]
    for item in worst_first(items):
        row = [item.run.title]
        for name in contenders:
            if name not in item.samples:
                row.append("")
            elif name in item.errors:
                row.append("failed")
            else:
                row.append(item.compared_text(item.combined([name])))
        row += [item.compared_text(item.combined(item.rivals())), item.goal_text(), item.result_text()]
        rows.append(row)
    return rows


def against_rows(items):
    """One line per run against an older build, the worst first: new over old, where it is worst, the limit."""
    words = {"reached": "within", "not reached": "BEYOND", "failed": "failed"}
    rows = [["run", "median", "quartile", "worst", "limit", "result"]]
    for item in worst_first(items):
        worst = item.worst()
        rows.append([item.run.title, item.compared_text(item.combined(item.run.against)),
                     item.compared_text(item.combined(item.run.against, item.quartile)),
                     "%.2fx at %s" % (worst[1], size_text(worst[0])) if worst else "-",
                     item.goal_text(), words[item.verdict()]])
    return rows


def against_notes(items, limit):
    """Which runs are beyond the limit, which sizes of any run, and why others have no result."""
    beyond = [item.run.title for item in items if item.verdict() == "not reached"]
    lines = ["beyond %gx: %d of %d runs%s" % (limit, len(beyond), len(items), ": " * bool(beyond) +
                                              "; ".join(beyond))]
    for item in items:
        sizes = ["%s %.2fx" % (size_text(size), value)
                 for size, value in item.judged().items()
                 if not item.meets(value, item.run.goal)]
        if sizes and len(item.sizes()) > 1:
            lines.append("%s: beyond it at %s" % (item.run.title, ", ".join(sizes)))
    return lines + notes(items)


def notes(items):
    """What a reader must know beyond the table: failures, and where a limit is broken."""
    lines = []
    for item in items:
        for contender in item.run.contenders:
            if contender.name in item.errors:
                lines.append("%s, %s: %s" % (item.run.title, contender.title,
                                             item.errors[contender.name]))
        run = item.run
        if item.moved:
            lines.append("%s: the processors were moved meanwhile, nearer to each other or farther" % run.title)
        if run.each is not None and item.verdict() == "not reached":
            sizes = ["%s %.2fx" % (size_text(size), value)
                     for size, value in item.judged().items()
                     if not item.meets(value, run.each)]
            if sizes:
                lines.append("%s: short of the limit at %s" % (run.title, ", ".join(sizes)))
    return lines


# --- the machine ----------------------------------------------------------------------------------

def command_line(command, pattern):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    match = re.search(pattern, done.stdout.decode(errors="replace"), re.MULTILINE)
    return match.group(1).strip() if match else "unknown"


def read_field(path, pattern):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            match = re.search(pattern, file.read(), re.MULTILINE)
    except OSError:
        return None
    return match.group(1).strip() if match else None


def describe_machine(cpus, osu_home=None):
    model = read_field("/proc/cpuinfo", r"^model name\s*:\s*(.*)$") or platform.machine()
    if read_field("/proc/cpuinfo", r"^flags\s*:.*\b(hypervisor)\b"):
        model += ", virtual machine"
    memory = int(read_field("/proc/meminfo", r"^MemTotal:\s*(\d+)") or 0)
    return {
        "cpu": model,
        "cores": "%d usable" % len(cpus),
        "memory": "%.0f GiB" % (memory / (1 << 20)),
        "system": read_field("/etc/os-release", r'^PRETTY_NAME="?([^"\n]*)') or "unknown",
        "kernel": platform.release(),
        "UCX": command_line(["ucx_info", "-v"], r"[Vv]ersion:? (\S+)"),
        "Open MPI": command_line(["mpirun", "--version"], r"Open MPI\) (\S+)"),
        "programs": "OSU micro-benchmarks (OSU_HOME)" if osu_home else
                    "this project's OSU-compatible ones",
        "load at start": "%.2f" % os.getloadavg()[0],
        "date": datetime.datetime.now().strftime("%Y-%m-%d %H:%M"),
    }


# --- files ----------------------------------------------------------------------------------------

def write_csv(path, items):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["run", "program", "size", "contender", "unit", "median", "min", "max",
                         "samples", "error"])
        for item in items:
            for contender in item.run.contenders:
                head = [item.run.name, contender.program or item.run.program]
                if contender.name in item.errors:
                    writer.writerow(head + ["", contender.name, item.run.unit, "", "", "", 0,
                                            item.errors[contender.name]])
                for size, values in sorted(item.samples[contender.name].items()):
                    writer.writerow(head + [size, contender.name, item.run.unit,
                                            "%g" % statistics.median(values),
                                            "%g" % min(values), "%g" % max(values),
                                            len(values), ""])


def write_json(path, items, machine, repeats):
    runs = []
    for item in items:
        run = item.run
        runs.append({
            "name": run.name, "title": run.title, "unit": run.unit, "better": run.better,
            "compare": run.compare, "against": run.against, "goal": run.goal, "each": run.each,
            "commands": item.commands, "samples": item.samples, "errors": item.errors,
            "counters": item.counters, "compared": item.combined(run.against),
            "compared_by_size": item.ratios(run.against),
            "quartiles_by_size": item.ratios(run.against, item.quartile),
            "verdict": item.verdict(),
        })
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"machine": machine, "repeats": repeats, "runs": runs}, file, indent=1)
        file.write("\n")


def read_json(path, runs):
    """The measurements that write_json() has written, of these runs."""
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    written = {item["name"]: item for item in data["runs"]}
    items = []
    for run in runs:
        item = Measurement(run)
        saved = written[run.name]
        item.samples = {name: {int(size): values for size, values in by_size.items()}
                        for name, by_size in saved["samples"].items()}
        item.errors, item.counters = saved["errors"], saved["counters"]
        items.append(item)
    return items, data["machine"], data["repeats"]


def doc_block(items, machine, repeats, program="bench"):
    begin, end = doc_markers(program)
    lines = [begin, "", "Machine:", ""]
    lines += ["- %s: %s" % item for item in machine.items()]
    lines += ["", "Medians of %d interleaved repeats. A ratio is angara over the other: below 1 is "
              "better for times," % repeats, "above 1 for bandwidths and rates. Over several sizes: "
              "the geometric mean. What is behind its goal, or without one behind the best, comes first, the",
              "worst at the top.", ""]
    lines += markdown(summary_rows(items))
    lines += [""] + ["- " + note for note in notes(items)]
    for item in items:
        if len(item.sizes()) > 1:
            lines += ["", "### " + item.run.title, ""] + markdown(detail_rows(item))
    singles = [item for item in items if len(item.sizes()) == 1]
    if singles:
        lines += ["", "### Values of the runs with one size", ""]
    for item in singles:
        lines += markdown(detail_rows(item)) + [""]
    while lines[-1] == "":
        lines.pop()
    return "\n".join(lines + ["", end])


def write_doc(path, block, program="bench"):
    """Replaces the block between the markers; a file without markers gets it at the end."""
    doc_begin, doc_end = doc_markers(program)
    try:
        text = "# Performance\n\n"
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                text = file.read()
        begin, end = text.find(doc_begin), text.find(doc_end)
        if begin < 0 and end < 0:
            text = text.rstrip("\n") + "\n\n" + block + "\n"
        elif 0 <= begin < end:
            text = text[:begin] + block + text[end + len(doc_end):]
        else:
            raise ReportError("%s: the markers '%s' and '%s' must both be there, in this order"
                              % (path, doc_begin, doc_end))
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(path + ".new", path)
    except OSError as error:
        raise ReportError("%s: %s" % (path, error.strerror)) from error
