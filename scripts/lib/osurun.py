# SPDX-License-Identifier: BSD-3-Clause
"""Executes one run of osu_configs/ with one contender and reads what the program printed."""

import glob
import os
import re
import shlex
import signal
import socket
import subprocess
import tempfile
import threading
import time

from patience import slow

# Settings of the caller's shell that would change what is compared.
FOREIGN = re.compile(r"^(UCX_|OMPI_MCA_|ANGARA_(?!BENCH_)|LD_PRELOAD$)")

GRACE = 5  # seconds between the polite and the final signal
CONNECT = 20  # seconds for a ucx_perftest server to listen

# What a build has in its lib/, and what of it programs load that are launched so.
LIBRARY, TRANSPORT, COMPONENT = "libangara.so.0", "libuct_angara.so", "openmpi/mca_hook_angara.so"
LOADED = {"mpirun": (LIBRARY, TRANSPORT, COMPONENT), "pair": (LIBRARY, TRANSPORT),
          "alone": (LIBRARY,)}
OURS = re.compile(r"(libangara|libuct_angara|mca_hook_angara)\.so")

# Counters that only payload moves; others (peers, scans, flushes ...) also count in idle jobs.
TRAFFIC = ("eager_tx", "sar_tx", "put_short", "put_bcopy", "put_zcopy", "get_short", "get_bcopy",
           "get_zcopy", "atomics")

WORD = 8  # the size of what PATTERN finds
APART = 2  # times as far: another place of the processors, not noise

UNIT_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6}


class RunError(Exception):
    """Why there is no result, in one line."""


class Result:
    """Values by message size, and the transport's counters if there are any."""

    def __init__(self):
        self.values = {}
        self.failed = []  # sizes whose data were wrong
        self.counters = {}
        self.output = ""


class Launcher:
    """Knows the machine, the build tree and the environment."""

    def __init__(self, root, build, extra_env=None, precision=None):
        self.root = root
        self.build = build
        self.extra_env = dict(extra_env or {})
        self.cpus = sorted(os.sched_getaffinity(0))
        self.dropped = sorted(name for name in os.environ if FOREIGN.match(name))
        self.base = {name: value for name, value in os.environ.items()
                     if not FOREIGN.match(name)}
        self.osu_home = os.environ.get("OSU_HOME")
        if self.osu_home and not os.path.isdir(self.osu_home):
            raise RunError("OSU_HOME=%s is not a folder" % self.osu_home)
        self.leave_out(build)
        if precision is not None:
            self.base["ANGARA_BENCH_PRECISION"] = str(precision)
        if os.geteuid() == 0:
            self.base["OMPI_ALLOW_RUN_AS_ROOT"] = "1"
            self.base["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
        self._angara = {}
        self._devices = {}

    def leave_out(self, build):
        """Libraries of a build tree that the calling shell was set up for are not for the others."""
        folder = os.path.abspath(build) + os.sep
        path = ":".join(part for part in self.base.pop("LD_LIBRARY_PATH", "").split(":")
                        if part and not (os.path.abspath(part) + os.sep).startswith(folder))
        if path:
            self.base["LD_LIBRARY_PATH"] = path

    def build_check(self, build):
        """An older build, to compare with: has it all, and is it another one?"""
        if not os.path.isdir(build):
            raise RunError("%s is not a folder" % build)
        for name in (LIBRARY, TRANSPORT, COMPONENT):
            mine, other = (os.path.join(folder, "lib", name) for folder in (self.build, build))
            if not os.path.exists(other):
                raise RunError("%s is no build folder, or not all is built: it has no lib/%s"
                               % (build, name))
            if os.path.exists(mine) and os.path.samefile(mine, other):
                raise RunError("%s is the build that is measured itself" % build)

    # --- what to execute --------------------------------------------------------------------------

    def find_program(self, name, build=None):
        """An executable: of the OSU suite where OSU_HOME names one, of the build, or in PATH. Tools go
        with the libraries of another build, benchmarks don't: they are the same for all."""
        if self.osu_home and re.match("osu_(?!oshm_)", name):  # those with OpenSHMEM choose their sizes themselves
            for folder, _, files in sorted(os.walk(self.osu_home)):
                if name in files and os.access(os.path.join(folder, name), os.X_OK):
                    return os.path.join(folder, name)
        for folder in ("bench", "bin", "tests/vm"):
            path = os.path.join(build if build and folder == "bin" else self.build, folder, name)
            if os.access(path, os.X_OK):
                return path
        for folder in self.base.get("PATH", "").split(":"):
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK):
                return path
        raise RunError("there is no program %s (run 'make' first)" % name)

    def missing(self, run):
        """Why the run can't be done here; None if it can."""
        name, reason = run.needs or (None, None)
        try:
            return name and self.find_program(name) and None
        except RunError:
            return "there is no %s: %s" % (name, reason)

    def environment(self, run, contender, preload=False):
        env = dict(self.base)
        if contender.angara:
            env.update(self._angara_environment(contender.build or self.build, preload))
        env.update(run.env)
        env.update(contender.env)
        if contender.angara:
            env.update(self.extra_env)
        return env

    def _angara_environment(self, build, preload):
        """What scripts/angara_env would set in a shell."""
        if (build, preload) not in self._angara:
            script = ('settings=$("$0" "$@") && eval "$settings" && exec env -0')
            command = ["bash", "-c", script, os.path.join(self.root, "scripts/angara_env")]
            env = dict(self.base)
            env["B"] = build
            done = subprocess.run(command + (["--preload"] if preload else []), env=env,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=slow(60), check=False)
            if done.returncode != 0:
                raise RunError(last_line(done.stderr.decode(errors="replace"))
                               or "scripts/angara_env failed")
            found = {}
            for entry in done.stdout.decode(errors="surrogateescape").split("\0"):
                name, sign, value = entry.partition("=")
                if sign and name not in ("_", "B", "SHLVL", "PWD") and \
                        self.base.get(name) != value:
                    found[name] = value
            self._angara[build, preload] = found
        return self._angara[build, preload]

    def mpirun_command(self, run, contender, program, options, env):
        """The ranks get by -x what is set for them; what else they inherit is the launcher's."""
        command = ["mpirun", "-np", str(run.ranks)]
        if run.ranks <= len(self.cpus):
            command += ["--bind-to", "core"]
        else:
            command += ["--oversubscribe", "--bind-to", "none"]
        command += run.mpirun + contender.mpirun
        names = list(run.env) + list(contender.env)
        if contender.angara:
            names += list(self.extra_env) + ["LD_LIBRARY_PATH"]
        if contender.counters:
            names.append(contender.counters)
        for name in dict.fromkeys(names):
            if name in env:
                command += ["-x", name + "=" + env[name] if name in contender.env else name]
        return command + [program] + options

    def perftest_device(self, contender, env):
        """The -d argument that ucx_info lists for the transport."""
        transport = contender.perftest[contender.perftest.index("-x") + 1]
        if (contender.build, transport) not in self._devices:
            done = subprocess.run(["ucx_info", "-d"], env=env, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=slow(60),
                                  check=False)
            text = done.stdout.decode(errors="replace")
            match = re.search(r"Transport: %s\s*\n#\s+Device: (\S+)" % re.escape(transport), text)
            if not match:
                raise RunError("ucx_info -d lists no transport %s" % transport)
            self._devices[contender.build, transport] = match.group(1)
        return self._devices[contender.build, transport]

    def commands(self, run, contender):
        """(launch, environment, command) for each set of options."""
        name = contender.program or run.program
        launch = contender.launch or run.launch
        program = self.find_program(name, contender.build)
        sets = run.options
        if contender.program:
            sets = contender.options or [[]]
        preload = launch == "pair"
        env = self.environment(run, contender, preload)
        result = []
        for options in sets:
            if launch == "mpirun":
                command = self.mpirun_command(run, contender, program, options, env)
            elif launch == "pair":
                command = [program, "-d", self.perftest_device(contender, env)]
                command += contender.perftest + options
            else:
                command = [program] + options
            result.append((launch, env, command))
        return result

    def shorten(self, text):
        """Paths as seen from the source tree, so that reports don't depend on where it lies."""
        return text.replace(self.root + os.sep, "")

    def describe(self, run, contender):
        """The command lines, as one would type them."""
        try:
            commands = self.commands(run, contender)
        except RunError as error:
            raise RunError(self.shorten(str(error))) from error
        lines = []
        for launch, env, command in commands:
            settings = [] if launch == "mpirun" else \
                ["%s=%s" % (name, shlex.quote(env[name])) for name in contender.env]
            line = self.shorten(" ".join(settings + [shlex.join(command)]))
            if launch == "pair":
                line += "   # server; the client adds 127.0.0.1"
            if contender.build:
                line += "   # with %s" % self.shorten(os.path.join(contender.build, "lib"))
            lines.append(line)
        return lines

    # --- executing --------------------------------------------------------------------------------

    def distance(self):
        """For how many ns a cache line is under way between the first two processors; None: nobody knows."""
        program = os.path.join(self.build, "bench", "cacheline_pingpong")
        if len(self.cpus) < 2 or not os.access(program, os.X_OK):
            return None
        try:
            status, output, _ = execute([program, "-n", "20000"], self.base, 10, self.cpus[:2])
            return float(output.split()[2]) if status == 0 else None
        except (RunError, subprocess.SubprocessError, IndexError, ValueError):
            return None

    def execute(self, run, contender, progress=None):
        """Runs all option sets; raises RunError if there is no trustworthy result."""
        try:
            return self._execute(run, contender, progress)
        except (RunError, subprocess.SubprocessError, OSError) as error:
            raise RunError(self.shorten(str(error))) from error

    def _execute(self, run, contender, progress):
        result = Result()
        program = contender.program or run.program
        with tempfile.TemporaryDirectory(prefix="angara-bench.") as folder:
            for launch, env, command in self.commands(run, contender):
                if contender.counters:
                    env[contender.counters] = os.path.join(folder, "counters.%p")
                if contender.build:
                    env.update(LD_DEBUG="libs", LD_DEBUG_OUTPUT=os.path.join(folder, "loaded"))
                if launch == "pair":
                    status, output, errors = self._run_pair(run, command, env)
                else:
                    pin = self.cpus[:2] if launch == "alone" else None
                    status, output, errors = execute(command, env, run.timeout, pin, progress)
                result.output += output
                parse_output(run, program, output, result)
                if status != 0:
                    raise RunError(explain(status, output, errors, result))
                if contender.build:
                    check_loaded(folder, launch, contender.build)
            if contender.counters:
                result.counters = read_counters(folder)
                self._check_traffic(contender, result)
        if result.failed:
            raise RunError("wrong data at size %s" % result.failed[0])
        if not result.values:
            raise RunError("no values in the output of %s" % program)
        return result

    @staticmethod
    def _check_traffic(contender, result):
        """Every row of the table takes at least one message."""
        traffic = sum(result.counters.get(name, 0) for name in TRAFFIC)
        if traffic >= max(1, len(result.values)):
            return
        what = "there are no counters"
        if result.counters:
            what = "its counters tell of %d messages" % traffic
        raise RunError("the run ended well, but %s did not carry it: %s" % (contender.name, what))

    def _run_pair(self, run, command, env):
        """ucx_perftest: server and client on one core each, over a free port of the loopback. Their
        input is a terminal: one that was built with MPI would start it else."""
        if len(self.cpus) < 2:
            raise RunError("two cores are needed")
        port = free_port()
        command = command + ["-p", str(port), "-f"]
        terminal = os.openpty()
        server = subprocess.Popen(command, env=env, stdin=terminal[1],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  start_new_session=True,
                                  preexec_fn=lambda: os.sched_setaffinity(0, self.cpus[1:2]))
        try:
            wait_for_listener(server, port)
            client = command[:1] + ["127.0.0.1"] + command[1:] + ["-v"]
            return execute(client, env, run.timeout, self.cpus[:1], stdin=terminal[1])
        finally:
            try:
                server.communicate(timeout=slow(2))
            except subprocess.TimeoutExpired:
                end_session(server)
                server.communicate()
            for end in terminal:
                os.close(end)


def is_alike(one, other):
    """Two distances between the same processors, as far as is known?"""
    return one is None or other is None or max(one, other) <= APART * min(one, other)


def execute(command, env, timeout, cpus=None, progress=None, stdin=subprocess.DEVNULL):
    """Exit status, stdout and stderr; the whole session is ended after timeout seconds,
    or ANGARA_TEST_SLOW times as many."""
    pin = (lambda: os.sched_setaffinity(0, cpus)) if cpus else None
    try:
        process = subprocess.Popen(command, env=env, stdin=stdin,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True, preexec_fn=pin)
    except OSError as error:
        raise RunError("%s: %s" % (command[0], error.strerror)) from error

    texts = {process.stdout: [], process.stderr: []}

    def collect(stream):
        for line in iter(stream.readline, b""):
            line = line.decode(errors="replace")
            texts[stream].append(line)
            if progress and stream is process.stdout:
                progress(line)

    readers = [threading.Thread(target=collect, args=(stream,), daemon=True) for stream in texts]
    for reader in readers:
        reader.start()
    try:
        process.wait(slow(timeout))
    except subprocess.TimeoutExpired as error:
        end_session(process)
        raise RunError("not ended after %d s" % slow(timeout)) from error
    except BaseException:
        end_session(process)
        raise
    for reader in readers:
        reader.join(slow(GRACE))
    return process.returncode, "".join(texts[process.stdout]), "".join(texts[process.stderr])


def check_loaded(folder, launch, build):
    """By the loader's own report of each process: all that is ours came from this build."""
    loaded = set()
    for path in glob.glob(os.path.join(glob.escape(folder), "loaded.*")):
        with open(path, encoding="utf-8", errors="replace") as file:
            names = re.findall(r"calling init: (/\S.*)", file.read())
        os.unlink(path)
        loaded.update(os.path.realpath(name) for name in names if OURS.match(os.path.basename(name)))
    wanted = {os.path.realpath(os.path.join(build, "lib", name)) for name in LOADED[launch]}
    if not loaded <= wanted:
        raise RunError("loaded %s, which is not of %s" % (min(loaded - wanted), build))
    if not wanted <= loaded:
        raise RunError("%s was not loaded" % min(wanted - loaded))


def end_session(process):
    """mpirun, told to end, ends its ranks and removes its files; what is left is killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            if number == signal.SIGTERM:
                process.terminate()
            else:
                os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(slow(GRACE))
        except subprocess.TimeoutExpired:
            pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_listener(process, port):
    """Until the port is listened on. It is looked up, since connecting would use the server up."""
    want = ":%04X" % port
    end = time.monotonic() + slow(CONNECT)
    while time.monotonic() < end:
        if process.poll() is not None:
            text = process.stdout.read().decode(errors="replace")
            raise RunError("the server ended: %s" % (error_line(text) or
                                                     "status %d" % process.returncode))
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            try:
                with open(table, encoding="ascii") as file:
                    for line in file:
                        fields = line.split()
                        if fields[1].endswith(want) and fields[3] == "0A":
                            return
            except OSError:
                pass
        time.sleep(0.02)
    raise RunError("the server does not listen")


# --- reading output -------------------------------------------------------------------------------

def parse_output(run, program, output, result):
    if run.pattern:
        for match in run.pattern.finditer(output):
            result.values[WORD] = float(match.group(1))
    elif program == "ucx_perftest":
        parse_perftest(run, output, result)
    elif program.startswith("osu_") or output.startswith("# Size"):
        parse_osu(run, output, result)
    else:
        parse_plain(run, program, output, result)


def parse_osu(run, output, result):
    """Rows of '# Size  Column  Column'; the titles of columns are two or more blanks apart."""
    columns, validated = [], False
    for line in output.splitlines():
        if line.startswith("# Size"):
            columns = re.split(r"\s{2,}", line[len("# Size"):].strip())
            validated = columns[-1] == "Validation"
            continue
        fields = line.split()
        if not columns or len(fields) < 2 or not fields[0].isdigit():
            continue
        index = 0
        if run.column is not None:
            if run.column not in columns:
                raise RunError("the output has no column '%s'" % run.column)
            index = columns.index(run.column)
        try:
            value = float(fields[1 + index])
        except (ValueError, IndexError):
            continue
        result.values[int(fields[0])] = value
        if validated and fields[-1] != "Pass":
            result.failed.append(int(fields[0]))


def parse_perftest(run, output, result):
    """The CSV of ucx_perftest -v -f: the mean latency, in microseconds, of the whole test."""
    rows = [line.split(",") for line in output.splitlines() if "," in line]
    size = 8
    for options in run.options:
        if "-s" in options:
            size = int(options[options.index("-s") + 1])
    for names, fields in zip(rows, rows[1:]):
        if "avg_lat" in names and len(fields) == len(names):
            value = float(fields[names.index("overall_lat")])
            result.values[size] = convert(value, "us", run.unit)


def parse_plain(run, program, output, result):
    """Lines 'test size value unit', as angara_perf and cacheline_pingpong print them."""
    for line in output.splitlines():
        fields = line.split()
        if len(fields) >= 4 and not line.startswith("#") and fields[1].isdigit():
            try:
                value = float(fields[2])
            except ValueError:
                continue
            result.values[int(fields[1])] = convert(value, fields[3], run.unit)
    if not result.values:
        raise RunError("no line 'test size value unit' in the output of %s" % program)


def convert(value, unit, want):
    if unit == want:
        return value
    if unit in UNIT_NS and want in UNIT_NS:
        return value * UNIT_NS[unit] / UNIT_NS[want]
    raise RunError("the program reports %s, the run asks for %s" % (unit, want))


def read_counters(folder):
    """The sum over the processes of the lines 'name value meaning'; before them it says whose they are."""
    total = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "counters.*"))):
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                fields = line.split()
                if len(fields) >= 2 and fields[1].isdigit() and fields[0] not in ("host", "pid", "rank", "program"):
                    total[fields[0]] = total.get(fields[0], 0) + int(fields[1])
    return total


# --- messages -------------------------------------------------------------------------------------

def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def error_line(text):
    """The line that says most: what UCX, MPI or the program calls an error, else the first."""
    lines = [re.sub(r"^\[[^\]]*\]\s*", "", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if re.search(r"[A-Za-z]{3}", line)]
    for pattern in (r"\bERROR\b", r"\b[Ee]rror\b|[Ff]ailed|cannot|unable|No components|not found"):
        for line in lines:
            if re.search(pattern, line):
                return line
    return lines[0] if lines else ""


def explain(status, output, errors, result):
    if result.failed:
        return "wrong data at size %d" % result.failed[0]
    text = error_line(errors) or error_line(output)
    how = "signal %d" % -status if status < 0 else "exit status %d" % status
    return "%s: %s" % (how, text) if text else how
