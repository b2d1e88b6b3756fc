"""What raw_block.py promises beyond the module's answers, checked: threads, more batches than the engine has entries, memory
that is held, ends of devices and processes, forks, interrupts. check_raw_block.py calls it."""

import gc
import mmap
import os
import random
import subprocess
import sys
import threading
import time

import raw_batch
import raw_block

MIB = 1 << 20


def memory(length, shift=0, fill=0xA5):
    """A view of memory of its own, `shift` bytes behind the begin of a page."""
    room = mmap.mmap(-1, length + shift)
    room[:] = bytes([fill]) * (length + shift)
    return memoryview(room)[shift:]


def own_promises(folder):
    """Threads, more batches than the engine has entries, memory that is held, ends of processes, forks."""
    path = os.path.join(folder, "own")
    gc.collect()
    threads_before = len(os.listdir("/proc/self/task"))
    with open(path, "wb") as file:
        file.write(random.Random(6).randbytes(8 * MIB))
    device = raw_block.RawBlockDevice(path, True, use_odirect=True, io_engine="io_uring")
    failures = []

    def worker(seed):
        try:
            chance = random.Random(seed)
            mine = seed * MIB  # a part of the file that no other thread writes to
            for _ in range(30):
                block, length = chance.randrange(192), chance.randrange(1, 65) * 4096
                data = chance.randbytes(length)
                device.wait_iouring(device.batched_write([mine + block * 4096], [data], [length]))
                out = [memory(length), memory(length)]
                number = device.batched_read([mine + block * 4096] * 2, out, [length] * 2)
                answers = [device.wait_iouring(number)]
                if answers != [([True, True], [])] or any(bytes(o) != data for o in out):
                    raise AssertionError(f"thread {seed}: {answers}")
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=worker, args=(seed,)) for seed in range(8)]
    together(threads)
    assert not failures, failures

    numbers, got = [device.batched_read([0] * 8, [memory(65536) for _ in range(8)], [65536] * 8) for _ in range(8)], []
    waiters = [threading.Thread(target=lambda: got.extend(device.wait_iouring(n) for n in numbers)) for _ in range(4)]
    together(waiters)
    assert sorted(len(bitmap) for bitmap, _ in got) == [0] * 24 + [8] * 8, "each batch is answered once"

    many = [(device.batched_read([i % 256 * 4096], [out], [4096]), i, out) for i in range(1500) for out in [memory(4096)]]
    with open(path, "rb") as file:
        content = file.read()
    for number, i, out in many:
        assert device.wait_iouring(number) == ([True], []) and bytes(out) == content[i % 256 * 4096 :][:4096]

    array = bytearray(4 * MIB)
    number = device.batched_read([0], [array], [len(array)])
    try:
        array.append(1)
        raise AssertionError("memory of a batch could be resized")
    except BufferError:
        device.wait_iouring(number)
        array.append(1)

    child = os.fork()
    if child == 0:
        try:
            device.pread_into(0, bytearray(4096), 4096)
        except OSError as e:
            os._exit(e.errno)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 10, "a forked child was not refused (ECHILD)"

    closed, out = raw_block.RawBlockDevice(path, False, io_engine="io_uring"), memory(4 * MIB)
    number = closed.batched_read([0], [out], [4 * MIB])
    closed.close()
    assert bytes(out) == content[: 4 * MIB] and closed.wait_iouring(number) == ([True], []), "close did not wait"
    interrupted(path, content)
    device.batched_write([0], [bytes(4 * MIB)], [4 * MIB])
    del device  # drains: all of it is there
    gc.collect()
    with open(path, "rb") as file:
        assert file.read(4 * MIB) == bytes(4 * MIB), "a device that was dropped did not drain"
    for _ in range(1200):  # threads are gone a moment after they are joined
        threads_after = len(os.listdir("/proc/self/task"))
        if threads_after == threads_before:
            break
        time.sleep(0.05)
    assert threads_after == threads_before, f"{threads_before} threads before, {threads_after} after"
    # A thread that never ends keeps this one alive: nobody destroys it.
    ends = f"""import sys, threading, time, raw_block
kept = raw_block.RawBlockDevice(sys.argv[1], True, io_engine="io_uring")
threading.Thread(target=lambda device: time.sleep(600), args=(kept,), daemon=True).start()
kept.batched_write([0], [b"x" * {64 * MIB}], [{64 * MIB}])"""
    subprocess.run([sys.executable, "-c", ends, path], check=True, cwd=os.path.dirname(os.path.abspath(__file__)))
    with open(path, "rb") as file:
        assert file.read() == b"x" * (64 * MIB), "a process that ended did not drain"
    os.unlink(path)
    print("threads, many batches, held memory, a fork, a drop and an end: as promised")


def together(threads):
    for step in (threading.Thread.start, threading.Thread.join):
        for thread in threads:
            step(thread)


def interrupted(path, content):
    """Who is interrupted in a wait gets the interrupt when the memory is the caller's again."""
    device, out, real = raw_block.RawBlockDevice(path, False), memory(len(content)), raw_batch.lib

    class Signal:
        submit = real.submit

        def wait(self, *_):
            raw_batch.lib = real
            raise KeyboardInterrupt

    try:
        raw_batch.lib = Signal()
        device.pread_into(0, out, len(content))
        raise AssertionError("no interrupt")
    except KeyboardInterrupt:
        assert bytes(out) == content, "interrupted while the read was under way"
