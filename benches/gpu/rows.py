#!/usr/bin/env python3
"""The rows that GPU loads have to reach, on a machine with a GPU: ours and its rival in turns, in one run.

    benches/gpu/rows.py [--rows=dax,tmpfs] [--pairs=5] [--out=DIR] [--dry]

Makes its files (8 GiB in tmpfs, 4 GiB on the root disk, both with content that fullbore wrote and recognises; the same bytes
as .safetensors for the rivals that need it), measures the ceilings, then the rows: pairs in turns, medians of the per-pair
ratios, their spread, and which ceiling binds. A rival with several settings is tried in each first, and its best one runs.
The first run of each side is not counted and checks its bytes; the rivals check theirs after every load.

The kit: fullbore and ring_loop from this repository, and fio; one that was built with ./configure --build-static
--disable-native runs anywhere. Python finds the rivals (kvikio, fastsafetensors, InstantTensor, torch) by PYTHONPATH; one
that is missing fails its row only.

Writes rows.json in --out after every row: what the time limit cuts off is marked, not lost. --dry runs nothing: it checks
that everything is there and fills the table with made-up numbers. Exits 1 if a bar is missed.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

from ours import BOUNCE, DISK_BYTES, GIB, KEYS, OBJECT, OURS, REQUEST, TMPFS_BYTES, Failed, ours
from sides import HERE, Run, best, close, fio, plain, ring, served, whole


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", default=",".join(ROWS), help=f"of {','.join(ROWS)}")
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--kit", default="kit", help="folder with the programs: fullbore, ring_loop, fio (kit)")
    p.add_argument("--tmpfs", default="/dev/shm/fullbore-rows")
    p.add_argument("--disk", default="/var/tmp/fullbore-rows")
    p.add_argument("--out", default=os.environ.get("OUT", "."))
    p.add_argument("--deadline", type=float, default=540, help="seconds after which no further row begins (540)")
    p.add_argument("--timeout", type=float, default=120, help="seconds for one command (120)")
    p.add_argument("--keep", action="store_true", help="leave the files there")
    p.add_argument("--dry", action="store_true")
    a = p.parse_args()
    a.rows = a.rows.split(",")
    if set(a.rows) - set(ROWS):
        p.error(f"--rows: {', '.join(ROWS)}")
    return a


# The rows.

def binding(run, *names):
    """The ceiling that binds: the lowest of those that a row passes through; the link, where it is as low as any."""
    have = {name: run.ceilings[name] for name in names if run.ceilings.get(name)}
    if not have:
        return None
    name = min(have, key=have.get)
    link = next((n for n in have if n.startswith("link")), name)
    name = link if have[link] <= 1.02 * have[name] else name
    return f"{name} ({have[name]:.1f} GB/s)"


def add(run, row, ours_value, rival_value, ratios, bar, at_most=False, **more):
    ratio = statistics.median(ratios)
    line = {"row": row, "ours": ours_value, "rival": rival_value, "ratio": ratio, "least": min(ratios), "most": max(ratios),
            "pairs": len(ratios), "bar": None if bar is None else ("<= " if at_most else ">= ") + str(bar),
            "reached": None if bar is None else (ratio <= bar if at_most else ratio >= bar), **more}
    run.results.append(line)
    run.say(f"{row}: {ratio:.3f} ({line['bar']})")
    run.save()


def pairs(run, row, a, b, bar, binds, rival_at_most=None, warm=True):
    """Ours and the rival in turns, each first in every other pair. Ours is run once with its check before."""
    checked = a(True)
    if warm:
        b()
    x, y = [], []
    for number in range(run.a.pairs):
        for side, into in ((lambda: a(False), x), (b, y))[:: -1 if number % 2 else 1]:
            into.append(side())
    top = [min(r["gbps"], rival_at_most or r["gbps"]) for r in y]
    add(run, row, statistics.median(r["gbps"] for r in x), statistics.median(top),
        [r["gbps"] / t for r, t in zip(x, top)], bar, binds=binding(run, *binds), verified=checked["verified"],
        rival_verified=y[-1].get("verified"), path=checked.get("path"), rival_note=y[-1].get("note"),
        ours_cpu=statistics.median(r["cpu"] or 0 for r in x), gbps=[r["gbps"] for r in x], rival_gbps=[r["gbps"] for r in y],
        **({"rival_gbps_load": [r["gbps_load"] for r in y]} if "gbps_load" in y[-1] else {}))
    return x, y


def row_ceilings(run):
    """Link, copy and storage; the best fio settings for later rows."""
    link = [plain(run, mode="loop", bytes="32g") for _ in range(3)]
    run.ceilings["link"] = statistics.median(r["gbps"] for r in link)
    run.ceilings["copy, 8 MiB units"] = plain(run, mode="loop", chunk="8m", queued=4, bytes="32g")["gbps"]
    run.ceilings["copy, mapped tmpfs"] = plain(run, mode="loop", file=run.a.tmpfs, bytes="32g")["gbps"]
    wake = plain(run, mode="single")
    run.ceilings["link, 20 MiB one at a time"] = wake["gbps"]
    run.say(f"ceilings {run.ceilings}; wake-ups {wake}")
    run.results.append({"row": "wake-ups and single copies", **wake})
    run.save()


def need(run, what):
    if what == "link" and "link" not in run.ceilings:
        row_ceilings(run)


def row_dax(run):
    need(run, "link")
    for n in (2, 8, 32):
        x, _ = pairs(run, f"DAX stand-in to GPU, {n} in flight / plain loop", lambda v, n=n: ours(run, "dax", v, n=n),
                     lambda: plain(run, mode="loop", bytes="48g"), 0.97, ("link", "copy, mapped tmpfs"))
        if n == 8:
            cpu = [r["cpu"] for r in x if r["cpu"] is not None]
            if cpu:
                add(run, "DAX stand-in to GPU, 8 in flight, asleep: CPU s/GiB", statistics.median(cpu), None, cpu, 0.004, True)
    pairs(run, "DAX stand-in to GPU, 1 in flight, polling / plain loop", lambda v: ours(run, "dax_polled", v, n=1),
          lambda: plain(run, mode="loop", bytes="48g"), 0.95, ("link", "copy, mapped tmpfs"))
    asleep(run)


def asleep(run):
    """One object at a time, asleep: its time against the copy's and three wake-ups, measured between the same runs."""
    ours(run, "dax", True, n=1)
    took, allowed, driver, single = [], [], [], None
    for _ in range(run.a.pairs):
        found, single = ours(run, "dax", n=1), plain(run, mode="single")
        took.append(OBJECT / (found["gbps"] * 1e9) * 1e6)
        allowed.append(single["copy_us"] + 3 * single["eventfd_wake_us"])
        driver.append(single["copy_us"] + 2 * single["eventfd_wake_us"] + single["driver_wake_us"])
    add(run, "DAX stand-in to GPU, 1 in flight, asleep: us an object / (copy + 3 wake-ups)", statistics.median(took),
        statistics.median(allowed), [t / a for t, a in zip(took, allowed)], 1.0, True, took_us=took, allowed_us=allowed,
        single=single, binds="copy time and wake-ups")
    add(run, "  for information: us an object / (copy + 2 wake-ups + that of the driver)", statistics.median(took),
        statistics.median(driver), [t / d for t, d in zip(took, driver)], None, True)


def row_requests(run):
    need(run, "link")
    for n, requests in ((1, 8), (8, 32)):
        x, y = pairs(run, f"4 GiB requests, {n} in flight: bytes over time / plain loop",
                     lambda v, n=n, r=requests: ours(run, "requests", v, n=n, requests=r),
                     lambda: plain(run, mode="loop", bytes="48g"), 0.97, ("link", "copy, mapped tmpfs"))
        # The worst k-th completion of each run against k requests at the rate of the plain loop beside it.
        worst = [max(t / ((k + 1) * REQUEST / (link["gbps"] * 1e9)) for k, t in enumerate(r["completed"]))
                 for r, link in zip(x, y) if r["completed"]]
        if worst:
            add(run, f"4 GiB requests, {n} in flight: worst k-th completion / (k x bytes / link)", None, None, worst, 1.05, True,
                completed_s=x[-1]["completed"])
        else:
            failed(run, f"4 GiB requests, {n} in flight: k-th completion", f"no {KEYS['completed']} in the report: mend KEYS")


def settings_of_fio(run, file, size, jobs):
    """The footprint of all bounce buffers, as small and as large commands, with and without huge pages."""
    each = BOUNCE // jobs
    return {f"{bs >> 10} KiB x QD{each // bs}, huge {huge}": lambda bs=bs, huge=huge: fio(run, file, size, jobs, bs, each // bs, huge)
            for bs in (128 << 10, 1 << 20) for huge in (0, 1)}


def row_tmpfs(run):
    need(run, "link")
    mine = lambda v: ours(run, "tmpfs", v)
    try:
        storage = best(run, "fio, 8 rings", settings_of_fio(run, run.a.tmpfs, TMPFS_BYTES, 8))
    except Failed as error:
        run.say(f"{error}: the ring loop stands in")
        storage = best(run, "ring loop", {"QD64": lambda: ring(run, run.a.tmpfs, TMPFS_BYTES, 8, 64)})
    run.ceilings["storage, tmpfs"] = storage()["gbps"]
    where = ("link", "copy, 8 MiB units", "storage, tmpfs")
    pairs(run, "tmpfs O_DIRECT to GPU, 8 lanes / min(fio 8 rings to host, link)", mine, storage, 0.95, where,
          rival_at_most=run.ceilings["link"])
    f, st = run.a.tmpfs, run.a.tmpfs + ".safetensors"
    rivals = (
        ("kvikio, 8 threads, 4 MiB tasks", 1.2, {
            "all at once": lambda: served(run, "kvikio_load.py", file=f, bytes=whole(TMPFS_BYTES), threads=8),
            "all at once, O_DIRECT": lambda: served(run, "kvikio_load.py", file=f, bytes=whole(TMPFS_BYTES), threads=8, direct=1),
            "8 of 20 MiB": lambda: served(run, "kvikio_load.py", file=f, bytes=whole(TMPFS_BYTES), threads=8, object="20m")}),
        ("fastsafetensors", 1.0, {
            f"{n} threads": lambda n=n: served(run, "fastsafetensors_load.py", file=st, threads=n) for n in (8, 16)}),
        ("InstantTensor", 1.0, {
            b or "its choice": lambda b=b: served(run, "instanttensor_load.py", file=st, backend=b)
            for b in (None, "URING_BUFFERED")}),
    )
    for name, bar, settings in rivals:
        try:
            pairs(run, f"tmpfs O_DIRECT to GPU, 8 lanes / {name}", mine, best(run, name, settings), bar, where)
        except Failed as error:
            failed(run, name, error)
        close(run)
    try:
        one = [fio(run, f, TMPFS_BYTES, 1, 128 << 10, depth, 1)["gbps"] for depth in (8, 64)]
    except Failed:
        one = [ring(run, f, TMPFS_BYTES, 1, 64)["gbps"]]
    run.ceilings["storage, tmpfs, 1 ring"] = max(one)
    pairs(run, "tmpfs O_DIRECT to GPU, 1 lane / kvikio, 1 thread", lambda v: ours(run, "tmpfs", v, lanes=1),
          lambda: served(run, "kvikio_load.py", file=f, bytes=whole(TMPFS_BYTES), threads=1, loads=1), 1.0,
          ("link", "copy, 8 MiB units", "storage, tmpfs, 1 ring"))
    close(run)


def row_disk(run):
    need(run, "link")
    f, size = run.a.disk, whole(DISK_BYTES)
    storage = best(run, "fio QD32", {"128 KiB": lambda: fio(run, f, size, 1, 128 << 10, 32, 0, 4),
                                     "128 KiB, huge": lambda: fio(run, f, size, 1, 128 << 10, 32, 1, 4)})
    run.ceilings["storage, root disk"] = storage()["gbps"]
    pairs(run, "root disk's file to GPU / fio QD32 to host", lambda v: ours(run, "disk", v, f=f, size=DISK_BYTES, lanes=4),
          storage, 0.95, ("link", "storage, root disk"))


def row_scattered(run):
    need(run, "link")
    pairs(run, "32 KiB scattered pieces / contiguous", lambda v: ours(run, "scattered", v),
          lambda: ours(run, "contiguous"), 0.9, ("link", "copy, 8 MiB units"))


def row_urgent(run):
    checked = ours(run, "urgent", True)
    found = []
    for _ in range(run.a.pairs):
        found += ours(run, "urgent")["urgent"] or []
    if not found:
        raise Failed(f"urgent: no {KEYS['urgent']} in the report: mend KEYS")
    add(run, "an urgent 8 MiB load while 32 GiB of others are queued: ms", statistics.median(found), None, found, 3, True,
        verified=checked["verified"])


def row_pieces(run):
    """For the choice of how to scatter: no bar."""
    program = run.compiled("pieces", "pieces.c")
    command = f"{program} {HERE.parent.parent / 'native' / 'copy_pieces.ptx'}"
    if run.a.dry:
        run.shell(command)
        return
    p = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=run.a.timeout)
    run.log.write(p.stdout + p.stderr)
    lines = [json.loads(text) for text in p.stdout.splitlines() if text.startswith("{")]
    run.results.append({"row": "ways to scatter pieces", "exit": p.returncode, "lines": lines, "stderr": p.stderr[-500:]})
    for found in lines:
        run.say(json.dumps(found))
    run.save()


ROWS = {"ceilings": row_ceilings, "dax": row_dax, "requests": row_requests, "tmpfs": row_tmpfs, "disk": row_disk,
        "scattered": row_scattered, "urgent": row_urgent, "pieces": row_pieces}


def failed(run, name, error):
    run.results.append({"row": name, "failed": str(error)})
    run.say(f"FAILED {name}: {error}")
    run.save()


def room(run):
    """A machine whose memory grows as it is used may have given its tmpfs half of little: root asks for more."""
    folder, needed = os.path.dirname(run.a.tmpfs), 2 * TMPFS_BYTES + GIB
    there = os.statvfs(folder)
    if there.f_bavail * there.f_frsize < needed:
        run.say(f"{folder} has {there.f_bavail * there.f_frsize / GIB:.1f} GiB: remounting it with 40 GiB")
        run.shell(f"mount -o remount,size=40g {folder}", plain=True)


def prepare(run):
    """The files, unless they are there."""
    a = run.a
    for name in ("fb", "fio"):
        if not run.names[name].exists():
            run.say(f"not there: {run.names[name]}")
    room(run)
    wanted = [(a.tmpfs, TMPFS_BYTES)] + ([(a.disk, DISK_BYTES)] if "disk" in a.rows else [])
    for file, size in wanted:
        if not a.dry and not (os.path.exists(file) and os.stat(file).st_size >= size):
            with open(file, "wb") as made:
                os.posix_fallocate(made.fileno(), 0, size)
        run.shell(OURS["fill"].format(f=file, size=size, **run.names))
        run.say(f"filled {file}")
    if "tmpfs" in a.rows:
        run.shell(f"{sys.executable} {HERE / 'rivals' / 'make_safetensors.py'} --file={a.tmpfs} --out={a.tmpfs}.safetensors "
                  f"--bytes={whole(TMPFS_BYTES)}")


def table(run):
    show = lambda v: "" if v is None else f"{v:.3f}" if isinstance(v, float) else str(v)
    print(f"\n| {'row':<80} | ours | rival | ratio (spread) | bar | reached | binds | verified |\n|---|---|---|---|---|---|---|---|")
    for r in run.results:
        if "failed" in r:
            print(f"| {r['row']:<80} | {r['failed']} |")
        elif "ratio" in r:
            print(f"| {r['row']:<80} | {show(r['ours'])} | {show(r['rival'])} | {r['ratio']:.3f} ({r['least']:.3f} .. "
                  f"{r['most']:.3f}) | {r['bar'] or ''} | {show(r['reached'])} | {r.get('binds') or ''} | {r.get('verified')} |")
    print("\nceilings, GB/s: " + json.dumps({k: round(v, 2) for k, v in run.ceilings.items()}))


def main():
    run = Run(arguments())
    try:
        prepare(run)
        for name in run.a.rows:
            if time.monotonic() - run.start > run.a.deadline:
                failed(run, name, "no time was left")
                continue
            try:
                ROWS[name](run)
            except (Failed, OSError, KeyError, TypeError, ValueError, subprocess.SubprocessError) as error:
                failed(run, name, f"{type(error).__name__}: {error}")
            finally:
                close(run)
    except Failed as error:
        failed(run, "files", error)
    finally:
        close(run)
        run.save()
        table(run)
        if not run.a.keep and not run.a.dry:
            for file in (run.a.tmpfs, run.a.tmpfs + ".safetensors", run.a.disk):
                pathlib.Path(file).unlink(missing_ok=True)
    missed = [r["row"] for r in run.results if r.get("reached") is False or "failed" in r]
    if missed:
        print("missed or failed: " + "; ".join(missed), file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
