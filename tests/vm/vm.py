# SPDX-License-Identifier: BSD-3-Clause
"""Virtual machines under QEMU's TCG for the tests of kernel code: starts them together with the
emulated NIC, waits for them, and always tidies up. See README.md for what a guest finds.

Touches: processes that it has started itself, a private folder in /dev/shm, build/vm/.
"""

import argparse
import json
import os
import selectors
import shutil
import signal
import sys
import termios
import time
import tty

from vm_base import (BROKEN, GRACE, HERE, ROOT, SKIPPED, TIMED_OUT, VmError, VmSkip, main_run,
                     process_end, process_start, run_folder_make, run_folders_sweep, say,
                     signals_ignore, slow)
from vm_parts import (Emulator, Kernel, Vm, build_folder, emulator_program, guest_environment,
                      machine_check)

__all__ = ["BROKEN", "GRACE", "HERE", "ROOT", "SKIPPED", "TIMED_OUT", "Cluster", "VmError", "VmSkip",
           "build_folder", "emulator_program", "machine_check", "main_run", "options_add",
           "options_parse", "process_end", "process_start", "say", "slow"]

STOP_SECONDS = 20  # for the other VMs to end after the first
ESCAPE = b"\x1d"  # Ctrl-]


# --- options -------------------------------------------------------------------------------------

def options_add(parser):
    """Options that describe VMs: of vm_run, vm_cluster and the lines of tests/vm/configs."""
    add = parser.add_argument
    add("--vms", type=int, default=1, metavar="N", help="number of VMs (1)")
    add("--smp", type=int, default=1, metavar="N", help="processors of each (1)")
    add("--memory", type=int, default=1024, metavar="MIB", help="memory of each (1024)")
    add("--release", default="own", metavar="NAME",
        help="kernel: own, backports, or a Debian release (see vm_kernel)")
    add("--kernel", metavar="FOLDER", help="kernel: one like those of vm_kernel, made otherwise")
    add("--append", default="", metavar="TEXT", help="add to the kernel's command line")
    add("--nic", action="store_true", help="emulated NIC in each VM, served by angara_emu")
    add("--emu", action="append", default=[], metavar="OPTION",
        help="pass the option to angara_emu (may be repeated)")
    add("--vectors", type=int, default=8, metavar="N", help="interrupt vectors of the NIC (8)")
    add("--gpu", type=int, default=0, metavar="MIB", help="stand-in GPU with so much memory")
    add("--modules", action="store_true", help="build kmod/ for the kernel and load its modules")
    add("--qemu", action="append", default=[], metavar="OPTION",
        help="pass the option to QEMU (may be repeated; blanks separate words)")
    add("--gdb", type=int, metavar="PORT",
        help="let gdb connect to VM i at 127.0.0.1:PORT+i")


def options_parse(words):
    """Options from a list of words, such as a line of tests/vm/configs."""
    parser = argparse.ArgumentParser(prog="options of VMs", add_help=False)
    options_add(parser)
    return parser.parse_args(words)

# --- all together --------------------------------------------------------------------------------

class Cluster:
    """N VMs and the emulator. A context manager: whatever happens, all has gone at its end."""

    def __init__(self, options, timeout, role="main", command="", prepare=None):
        self.options = options
        self.timeout = timeout
        self.role = role
        self.command = command
        self.prepare = prepare  # called with VM 0 before it starts, to put files into its share
        self.folder = None
        self.lock = None
        self.vms = []
        self.emulator = None
        self.problems = []  # in words
        self.timed_out = False
        self.printed = 0
        self.selector = None
        self.began = self.deadline = 0.0
        self.build = build_folder()
        pid = os.getpid()
        # A multicast group of its own for each run: nobody else has this process's number.
        self.group = ("239.%d.%d.%d" % (pid >> 16 & 255, pid >> 8 & 255, pid & 255),
                      20000 + pid % 20000)

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def start(self):
        machine_check(self.options)
        self.kernel = Kernel(self.options)
        self.environment = guest_environment(self.build, self.options.vms)
        os.makedirs(self.build, exist_ok=True)  # the guests mount it
        run_folders_sweep()
        self.folder, self.lock = run_folder_make()
        self.selector = selectors.DefaultSelector()
        for index in range(self.options.vms):
            self.vms.append(Vm(self, index))
        if self.options.nic:
            self.emulator = Emulator(self)
        for vm in self.vms:
            vm.config_write(self.role if vm.index == 0 else "peer", self.command)
        if self.prepare:
            self.prepare(self.vms[0])
        self.began = time.monotonic()
        self.deadline = self.began + self.timeout
        if self.emulator:
            self.emulator.start()
            self.watch_process(self.emulator.process, self.emulator_ended)
        for vm in self.vms:
            vm.start()
        for vm in self.vms:
            vm.connect()
            self.watch_process(vm.process, None)
            self.selector.register(vm.control, selectors.EVENT_READ,
                                   lambda vm=vm: self.control_read(vm))

    def watch_process(self, process, action):
        """Has the loop wake up when the process ends, and call the action, if any."""
        descriptor = os.pidfd_open(process.pid)

        def ended():
            self.selector.unregister(descriptor)
            os.close(descriptor)
            if action:
                action()
        self.selector.register(descriptor, selectors.EVENT_READ, ended)

    def emulator_ended(self):
        if self.emulator.process.wait() != 0 and not self.emulator.may_die:
            self.problems.append("angara_emu ended with status %d" % (
                self.emulator.process.returncode))

    # --- what guests say ---

    def control_read(self, vm):
        try:
            data = vm.control.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.selector.unregister(vm.control)
            return
        *lines, vm.pending = (vm.pending + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").strip("\r\n\0 ")
            if text == "up":
                vm.up_after = time.monotonic() - self.began
                if all(other.up_after is not None for other in self.vms):
                    self.all_up()
            elif text:
                vm.tell(self.request(text))

    def all_up(self):
        for vm in self.vms:
            if self.options.gpu and self.emulator:
                self.emulator.gpu_map(vm, self.options.gpu)
            vm.tell("go")

    def request(self, text):
        """Does what a guest asks for with vm_host; the answer begins with ok or error."""
        try:
            name, *words = text.split(" ", 3)
            if name == "qmp" and words[1:2] == ["device_del"] and "nic0" in text:
                return "error QEMU crashes after that, see Pulling out devices in tests/vm/README.md"
            if name == "qmp":
                answer = self.vms[int(words[0])].qmp.execute(
                    words[1], json.loads(words[2] if len(words) > 2 else "{}"))
                return ("error " if "error" in answer else "ok ") + json.dumps(answer)
            if name == "kill":
                vm = self.vms[int(words[0])]
                vm.may_die = True
                vm.process.kill()
                vm.process.wait()
                return "ok"
            if name == "emu" and self.emulator:
                return self.emulator.request(text.partition(" ")[2])
            return "error unknown request '%s'" % text
        except (IndexError, ValueError, OSError) as error:
            return "error %s: %s" % (type(error).__name__, error)

    # --- waiting ---

    def pump(self, seconds):
        """Handles what happens within the time, at least one thing if any does."""
        for key, _ in self.selector.select(max(0.0, seconds)):
            key.data()

    def wait_vm(self, vm, idle=None):
        """Whether the VM has ended before self.deadline, which idle, called now and then, may move."""
        while vm.alive():
            left = self.deadline - time.monotonic()
            if left <= 0:
                return False
            self.pump(min(left, 0.2 if idle else left))
            if idle:
                idle()
        return True

    def output_pass(self):
        """Passes on what VM 0's command has printed since the last time."""
        try:
            with open(os.path.join(self.vms[0].share, "output"), "rb") as file:
                file.seek(self.printed)
                data = file.read()
        except OSError:
            return
        self.printed += len(data)
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def wait(self, show=False, idle=None):
        """Waits for VM 0, then for the others; returns the exit status of the command."""
        first = self.vms[0]
        if not self.wait_vm(first, self.output_pass if show else idle):
            self.timed_out = True
            self.problems.append("not ended after %d s" % (time.monotonic() - self.began))
            for vm in self.vms:
                vm.state_request()
        if show:
            self.output_pass()
        for vm in self.vms[1:]:
            vm.tell("stop")
        self.deadline = time.monotonic() + (0 if self.timed_out else slow(STOP_SECONDS))
        for vm in self.vms[1:]:
            self.wait_vm(vm)
        if self.timed_out:
            return TIMED_OUT
        for vm in self.vms:
            trouble = vm.trouble() if not vm.alive() else "%s does not stop" % vm.name
            if trouble:
                self.problems.append(trouble)
        status = first.read("status")
        return BROKEN if self.problems or status is None else int(status)

    # --- the end ---

    def console_print(self, lines=80, file=None):
        """The ends of all consoles, for somebody who looks for what went wrong."""
        for vm in self.vms:
            for line in vm.console_tail(lines):
                print("%s| %s" % (vm.name, line), file=file or sys.stderr)

    def results_copy(self, folder):
        """Copies consoles, logs and what the guests have left in their shares."""
        for vm in self.vms:
            target = os.path.join(folder, vm.name)
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(vm.share, target, symlinks=True, ignore_dangling_symlinks=True)
            for name in ("console", "qemu.log"):
                if os.path.exists(vm.path(name)):
                    shutil.copy(vm.path(name), target)
        if self.emulator and os.path.exists(self.emulator.log):
            shutil.copy(self.emulator.log, folder)

    def close(self):
        handlers = [(number, signal.getsignal(number))
                    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
        signals_ignore()
        for vm in self.vms:
            vm.close()
        if self.emulator:
            self.emulator.close()
        if self.selector:
            self.selector.close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self.lock)
            self.folder = None
        for number, handler in handlers:
            signal.signal(number, handler)

    # --- by hand ---

    def attach(self):
        """Connects this terminal to VM 0's console, until the VM ends or the escape key."""
        first = self.vms[0]
        keyboard = sys.stdin.fileno()
        saved = termios.tcgetattr(keyboard) if os.isatty(keyboard) else None
        done = []

        def typed():
            data = os.read(keyboard, 1024)
            if not data:
                self.selector.unregister(keyboard)
            elif ESCAPE in data:
                done.append(True)
            else:
                os.write(first.keyboard, data)

        with open(first.console, "rb") as console:
            def show():
                data = console.read()
                while data:
                    data = data[os.write(sys.stdout.fileno(), data):]

            try:
                while not all(vm.up_after is not None for vm in self.vms):
                    if not first.alive() or time.monotonic() > self.deadline:
                        raise VmError("the VMs do not come up")
                    self.pump(0.1)
                    show()
                if saved:
                    tty.setraw(keyboard)
                self.selector.register(keyboard, selectors.EVENT_READ, typed)
                while first.alive() and not done:
                    self.pump(0.02)
                    show()
                show()
            finally:
                if saved:
                    termios.tcsetattr(keyboard, termios.TCSADRAIN, saved)
