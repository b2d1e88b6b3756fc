"""The class RawBlockDevice of LMCache's raw-block module (lmcache-rust-raw-block-io), over fullbore.

A connector changes over by one import:

    from raw_block import RawBlockDevice        # was: from lmcache_rust_raw_block_io import RawBlockDevice

The same methods, with the same arguments and the same answers; of errors the same exceptions, in fullbore's words. An
object of any size is cut into what the device takes and is in flight on all lanes at once, reads of /dev/ngXnY included.
Memory of a batch cannot be resized or freed before its end (BufferError). What differs:

- `iouring_queue_depth` is accepted and not needed: the engine keeps a device as busy as it wants to be.
- `close` finishes what was begun, where the module fails what it has not started yet.
- A batch ends with an error after DEADLINE_S seconds, where the module would wait for ever.
- FDP over NVMe passthrough is not there: NotImplementedError (a RuntimeError).
- A file has the length that it had when it was opened, or to which this device has written it; reads past that fail,
  also if others made it longer.

Memory that was registered once (`register_fixed_buffers`) is reached faster; other memory is as correct. Any thread may
call anything; waits run without the GIL.
"""

import atexit
import operator
import os
import stat
import threading
import warnings
import weakref
from ctypes import byref, c_void_p

from fullbore import ABI, OPEN_BUFFERED, OPEN_WRITE, READ, REGION_REGISTERED, TARGET_DRIVE, WRITE
from fullbore import EngineOptions, OpenOptions, RegionInfo, Stats, TargetInfo, check, last_exception, lib, sized
from raw_batch import Batch

__all__ = ["RawBlockDevice"]

DEADLINE_S = 300

_devices = weakref.WeakSet()


@atexit.register
def _close_all():
    # The lanes are threads that write to Python's memory: they end before it does.
    for device in list(_devices):
        device.close()


class RawBlockDevice:
    """A file, a block device or a NVMe namespace (/dev/ngXnY) to read from and write to."""

    _closed = True  # until it is open

    def __init__(
        self,
        path: str,
        writable: bool,
        use_odirect: bool = False,
        use_iouring: bool = False,
        use_uring_cmd: bool = False,
        alignment: int = 4096,
        io_engine: "str | None" = None,
        iouring_queue_depth: int = 256,
    ):
        if not isinstance(path, str) or not isinstance(writable, bool):
            raise TypeError("path is a str, and writable a bool")
        if "\0" in path:
            raise ValueError("path contains NUL")
        if io_engine not in (None, "posix", "io_uring"):
            raise ValueError(f"io_engine is posix or io_uring, not {io_engine}")
        self._uring = use_iouring if io_engine is None else io_engine == "io_uring"
        self._passthrough = use_uring_cmd
        if use_uring_cmd and not self._uring:
            raise ValueError('use_uring_cmd needs io_engine="io_uring"')
        _u64(iouring_queue_depth)
        self._alignment = _u64(alignment)
        if alignment == 0:
            raise ValueError("alignment is at least 1")

        self._lock = threading.Lock()  # over submission, the numbers of batches, and what there is to close
        self._clients, self._numbered, self._last = [], {}, 0
        self._live = {}  # batches that nobody has waited for, in order
        self._regions, self._registered = [], 0
        self._worker_error = None
        self._engine, self._target = c_void_p(), c_void_p()
        options = sized(EngineOptions, version=ABI, deadline_ns=DEADLINE_S * 10**9)
        check(lib.engine_create(byref(options), byref(self._engine)))
        self._closed = False
        try:
            self._open(path, writable, use_odirect)
        except BaseException:
            self.close()
            raise
        _devices.add(self)

    def _open(self, path, writable, direct):
        try:
            mode = os.stat(path).st_mode
        except OSError:
            mode = 0  # the library says what is wrong
        options = sized(OpenOptions, flags=OPEN_WRITE if writable else 0)
        if not direct and not stat.S_ISCHR(mode):
            options.flags |= OPEN_BUFFERED
        check(lib.target_open(self._engine, os.fsencode(path), byref(options), byref(self._target)))
        info = sized(TargetInfo)
        check(lib.target_get_info(self._target, byref(info)))
        self._size = self._end_of_file = info.bytes
        self._grows = writable and stat.S_ISREG(mode)
        self._block, self._nsid = info.block_size, info.name_space
        self._unit = self._block if self._passthrough else self._alignment if direct else 1
        self._direct = direct
        if self._passthrough and not info.flags & TARGET_DRIVE:
            raise ValueError(f"use_uring_cmd needs a NVMe namespace's character device (/dev/ng0n1), not {path}")
        if self._passthrough and self._alignment % self._block:
            raise ValueError(f"alignment {self._alignment} is no multiple of the drive's blocks, {self._block} bytes")

    def __del__(self):
        self.close()

    # Many ranges at once.

    def batched_read(self, offsets, buffers, total_lens):
        """Begins to read, for each i, `total_lens[i]` bytes at `offsets[i]` into `buffers[i]`, or as many of them as fit.
        Answers a number for `wait_iouring`."""
        offsets, totals, buffers = _u64s(offsets), _u64s(total_lens), list(buffers)
        self._ready(uring=True)
        _alike(offsets, buffers, totals)
        with Batch(self, READ) as batch:
            for offset, total, memory in zip(offsets, totals, buffers):
                buffer = batch.hold(memory)
                self._check_range(offset, total)
                batch.add(offset, total, buffer.address, min(total, buffer.len))
            return self._number(batch)

    def batched_write(self, offsets, buffers, total_lens, placement_ids=None, payload_lens=None):
        """Begins to write, for each i, the first `payload_lens[i]` bytes of `buffers[i]` at `offsets[i]`, and zeroes
        behind them up to `total_lens[i]` (which `payload_lens` are if they are not given). Answers a number for
        `wait_iouring`."""
        offsets, totals, buffers = _u64s(offsets), _u64s(total_lens), list(buffers)
        self._ready(uring=True)
        payloads = totals if payload_lens is None else _u64s(payload_lens)
        placements = [None] * len(offsets) if placement_ids is None else list(placement_ids)
        _alike(offsets, buffers, totals, payloads, placements)
        with Batch(self, WRITE) as batch:
            for offset, total, memory, payload, placement in zip(offsets, totals, buffers, payloads, placements):
                self._check_placement(placement)
                self._add(batch, offset, total, batch.hold(memory), payload)
            return self._number(batch)

    def wait_iouring(self, batch_id):
        """Waits for the end of a batch. Answers a list of whether each of its operations succeeded, and a list of (number
        of the operation, what failed); empty ones of what was waited for before, or never was."""
        with self._lock:
            batch = self._numbered.pop(_u64(batch_id), None)
        if batch is None:
            return [], []
        errors = self._end(batch)
        failed = [(number, f"{type(errors[number]).__name__}: {errors[number]}") for number in sorted(errors)]
        return [number not in errors for number in range(batch.count)], failed

    # One range, waited for.

    def pread_into(self, offset, out, payload_len, total_len=None):
        """Reads `payload_len` bytes at `offset` into `out`, as the first of `total_len` that are there."""
        offset, payload, total = self._range(offset, payload_len, total_len)
        self._ready()
        with Batch(self, READ) as batch:
            self._add(batch, offset, total, batch.hold(out), payload, whole=self._direct)
            self._run(batch)

    def read_uring(self, offset, data, payload_len, total_len=None):
        """The same, of a device for io_uring; `data` gets all of the `total_len` bytes if it has room for them."""
        text = "read_uring() is deprecated; use batched_read() and wait_iouring()"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        offset, payload, total = self._range(offset, payload_len, total_len)
        self._ready(uring=True)
        with Batch(self, READ) as batch:
            self._add(batch, offset, total, batch.hold(data), payload, whole=True)
            self._run(batch)

    def pwrite_from_buffer(self, offset, data, payload_len=None, total_len=None):
        """Writes the first `payload_len` bytes (all) of `data` at `offset`, and zeroes behind them up to `total_len`."""
        with Batch(self, WRITE) as batch:
            self._ready()
            buffer = batch.hold(data)
            offset, payload, total = self._range(offset, buffer.len if payload_len is None else payload_len, total_len)
            self._add(batch, offset, total, buffer, payload)
            self._run(batch)

    def write_uring(self, offset, data, payload_len, total_len=None, placement_id=None):
        """The same, of a device for io_uring."""
        offset, payload, total = self._range(offset, payload_len, total_len)
        self._ready(uring=True)
        self._check_placement(placement_id)
        with Batch(self, WRITE) as batch:
            self._add(batch, offset, total, batch.hold(data), payload)
            self._run(batch)

    # The device.

    def register_fixed_buffers(self, buffer_ptrs, buffer_sizes):
        """Registers memory, by addresses and sizes, once in the life of the device. It must stay where it is until `close`
        has returned."""
        pointers, sizes = _u64s(buffer_ptrs), _u64s(buffer_sizes)
        self._ready(uring=True)
        _alike(pointers, sizes)
        if not pointers or 0 in pointers or 0 in sizes:
            raise ValueError("there is at least one fixed buffer, and none is NULL or empty")
        ranges = sorted(zip(pointers, sizes))
        if any(start + size > after for (start, size), (after, _) in zip(ranges, ranges[1:])):
            raise ValueError("fixed buffers overlap")
        with self._lock:
            if self._registered:
                raise RuntimeError("fixed buffers are already registered")
            try:
                for pointer, size in zip(pointers, sizes):
                    self._register(pointer, size)
            except BaseException:
                self._free_regions()
                raise
            self._registered = sum(sizes)

    def fixed_buffer_status(self):
        """Whether buffers are registered, and their bytes."""
        return bool(self._registered), self._registered

    def worker_error(self):
        """What became of lanes of the engine that died (none should), or None."""
        with self._lock:
            stats = sized(Stats)
            if not self._closed and lib.stats_get(self._engine, byref(stats)) == 0 and stats.lanes_dead:
                self._worker_error = f"{stats.lanes_dead} of {stats.lanes} lanes died; the library's log says why"
        return self._worker_error

    def size_bytes(self):
        """Its size in bytes when it was opened."""
        return self._size

    def nvme_nsid(self):
        """The namespace's number; with `use_uring_cmd` alone, as the next two."""
        self._of_passthrough("nvme_nsid")
        return self._nsid

    def nvme_lba_size(self):
        """Bytes of a block."""
        self._of_passthrough("nvme_lba_size")
        return self._block

    def nvme_lba_shift(self):
        """The binary logarithm of that."""
        self._of_passthrough("nvme_lba_shift")
        return self._block.bit_length() - 1

    def fetch_fdp_status(self):
        """Not there."""
        self._of_passthrough("fetch_fdp_status")
        raise NotImplementedError("fullbore asks no drive for its FDP status")

    def close(self):
        """Waits for what was begun, and closes. A batch may be waited for afterwards, too. OSError: registered memory is
        still in use, and must stay."""
        if self._closed:  # or it never was open, and has no lock
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            live = list(self._live)
        for batch in live:
            batch.finish()
        with self._lock:
            while self._clients:
                lib.client_destroy(self._clients.pop())
            answer = self._free_regions()
            lib.target_destroy(self._target)
            lib.engine_destroy(self._engine)
        check(answer)

    # What these are made of.

    def _ready(self, uring=False):
        if uring and not self._uring:
            raise RuntimeError('io_uring not enabled; open the device with io_engine="io_uring"')
        if self._closed:
            raise RuntimeError("device is closed")

    def _of_passthrough(self, what):
        if not self._passthrough:
            raise RuntimeError(f"{what} is there with use_uring_cmd alone")

    def _check_placement(self, placement):
        if placement is not None and not 1 <= operator.index(placement) <= 65535:
            raise ValueError(f"placement_id {placement} is not in 1 .. 65535; None asks for no placement")
        if placement is not None and self._passthrough:
            raise NotImplementedError("fullbore does not place writes (FDP); give no placement_id")

    def _check_range(self, offset, total):
        if offset % self._unit or total % self._unit:
            raise ValueError(f"offset {offset} and length {total} must be multiples of {self._unit}")

    def _range(self, offset, payload, total):
        payload = _u64(payload)
        return _u64(offset), payload, payload if total is None else _u64(total)

    def _add(self, batch, offset, total, buffer, payload, whole=False):
        """`whole`: the buffer may have all of the total, not the payload alone."""
        if payload > buffer.len:
            raise ValueError(f"the buffer has {buffer.len} bytes, and {payload} are needed")
        if payload > total:
            raise ValueError(f"total_len {total} is less than the payload's length {payload}")
        self._check_range(offset, total)
        batch.add(offset, total, buffer.address, total if whole and total <= buffer.len else payload)

    def _run(self, batch):
        self._submit(batch)
        for error in self._end(batch).values():
            raise error

    def _number(self, batch):
        self._submit(batch)
        with self._lock:
            self._last += 1
            self._numbered[self._last] = batch
            return self._last

    def _submit(self, batch):
        while True:
            with self._lock:
                self._ready()
                if batch.op == WRITE and self._grows:
                    self._grow(batch)
                if batch.submit():
                    self._live[batch] = None
                    return
                # The engine has room for a thousand. What is fetched of the oldest is kept for who waits for it.
                oldest = next(iter(self._live), batch)
            if oldest is not batch:
                self._end(oldest)

    def _grow(self, batch):
        """A file that is written past its end becomes longer."""
        end = max((offset + length for _, offset, _, length in batch.pieces), default=0)
        if self._end_of_file < end < 2**63:
            answer = lib.target_set_size(self._target, end)
            if answer < 0:
                batch.fail(last_exception(answer)[0])
                batch.pieces = []
            else:
                self._end_of_file = end

    def _end(self, batch):
        batch.finish()
        with self._lock:
            self._live.pop(batch, None)
        return batch.errors

    def _take_client(self):
        if self._clients:
            return self._clients.pop()
        client = c_void_p()
        check(lib.client_create(self._engine, byref(client)))
        return client

    def _register(self, pointer, size):
        region, info = c_void_p(), sized(RegionInfo)
        answer = lib.region_register_host(self._engine, pointer, size, byref(region))
        if answer < 0:
            raise RuntimeError(str(last_exception(answer)[0]))
        self._regions.append(region)
        check(lib.region_get_info(region, byref(info)))
        if not info.flags & REGION_REGISTERED:
            raise RuntimeError(info.note.decode())

    def _free_regions(self):
        answers = [lib.region_free(region, 10 * 10**9) for region in self._regions]
        self._regions, self._registered = [], 0
        return min(answers, default=0)


def _u64(value):
    value = operator.index(value)
    if not 0 <= value < 2**64:
        raise OverflowError(f"{value} is not in 0 .. 2**64 - 1")
    return value


def _u64s(values):
    return [_u64(value) for value in values]


def _alike(*lists):
    if len({len(one) for one in lists}) > 1:
        raise ValueError(f"the lists differ in length: {', '.join(str(len(one)) for one in lists)}")
