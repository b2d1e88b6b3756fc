"""What raw_block.py moves: batches of reads or writes, and the Python memory under them."""

import ctypes
import errno
import mmap
import os
import threading
from ctypes import byref, c_int, c_ssize_t, c_void_p

from fullbore import NO_EXTENT, READ, WRITE, Completion, Extent, Transfer, exception, last_exception, lib, sized

# Memory of batches that were abandoned: late results may land in it as long as the process lives.
_abandoned = []


# What no transfer is named.
NO_ID = 2**64 - 1


class PyBuffer(ctypes.Structure):
    """Python's Py_buffer."""

    _fields_ = [("buf", c_void_p), ("obj", c_void_p), ("len", c_ssize_t), ("itemsize", c_ssize_t), ("readonly", c_int)] + [
        ("ndim", c_int)
    ] + [(name, c_void_p) for name in ("format", "shape", "strides", "suboffsets", "internal")]


_python = ctypes.pythonapi
_python.PyObject_GetBuffer.argtypes = (ctypes.py_object, ctypes.POINTER(PyBuffer), c_int)
_python.PyBuffer_Release.argtypes = (ctypes.POINTER(PyBuffer),)
_python.PyBuffer_Release.restype = None


class Buffer:
    """A Python object's memory, which stays where it is until `release`."""

    def __init__(self, source, writable):
        self.view = PyBuffer()
        _python.PyObject_GetBuffer(source, byref(self.view), int(writable))  # PyBUF_WRITABLE is 1
        self.address, self.len = self.view.buf, self.view.len

    def release(self):
        _python.PyBuffer_Release(byref(self.view))


class Batch:
    """Reads or writes that are one transfer; then what came of each. It has a client for itself, so that any thread may
    wait for it. Used as a context while it is made: behind an exception nothing of it is under way or held."""

    def __init__(self, device, op):
        self.device, self.op = device, op
        self.lock = threading.Lock()
        self.count = 0
        self.pieces = []  # (number of the operation, offset, address, bytes)
        self.buffers, self.spare = [], []
        self.errors = {}  # by operation
        self.client = self.extents = None
        self.transfer, self.done = sized(Transfer, op=op, tag=1, id=NO_ID), Completion()
        self.finished = False

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            return
        if self.transfer.id == NO_ID:  # it was not submitted
            self.finished = True
        self.finish()

    def hold(self, memory):
        self.buffers.append(Buffer(memory, writable=self.op == READ))
        return self.buffers[-1]

    def add(self, offset, total, address, take):
        """The next operation: `total` bytes at `offset`, the first `take` of them at `address`. Of a read the rest is
        read and forgotten; of a write it is zeroes, written in whole blocks."""
        head = take - take % self.device._block if self.op == WRITE and take < total else take
        if head > 0:
            self.pieces.append((self.count, offset, address, head))
        if head < total:
            spare = mmap.mmap(-1, total - head)
            self.spare.append(spare)
            place = ctypes.addressof(ctypes.c_char.from_buffer(spare))
            if self.op == WRITE:
                ctypes.memmove(place, address + head, take - head)
            self.pieces.append((self.count, offset + head, place, total - head))
        self.count += 1

    def submit(self):
        """With the device's lock held. False: the engine has no room now."""
        while self.pieces:
            self.extents = (Extent * len(self.pieces))()
            for extent, (_, offset, address, length) in zip(self.extents, self.pieces):
                extent.offset, extent.ptr, extent.len = offset, address, length
            self.transfer.target, self.transfer.count = self.device._target, len(self.pieces)
            self.transfer.extents = ctypes.addressof(self.extents)
            self.client = self.device._take_client()
            taken = lib.submit(self.client, byref(self.transfer), 1)
            if taken == 1:
                return True
            error, extent = last_exception(taken)
            self.device._clients.append(self.client)
            self.client = None
            if taken == -errno.EAGAIN:
                return False
            # What cannot be is that operation's failure; the others go without it.
            self.fail(error, None if extent == NO_EXTENT else self.pieces[extent][0])
            self.pieces = [piece for piece in self.pieces if piece[0] not in self.errors]
        self.finished = True
        return True

    def fail(self, error, operation=None):
        for number in {piece[0] for piece in self.pieces} if operation is None else [operation]:
            self.errors.setdefault(number, error)

    def finish(self):
        """Waits for its end. Any number of threads may."""
        with self.lock:
            if not self.finished:
                self._wait()
                self.finished = True
            self._free()

    def _free(self):
        if self.client is not None:
            self.device._clients.append(self.client)
        while self.buffers:
            self.buffers.pop().release()
        self.pieces, self.spare, self.client, self.extents = [], [], None, None

    def _wait(self):
        done, got = self.done, 0
        while got == 0 and done.tag == 0:  # a second at a time, so that Python sees signals
            got = lib.wait(self.client, 1, 1, 10**9, byref(done))
        if got < 0:
            self.fail(last_exception(got)[0])
        elif done.result == -errno.EOWNERDEAD:
            self.fail(OSError(errno.ETIMEDOUT, done.error.message.decode()))
            _abandoned.append((self.extents, self.spare, self.buffers))
            self.buffers = []
        elif done.result < 0:
            self._judge(done)

    def _judge(self, done):
        first = exception(-done.result, done.error.kind, done.error.message.decode())
        for index, (operation, offset, _, length) in enumerate(self.pieces):
            outcome = self.extents[index].outcome
            if outcome.error == 0 and outcome.bytes == length:
                continue
            if index == done.error.extent or outcome.error == 0:
                self.fail(first, operation)
            else:
                text = f"{os.strerror(outcome.error)} (offset {offset}, length {length})"
                self.fail(exception(outcome.error, 0, text), operation)
