#!/usr/bin/env python3
"""Checks raw_block.py: that it answers as LMCache's module does, and what it says of itself.

    check_raw_block.py FOLDER     in FOLDER, with the module beside it where that is installed
    check_raw_block.py --layouts  prints a C program that compiles if the structs of fullbore.py are those of fullbore.h

FULLBORE_LIBRARY names the library. Exit status 1 if a check failed.
"""

import ctypes
import os
import random
import sys
import warnings

import fullbore
import raw_block
from check_life import memory, own_promises

try:
    import lmcache_rust_raw_block_io as rival
except ImportError:
    rival = None

MIB = 1 << 20
CONTENT = random.Random(5).randbytes(MIB)
MODES = {
    "posix": {},
    "posix direct": {"use_odirect": True},
    "io_uring": {"io_engine": "io_uring"},
    "io_uring direct": {"use_iouring": True, "use_odirect": True},
}


class Cases:
    """One device, and what it answers: a dictionary by the case's name."""

    def __init__(self, device_class, path, mode):
        self.make, self.path, self.mode = device_class, path, mode
        self.answers = {}
        self.write(CONTENT)
        self.device = device_class(path, True, **mode)
        for group in (self.opening, self.reading, self.batches, self.writing, self.registering, self.closing):
            group()

    def write(self, content):
        with open(self.path, "wb") as file:
            file.write(content)

    def case(self, name, call, *arguments, **named):
        """The answer as far as both must agree: values, types of exceptions, errno; no words."""
        try:
            answer = call(*arguments, **named)
        except Exception as e:
            known = next(c for c in type(e).__mro__ if c in (OverflowError, RuntimeError, OSError) or c is type(e))
            answer = (known.__name__, getattr(e, "errno", None))
        assert name not in self.answers, name
        self.answers[name] = answer

    def opening(self):
        case, make, path = self.case, self.make, self.path
        opened = lambda *a, **n: make(*a, **n).size_bytes()
        case("no such file", opened, path + ".no", False)
        case("no path", opened, 5, False)
        case("no writable", opened, path)
        case("writable is no bool", opened, path, 1)
        case("NUL", opened, "a\0b", False)
        case("engine", opened, path, False, io_engine="aio")
        case("engine wins", opened, path, False, use_iouring=True, io_engine="posix")
        case("by position", opened, path, False, True, False, False, 4096, "io_uring", 64)
        case("passthrough without io_uring", opened, path, False, use_uring_cmd=True)
        case("passthrough of a file", opened, path, False, use_uring_cmd=True, io_engine="io_uring")
        case("queue depth", opened, path, False, iouring_queue_depth=-1)
        for name in ("size_bytes", "fixed_buffer_status", "worker_error", "nvme_nsid", "nvme_lba_size", "nvme_lba_shift"):
            case(name, getattr(self.device, name))
        case("fetch_fdp_status", self.device.fetch_fdp_status)

    def read(self, call, offset, payload, total=None, room=None, shift=0):
        """What `out` has afterwards: the payload, right or wrong, and bytes behind it."""
        out = memory(room or total or payload, shift)
        assert call(offset, out, payload, total) is None
        behind = bytes(out[payload:])
        kept = "kept" if not behind.strip(b"\xa5") else "file" if behind == CONTENT[offset + payload :][: len(behind)] else "?"
        return bytes(out[:payload]) == CONTENT[offset : offset + payload], kept

    def reading(self):
        for name in ("pread_into", "read_uring"):
            call = getattr(self.device, name)
            case = lambda what, *a, call=call, name=name, **n: self.case(f"{name}: {what}", self.read, call, *a, **n)
            case("a page", 0, 4096)
            case("five bytes", 0, 5)
            case("five of a page", 4096, 5, 4096)
            case("five of a page, room for ten", 4096, 5, 4096, room=10)
            case("memory of two pages", 4096, 100, 4096, room=8192)
            case("unaligned memory", 0, 4096, shift=7)
            case("unaligned offset", 100, 4096)
            case("unaligned total", 0, 100, 1000)
            case("too little room", 0, 50, None, room=10)
            case("total less than payload", 0, 8192, 4096, room=8192)
            case("at the end", MIB, 4096)
            case("over the end", MIB - 4096, 8192)
            case("total over the end", MIB - 4096, 4096, 8192)
            case("nothing", 0, 0, room=4096)
            self.case(f"{name}: negative", call, -1, memory(4096), 4096)
            self.case(f"{name}: too far", call, 1 << 63, memory(4096), 4096)
            self.case(f"{name}: constant", call, 0, bytes(4096), 4096)
            self.case(f"{name}: in steps", call, 0, memoryview(bytearray(8192))[::2], 4096)
            self.case(f"{name}: no memory", call, 0, object(), 4096)

    def batch(self, method, offsets, buffers, *rest, **named):
        """Bitmap and errors, without their words; what waiting again gives; and of a read, what landed rightly."""
        number = getattr(self.device, method)(offsets, buffers, *rest, **named)
        bitmap, errors = self.device.wait_iouring(number)
        landed = [bytes(out) == CONTENT[offset:][: len(out)] for offset, out in zip(offsets, buffers)]
        errors = [(i, text.split("]")[0].split(":")[0]) for i, text in errors]
        return bitmap, errors, self.device.wait_iouring(number), method == "batched_read" and landed

    def batches(self):
        read = lambda what, *a: self.case(f"batched_read: {what}", self.batch, "batched_read", *a)
        read("two", [4096, 65536], [memory(4096), memory(8192)], [4096, 8192])
        read("none", [], [], [])
        read("lengths", [0], [], [4096])
        read("unaligned offset", [100], [memory(4096)], [4096])
        read("unaligned length", [0], [memory(4096)], [1000])
        read("unaligned memory", [0], [memory(4096, 7)], [4096])
        read("little room", [0], [memory(100)], [4096])
        read("no bytes", [0, 4096], [memory(4096), memory(4096)], [0, 4096])
        read("at the end", [0, MIB], [memory(4096), memory(4096)], [4096, 4096])
        read("over the end", [MIB - 4096, 0], [memory(8192), memory(4096)], [8192, 4096])
        read("constant", [0], [bytes(4096)], [4096])
        read("no memory", [0], [object()], [4096])
        read("negative", [-4096], [memory(4096)], [4096])
        read("fractions", [0.0], [memory(4096)], [4096])
        read("too large", [1 << 64], [memory(4096)], [4096])
        read("too far", [1 << 63], [memory(4096)], [4096])
        self.case("wait for none", self.device.wait_iouring, 4711)
        self.case("wait for a negative", self.device.wait_iouring, -1)
        # Cut short behind the device's back: what ran into the end fails, the others do not.
        if self.device.size_bytes() == MIB and self.mode:
            os.truncate(self.path, MIB // 2)
            read("cut short", [0, MIB // 2, 4096], [memory(8192), memory(65536), memory(4096)], [8192, 65536, 4096])
            self.write(CONTENT)

    def stored(self, call, *arguments, **named):
        """What the call answers, and all of the file afterwards."""
        self.write(CONTENT)
        answer = call(*arguments, **named)
        with open(self.path, "rb") as file:
            return answer, hash(file.read())

    def writing(self):
        device, page = self.device, bytes(range(256)) * 16
        for name in ("pwrite_from_buffer", "write_uring"):
            call = getattr(device, name)
            case = lambda what, *a, call=call, name=name, **n: self.case(f"{name}: {what}", self.stored, call, *a, **n)
            case("a page", 4096, page, 4096)
            case("padded", 4096, b"hello", 5, 4096)
            case("part of it", 0, page, 3, 8192)
            case("padded far", 0, page * 3, 4096 + 5, 65536)
            case("unaligned memory", 0, memory(4096, 7, 0x11), 4096)
            case("unaligned length", 0, b"hello", 5)
            case("unaligned offset", 3, page, 4096)
            case("payload longer than memory", 0, b"hello", 9, 4096)
            case("total less than payload", 0, page, 4096, 5)
            case("nothing", 0, b"", 0)
            case("at the end", MIB, page, 4096)
            case("past the end", 2 * MIB, page, 4096)
            case("negative", -4096, page, 4096)
        self.case("pwrite_from_buffer: all", self.stored, device.pwrite_from_buffer, 0, page)
        self.case("pwrite_from_buffer: all, padded", self.stored, device.pwrite_from_buffer, 0, b"hello", total_len=4096)
        for placement in (None, 0, 1, 70000):
            self.case(f"write_uring: placed {placement}", device.write_uring, 0, page, 4096, 4096, placement)
        write = lambda what, *a, **n: self.case(f"batched_write: {what}", self.stored, self.batch, "batched_write", *a, **n)
        write("two", [0, 65536], [page, page], [4096, 4096])
        write("padded", [0, 8192], [page, b"hello"], [8192, 4096], payload_lens=[7, 5])
        write("too short", [0], [b"hello"], [4096])
        write("unaligned offset", [1], [page], [4096])
        write("unaligned length", [0], [page], [100])
        write("payload longer than total", [0], [page * 2], [4096], payload_lens=[8000])
        write("no bytes", [0], [page], [0])
        write("at the end", [MIB, 0], [page, page], [4096, 4096])
        write("none", [], [], [])
        write("lengths", [0], [page], [])
        write("payloads' lengths", [0], [page], [4096], None, [])
        write("placements' lengths", [0], [page], [4096], [])
        for placement in (None, 0, 1, 70000):
            write(f"placed {placement}", [0], [page], [4096], [placement])
        constant = self.make(self.path, False, **self.mode)
        self.case("open for reading: pwrite_from_buffer", constant.pwrite_from_buffer, 0, page)
        self.case("open for reading: write_uring", constant.write_uring, 0, page, 4096)
        kept, self.device = self.device, constant
        self.case("open for reading: batched_write", self.batch, "batched_write", [0], [page], [4096])
        self.device = kept

    def registering(self):
        self.write(CONTENT)
        register, pool = self.device.register_fixed_buffers, memory(65536)
        self.pool = pool  # it stays until the device is closed: else other memory would come to lie there
        at = ctypes.addressof(ctypes.c_char.from_buffer(pool))
        self.case("fixed: lengths", register, [at], [])
        self.case("fixed: none", register, [], [])
        self.case("fixed: NULL", register, [0], [4096])
        self.case("fixed: empty", register, [at], [0])
        self.case("fixed: overlap", register, [at, at + 4096], [8192, 8192])
        self.case("fixed: nobody's", register, [4096], [4096])
        self.case("fixed: nothing yet", self.device.fixed_buffer_status)
        self.case("fixed: two", register, [at, at + 32768], [16384, 32768])
        self.case("fixed: there", self.device.fixed_buffer_status)
        self.case("fixed: again", register, [at], [16384])
        self.case("fixed: read", self.batch, "batched_read", [4096, 0], [pool[:8192], pool[32768:]], [8192, 32768])

    def closing(self):
        device, out = self.device, memory(4096)
        self.case("close", device.close)
        self.case("close again", device.close)
        self.case("closed: wait for none", device.wait_iouring, 4711)
        for name in ("size_bytes", "fixed_buffer_status", "worker_error"):
            self.case(f"closed: {name}", getattr(device, name))
        self.case("closed: pread_into", device.pread_into, 0, out, 4096)
        self.case("closed: read_uring", device.read_uring, 0, out, 4096)
        self.case("closed: pwrite_from_buffer", device.pwrite_from_buffer, 0, out)
        self.case("closed: write_uring", device.write_uring, 0, out, 4096)
        self.case("closed: batched_read", device.batched_read, [0], [out], [4096])
        self.case("closed: batched_write", device.batched_write, [0], [out], [4096])
        self.case("closed: register", device.register_fixed_buffers, [4096], [4096])


# What must be so whether the module is there or not.
KNOWN = {
    "batched_read: two": ([True, True], [], ([], []), [True, True]),
    "batched_read: at the end": ([True, False], [(1, "RuntimeError")], ([], []), [True, False]),
    "batched_read: cut short": ([True, False, True], [(1, "RuntimeError")], ([], []), [True, False, True]),
    "batched_read: unaligned offset": ("ValueError", None),
    "open for reading: batched_write": ([False], [(0, "OSError")], ([], []), False),
    "pread_into: five of a page": (True, "file"),
    "no such file": ("FileNotFoundError", 2),
    "fixed: there": (True, 49152),
    "closed: batched_read": ("RuntimeError", None),
}


def same_answers(folder):
    path = os.path.join(folder, "cases")
    for mode, named in MODES.items():
        ours = Cases(raw_block.RawBlockDevice, path, named).answers
        wrong = 0
        if mode == "io_uring direct":
            wrong += differences("expected", KNOWN, {name: ours[name] for name in KNOWN})
        if rival:
            wrong += differences("the module", Cases(rival.RawBlockDevice, path, named).answers, ours)
        if wrong:
            sys.exit(f"check_raw_block.py: {wrong} answers are others than they should be")
        print(f"{mode}: {len(ours)} answers" + (", the same as the module's" if rival else ""))
    os.unlink(path)


def differences(name, theirs, ours):
    wrong = [case for case in theirs.keys() | ours.keys() if theirs.get(case) != ours.get(case)]
    for case in sorted(wrong):
        print(f"{case}: {name} {theirs.get(case)}, ours {ours.get(case)}")
    return len(wrong)


def layouts():
    print("#include <fullbore.h>\n#include <stddef.h>")
    for name, struct in fullbore.STRUCTS.items():
        print(f'_Static_assert(sizeof(struct fullbore_{name}) == {ctypes.sizeof(struct)}, "{name}");')
        for field, *_ in struct._fields_:
            offset = getattr(struct, field).offset
            print(f'_Static_assert(offsetof(struct fullbore_{name}, {field}) == {offset}, "{name}.{field}");')
    for name in "ABI OPEN_WRITE OPEN_BUFFERED TARGET_DRIVE REGION_REGISTERED KIND_OUT_OF_BOUNDS KIND_UNEXPECTED_EOF".split():
        print(f'_Static_assert(FULLBORE_{name} == {getattr(fullbore, name)}, "{name}");')
    print(f'_Static_assert(FULLBORE_OP_READ == {fullbore.READ} && FULLBORE_OP_WRITE == {fullbore.WRITE}, "op");')
    print(f'_Static_assert(FULLBORE_NO_EXTENT == {fullbore.NO_EXTENT}u, "NO_EXTENT");\nint main(void) {{ return 0; }}')


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    if sys.argv[1:] == ["--layouts"]:
        layouts()
    elif len(sys.argv) == 2 and os.path.isdir(sys.argv[1]):
        own_promises(os.path.abspath(sys.argv[1]))
        same_answers(os.path.abspath(sys.argv[1]))
    else:
        sys.exit(__doc__)
