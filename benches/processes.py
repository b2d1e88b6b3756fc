#!/usr/bin/env python3
"""Several processes on one file or drive: their rates together against one's, and the slowest against the mean.

    benches/processes.py --file /dev/shm/data [--processes 4] [--rounds 5] [--seconds 3] [--iodepth 4]
    benches/processes.py --file /dev/ng0n1 --share-tags [...]

Alternates one `fullbore bench` with N of them at once, so that a drift of the machine takes no side. Prints one JSON
object: medians over the rounds of `sum_over_one` (to be at least 0.9) and `slowest_over_mean` (at least 0.7), and
what each round measured. Exits 1 if either is missed.

Each process measures its serial arm first, for as long. Arms of processes started together do not quite coincide, and
what one does while others do not run yet flatters the sum: `overlap` is the share of the mean arm during which all
ran (0.99 natively; where starting a program takes a second, give more --seconds).
"""

import argparse
import json
import statistics
import subprocess
import sys


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--file", required=True, help="an existing file or a drive, of 1 GiB or more; it is only read")
    p.add_argument("--processes", type=int, default=4)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=int, default=3, help="for each arm (3)")
    p.add_argument("--share-tags", action="store_true", help="tell each how many there are (--processes of bench)")
    p.add_argument("--iodepth", type=int, default=4, help="objects in flight of each process (4)")
    p.add_argument("--bin", default="target/release/fullbore")
    p.add_argument("options", nargs="*", help="more options of bench, after --")
    return p.parse_args()


def rates(a, processes):
    """The GB/s of so many processes that run at the same time, and the share of the time during which all did."""
    command = [a.bin, "bench", f"--filename={a.file}", f"--iodepth={a.iodepth}", "--verify=0", "--time_based"]
    command += [f"--runtime={a.seconds}", "--output-format=json", *a.options]
    if a.share_tags:
        command.append(f"--processes={processes}")
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    found = []
    for process in started:
        out, _ = process.communicate(timeout=60 + 10 * a.seconds)
        if process.returncode:
            sys.exit(f"{' '.join(command)} ended with {process.returncode}")
        arms = json.loads(out)["fullbore"]["arms"]
        found.append(next(arm for arm in arms if arm["arm"] == "engine"))
    start = max(arm["started_unix"] for arm in found)
    end = min(arm["started_unix"] + arm["seconds"] for arm in found)
    overlap = (end - start) / statistics.mean(arm["seconds"] for arm in found)
    return [arm["gbps"] for arm in found], overlap


def main():
    a = arguments()
    rounds = []
    for number in range(a.rounds):
        # One first in even rounds, all first in odd ones.
        if number % 2:
            (together, overlap), ((one,), _) = rates(a, a.processes), rates(a, 1)
        else:
            ((one,), _), (together, overlap) = rates(a, 1), rates(a, a.processes)
        mean = sum(together) / len(together)
        rounds.append({"one_gbps": one, "gbps": together, "sum_over_one": sum(together) / one,
                       "slowest_over_mean": min(together) / mean, "overlap": overlap})
    result = {key: statistics.median(r[key] for r in rounds) for key in ("sum_over_one", "slowest_over_mean")}
    result["overlap"] = min(r["overlap"] for r in rounds)
    reached = result["sum_over_one"] >= 0.9 and result["slowest_over_mean"] >= 0.7
    print(json.dumps({"processes": a.processes, **result, "reached": reached, "rounds": rounds}, indent=1))
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
