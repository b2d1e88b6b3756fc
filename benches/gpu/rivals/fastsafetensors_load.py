#!/usr/bin/env python3
"""fastsafetensors (its copier without GPUDirect): a .safetensors file into GPU memory.

Timed from copy_files_to_device() to the last tensor; its reader, pinned memory and threads exist before.
"""

import time

import rival


def more(p):
    p.add_argument("--threads", type=int, default=16)
    p.add_argument("--bounce", type=rival.size, default=16 << 20, help="bounce buffer of a thread")


def main():
    o = rival.arguments(__doc__, more)
    name = f"fastsafetensors, {o.threads} threads"
    try:
        import fastsafetensors
        from fastsafetensors import SafeTensorsFileLoader
    except ImportError as error:
        rival.skip(name, f"fastsafetensors: {error}")
    if o.dry:
        rival.skip(name, f"dry: fastsafetensors imports from {fastsafetensors.__file__}")
    torch = rival.gpu(name, o.gpu)
    loader = SafeTensorsFileLoader(None, f"cuda:{o.gpu}", bbuf_size_kb=o.bounce >> 10, max_threads=o.threads, nogds=True)
    offset = header(o.file)
    kept = []

    def load():
        while kept:
            kept.pop().close()
        loader.reset()
        loader.add_filenames({0: [o.file]})
        torch.cuda.synchronize()
        start = time.perf_counter()
        buffers = loader.copy_files_to_device()
        tensors = [buffers.get_tensor(key) for key in sorted(loader.get_keys())]
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        kept.append(buffers)
        return tensors, seconds, {"note": f"{o.threads} threads, bounce {o.bounce >> 20} MiB"}

    rival.run(name, o, torch, load, offset)


def header(path):
    with open(path, "rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


if __name__ == "__main__":
    rival.guarded("fastsafetensors", main)
