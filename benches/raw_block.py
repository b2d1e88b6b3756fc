#!/usr/bin/env python3
"""LMCache's raw-block module against native/examples/raw_block.py, which is the same class over libfullbore.so.

    pip install --pre lmcache-rust-raw-block-io
    FULLBORE_LIBRARY=target/release/libfullbore.so benches/raw_block.py --file=/dev/shm/x --create=2g

One process, one file, one pool of destination memory that both have registered. An arm reads `--batches` batches of
`--per_batch` objects, `--inflight` of them at a time, in an order that is the same for both. Arms alternate, and the first of
a pair is the second of the next. The pool is poisoned before each arm, and behind it, untimed, every byte of it is compared
with what the file has there. The last line is JSON; `ratio` is ours / theirs, pair by pair. Exit status 1 below `--bar`.

On a machine with other work, `--calm=0.1` starts a pair only when that took less than a tenth of the CPUs for half a second,
and counts it only if it was no more in both of its arms; `discarded` says how many were not counted.
"""

import argparse
import collections
import ctypes
import json
import mmap
import os
import random
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "native", "examples"))

HUGE = 2 << 20


def size(text):
    shift = {"k": 10, "m": 20, "g": 30}.get(text[-1:].lower())
    return int(text) if shift is None else int(text[:-1]) << shift


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--file", required=True)
    p.add_argument("--create", type=size, help="make the file with this size first, if it does not exist")
    p.add_argument("--object", type=size, default=20 << 20, help="bytes per object (20m)")
    p.add_argument("--per_batch", type=int, default=8, help="objects per batched_read (8)")
    p.add_argument("--inflight", type=int, default=2, help="batches in flight, each with memory of its own (2)")
    p.add_argument("--batches", type=int, default=24, help="batches of an arm (24)")
    p.add_argument("--piece", type=size, help="the module's requests: bytes of each (the whole object)")
    p.add_argument("--depth", type=int, default=128, help="the module's iouring_queue_depth (128)")
    p.add_argument("--huge", type=int, default=1, choices=(0, 1), help="MADV_HUGEPAGE for the pool (1)")
    p.add_argument("--fixed", type=int, default=1, choices=(0, 1), help="register_fixed_buffers (1)")
    p.add_argument("--direct", type=int, default=1, choices=(0, 1), help="use_odirect (1)")
    p.add_argument("--pairs", type=int, default=11)
    p.add_argument("--calm", type=float, help="count pairs only while others take less than this part of the CPUs")
    p.add_argument("--patience", type=float, default=600, help="seconds after which --calm gives up (600)")
    p.add_argument("--bar", type=float, help="exit status 1 when the median of the ratios is below this")
    a = p.parse_args()
    a.piece = a.piece or a.object
    if a.object % a.piece or min(a.per_batch, a.inflight, a.pairs) < 1 or a.batches < a.inflight:
        p.error("piece divides object, and at least as many batches as are in flight")
    return a


def create(path, length):
    chance = random.Random(1)
    with open(path, "xb") as f:
        for at in range(0, length, 1 << 20):
            f.write(chance.randbytes(min(1 << 20, length - at)))


class Pool:
    """Private memory, aligned to 2 MiB, every page touched."""

    def __init__(self, length, huge):
        self.map = mmap.mmap(-1, length + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.map.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.skip, self.length = -start % HUGE, length
        self.address = start + self.skip
        self.poison()

    def poison(self):
        ctypes.memset(self.address, 0xA5, self.length)

    def view(self, at, length):
        return memoryview(self.map)[self.skip + at : self.skip + at + length]


class Others:
    """What part of the machine's CPUs other processes take."""

    def __init__(self):
        self.last = self.now()

    def now(self):
        with open("/proc/stat") as f:
            ticks = [int(n) for n in f.readline().split()[1:9]]
        return sum(ticks), ticks[3] + ticks[4], time.process_time() * os.sysconf("SC_CLK_TCK")

    def share(self):
        """Since the last call."""
        (total, idle, own), before = self.now(), self.last
        self.last = total, idle, own
        spent = total - before[0]
        return max(spent - (idle - before[1]) - (own - before[2]), 0) / spent if spent else 0

    def await_calm(self, limit, until):
        self.share()
        while True:
            time.sleep(0.5)
            if self.share() < limit:
                return
            if time.monotonic() > until:
                sys.exit("raw_block.py: the machine does not come to rest")


class Arm:
    def __init__(self, name, device_class, a, pool, piece):
        self.name, self.a, self.pool, self.piece, self.others = name, a, pool, piece, Others()
        self.device = device_class(
            a.file, False, use_odirect=bool(a.direct), alignment=4096, io_engine="io_uring", iouring_queue_depth=a.depth
        )
        if a.fixed:
            slots = a.inflight * a.per_batch
            self.device.register_fixed_buffers([pool.address + i * a.object for i in range(slots)], [a.object] * slots)
            assert self.device.fixed_buffer_status() == (True, slots * a.object), f"{name}: not registered (memlock?)"

    def run(self, order, content):
        """Reads the objects at these offsets of the file, then compares what is in the pool: GB/s, CPU s/GiB, others' share."""
        a, pool, device, piece = self.a, self.pool, self.device, self.piece
        pool.poison()
        self.others.share()
        pieces = range(0, a.object, piece)
        batches = [order[i : i + a.per_batch] for i in range(0, len(order), a.per_batch)]
        places = [[n * a.per_batch + i for i in range(a.per_batch)] for n in range(a.inflight)]
        views = [[pool.view(slot * a.object + at, piece) for slot in place for at in pieces] for place in places]
        lengths = [piece] * len(views[0])
        flight, landed = collections.deque(), {}
        cpu, start = time.process_time(), time.perf_counter()
        for n, batch in enumerate(batches):
            if len(flight) == a.inflight:
                self.wait(flight)
            offsets = [offset + at for offset in batch for at in pieces]
            flight.append(device.batched_read(offsets, views[n % a.inflight], lengths))
            landed.update(zip(places[n % a.inflight], batch))
        while flight:
            self.wait(flight)
        seconds = time.perf_counter() - start
        cpu = time.process_time() - cpu
        others = self.others.share()
        for slot, offset in landed.items():
            if pool.view(slot * a.object, a.object) != content[offset : offset + a.object]:
                sys.exit(f"raw_block.py: {self.name}: wrong bytes from offset {offset}")
        assert len(landed) * a.object == pool.length
        total = len(order) * a.object
        return total / seconds / 1e9, cpu / (total / (1 << 30)), others

    def wait(self, flight):
        bitmap, errors = self.device.wait_iouring(flight.popleft())
        if errors or not all(bitmap):
            sys.exit(f"raw_block.py: {self.name}: {errors[:2]}")


def three(values):
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def main():
    a = arguments()
    try:
        from lmcache_rust_raw_block_io import RawBlockDevice as Theirs
    except ImportError as e:
        sys.exit(f"raw_block.py: the module is missing ({e}): pip install --pre lmcache-rust-raw-block-io")
    from raw_block import RawBlockDevice as Ours

    if a.create and not os.path.exists(a.file):
        create(a.file, a.create)
    with open(a.file, "rb") as f:
        content = memoryview(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ))
    in_file = len(content) // a.object
    if in_file < a.per_batch:
        sys.exit(f"raw_block.py: {a.file} has less than a batch of objects")
    order = [i % in_file * a.object for i in range(a.batches * a.per_batch)]
    random.Random(3).shuffle(order)

    pool = Pool(a.inflight * a.per_batch * a.object, a.huge)
    theirs = Arm("theirs", Theirs, a, pool, a.piece)
    ours = Arm("ours", Ours, a, pool, a.object)
    rates = {theirs: [], ours: []}
    n, discarded, until = -1, 0, time.monotonic() + a.patience
    while n < a.pairs:  # the first pair warms up
        if a.calm:
            theirs.others.await_calm(a.calm, until)
        pair = {arm: arm.run(order, content) for arm in ((theirs, ours) if (n + discarded) % 2 == 0 else (ours, theirs))}
        (x, xc, xo), (y, yc, yo) = pair[ours], pair[theirs]
        counts = n >= 0 and not (a.calm and max(xo, yo) >= a.calm)
        if counts:
            for arm in rates:
                rates[arm].append(pair[arm])
            text = f"{n + 1:3d}  ours {x:6.2f} GB/s  theirs {y:6.2f} GB/s  ratio {x / y:5.2f}  CPU {xc:.3f} {yc:.3f} s/GiB"
            print(f"{text}  others {xo:.0%} {yo:.0%}", flush=True)
        if counts or n < 0:
            n += 1
        else:
            discarded += 1
    gbps = {arm.name: three([rate for rate, *_ in rates[arm]]) for arm in rates}
    cpu = {arm.name: three([used for _, used, _ in rates[arm]]) for arm in rates}
    others = max(share for arm in rates.values() for *_, share in arm)
    ratio = three([x / y for (x, *_), (y, *_) in zip(rates[ours], rates[theirs])])
    print(f"ours / theirs: {ratio['median']:.2f} ({ratio['min']:.2f} .. {ratio['max']:.2f}), {a.pairs} pairs, all bytes verified")
    seen = {"ratio": ratio, "gbps": gbps, "cpu_s_per_gib": cpu, "others": others, "discarded": discarded}
    print(json.dumps(seen | {"options": {name: value for name, value in vars(a).items() if name != "bar"}}))
    if a.bar and ratio["median"] < a.bar:
        sys.exit(f"raw_block.py: the bar of {a.bar} is missed")


if __name__ == "__main__":
    main()
