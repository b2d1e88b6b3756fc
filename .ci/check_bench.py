#!/usr/bin/env python3
"""Checks the JSON that `fullbore bench --output-format=json` wrote.

check_bench.py FILE: every arm was verified and has no mismatch.
check_bench.py FILE --compare: besides, fio was measured and there is a ratio.
check_bench.py FILE --path=PATH: besides, all that the engine moved went by that path, as `uring-cmd fixed`.
"""

import json
import sys


def check(fullbore, compare, path):
    arms = fullbore["arms"]
    assert arms, "no arms"
    for arm in arms:
        name = f"arm {arm['arm']} with {arm['iodepth']} in flight"
        assert arm["mismatches"] == 0, f"{name}: {arm['mismatches']} mismatches"
        assert arm["verified_bytes"] > 0, f"{name}: nothing was verified"
        by_path = arm["paths"]
        assert sum(by_path.values()) == arm["bytes"], f"{name}: moved {arm['bytes']} bytes, and by path {by_path}"
        mean, most = arm["mean_commands_in_flight"], arm["max_commands_in_flight"]
        # Of their time against that of the clock: commands that are in flight at its begin or end count whole.
        assert mean <= 1.05 * most, f"{name}: {mean} commands in flight on average, and {most} at most"
        if path and arm["arm"] == "engine":
            assert list(by_path) == [path] and arm["path"] == path, f"{name}: by {by_path}, not all {path}"
        print(f"{name}: {arm['gbps']:.2f} GB/s, {arm['verified_bytes']} bytes verified, path {arm['path']}")
    if compare:
        ratio = fullbore["compare"]["ratio"]
        # How fast is for benches/RESULTS.md to say: no bar here, on a machine that nobody knows.
        assert isinstance(ratio, (int, float)) and ratio > 0, f"ratio is {ratio!r}"
        print(f"ratio to fio: {ratio:.3f}")


def main():
    name, *options = sys.argv[1:]
    with open(name, encoding="utf-8") as file:
        report = json.load(file)
    try:
        path = next((option.removeprefix("--path=") for option in options if option.startswith("--path=")), None)
        check(report["fullbore"], "--compare" in options, path)
    except AssertionError as error:
        sys.exit(f"{name}: {error}")
    except (KeyError, TypeError) as error:
        sys.exit(f"{name}: not as it should be: {error!r}")


main()
