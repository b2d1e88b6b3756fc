"""Boots the machine that tests/vm/run describes and runs something inside. See README.md for what it has."""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from machines import MACHINES

HERE = pathlib.Path(__file__).resolve().parent
BOOT_S = 300  # From QEMU's start to the command's: 20 to 40 s on two cores, in software.
DID_NOT_BOOT = 125
OUT_OF_TIME = 124

# What costs time in an emulated processor and shows nothing here: guards against real processors' faults, crypto's
# self-tests, and drivers of QEMU's other devices.
CMDLINE = [
    "mitigations=off", "cryptomgr.notests", "apparmor=0", "audit=0",
    # And what shows why a boot failed, for a second of time.
    "loglevel=7",
    "modprobe.blacklist=ahci,libahci,sr_mod,sg,kvm_amd,kvm_intel,iTCO_wdt,i6300esb,lpc_ich,i2c_i801,psmouse,pcspkr,evdev,"
    "serio_raw,button,qemu_fw_cfg,aesni_intel",
]

# A drive's keys, with what they are if not said. Times and rates are what QEMU's emulation is told to keep to.
DRIVE = {
    "name": None,  # serial number, QMP id, /dev/drive/NAME in the guest
    "size": "1G",
    "lba": "4096",
    "mdts": "7",  # largest command is 4 KiB << mdts: 512 KiB
    "cmb": "64",  # MiB of memory in its BAR, 0: none
    "queues": "4",  # pairs it offers; Linux takes one a CPU at most, and nvme.poll_queues
    "namespaces": "1",
    "node": None,  # NUMA node of its PCI bus; drive after drive on 0 and 1, if not said. "none": no node
    "throttle": "0",  # bytes a second for all namespaces, no burst, 0: none
    "error": "",  # byte offset at which a read is a media error
    "latency": "",  # ms after which each command is answered, however many there are; holds zeros
    "nvme": "",  # more properties of QEMU's nvme device, and of its nvme-ns, joined by "+"
    "ns": "",
}


def main():
    options = arguments(sys.argv[1:])
    if options.machine:
        options = arguments([*next(args for name, args, _ in MACHINES if name == options.machine), *sys.argv[1:]])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # By way of every "finally".
    base = pathlib.Path(options.dir).resolve()
    if options.command:
        sys.exit(Boot(base, options, options.kernel[0]).run(options.command))

    passed = skipped = failed = 0
    for kernel in options.kernel:
        # One boot as asked for, or all that the tests need.
        boots = [("", options, options.filter)] if options.filter else [
            (f", machine {name}", arguments([*args, *sys.argv[1:]]), tests) for name, args, tests in MACHINES]
        for name, machine, tests in boots:
            good, without, bad = run_tests(Boot(base, machine, kernel), f"kernel {kernel}{name}", tests)
            passed, skipped, failed = passed + good, skipped + without, failed + bad
    if skipped:
        print(f"vm: {skipped} skipped: each said why, above")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def run_tests(boot, where, tests):
    """How many passed, were skipped, failed in one boot."""
    started = time.monotonic()
    print(f"\n=== tests in the machine, {where}", flush=True)
    log = []
    # Unlike a captured one, output as it comes shows how far a test came that hangs.
    status = boot.run([test_binary(boot.options.cargo), *tests, "--nocapture"], log)
    text = b"".join(log).decode(errors="replace")
    # The last one: a failed test that runs a copy of the program shows the copy's.
    results = re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed", text, re.MULTILINE)
    good, bad = map(int, results[-1]) if results else (0, 0)
    # A machine that did not boot, a crash in the middle, a filter that matches nothing: no test failed, yet this did.
    if (status != 0 or good == 0) and bad == 0:
        print(f"vm: {where}: exit status {status}, {good} tests passed: counted as a failure")
        bad = 1
    without = skips(text)
    for test, why in without.items():
        print(f"vm: {where}: {test} was skipped: {why}")
    print(f"--- {where}: {good - len(without)} passed, {len(without)} skipped, {bad} failed; "
          f"{time.monotonic() - started:.0f} s", flush=True)
    return good - len(without), len(without), bad


def skips(text):
    """Tests that passed because they did not run, and why."""
    found, test = {}, None
    for match in re.finditer(r"^test (\S+)(?: - should panic)? \.\.\. |skipped: (.*)|^(FAILED)$", text, re.MULTILINE):
        test = match[1] or test
        if match[2] and test:
            found.setdefault(test, match[2])
        if match[3]:
            found.pop(test, None)
    return found


def arguments(args):
    parser = argparse.ArgumentParser(prog="tests/vm/run", usage="tests/vm/run [OPTION...] [FILTER... | -- COMMAND...]",
                                     add_help=False, allow_abbrev=False)
    parser.add_argument("--dir", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--cargo", help=argparse.SUPPRESS)
    parser.add_argument("--kernel", action="append", choices=["newest", "6.1"], help="default: both; newest for a command")
    parser.add_argument("--machine", choices=[machine[0] for machine in MACHINES], help="one of machines.py, for a filter")
    parser.add_argument("--cmdline", action="append", default=[], help="more of the kernel's command line")
    parser.add_argument("--timeout", type=int, default=420, help="seconds for the command in the guest")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--memory", type=int, default=2048, help="MiB, half of it on each of two NUMA nodes")
    parser.add_argument("--drives", type=int, default=2, help="plain drives: d0, d1, ...")
    parser.add_argument("--drive", action="append", default=[], metavar="KEY=VALUE,...",
                        help="one more drive; keys: " + ", ".join(DRIVE))
    for key in ("size", "lba", "mdts", "cmb", "queues", "namespaces", "throttle", "nvme", "ns"):
        parser.add_argument("--" + key, default=DRIVE[key], help="of every drive that does not say otherwise")
    parser.add_argument("--multipath", action="store_true", help="the first drive by two controllers of one subsystem")
    parser.add_argument("--no-dax", action="store_true", help="without the two nvdimms")
    parser.add_argument("--env", action="append", default=[], metavar="KEY=VALUE", help="for the command")
    parser.add_argument("--qemu", action="append", default=[], help="more of QEMU's command line")
    parser.add_argument("--host", metavar="COMMAND", help="runs beside the command, on this side, FULLBORE_VM_QMP set")
    parser.add_argument("--console", action="store_true", help="the kernel's messages, on stderr")
    command = []
    if "--" in args:
        args, command = args[: args.index("--")], args[args.index("--") + 1 :]
        if not command:
            parser.error("no command after --")
    options, rest = parser.parse_known_args(args)
    unknown = [arg for arg in rest if arg.startswith("-")]
    if unknown or (command and rest):
        parser.error("unknown: " + " ".join(unknown or rest))
    options.filter, options.command = rest, command
    options.kernel = options.kernel or (["newest"] if command else ["newest", "6.1"])
    return options


def test_binary(messages):
    """The path of the integration program, from what cargo said of its build."""
    for message in map(json.loads, pathlib.Path(messages).read_text(encoding="utf-8").splitlines()):
        if message.get("executable") and message["target"]["name"] == "it" and message["profile"]["test"]:
            return message["executable"]
    sys.exit("vm: cargo built no integration program")


def drives(options):
    """One dictionary a drive, complete."""
    common = {key: getattr(options, key) for key in DRIVE if hasattr(options, key)}
    said = [{} for _ in range(options.drives)]
    for text in options.drive:
        said.append(dict(pair.split("=", 1) for pair in text.split(",")))
        if said[-1].keys() - DRIVE.keys():
            sys.exit(f"vm: --drive {text}: the keys are {', '.join(DRIVE)}")
    return [DRIVE | common | {"name": f"d{i}", "node": str(i % 2)} | keys for i, keys in enumerate(said)]


def size(text):
    unit = {"K": 10, "M": 20, "G": 30}.get(text[-1].upper())
    return int(text[:-1]) << unit if unit else int(text)


class Boot:
    def __init__(self, base, options, kernel):
        self.base, self.options, self.kernel = base, options, kernel
        self.drives = drives(options)

    def run(self, command, log=None):
        """The command's exit status. Its output is passed on as it comes, and added to `log`."""
        # Named after us, so that what a killed one left behind can be told from what is in use.
        for left in [*self.base.glob("boot-*-*"), *pathlib.Path("/tmp").glob("fullbore-vm-*-*")]:
            if not os.path.exists(f"/proc/{left.name.split('-')[-2]}"):
                shutil.rmtree(left, ignore_errors=True)
        # Short, since a UNIX socket's path may have 107 bytes, and not in `base`, which may lie deep.
        self.sockets = pathlib.Path(tempfile.mkdtemp(prefix=f"fullbore-vm-{os.getpid()}-", dir="/tmp"))
        # In `base`: 9p shows it to the guest under the same path, and images take room.
        self.here = pathlib.Path(tempfile.mkdtemp(prefix=f"boot-{os.getpid()}-", dir=self.base))
        try:
            return self.boot(command, log if log is not None else [])
        finally:
            shutil.rmtree(self.here, ignore_errors=True)
            shutil.rmtree(self.sockets, ignore_errors=True)

    def boot(self, command, log):
        options = self.options
        self.out = self.here / "out"
        self.out.mkdir()
        self.guest_file(command)
        started = time.monotonic()
        # setpriv: whatever ends this process, QEMU ends too; nothing is left that turns on a core for ever.
        machine = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *self.virtme()],
            # Pipes, since QEMU opens what it is given anew, which would cut a file short.
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, cwd=self.here)
        pumps = [threading.Thread(target=pump, args=pair, daemon=True) for pair in
                 ((machine.stdout, sys.stdout.buffer, log), (machine.stderr, sys.stderr.buffer, log))]
        for thread in pumps:
            thread.start()
        beside = None
        try:
            while not (self.out / "ready").exists():
                if machine.poll() is not None or time.monotonic() - started > BOOT_S:
                    return self.did_not_boot(machine, time.monotonic() - started)
                time.sleep(0.05)
            boot_s = time.monotonic() - started
            if options.host:
                beside = subprocess.Popen(
                    options.host, shell=True, start_new_session=True, stdin=subprocess.DEVNULL, stdout=sys.stderr,
                    env=os.environ | {"FULLBORE_VM_QMP": str(self.sockets / "qmp"), "FULLBORE_VM_OUT": str(self.out)})
            try:
                # The guest ends the command itself at its limit; this is for a guest that hangs as a whole.
                machine.wait(options.timeout + 20)
            except subprocess.TimeoutExpired:
                say(f"the guest hangs: ended after {options.timeout + 20} s; its console said last:\n{self.console()}")
                return OUT_OF_TIME
            say(f"kernel {self.version()} was up after {boot_s:.0f} s, the command took "
                f"{time.monotonic() - started - boot_s:.0f} s")
        finally:
            for process in filter(None, (machine, beside)):
                end(process)
            for thread in pumps:
                thread.join(10)
            if options.console:
                say(f"console:\n{self.console(100000)}")
        status = self.out / "status"
        if not status.exists() or not status.read_text().strip():
            say(f"the guest ended before the command did; its console said last:\n{self.console()}")
            return DID_NOT_BOOT
        status = int(status.read_text())
        if status == OUT_OF_TIME:
            say(f"exit status 124: if the command ran longer than {options.timeout} s (--timeout), it was ended for that")
        return status

    def did_not_boot(self, machine, seconds):
        how = "hangs" if machine.poll() is None else f"ended (exit status {machine.poll()})"
        say(f"kernel {self.version()} {how} before the command's start, after {seconds:.0f} s; "
            f"its console said last:\n{self.console()}")
        return DID_NOT_BOOT

    def console(self, last=3000):
        path = self.here / "console"
        return path.read_bytes().decode(errors="replace")[-last:] if path.exists() else "(nothing)"

    def version(self):
        return os.readlink(self.base / "kernels" / self.kernel)

    def guest_file(self, command):
        """What the guest sources: what to expect, the environment, the command."""
        names = {"RUST_TEST_THREADS": "1"}  # Tests share the drives and time them.
        names |= {name: value for name, value in os.environ.items() if re.match(r"(FULLBORE|RUST)_", name)}
        # Reading symbols takes minutes in there; --env brings it back.
        names["RUST_BACKTRACE"] = "0"
        names |= dict(pair.split("=", 1) for pair in self.options.env)
        names |= {"FULLBORE_VM": self.kernel, "FULLBORE_VM_OUT": str(self.out), "PATH": os.environ["PATH"],
                  "HOME": os.environ.get("HOME", "/root")}
        lines = [f"export {name}={shlex.quote(value)}" for name, value in names.items()]
        # Multipath shows one head for all of a namespace's paths.
        lines += [f"expect_drives={sum(int(drive['namespaces']) for drive in self.drives)}",
                  f"expect_dax={0 if self.options.no_dax else 2}",
                  f"limit={self.options.timeout}",
                  f"folder={shlex.quote(os.getcwd())}",
                  f"command=({' '.join(map(shlex.quote, command))})"]
        (self.here / "guest.env").write_text("\n".join(lines) + "\n")

    def virtme(self):
        options = self.options
        image = self.base / "kernels" / self.version() / "lib/modules" / self.version() / "vmlinuz"
        scratch = self.here / "scratch.img"
        subprocess.run(["truncate", "-s", "8G", scratch], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=1", scratch], check=True)
        # QEMU must end with virtme-run, its parent; and the console, which virtme-run throws away when it runs a script,
        # is what says why a guest did not come up.
        qemu, chardev = self.sockets / "qemu", "file,id=console,path="
        qemu.write_text("#!/bin/bash\nexec setpriv --pdeathsig KILL -- qemu-system-x86_64 "
                        f'"${{@/#{chardev}*/{chardev}{self.here}/console}}"\n')
        qemu.chmod(0o755)
        command = [
            self.base / "venv/bin/virtme-run", "--kimg", image, "--mods", "auto", "--qemu-bin", qemu,
            # Software emulation everywhere: the same machine on every host.
            "--disable-kvm", "--force-9p", "--user", "root", "--cpus", str(options.cpus),
            # The guest's root is this machine's, read-only; these are what it may write.
            "--overlay-rwdir", "/tmp", "--rwdir", self.out,
            "--script-sh", shlex.join(["bash", str(HERE / "guest.sh"), str(self.here / "guest.env")]),
        ]
        for word in [*CMDLINE, *shlex.split(" ".join(options.cmdline))]:
            command += ["--kopt", word]
        return [*command, "--qemu-opts", *self.qemu(scratch)]

    def qemu(self, scratch):
        """What the machine has beyond virtme-ng's."""
        options = self.options
        cpus, half = options.cpus, options.memory // 2
        args = ["-machine", "q35,nvdimm=on", "-m", f"{half * 2}M,maxmem={half * 2 + 8192}M,slots=4"]
        for node in (0, 1):
            first, last = node * cpus // 2, (node + 1) * cpus // 2 - 1
            of_node = f",cpus={first}-{last}" if last >= first else ""
            args += ["-object", f"memory-backend-ram,id=ram{node},size={half}M",
                     "-numa", f"node,nodeid={node},memdev=ram{node}{of_node}"]
        for node in () if options.no_dax else (0, 1):
            args += ["-object", f"memory-backend-ram,id=dax{node},size=256M,share=on",
                     "-device", f"nvdimm,id=nvdimm{node},memdev=dax{node},node={node}"]
        args += ["-blockdev", f"driver=file,node-name=scratch,filename={scratch},aio=io_uring,cache.direct=on",
                 "-device", "virtio-blk-pci,drive=scratch,serial=scratch"]
        # QMP for this side, and once more for the guest's tests, as /dev/virtio-ports/qmp: they unplug their own drives.
        # The guest's port is a client of QEMU's own second monitor.
        for name in ("qmp", "qmp-guest"):
            args += ["-chardev", f"socket,id={name},path={self.sockets}/{name},server=on,wait=off",
                     "-mon", f"chardev={name},mode=control"]
        args += ["-chardev", f"socket,id=qmp-port,path={self.sockets}/qmp-guest", "-device", "virtio-serial-pci",
                 "-device", "virtserialport,name=qmp,chardev=qmp-port"]
        # A host bridge on each node, so that drives have a node.
        for node in (0, 1):
            args += ["-device", f"pxb-pcie,id=bus{node},bus_nr={64 + 64 * node},numa_node={node},bus=pcie.0"]
        for number, drive in enumerate(self.drives):
            args += self.drive(number, drive)
        return args + shlex.split(" ".join(options.qemu))

    def drive(self, number, drive):
        name, lba = drive["name"], drive["lba"]
        args, nodes = [], []
        limit = size(drive["throttle"])
        if limit:
            args += ["-object", json.dumps({"qom-type": "throttle-group", "id": f"{name}-throttle",
                                            "limits": {"bps-total": limit}})]
        for namespace in range(1, int(drive["namespaces"]) + 1):
            image = self.here / f"{name}-{namespace}.img"
            with open(image, "wb") as file:
                file.truncate(size(drive["size"]))
            node = {"driver": "file", "filename": str(image), "aio": "io_uring", "cache": {"direct": True}}
            if drive["latency"]:
                node = {"driver": "null-co", "size": size(drive["size"]), "read-zeroes": True,
                        "latency-ns": int(drive["latency"]) * 1000000}
            if drive["error"]:
                # Without an event, which only some formats raise, every access is looked at.
                node = {"driver": "blkdebug", "image": node, "inject-error": [
                    {"event": "none", "iotype": "read", "sector": size(drive["error"]) // 512, "errno": 5}]}
            node = {"driver": "raw", "file": node}
            if limit:
                node = {"driver": "throttle", "throttle-group": f"{name}-throttle", "file": node}
            nodes.append(f"{name}-{namespace}")
            args += ["-blockdev", json.dumps(node | {"node-name": nodes[-1]})]
        bus = "pcie.0" if drive["node"] == "none" else f"bus{drive['node']}"
        blocks = f"logical_block_size={lba},physical_block_size={lba}"
        more = "".join("," + word for word in drive["nvme"].split("+") if word)
        more_ns = "".join("," + word for word in drive["ns"].split("+") if word)
        twice = self.options.multipath and number == 0
        if twice:
            args += ["-device", f"nvme-subsys,id={name}-subsystem"]
            more += f",subsys={name}-subsystem"
        controllers = [name, f"{name}-b"] if twice else [name]
        for controller in controllers:
            # A port of its own each: it can be unplugged and plugged in again.
            chassis = 2 * number + (controller != name) + 1
            args += ["-device", f"pcie-root-port,id={controller}-port,bus={bus},chassis={chassis},slot={chassis}"]
            device = (f"nvme,id={controller},bus={controller}-port,serial={name},mdts={drive['mdts']},"
                      f"max_ioqpairs={drive['queues']},cmb_size_mb={drive['cmb']}{more}")
            if len(nodes) == 1 and not more_ns and not twice:
                # Controller and namespace in one device, which QMP's device_add can bring back; nvme-ns it cannot.
                args += ["-device", f"{device},drive={nodes[0]},{blocks}"]
                return args
            args += ["-device", device]
        for namespace, node in enumerate(nodes, 1):
            shared = ",shared=on" if twice else ""
            args += ["-device", f"nvme-ns,id={name}-ns{namespace},drive={node},bus={controllers[0]},nsid={namespace},"
                                f"{blocks}{shared}{more_ns}"]
        return args


def pump(source, target, log):
    while chunk := source.read1(1 << 16):
        log.append(chunk)
        target.write(chunk)
        target.flush()


def end(process):
    """Ends it and whatever it started: each is a session of its own."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass
    process.wait()


def say(text):
    print(f"vm: {text}", file=sys.stderr, flush=True)


main()
