# SPDX-License-Identifier: BSD-3-Clause
"""What a run of the VM harness consists of: the kernel, the VMs, the NICs' emulator."""

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time

from vm_base import HERE, ROOT, SHM, Qmp, VmError, VmSkip, process_end, process_start, slow

QEMU = "qemu-system-x86_64"


# --- what the VMs are made of --------------------------------------------------------------------

def tool_output(command):
    """The last line that a script of this folder prints; VmSkip if it says it can't be had."""
    last = ""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors="replace") as process:
        # Nothing is printed to stdout before the end.
        for line in process.stderr:
            sys.stderr.write(line)
            sys.stderr.flush()
            last = line.strip()
        output = process.stdout.read()
    if process.returncode != 0:
        last = last or "%s failed" % os.path.basename(command[0])
        raise VmSkip(last) if process.returncode == 3 else VmError(last)
    return output.strip().splitlines()[-1]


def machine_check(options):
    if shutil.which(QEMU) is None:
        raise VmSkip("there is no %s: `scripts/setup --vm` installs what VMs need (Debian: qemu-system-x86)" % QEMU)
    if not os.path.isdir(SHM):
        raise VmSkip("there is no %s" % SHM)
    free = os.statvfs(SHM)
    free = free.f_bavail * free.f_frsize >> 20
    if free < options.vms * options.memory:
        raise VmSkip("%s has %d MiB free, %d VMs of %d MiB don't fit" % (
            SHM, free, options.vms, options.memory))


def build_folder():
    flavor = os.environ.get("FLAVOR", "")
    default = os.path.join("build", flavor) if flavor else "build"
    return os.path.realpath(os.path.join(ROOT, os.environ.get("B", default)))


def guest_environment(build, count):
    """What programs of the build need to find its libraries, as scripts/angara_env has it, and Open
    MPI to find the other VMs."""
    names = ("LD_LIBRARY_PATH", "PATH", "OMPI_MCA_opal_mca_base_component_path")
    environment = {name: value for name, value in os.environ.items()
                   if name in ("PATH", "FLAVOR", "ANGARA_TEST_SLOW")}
    environment.update(B=build, PATH="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    done = subprocess.run(
        ["bash", "-c", 'settings=$("$0") && eval "$settings"; exec env -0',
         os.path.join(ROOT, "scripts", "angara_env")],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    for entry in done.stdout.split("\0"):
        name, _, value = entry.partition("=")
        if name in names:
            environment[name] = value
    for prefix in ("OMPI", "PRTE"):
        environment[prefix + "_ALLOW_RUN_AS_ROOT"] = "1"
        environment[prefix + "_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    environment.update({
        "OMPI_MCA_rmaps_base_oversubscribe": "true",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_mpi_yield_when_idle": "true",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
    })
    if count > 1:
        agent = os.path.join(HERE, "guest", "vm_rsh")
        environment.update({
            "OMPI_MCA_plm_rsh_agent": agent, "PRTE_MCA_plm_ssh_agent": agent,
            "OMPI_MCA_oob_tcp_if_include": "eth0", "PRTE_MCA_oob_tcp_if_include": "eth0",
            "OMPI_MCA_btl_tcp_if_include": "eth0",
        })
    return environment


class Kernel:
    """The files that a VM boots from."""

    def __init__(self, options):
        # Without links, which lead elsewhere in a guest if they are below /tmp.
        self.folder = os.path.realpath(options.kernel or tool_output(
            [os.path.join(HERE, "vm_kernel"), "--release", options.release] +
            (["--headers"] if options.modules else [])))
        self.initrd = tool_output([os.path.join(HERE, "vm_initrd"), self.folder])
        self.image = os.path.join(self.folder, "vmlinux")
        if not os.path.exists(self.image):
            self.image = os.path.join(self.folder, "vmlinuz")
        self.modules = ""
        if options.modules:
            self.modules = tool_output([os.path.join(HERE, "vm_modules"), self.folder])

# --- one VM --------------------------------------------------------------------------------------

class Vm:
    """One QEMU process and its files."""

    def __init__(self, cluster, index):
        self.cluster = cluster
        self.index = index
        self.name = "vm%d" % index
        self.folder = os.path.join(cluster.folder, self.name)
        self.share = os.path.join(self.folder, "share")
        self.console = os.path.join(self.folder, "console")
        self.process = None
        self.qmp = None
        self.keyboard = None  # descriptor, to type at the console
        self.control = None  # the guest's second serial line
        self.pending = b""
        self.up_after = None  # seconds it took to boot
        self.may_die = False
        self.registers = []  # after a time-out, in words
        os.makedirs(self.share)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(os.path.join(self.share, name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name):
        """A file that the guest has left in its share, or None."""
        try:
            with open(os.path.join(self.share, name), encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return None

    def console_text(self):
        try:
            with open(self.console, encoding="utf-8", errors="replace") as file:
                return file.read().replace("\r", "")
        except OSError:
            return ""

    def console_tail(self, lines):
        """The last lines of the console, and what is known about a guest that hangs."""
        text = self.console_text().splitlines()
        head = ["... %d lines" % (len(text) - lines)] if len(text) > lines else []
        return head + text[-lines:] + self.registers

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def address(self):
        return "10.0.0.%d" % (self.index + 1)

    def config_write(self, role, command):
        cluster = self.cluster
        hosts = ["127.0.0.1 localhost"]
        hosts += ["%s %s" % (vm.address(), vm.name) for vm in cluster.vms]
        settings = {
            "vm_index": self.index, "vm_count": len(cluster.vms), "vm_name": self.name,
            "vm_address": self.address(), "vm_role": role, "vm_command": command,
            "vm_root": ROOT, "vm_kernel": cluster.kernel.folder,
            "vm_modules": cluster.kernel.modules,
        }
        if role == "shell" and sys.stdin.isatty():
            size = os.get_terminal_size(sys.stdin.fileno())
            settings.update(vm_rows=size.lines, vm_columns=size.columns)
        self.write("config", "".join("%s=%s\n" % (name, shlex.quote(str(value)))
                                     for name, value in settings.items()))
        self.write("environment", "".join("export %s=%s\n" % (name, shlex.quote(value))
                                          for name, value in cluster.environment.items()))
        self.write("hosts", "\n".join(hosts) + "\n")
        # For the first stage: what must be seen below folders that the guest has of its own.
        self.write("folders", "".join(folder + "\n" for folder in (
            ROOT, cluster.build, cluster.kernel.folder)))
        self.write("init", os.path.join(HERE, "guest_init") + "\n")

    def command_line(self):
        options = self.cluster.options
        append = "console=ttyS0 panic=1 oops=panic sysrq_always_enabled loglevel=7 " \
            "log_buf_len=4M ipv6.disable=1 mitigations=off nokaslr no_timer_check " + options.append
        words = [
            QEMU, "-name", self.name, "-machine", "q35,accel=tcg,memory-backend=mem",
            # With one processor at most TCG's atomic instructions aren't atomic for the emulator.
            "-cpu", "max", "-smp", "%d,maxcpus=%d" % (options.smp, max(options.smp, 2)),
            "-m", "%dM" % options.memory,
            "-object", "memory-backend-file,id=mem,size=%dM,mem-path=%s,share=on" % (
                options.memory, self.path("ram")),
            "-kernel", self.cluster.kernel.image, "-initrd", self.cluster.kernel.initrd,
            "-append", append, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            # A file takes all that is printed, a socket whose reader is slow does not.
            "-chardev", "stdio,id=console,signal=off",
            "-serial", "chardev:console",
            "-chardev", "socket,id=control,path=%s,server=on,wait=off" % (
                self.path("control.socket")),
            "-serial", "chardev:control",
            "-qmp", "unix:%s,server=on,wait=off" % self.path("qmp.socket"),
            "-virtfs", "local,path=/,mount_tag=hostroot,security_model=none,readonly=on,"
            "multidevs=remap",
            "-virtfs", "local,path=%s,mount_tag=share,security_model=none" % self.share,
        ]
        if options.vms > 1:
            words += [
                "-netdev", "socket,id=net0,mcast=%s:%d,localaddr=127.0.0.1" % self.cluster.group,
                "-device", "virtio-net-pci,netdev=net0,romfile=,mac=52:54:00:00:00:%02x" % (
                    self.index + 1),
            ]
        # Behind root ports, so that the devices can be pulled out.
        if options.nic:
            words += [
                "-chardev", "socket,id=nic,path=%s" % self.path("nic.socket"),
                "-device", "pcie-root-port,id=port1,chassis=1,slot=1",
                "-device", "ivshmem-doorbell,id=nic0,bus=port1,chardev=nic,vectors=%d" % (
                    options.vectors),
            ]
        if options.gpu:
            words += [
                "-object", "memory-backend-file,id=vram,size=%dM,mem-path=%s,share=on" % (
                    options.gpu, self.path("vram")),
                "-device", "pcie-root-port,id=port2,chassis=2,slot=2",
                "-device", "ivshmem-plain,id=gpu0,bus=port2,memdev=vram",
            ]
        if options.gdb:
            words += ["-gdb", "tcp:127.0.0.1:%d" % (options.gdb + self.index)]
        for extra in options.qemu:
            words += shlex.split(extra)
        return words

    def start(self):
        with open(self.path("ram"), "ab") as ram:
            ram.truncate(self.cluster.options.memory << 20)
        os.mkfifo(self.path("console.input"))
        self.keyboard = os.open(self.path("console.input"), os.O_RDWR | os.O_NONBLOCK)
        with open(self.path("qemu.log"), "wb") as log, open(self.console, "wb") as console:
            self.process = process_start(self.command_line(), log, out=console, into=self.keyboard)

    def socket_connect(self, name):
        """Connects to a socket that QEMU makes while it starts."""
        deadline = time.monotonic() + slow(20)
        connection = socket.socket(socket.AF_UNIX)
        while True:
            try:
                connection.connect(self.path(name))
                return connection
            except OSError:
                if not self.alive() or time.monotonic() > deadline:
                    connection.close()
                    raise VmError("QEMU does not start: " + self.log_tail()) from None
                time.sleep(0.02)

    def log_tail(self):
        with open(self.path("qemu.log"), encoding="utf-8", errors="replace") as file:
            return file.read()[-2000:].strip() or "no message"

    def connect(self):
        self.control = self.socket_connect("control.socket")
        self.socket_connect("qmp.socket").close()
        self.qmp = Qmp(self.path("qmp.socket"))

    def tell(self, line):
        """A line to the guest's control program."""
        try:
            self.control.sendall(line.encode() + b"\n")
        except OSError:
            pass  # it has ended, which is noticed elsewhere

    def trouble(self):
        """Why this VM's end isn't a good one, or None."""
        for line in self.console_text().splitlines():
            if "Kernel panic - not syncing" in line:
                return "the kernel of %s panicked: %s" % (self.name, line.strip())
        if self.process.returncode not in (0, None) and not self.may_die:
            return "QEMU of %s ended with status %d: %s" % (self.name, self.process.returncode,
                                                           self.log_tail())
        if self.read("status") is None and not self.may_die:
            return "%s ended without a result" % self.name
        return None

    def state_request(self):
        """Has the kernel print what its processors do and who waits; QEMU the registers."""
        if not self.alive():
            return
        try:
            for key in (b"l", b"w"):
                self.qmp.execute("chardev-send-break", {"id": "console"})
                os.write(self.keyboard, key)
                self.console_settle()
            answer = self.qmp.execute("human-monitor-command", {"command-line": "info registers"})
            self.registers = str(answer.get("return", "")).replace("\r", "").splitlines()[:8]
        except (OSError, VmError, ValueError):
            pass  # it is for the reader of the log only

    def console_settle(self):
        """Waits, not long, until nothing more is printed."""
        size = -1
        for _ in range(10):
            before, size = size, os.path.getsize(self.console)
            if before == size:
                return
            time.sleep(0.2)

    def close(self):
        for connection in (self.control, self.qmp):
            if connection is not None:
                connection.close()
        if self.keyboard is not None:
            os.close(self.keyboard)
        if self.process is not None:
            process_end(self.process)

# --- the NIC -------------------------------------------------------------------------------------

def emulator_program(build):
    return os.path.join(build, "tests", "emu", "angara_emu")


class Emulator:
    """angara_emu, which serves the NICs of all VMs."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.process = None
        self.may_die = False
        self.log = os.path.join(cluster.folder, "emu.log")
        self.control = os.path.join(cluster.folder, "emu.socket")
        self.program = emulator_program(cluster.build)
        if not os.access(self.program, os.X_OK):
            raise VmSkip("there is no %s: the emulated NIC isn't built (`make B=%s %s` does it)" % (
                self.program, cluster.build, self.program))

    def start(self):
        """Starts it, and returns when its sockets listen."""
        options = self.cluster.options
        command = [self.program, "--control", self.control, "--vectors", str(options.vectors)]
        for vm in self.cluster.vms:
            command += ["--vm", "%s,%s,%dM" % (vm.path("nic.socket"), vm.path("ram"),
                                               options.memory)]
        command += options.emu
        with open(self.log, "wb") as log:
            self.process = process_start(command, log, out=subprocess.PIPE)
        # It says so, or ends.
        if self.process.stdout.readline() != b"ready\n":
            with open(self.log, encoding="utf-8", errors="replace") as log:
                raise VmError("angara_emu does not start: " + log.read()[-2000:].strip())

    def request(self, text):
        """One line for its control socket, and its answer."""
        if text == "kill":
            self.may_die = True
            self.process.kill()
            return "ok"
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(slow(10))
            connection.connect(self.control)
            connection.sendall(text.encode() + b"\n")
            with connection.makefile(encoding="utf-8", errors="replace") as file:
                return file.readline().rstrip("\n") or "error no answer"

    def gpu_map(self, vm, size):
        """Lets the NIC reach the VM's stand-in GPU by its bus address."""
        buses = vm.qmp.execute("query-pci")["return"]
        address = bar_find(buses, "gpu0", 2)
        if address is None:
            raise VmError("QEMU does not tell where %s has its GPU" % vm.name)
        answer = self.request("map %d 0x%x %d %s" % (vm.index, address, size << 20,
                                                     vm.path("vram")))
        if not answer.startswith("ok"):
            raise VmError("angara_emu: map: " + answer)

    def close(self):
        if self.process is not None:
            process_end(self.process)
            self.process.stdout.close()


def bar_find(buses, name, bar):
    """The bus address of a device's BAR in what query-pci has answered, or None."""
    for bus in buses:
        for device in bus.get("devices", []):
            if device.get("qdev_id") == name:
                for region in device["regions"]:
                    if region["bar"] == bar:
                        return region["address"]
            bridge = device.get("pci_bridge")
            if bridge:
                address = bar_find([bridge], name, bar)
                if address is not None:
                    return address
    return None
