#!/usr/bin/env python3
"""A rival: LMCache's raw-block module reading objects from a file.

    pip install --pre lmcache-rust-raw-block-io
    python3 benches/lmcache_raw_block.py --file=/dev/shm/x --create=4g

The module has one ring and one worker thread a device. Objects are read with batched_read and wait_iouring into
registered (fixed) buffers; `window` batches of `per_batch` objects are in flight, and the oldest is waited for and
replaced, so that the worker always has requests queued. One line of JSON; `gbps` is in units of 10^9 bytes a second.
"""

import argparse
import collections
import ctypes
import json
import mmap
import os
import resource
import sys
import threading
import time

PIP = "pip install --pre lmcache-rust-raw-block-io"
HUGE = 2 << 20


def size(text):
    shift = {"k": 10, "m": 20, "g": 30}.get(text[-1:].lower())
    return int(text) if shift is None else int(text[:-1]) << shift


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--file", required=True)
    p.add_argument("--create", type=size, help="make the file with this size first, if it does not exist")
    p.add_argument("--object", type=size, default=20 << 20, help="bytes per object (20m)")
    p.add_argument("--pool", type=size, default=160 << 20, help="bytes of destination memory (160m)")
    p.add_argument("--total", type=size, help="bytes to read in whole objects (as many as the file has)")
    p.add_argument("--depth", type=int, default=32, help="iouring_queue_depth (32)")
    p.add_argument("--piece", type=size, help="bytes per request of a batch (the whole object)")
    p.add_argument("--per_batch", type=int, default=1, help="objects per batched_read (1)")
    p.add_argument("--huge", type=int, default=1, choices=(0, 1), help="MADV_HUGEPAGE for the pool (1)")
    p.add_argument("--fixed", type=int, default=1, choices=(0, 1), help="register_fixed_buffers (1)")
    p.add_argument("--direct", type=int, default=1, choices=(0, 1), help="O_DIRECT (1)")
    p.add_argument("--devices", type=int, default=1, help="devices (ring and worker each), one thread each (1)")
    p.add_argument("--verify", type=int, default=0, choices=(0, 1), help="compare the pool with pread at the end (0)")
    a = p.parse_args()
    a.piece = a.piece or a.object
    share = a.pool // a.devices // a.object
    if a.object % a.piece or a.per_batch < 1 or share < a.per_batch:
        p.error("piece divides object, and each device's pool holds one batch of objects at least")
    return a


def create(path, length):
    with open(path, "xb") as f:
        for at in range(0, length, 1 << 20):
            sector = b"".join((at + i * 512).to_bytes(8, "little") + os.urandom(8) * 63 for i in range(2048))
            f.write(sector[: min(1 << 20, length - at)])
        f.flush()
        os.fsync(f.fileno())


class Pool:
    """Page-aligned private memory, aligned to 2 MiB, every page touched."""

    def __init__(self, length, huge):
        self.map = mmap.mmap(-1, length + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.map.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.skip = -address % HUGE
        self.address = address + self.skip
        ctypes.memset(self.address, 0xA5, length)

    def view(self, at, length):
        return memoryview(self.map)[self.skip + at : self.skip + at + length]


def read_all(device, objects, slots, pieces_of, a, landed):
    """Keeps every slot of the pool busy: the whole of what one caller can ask of this module."""
    flight = collections.deque()
    free = [slots[i : i + a.per_batch] for i in range(0, len(slots) - a.per_batch + 1, a.per_batch)]
    todo = collections.deque(objects)
    while todo or flight:
        while todo and free:
            group = free.pop()
            offsets, views = [], []
            for slot in group[: len(todo)]:
                offset = todo.popleft()
                landed[slot] = offset
                for at, view in pieces_of[slot]:
                    offsets.append(offset + at)
                    views.append(view)
            flight.append((device.batched_read(offsets, views, [a.piece] * len(views)), group))
        batch, group = flight.popleft()
        bitmap, errors = device.wait_iouring(batch)
        if errors:
            raise OSError(f"read failed: {errors[:3]}")
        free.append(group)


def main():
    a = arguments()
    try:
        from lmcache_rust_raw_block_io import RawBlockDevice
    except ImportError as e:
        sys.exit(f"lmcache_raw_block.py: the module is missing ({e}); install it with: {PIP}")
    if a.create and not os.path.exists(a.file):
        create(a.file, a.create)
    with open(a.file, "rb") as f:
        length = f.seek(0, os.SEEK_END)
    in_file = length // a.object
    if not in_file:
        sys.exit(f"lmcache_raw_block.py: {a.file} has less than one object of {a.object} bytes")
    objects = max(a.total // a.object if a.total else in_file, 1)
    offsets = [i % in_file * a.object for i in range(objects)]

    share = a.pool // a.devices // a.object // a.per_batch * a.per_batch
    pool = Pool(share * a.devices * a.object, a.huge)
    pieces_of = {
        slot: [(at, pool.view(slot * a.object + at, a.piece)) for at in range(0, a.object, a.piece)]
        for slot in range(share * a.devices)
    }
    landed, failures, work = {}, [], []
    for d in range(a.devices):
        device = RawBlockDevice(
            a.file, False, use_odirect=bool(a.direct), alignment=4096, io_engine="io_uring", iouring_queue_depth=a.depth
        )
        slots = list(range(d * share, (d + 1) * share))
        if a.fixed:
            device.register_fixed_buffers([pool.address + s * a.object for s in slots], [a.object] * share)
            registered, registered_bytes = device.fixed_buffer_status()
            if not registered or registered_bytes != share * a.object:
                sys.exit("lmcache_raw_block.py: the fixed buffers were not registered (memlock limit?)")
        work.append((device, offsets[d :: a.devices], slots))

    def run(item):
        try:
            read_all(*item, pieces_of, a, landed)
        except Exception as e:  # a thread's failure is the program's
            failures.append(e)

    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    threads = [threading.Thread(target=run, args=(item,)) for item in work[1:]]
    for t in threads:
        t.start()
    run(work[0])
    for t in threads:
        t.join()
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    if failures:
        sys.exit(f"lmcache_raw_block.py: {failures[0]}")

    verified = 0
    if a.verify:
        with open(a.file, "rb") as f:
            for slot, offset in landed.items():
                f.seek(offset)
                if f.read(a.object) != pool.view(slot * a.object, a.object):
                    sys.exit(f"lmcache_raw_block.py: wrong bytes from file offset {offset}")
                verified += a.object
    for device, _, _ in work:
        device.close()
    total = objects * a.object
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        json.dumps(
            {
                "gbps": total / seconds / 1e9,
                "seconds": seconds,
                "bytes": total,
                "objects": objects,
                "object": a.object,
                "piece": a.piece,
                "pool": share * a.devices * a.object,
                "depth": a.depth,
                "per_batch": a.per_batch,
                "devices": a.devices,
                "huge": bool(a.huge),
                "fixed": bool(a.fixed),
                "direct": bool(a.direct),
                "cpu_s_per_gib": cpu / (total / (1 << 30)),
                "verified_bytes": verified,
            }
        )
    )


if __name__ == "__main__":
    main()
