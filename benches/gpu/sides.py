"""The sides of a pair: how each is run, and what all of them share."""

import json
import os
import pathlib
import select
import shlex
import subprocess
import sys
import time

from ours import BOUNCE, OBJECT, Failed, made_up

HERE = pathlib.Path(__file__).resolve().parent


def whole(size):
    """Bytes in whole objects: what every side moves."""
    return size // OBJECT * OBJECT


class Run:
    """What all rows share."""

    def __init__(self, a):
        self.a, self.start, self.results, self.ceilings, self.sides = a, time.monotonic(), [], {}, {}
        kit = pathlib.Path(a.kit).resolve()
        self.names = {"fb": kit / "fullbore", "ring": kit / "ring_loop", "fio": kit / "fio"}
        self.tools = {}
        self.log = None if a.dry else open(pathlib.Path(a.out) / "rows.log", "a")

    def say(self, text):
        print(f"[{time.monotonic() - self.start:6.1f}] {text}", file=sys.stderr, flush=True)

    def shell(self, command, env=None, answer=None, plain=False):
        """Runs a command; its JSON object, unless it is plain. `answer` is what a dry run gives instead."""
        if self.a.dry:
            print(f"would run: {command}", file=sys.stderr)
            return answer
        self.log.write(f"$ {command}\n")
        try:
            p = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=self.a.timeout,
                               env={**os.environ, **(env or {})})
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failed(f"{error}") from None
        self.log.write(f"{p.stdout[-20000:]}\n{p.stderr[-4000:]}\nexit {p.returncode}\n")
        self.log.flush()
        if p.returncode:
            raise Failed(f"exit {p.returncode}: {command}: {(p.stderr or p.stdout)[-300:].strip()}")
        return None if plain else parse(p.stdout)

    def compiled(self, name, source):
        """A C program, built by this machine's compiler; where there is none, the one in the kit."""
        if name not in self.tools:
            out = f"/tmp/fullbore-{name}"
            for compiler in () if self.a.dry else ("cc", "gcc", "clang"):
                command = [compiler, "-std=c11", "-O2", "-pthread", "-o", out, str(HERE / source), "-ldl"]
                try:
                    subprocess.run(command, check=True, capture_output=True)
                    break
                except (OSError, subprocess.CalledProcessError) as error:
                    self.say(f"{compiler}: {error}")
            else:
                out = str(self.names["fb"].parent / name)
            self.tools[name] = out
        return self.tools[name]

    def save(self):
        everything = {"machine": machine(), "ceilings": self.ceilings, "rows": self.results, "dry": self.a.dry,
                      "seconds": round(time.monotonic() - self.start, 1)}
        if not self.a.dry:
            (pathlib.Path(self.a.out) / "rows.json").write_text(json.dumps(everything, indent=1))


def parse(text):
    """The last JSON object that starts a line."""
    decoder, found = json.JSONDecoder(), None
    at = 0 if text.startswith("{") else text.find("\n{") + 1
    while text[at : at + 1] == "{":
        try:
            found, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            at += 1
        next_line = text.find("\n{", at)
        at = next_line + 1 if next_line >= 0 else len(text)
    if found is None:
        raise Failed(f"no JSON in: {text[-300:]}")
    return found


def machine():
    read = lambda command: subprocess.run(command, shell=True, capture_output=True, text=True).stdout.strip()
    return {"kernel": os.uname().release, "cpus": os.cpu_count(), "date": time.strftime("%Y-%m-%d %H:%M:%S"),
            "gpu": read("nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.current,pcie.link.width.current "
                        "--format=csv,noheader 2>/dev/null"),
            "thp": read("cat /sys/kernel/mm/transparent_hugepage/enabled")}


# The sides: each a function that runs once and answers {"gbps": ..., ...}.

def plain(run, **options):
    """The plain copy loop: the link. Options are those of copyloop."""
    text = " ".join(f"--{key}={value}" for key, value in options.items())
    answer = {"gbps": made_up(55), "bytes": 1, "seconds": 1, "verified": True, "copy_us": 380, "spin_us": 390,
              "sleep_us": 420, "driver_wake_us": 30, "eventfd_wake_us": 9, "cpu_s_per_gib": 0.001}
    return run.shell(f"{run.compiled('copyloop', 'rivals/copyloop.c')} {text}", answer=answer)


def fio(run, file, size, jobs, bs, depth, huge=0, seconds=2):
    """Reads to host memory: jobs x depth x bs bytes of it."""
    part = size // jobs // bs * bs
    command = (f"{run.names['fio']} --name=rival --filename={file} --readonly --direct=1 --thread --rw=read --bs={bs} "
               f"--numjobs={jobs} --offset_increment={part} --size={part} --time_based --runtime={seconds} "
               f"--ioengine=io_uring --iodepth={depth} --fixedbufs --registerfiles --group_reporting --output-format=json")
    env = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"} if huge else None
    answer = {"jobs": [{"error": 0, "read": {"bw_bytes": made_up(44e9), "runtime": 2000, "io_bytes": 1}}], "fio version": "dry"}
    out = run.shell(command, env, answer)
    job = out["jobs"][0]
    if job["error"]:
        raise Failed(f"fio: error {job['error']}")
    return {"gbps": job["read"]["bw_bytes"] / 1e9, "seconds": job["read"]["runtime"] / 1000, "bytes": job["read"]["io_bytes"],
            "verified": None, "note": f"{out['fio version']}, {jobs} x QD{depth} x {bs >> 10} KiB, huge pages {huge}"}


def ring(run, file, size, jobs, depth):
    """The plain ring loop of benches/, where there is no fio."""
    command = (f"{run.names['ring']} --file={file} --rings={jobs} --depth={depth} --pool={BOUNCE} "
               f"--object={min(OBJECT, BOUNCE // jobs)} --total={4 * size}")
    out = run.shell(command, answer={"gbps": made_up(44), "seconds": 1, "bytes": 1})
    return {**out, "verified": None, "note": f"ring loop, {jobs} x QD{depth}"}


def served(run, script, **options):
    """A Python rival, started once, with a load for each line it is sent."""
    text = " ".join(f"--{key}={value}" for key, value in options.items() if value is not None)
    command = f"{sys.executable} {HERE / 'rivals' / script} --serve {text}"
    if run.a.dry:
        print(f"would serve: {command}", file=sys.stderr)
        return {"gbps": made_up(35), "seconds": 1, "bytes": 1, "verified": True, "note": "made up"}
    if command not in run.sides:
        run.sides[command] = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                              stderr=run.log, text=True, cwd=HERE / "rivals")
        line(run, command)
    try:
        run.sides[command].stdin.write("\n")
        run.sides[command].stdin.flush()
    except BrokenPipeError:
        raise Failed(f"it ended: {command}") from None
    return line(run, command)


def line(run, command):
    process = run.sides[command]
    while True:
        if not select.select([process.stdout], [], [], run.a.timeout)[0]:
            process.kill()
            raise Failed(f"no answer in {run.a.timeout} s: {command}")
        text = process.stdout.readline()
        if not text:
            raise Failed(f"it ended: {command}")
        if text.startswith("{"):
            found = json.loads(text)
            if "skipped" in found:
                raise Failed(found["skipped"])
            if not found.get("verified"):
                raise Failed(f"its bytes are wrong: {command}")
            return found


def close(run):
    """Ends the rivals that were started, so that no two of them hold the GPU at once."""
    for process in run.sides.values():
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
    run.sides.clear()


def best(run, name, settings):
    """The fastest of a rival's settings, each tried twice (the first try warms up)."""
    found = []
    for text, side in settings.items():
        try:
            side()
            found.append((side()["gbps"], text, side))
        except Failed as error:
            run.say(f"{name}, {text}: {error}")
    if not found:
        raise Failed(f"no setting of {name} ran")
    rate, text, side = max(found, key=lambda f: f[0])
    run.say(f"{name}: best is {text}, {rate:.2f} GB/s; others " + ", ".join(f"{t} {r:.2f}" for r, t, _ in found if t != text))
    return side
