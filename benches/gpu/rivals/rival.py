"""What the Python rivals share: arguments, the measured load, the check of every byte on the GPU, one JSON line a load.

A rival gives `load(options) -> (tensors, seconds, note)`: uint8 tensors on the GPU which, in order, are the payload of
its file. The first load warms up and is compared byte by byte with the file; each measured load lands in poisoned memory
where the rival lets us, and is held against the sum of the first.
With --serve a load is made for each line on standard input: so pairs alternate without starting Python each time.
"""

import argparse
import json
import os
import sys
import traceback

MIB = 1 << 20


def size(text):
    """4096, 128k, 20m, 1g: as fio and fullbore read them."""
    shift = {"k": 10, "m": 20, "g": 30}.get(text[-1].lower(), 0)
    return int(text[:-1] if shift else text) << shift


def arguments(description, more):
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--file", required=True)
    p.add_argument("--bytes", type=size, default=None, help="of the file's payload (all)")
    p.add_argument("--gpu", type=int, default=0)
    p.add_argument("--repeats", type=int, default=1)
    p.add_argument("--loads", type=int, default=4, help="loads of all bytes that are timed together (4)")
    p.add_argument("--serve", action="store_true", help="a load for each line on standard input")
    p.add_argument("--dry", action="store_true", help="check what can be checked without a GPU, and stop")
    more(p)
    return p.parse_args()


def skip(name, why):
    print(json.dumps({"name": name, "skipped": why}), flush=True)
    sys.exit(3)


def gpu(name, number):
    """torch, or a skip with its reason."""
    try:
        import torch
    except ImportError as error:
        skip(name, f"torch: {error}")
    if not torch.cuda.is_available():
        skip(name, "torch sees no GPU")
    torch.cuda.set_device(number)
    torch.empty(1, device=f"cuda:{number}")
    return torch


def checksum(torch, tensors):
    """Sums of 64-bit words, weighted by the place of their tensor, so that two that changed places are noticed."""
    total = 0
    for place, tensor in enumerate(tensors, 1):
        flat = tensor.reshape(-1).view(torch.uint8)
        words = flat[: flat.numel() // 8 * 8].view(torch.int64)
        total += place * int(words.sum().item())
    return total & ((1 << 64) - 1)


def same_as_file(torch, tensors, path, offset):
    """Whether the tensors are the file's bytes from `offset` on."""
    host = torch.empty(64 * MIB, dtype=torch.uint8, pin_memory=tensors[0].is_cuda)
    view = memoryview(host.numpy())
    with open(path, "rb") as file:
        file.seek(offset)
        for tensor in tensors:
            flat = tensor.reshape(-1).view(torch.uint8)
            for at in range(0, flat.numel(), len(view)):
                part = flat[at : at + len(view)]
                if file.readinto(view[: part.numel()]) != part.numel():
                    return False
                if not torch.equal(part, host[: part.numel()].to(part.device)):
                    return False
    return True


def run(name, options, torch, load, offset):
    """Warms up, checks, then measures; prints one line a load."""
    first = load()
    expected, right = checksum(torch, first[0]), same_as_file(torch, first[0], options.file, offset)
    moved = sum(t.numel() * t.element_size() for t in first[0])
    del first
    say = lambda line: print(json.dumps(line), flush=True)
    if options.serve:
        say({"name": name, "ready": True, "verified": right, "bytes": moved})
    rounds = iter(sys.stdin.readline, "") if options.serve else range(options.repeats)
    for _ in rounds:
        seconds, cpu, verified = 0.0, 0.0, right
        for _ in range(options.loads):
            before = sum(os.times()[:2])
            tensors, took, more = load()
            cpu += sum(os.times()[:2]) - before
            seconds += took
            verified &= checksum(torch, tensors) == expected
            del tensors
        total = moved * options.loads
        say({"name": name, "gbps": total / seconds / 1e9, "bytes": total, "seconds": seconds, "verified": verified,
             "cpu_s_per_gib": cpu / (total / (1 << 30)), **more})


def guarded(name, main):
    """Runs main; what goes wrong is one JSON line, for the table, and a trace, for people."""
    try:
        main()
    except SystemExit:
        raise
    except BaseException as error:  # noqa: B902: whatever a rival throws
        traceback.print_exc()
        print(json.dumps({"name": name, "skipped": f"failed: {type(error).__name__}: {error}"}), flush=True)
        sys.exit(1)
