#!/usr/bin/env python3
"""InstantTensor: a .safetensors file into GPU memory.

`gbps` is from opening to the last tensor; `gbps_load` leaves the opening out (which maps and registers the file, when it
lies in tmpfs).
"""

import time

import rival
from fastsafetensors_load import header


def more(p):
    p.add_argument("--backend", help="of its Backend: MMAP, URING, URING_BUFFERED, ... (its own choice)")


def main():
    o = rival.arguments(__doc__, more)
    name = f"InstantTensor, {o.backend or 'its own choice'}"
    if o.dry:
        import importlib.util

        found = importlib.util.find_spec("instanttensor")
        rival.skip(name, f"dry: instanttensor {'is at ' + found.origin if found else 'is not there'}")
    torch = rival.gpu(name, o.gpu)
    try:
        from instanttensor import Backend, safe_open
    except ImportError as error:
        rival.skip(name, f"instanttensor: {error}")
    backend = Backend[o.backend] if o.backend else None

    def load():
        torch.cuda.synchronize()
        start = time.perf_counter()
        with safe_open(o.file, framework="pt", device=o.gpu, backend=backend) as file:
            opened = time.perf_counter()
            tensors = [tensor for _, tensor in file.tensors()]
            torch.cuda.synchronize()
            ended = time.perf_counter()
            used = file.backend.name
        moved = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return tensors, ended - start, {"gbps_load": moved / (ended - opened) / 1e9, "note": f"backend {used}"}

    rival.run(name, o, torch, load, header(o.file))


if __name__ == "__main__":
    rival.guarded("InstantTensor", main)
