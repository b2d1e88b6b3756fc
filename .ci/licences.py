#!/usr/bin/env python3
"""Checks that every dependency may be used under a licence of the list below.

Reads `cargo metadata --format-version 1` from standard input; prints the count; names offenders and exits 1.
"""

import json
import re
import sys

# All permissive: none asks anything of who links us, beyond notices.
ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
}


def satisfiable(expression):
    """Whether an SPDX expression can be met from ALLOWED. ValueError if it is no expression."""
    # Crates of old write `MIT/Apache-2.0` for OR.
    tokens = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))
    result, rest = either(tokens)
    if rest:
        raise ValueError(f"unexpected {rest[0]!r}")
    return result


def either(tokens):
    result, tokens = both(tokens)
    while tokens and tokens[0] == "OR":
        other, tokens = both(tokens[1:])
        result = result or other
    return result, tokens


def both(tokens):
    result, tokens = one(tokens)
    while tokens and tokens[0] == "AND":
        other, tokens = one(tokens[1:])
        result = result and other
    return result, tokens


def one(tokens):
    if not tokens or tokens[0] in (")", "AND", "OR", "WITH"):
        raise ValueError(f"a licence is missing before {tokens[0] if tokens else 'the end'!r}")
    if tokens[0] == "(":
        result, tokens = either(tokens[1:])
        if not tokens or tokens[0] != ")":
            raise ValueError("`)` is missing")
        return result, tokens[1:]
    name, tokens = tokens[0], tokens[1:]
    if tokens and tokens[0] == "WITH":
        if len(tokens) < 2:
            raise ValueError("an exception is missing after WITH")
        name, tokens = f"{name} WITH {tokens[1]}", tokens[2:]
    return name in ALLOWED, tokens


def fault(package):
    """What is wrong with a package's licence, or None."""
    expression = package["license"]
    if not expression:
        return "states no licence expression"
    try:
        return None if satisfiable(expression) else f"{expression}: not on the list"
    except ValueError as error:
        return f"{expression}: {error}"


def self_test():
    good = ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR GPL-2.0-only) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0-only", "MIT AND (Zlib OR (ISC AND 0BSD))"]
    bad = ["GPL-3.0", "MIT AND GPL-3.0", "GPL-3.0 OR LGPL-2.1 AND MIT", "MIT WITH Unknown-exception"]
    broken = ["MIT OR", "(MIT", "MIT)", "AND MIT", "MIT MIT", "MIT WITH", "()"]
    for expression in good + bad:
        assert satisfiable(expression) == (expression in good), expression
    for expression in broken:
        try:
            satisfiable(expression)
        except ValueError:
            continue
        raise AssertionError(f"{expression} was taken for an expression")
    assert fault({"license": None}) and fault({"license": ""})


def main():
    self_test()
    packages = json.load(sys.stdin)["packages"]
    # What has no source is ours.
    dependencies = [package for package in packages if package["source"]]
    faults = [(package, fault(package)) for package in packages if fault(package)]
    for package, what in faults:
        print(f"{package['name']} {package['version']}: {what}")
    print(f"{len(dependencies)} dependencies, {len(packages) - len(dependencies)} packages of ours, {len(faults)} offend")
    if faults or not dependencies:
        sys.exit(1)


main()
