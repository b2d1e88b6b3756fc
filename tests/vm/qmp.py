#!/usr/bin/env python3
"""qmp.py COMMAND...: each is JSON, or a name with KEY=VALUE words in one argument ("device_del id=d0"); prints QEMU's
answers and the events before them, a line each. Works inside the machine and, for a --host command, beside it.

An argument "wait EVENT" waits for that event. The exit status is 1 if QEMU refused one."""

import json
import os
import signal
import socket
import sys

PORT = "/dev/virtio-ports/qmp"


def main():
    signal.alarm(60)  # An answer that never comes must not hang a test.
    if os.path.exists(PORT):
        # The greeting was answered at boot.
        channel = open(PORT, "r+b", buffering=0)
        lines = iter(lambda: read_line(channel), b"")
    else:
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(os.environ["FULLBORE_VM_QMP"])
        channel = peer.makefile("rwb", buffering=0)
        lines = iter(lambda: read_line(channel), b"")
        next(lines)
        ask(channel, lines, {"execute": "qmp_capabilities"}, quiet=True)
    good = True
    for text in sys.argv[1:]:
        if text.startswith("wait "):
            while show(next(lines)).get("event") != text.split()[1]:
                pass
        else:
            good &= ask(channel, lines, parse(text))
    sys.exit(0 if good else 1)


def read_line(channel):
    line = b""
    while not line.endswith(b"\n"):
        byte = channel.read(1)
        if not byte:
            return b""
        line += byte
    return line


def parse(text):
    if text.startswith("{"):
        return json.loads(text)
    name, *pairs = text.split()
    return {"execute": name, "arguments": dict(pair.split("=", 1) for pair in pairs)}


def ask(channel, lines, command, quiet=False):
    channel.write(json.dumps(command).encode() + b"\n")
    for line in lines:
        answer = json.loads(line) if quiet else show(line)
        if "return" in answer or "error" in answer:
            return "return" in answer
    sys.exit("qmp: no answer")


def show(line):
    print(line.decode().strip(), flush=True)
    return json.loads(line)


main()
