#!/usr/bin/env python3
"""tests/c/abi_complete.py native/include/fullbore.h tests/c/abi.c: whether abi.c pins all that the header has.

It prints what is missing and what is too many, and fails on either.
"""
import re
import sys


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)


def of_header(text):
    """Every constant, value, `struct.field` and function of the header."""
    text = without_comments(text)
    found = set(re.findall(r"^#define (FULLBORE_\w+) \S", text, re.M))
    for body in re.findall(r"\benum \w+ \{(.*?)\}", text, re.S):
        found |= set(re.findall(r"\w+(?= =)", body))
    for name, body in re.findall(r"\bstruct (\w+) \{(.*?)\}", text, re.S):
        found |= {f"{name}.{field}" for field in re.findall(r"(\w+)(?:\[\w+\])?;", body)} | {f"sizeof {name}"}
    return found | set(re.findall(r"\b(fullbore_\w+)\(", text))


def of_pins(text):
    """The same of abi.c."""
    text = without_comments(text)
    found = set(re.findall(r"^VALUE\((\w+), \w+\);", text, re.M))
    found |= {f"sizeof {name}" for name in re.findall(r"^STRUCT\((\w+), \d+\);", text, re.M)}
    found |= {".".join(pair) for pair in re.findall(r"^(?:FIELD|ARRAY)\((\w+), .*, (\w+)\);", text, re.M)}
    return found | set(re.findall(r"\b(fullbore_\w+)\(", text))


header, pins = (read(open(path).read()) for read, path in zip((of_header, of_pins), sys.argv[1:], strict=True))
for name in sorted(header - pins):
    print(f"{sys.argv[2]} does not pin {name}")
for name in sorted(pins - header):
    print(f"{sys.argv[2]} pins {name}, which {sys.argv[1]} does not have")
if header != pins or len(header) < 100:
    sys.exit(1)
print(f"{sys.argv[2]} pins all of the header: {len(header)} values, structs, fields and functions")
