#!/usr/bin/env python3
"""What has to be shown over real NVMe drivers, as JSON lines: the ratio of each pair, its bar, and whether it is reached.

    tests/vm/run --timeout 1200 --drives 1 --drive name=s0,throttle=40M --drive name=s1,throttle=40M,node=1 -- \\
        benches/vm_rows.py --drive /dev/drive/d0-1 --slow /dev/drive/s0-1 /dev/drive/s1-1 --allow-destructive

Rows (--rows names some of them):
  serial     one drive, the engine with 8 objects in flight against the serial loop            >= 5
  fio        the engine against the best of fio's io_uring_cmd (1 and 2 jobs, QD16 and 32)      >= 0.95,
             the CPU time of both for a GiB                                                     <= 1
  stripe     two drives that are throttled, as a stripe, against one of them                    >= 1.5
  processes  four processes on one drive, each told of the others (--processes=4): sum over one >= 0.9,
             the slowest over the mean                                                          >= 0.7

The two sides alternate; ratios are medians over the rounds, `least` and `most` their ends. With --allow-destructive the
first --size bytes of --drive are overwritten with content that is recognised and checked later; without, what is there
is read and held against pread. An image without content may be read without its disk: then the rates mean little.

On a machine that does other work as well the numbers are a smoke test. Exits 1 if a bar is missed.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROWS = ("serial", "fio", "stripe", "processes")
missed = []


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--drive", required=True, help="/dev/ngXnY, or a link to one")
    p.add_argument("--slow", nargs=2, metavar="DRIVE", help="two that are throttled alike; without them no row stripe")
    p.add_argument("--rows", default=",".join(ROWS), help=f"of {','.join(ROWS)}")
    p.add_argument("--size", default="1g", help="bytes of the drive to use, at most 1g (1g)")
    p.add_argument("--fio-bs", default="4m", help="objects of the engine beside fio, 8 in flight (4m)")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=int, default=6, help="for each arm over throttled drives, and of processes (6)")
    p.add_argument("--allow-destructive", action="store_true", help="fill the drive with content first")
    p.add_argument("--bin", default="target/release/fullbore")
    a = p.parse_args()
    a.rows = a.rows.split(",")
    if set(a.rows) - set(ROWS):
        p.error(f"--rows: {', '.join(ROWS)}")
    return a


def bench(a, *options):
    """The report of one run, as JSON."""
    command = [a.bin, "bench", "--output-format=json", *options]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600)
    if run.returncode:
        sys.exit(f"vm_rows.py: {' '.join(command)} ended with {run.returncode}")
    return json.loads(run.stdout)["fullbore"]


def arm(report, name):
    return next(arm for arm in report["arms"] if arm["arm"] == name)


def row(name, ratios, bar, at_most=False, **more):
    ratio = statistics.median(ratios)
    reached = ratio <= bar if at_most else ratio >= bar
    if not reached:
        missed.append(name)
    line = {"row": name, "ratio": round(ratio, 3), "bar": ("<= " if at_most else ">= ") + str(bar), "reached": reached,
            "least": round(min(ratios), 3), "most": round(max(ratios), 3), "pairs": len(ratios), **more}
    print(json.dumps(line), flush=True)


def rounded(value):
    return round(value, 4)


def fill(a):
    report = bench(a, f"--filename={a.drive}", f"--size={a.size}", "--bs=4m", "--iodepth=8", "--rw=write",
                   "--allow-destructive")
    wrong = sum(arm["mismatches"] for arm in report["arms"])
    print(json.dumps({"row": "fill", "drives": report["drives"], "lanes": report["lanes"], "mismatches": wrong,
                      "write_gbps": rounded(arm(report, "engine")["gbps"]), "kernel": report["kernel"],
                      "cpus": report["cpus"]}), flush=True)


def serial(a):
    reports = [bench(a, f"--filename={a.drive}", f"--size={a.size}", "--bs=4m", "--iodepth=8",
                     f"--verify={int(number == 0)}") for number in range(a.rounds)]
    engines, loops = [arm(r, "engine") for r in reports], [arm(r, "serial") for r in reports]
    first = engines[0]
    row("engine / serial loop", [e["gbps"] / s["gbps"] for e, s in zip(engines, loops)], 5,
        gbps=[rounded(e["gbps"]) for e in engines], serial_gbps=[rounded(s["gbps"]) for s in loops],
        path=first["path"], content=reports[0]["content"], verified_bytes=first["verified_bytes"],
        mean_commands_in_flight=rounded(first["mean_commands_in_flight"]),
        kernel_workers=max(e["kernel_workers"] for e in engines))


def fio(a):
    # fio lands in 2 to 8 MiB (QD x 128 KiB x jobs), which is to its advantage. `ratio` is of objects that are cut to as much
    # memory, which measures something else, too: 8 of them are just 64 commands, so that each which ends leaves room until
    # the client has woken and submitted the next. The rows are of whole objects.
    found = []
    for _ in range(a.rounds):
        found.append(bench(a, f"--filename={a.drive}", f"--size={a.size}", f"--bs={a.fio_bs}", "--iodepth=8", "--verify=0",
                           "--compare=fio")["compare"])
    whole = [f["whole_objects"] or f for f in found]
    more = {"runs_of_pairs": len(found[0]["pairs"]), "footprint_bytes": whole[0]["footprint_bytes"],
            "fio_best": [f"{f['fio_jobs']} x QD{f['fio_iodepth']}" for f in found], "fio": found[0]["fio"],
            "ratio_in_fios_memory": [rounded(f["ratio"]) for f in found]}
    row("engine / fio io_uring_cmd", [f["ratio"] for f in whole], 0.95, gbps=[rounded(f["ours_gbps"]) for f in whole],
        fio_gbps=[rounded(f["theirs_gbps"]) for f in found], **more)
    row("engine / fio io_uring_cmd, CPU s/GiB", [f["cpu_ratio"] for f in whole], 1.0, at_most=True,
        cpu=[rounded(f["ours_cpu_s_per_gib"]) for f in whole], fio_cpu=[rounded(f["theirs_cpu_s_per_gib"]) for f in found])


def stripe(a):
    options = ["--bs=1m", "--iodepth=8", "--verify=0", "--time_based", f"--runtime={a.seconds}"]
    one = lambda: arm(bench(a, f"--filename={a.slow[0]}", *options), "engine")
    two = lambda: arm(bench(a, f"--filename={':'.join(a.slow)}", "--stripe=1m", *options), "engine")
    ones, twos = [], []
    for number in range(a.rounds):
        for measure, into in ((one, ones), (two, twos))[:: -1 if number % 2 else 1]:
            into.append(measure())
    row("two striped / one", [t["gbps"] / o["gbps"] for o, t in zip(ones, twos)], 1.5,
        one_gbps=[rounded(o["gbps"]) for o in ones], two_gbps=[rounded(t["gbps"]) for t in twos],
        seconds=[rounded(t["seconds"]) for t in twos], path=twos[0]["path"])


def processes(a):
    command = [sys.executable, HERE / "processes.py", "--file", a.drive, "--share-tags", "--rounds", str(a.rounds),
               "--seconds", str(a.seconds), "--bin", a.bin, "--", "--bs=1m", f"--size={a.size}"]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=900)
    if not run.stdout.startswith("{"):
        sys.exit(f"vm_rows.py: processes.py ended with {run.returncode}")
    rounds, many = json.loads(run.stdout)["rounds"], json.loads(run.stdout)["processes"]
    row(f"{many} processes, sum / one", [r["sum_over_one"] for r in rounds], 0.9,
        one_gbps=[rounded(r["one_gbps"]) for r in rounds], gbps=[[rounded(g) for g in r["gbps"]] for r in rounds],
        overlap=[rounded(r["overlap"]) for r in rounds])
    row(f"{many} processes, slowest / mean", [r["slowest_over_mean"] for r in rounds], 0.7)


def main():
    a = arguments()
    if a.allow_destructive:
        fill(a)
    for name in a.rows:
        if name == "stripe" and not a.slow:
            print(json.dumps({"row": "stripe", "skipped": "no --slow drives"}), flush=True)
            continue
        globals()[name](a)
    if missed:
        print(f"vm_rows.py: missed: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
