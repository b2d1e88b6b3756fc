#!/usr/bin/env python3
"""kvikio in compatibility mode: a file into GPU memory.

--object=0 asks for all bytes in one pread (kvikio cuts it into tasks for its threads); --object=20m --inflight=8 keeps
eight preads of 20 MiB under way, as a loader of objects does.
"""

import os
import time

import rival


def more(p):
    p.add_argument("--threads", type=int, default=8)
    p.add_argument("--task", type=rival.size, default=4 << 20)
    p.add_argument("--object", type=rival.size, default=0)
    p.add_argument("--inflight", type=int, default=8)
    p.add_argument("--direct", type=int, default=0, help="1: its reads use O_DIRECT (its default is not to)")


def main():
    o = rival.arguments(__doc__, more)
    name = f"kvikio, {o.threads} threads"
    os.environ.update(KVIKIO_COMPAT_MODE="ON", KVIKIO_NTHREADS=str(o.threads), KVIKIO_TASK_SIZE=str(o.task),
                      KVIKIO_AUTO_DIRECT_IO_READ="ON" if o.direct else "OFF")
    try:
        import kvikio
        import kvikio.defaults
    except ImportError as error:
        rival.skip(name, f"kvikio: {error}")
    if o.dry:
        rival.skip(name, f"dry: kvikio {kvikio.__version__} imports")
    torch = rival.gpu(name, o.gpu)
    have = os.stat(o.file).st_size
    total = min(o.bytes or have, have) // 4096 * 4096
    buffer = torch.empty(total, dtype=torch.uint8, device=f"cuda:{o.gpu}")
    file = kvikio.CuFile(o.file, "r")
    get = kvikio.defaults.get
    note = {"note": f"kvikio {kvikio.__version__}, compat {get('compat_mode')}, {get('num_threads')} threads, "
                    f"task {get('task_size')}, bounce {get('bounce_buffer_size')}, "
                    f"O_DIRECT reads {get('auto_direct_io_read')}, object {o.object or 'all'}"}

    def load():
        buffer.fill_(0xA5)
        torch.cuda.synchronize()
        start = time.perf_counter()
        step = o.object or total
        under_way, got = [], 0
        for at in range(0, total, step):
            if len(under_way) >= o.inflight:
                got += under_way.pop(0).get()
            length = min(step, total - at)
            under_way.append(file.pread(buffer[at : at + length], length, at, o.task))
        got += sum(future.get() for future in under_way)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        if got != total:
            raise RuntimeError(f"kvikio read {got} of {total} bytes")
        return [buffer], seconds, note

    rival.run(name, o, torch, load, 0)


rival.guarded("kvikio", main)
