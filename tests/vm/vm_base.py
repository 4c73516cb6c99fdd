# SPDX-License-Identifier: BSD-3-Clause
"""What the VM harness is built from: how it fails and ends, its child processes, QEMU's control
socket, and the private folder of a run in /dev/shm.
"""

import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "scripts", "lib"))

from patience import slow  # noqa: E402

SHM = "/dev/shm"
PREFIX = "vm-run."

# Exit statuses beside the guest command's own.
TIMED_OUT = 124
BROKEN = 125  # no result: panic, a VM that ended early, an error of the harness
SKIPPED = 77

GRACE = 3  # seconds from SIGTERM to SIGKILL

class VmError(Exception):
    """The harness can't go on; status is the exit status that tells so."""
    status = BROKEN


class VmSkip(VmError):
    """VMs can't be had on this machine."""
    status = SKIPPED


class Interrupted(BaseException):
    """A signal asks to end."""

    def __init__(self, number):
        super().__init__(number)
        self.number = number


def say(text):
    print("vm: " + text, file=sys.stderr, flush=True)


def on_signal(number, _frame):
    raise Interrupted(number)


def signals_install():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)


def signals_ignore():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def main_run(main, is_test=True):
    """Runs main() as a command's main function: its exit status, or that of how it failed. Where VMs can't be
    had a test says that it is skipped; the status is the same."""
    signals_install()
    try:
        status = main()
    except VmError as error:
        say("%s: %s" % ("skipped" if is_test and error.status == SKIPPED else "error", error))
        status = error.status
    except Interrupted as signalled:
        say("ended by signal %d" % signalled.number)
        status = 128 + signalled.number
    sys.exit(status)

# --- processes -----------------------------------------------------------------------------------

LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def end_with_parent():
    """In a child: end with the harness, even if that is killed."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def process_start(command, log, out=None, into=subprocess.DEVNULL):
    """Starts a process that ends with the harness; messages go to the log."""
    # The threads that make preexec_fn unsafe aren't there: the harness has one.
    return subprocess.Popen(command, stdin=into, stdout=out or log, stderr=log,
                            cwd=ROOT, preexec_fn=end_with_parent)


def process_end(process, number=signal.SIGTERM):
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(slow(GRACE))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Qmp:
    """QEMU's control socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(slow(10))
        self.socket.connect(path)
        self.file = self.socket.makefile("rw", encoding="utf-8")
        self.file.readline()
        self.execute("qmp_capabilities")

    def execute(self, command, arguments=None):
        """The answer: {"return": ...} or {"error": ...}; events are passed over. QEMU may end meanwhile."""
        try:
            self.file.write(json.dumps({"execute": command, "arguments": arguments or {}}) + "\n")
            self.file.flush()
            while True:
                line = self.file.readline()
                if not line:
                    return {"error": {"desc": "QEMU has ended"}}
                answer = json.loads(line)
                if "event" not in answer:
                    return answer
        except (OSError, ValueError) as error:
            return {"error": {"desc": "no answer from QEMU: %s" % error}}

    def close(self):
        self.file.close()
        self.socket.close()

# --- the private folder --------------------------------------------------------------------------

def run_folder_make():
    """A folder for sockets, memory and results, and its descriptor, whose lock says it's in use."""
    folder = tempfile.mkdtemp(prefix="%s%d." % (PREFIX, os.getpid()), dir=SHM)
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return folder, descriptor


def run_folders_sweep():
    """Removes what harnesses that were killed have left."""
    for name in os.listdir(SHM):
        folder = os.path.join(SHM, name)
        owner = name[len(PREFIX):].split(".")[0]
        if not name.startswith(PREFIX) or os.path.exists("/proc/" + owner):
            continue
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass  # of a process in another PID namespace
        finally:
            os.close(descriptor)
