#!/usr/bin/env python3
"""How fast a C program loads beside the same loop in Rust: pairs in turns, the ratio's median and spread.

    benches/capi/rate.py [--pairs=11] [--seconds=2] [--dir=/dev/shm]

Builds both (cargo, cc), makes a file of 320 MiB on tmpfs, and removes it. Each program checks the bytes it loaded last.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20


def build():
    """Both programs; answers their paths."""
    flags = ["--release", "--features", "capi"]
    library = ["cargo", "rustc", "--lib", *flags, "--crate-type", "staticlib"]
    subprocess.run([*library, "--", "--print", "native-static-libs"], cwd=ROOT, check=True, stderr=subprocess.DEVNULL)
    bench = ["cargo", "bench", "--features", "capi", "--bench", "rate", "--no-run", "--message-format=json"]
    lines = subprocess.run(bench, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    rust = next(it["executable"] for it in map(json.loads, lines) if it.get("executable"))
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    c = target / "rate-c"
    compiler = [os.environ.get("CC", "cc"), "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]
    source = [f"-I{ROOT}/native/include", str(ROOT / "benches/capi/rate.c"), "-o", str(c)]
    subprocess.run([*compiler, *source, str(target / "libfullbore.a"), "-lm", "-ldl", "-lpthread"], check=True)
    return {"C": str(c), "Rust": rust}


def write_content(path, size):
    """Each word of 8 bytes is its number times an odd constant."""
    with open(path, "wb") as file:
        for begin in range(0, size // 8, MIB):
            words = ((n * 0x9E3779B97F4A7C15) & (2**64 - 1) for n in range(begin, begin + MIB))
            file.write(b"".join(word.to_bytes(8, "little") for word in words))


def rate(program, arguments):
    out = subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, text=True)
    result = json.loads(out.stdout)
    return result["loads"] / result["seconds"]


def compare(name, programs, arguments, pairs):
    ratios, rates = [], {language: [] for language in programs}
    for pair in range(pairs):
        order = list(programs) if pair % 2 == 0 else list(programs)[::-1]
        now = {language: rate(programs[language], arguments) for language in order}
        for language, value in now.items():
            rates[language].append(value)
        ratios.append(now["C"] / now["Rust"])
    median = statistics.median(ratios)
    each = ", ".join(f"{language} {statistics.median(values):.0f}/s" for language, values in rates.items())
    print(f"{name}: C / Rust {median:.3f} ({min(ratios):.3f} to {max(ratios):.3f}, {pairs} pairs); {each}", flush=True)
    return median


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--dir", default="/dev/shm")
    options = parser.parse_args()
    programs = build()
    with tempfile.NamedTemporaryFile(dir=options.dir) as file:
        write_content(file.name, 320 * MIB)
        rows = [
            ("null queue, 20 MiB, 8 in flight", ["null", 20 * MIB, 8]),
            ("null queue, 128 KiB, 8 in flight", ["null", MIB // 8, 8]),
            ("tmpfs, 20 MiB, 8 in flight", [file.name, 20 * MIB, 8]),
        ]
        medians = [compare(name, programs, [*row, options.seconds], options.pairs) for name, row in rows]
    sys.exit(0 if min(medians) >= 0.97 else 1)


if __name__ == "__main__":
    main()
