#!/usr/bin/env python3
"""Runs two commands alternately and compares the rates they print.

    benches/pairs.py [-n 11] [--a-key gbps] [--b-key jobs.0.read.bw_bytes] 'command A' 'command B'

Each command prints one JSON object (other lines before it are skipped). A key is a path into it: names and list
indexes with dots between, as in `fullbore.arms.1.gbps`; a list index may also select by a field, as in
`fullbore.arms.[iodepth=8].gbps`. Of a pair, A runs first in one and second in the next, so that a drift of the machine
takes no side. The ratio is A / B.

On a noisy machine the median of the per-pair ratios is the number to quote; their spread says how far to trust it.
"""

import argparse
import json
import statistics
import subprocess
import sys


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("a", help="shell command A")
    p.add_argument("b", help="shell command B")
    p.add_argument("-n", "--pairs", type=int, default=11)
    p.add_argument("--warm", type=int, default=1, help="pairs to run first and throw away (1)")
    p.add_argument("--key", default="gbps", help="where the rate is in what both print (gbps)")
    p.add_argument("--a-key", help="the same, for A only")
    p.add_argument("--b-key", help="the same, for B only")
    p.add_argument("--a-scale", type=float, default=1.0, help="factor for A's number (fio's bw_bytes: 1e-9)")
    p.add_argument("--b-scale", type=float, default=1.0, help="factor for B's number")
    p.add_argument("--bar", type=float, help="exit 1 when the median of the ratios is below this")
    p.add_argument("--timeout", type=float, default=600, help="seconds for one command (600)")
    p.add_argument("--json", action="store_true", help="print the result as JSON only")
    p.add_argument("--quiet", action="store_true", help="do not print each pair")
    a = p.parse_args()
    if a.pairs < 1:
        p.error("at least one pair")
    return a


def parse(text, command):
    """The JSON object in what a command printed."""
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            value, _ = decoder.raw_decode(text, at)
            return value
        except json.JSONDecodeError:
            at = text.find("{", at + 1)
    raise SystemExit(f"pairs.py: no JSON in the output of: {command}\n{text[-2000:]}")


def pick(value, path, command):
    for step in path.split("."):
        try:
            if isinstance(value, list) and step.startswith("[") and "=" in step:
                name, wanted = step.strip("[]").split("=", 1)
                value = next(v for v in value if str(v.get(name)) == wanted)
            elif isinstance(value, list):
                value = value[int(step)]
            else:
                value = value[step]
        except (KeyError, IndexError, ValueError, TypeError, StopIteration):
            raise SystemExit(f"pairs.py: no {path} (at {step}) in the output of: {command}") from None
    return float(value)


def run(command, path, scale, timeout):
    p = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, text=True, timeout=timeout)
    if p.returncode:
        raise SystemExit(f"pairs.py: exit {p.returncode} from: {command}\n{p.stdout[-2000:]}")
    return pick(parse(p.stdout, command), path, command) * scale


def three(values):
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def main():
    a = arguments()
    one = lambda: run(a.a, a.a_key or a.key, a.a_scale, a.timeout)
    two = lambda: run(a.b, a.b_key or a.key, a.b_scale, a.timeout)
    rates_a, rates_b = [], []
    for i in range(-a.warm, a.pairs):
        if i % 2 == 0:
            x, y = one(), two()
        else:
            y, x = two(), one()
        if i < 0:
            continue
        rates_a.append(x)
        rates_b.append(y)
        if not a.quiet and not a.json:
            print(f"{i + 1:3d}  A {x:8.3f}  B {y:8.3f}  A/B {x / y:6.3f}", flush=True)
    ratios = [x / y for x, y in zip(rates_a, rates_b)]
    result = {
        "pairs": a.pairs,
        "a": three(rates_a),
        "b": three(rates_b),
        "ratio": three(ratios),
        "ratio_of_medians": statistics.median(rates_a) / statistics.median(rates_b),
        "a_command": a.a,
        "b_command": a.b,
    }
    if a.json:
        print(json.dumps(result))
    else:
        row = lambda name, t: print(f"{name:<12} min {t['min']:8.3f}  median {t['median']:8.3f}  max {t['max']:8.3f}")
        print(f"A: {a.a}\nB: {a.b}")
        row("A", result["a"])
        row("B", result["b"])
        row("A/B per pair", result["ratio"])
        print(f"ratio of medians {result['ratio_of_medians']:.3f}, {a.pairs} pairs")
        if a.bar is not None:
            print(f"bar {a.bar}: {'reached' if result['ratio']['median'] >= a.bar else 'NOT reached'}")
    if a.bar is not None and result["ratio"]["median"] < a.bar:
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except subprocess.TimeoutExpired as e:
        sys.exit(f"pairs.py: {e}")
