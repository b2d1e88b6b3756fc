#!/usr/bin/env python3
"""Checks raw_block.py on a NVMe drive by its character device, which is WRITTEN TO: objects of 20 MiB.

    check_on_drive.py /dev/ngXnY

Where LMCache's module is installed it is asked to read the same objects: it sends each as one command, which no drive takes
(EINVAL), while reads that fit into one show that it has the same bytes. Exit status 1 if something is otherwise.
"""

import mmap
import os
import random
import sys

from raw_block import RawBlockDevice

try:
    import lmcache_rust_raw_block_io as rival
except ImportError:
    rival = None

OBJECT, COUNT, SMALL = 20 << 20, 4, 64 << 10
OFFSETS = [(COUNT - i) * (32 << 20) for i in range(COUNT)]
OPEN = {"use_uring_cmd": True, "io_engine": "io_uring"}


def poisoned(length):
    memory = mmap.mmap(-1, length)
    memory[:] = b"\xa5" * length
    return memory


def main(path):
    content = [random.Random(offset).randbytes(OBJECT) for offset in OFFSETS]
    ours = RawBlockDevice(path, True, **OPEN)
    done = ours.wait_iouring(ours.batched_write(OFFSETS, content, [OBJECT] * COUNT))
    assert done == ([True] * COUNT, []), done

    memory = [poisoned(OBJECT) for _ in OFFSETS]
    done = ours.wait_iouring(ours.batched_read(OFFSETS, memory, [OBJECT] * COUNT))
    assert done == ([True] * COUNT, []), done
    for offset, landed, wanted in zip(OFFSETS, memory, content):
        assert landed[:] == wanted, f"wrong bytes in the object at {offset}"
    print(f"ours: {COUNT} objects of {OBJECT} bytes written, loaded and verified")

    numbers = ("size_bytes", "nvme_nsid", "nvme_lba_size", "nvme_lba_shift")
    known = [getattr(ours, name)() for name in numbers]
    print(dict(zip(numbers, known)))
    for wrong in ({"alignment": 100}, {"alignment": ours.nvme_lba_size() // 2}):
        try:
            RawBlockDevice(path, False, **OPEN, **wrong)
            raise AssertionError(f"opened with {wrong}")
        except ValueError:
            pass
    try:
        ours.batched_read([1], [bytearray(4096)], [4096])
        raise AssertionError("read at offset 1")
    except ValueError:
        pass
    ours.close()

    if rival is None:
        print("skipped: the module itself: it is not installed")
        return
    theirs = rival.RawBlockDevice(path, False, **OPEN)
    assert [getattr(theirs, name)() for name in numbers] == known
    small = [poisoned(SMALL) for _ in OFFSETS]
    done = theirs.wait_iouring(theirs.batched_read(OFFSETS, small, [SMALL] * COUNT))
    assert done == ([True] * COUNT, []), done
    assert all(landed[:] == wanted[:SMALL] for landed, wanted in zip(small, content)), "the module reads other bytes"
    bitmap, errors = theirs.wait_iouring(theirs.batched_read(OFFSETS, memory, [OBJECT] * COUNT))
    assert bitmap == [False] * COUNT and len(errors) == COUNT, (bitmap, errors)
    assert all("[Errno 22]" in text for _, text in errors), errors
    print(f"the module: {SMALL} bytes of each are the same; of {OBJECT} bytes: {errors[0][1]}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not os.path.exists(sys.argv[1]):
        sys.exit(__doc__)
    main(os.path.realpath(sys.argv[1]))
