#!/usr/bin/env python3
"""Wraps the first bytes of a file as a .safetensors file: U8 tensors of --object bytes, the same bytes in the same order.

The header is padded so that the payload begins on a page, which rivals that use O_DIRECT are glad of.
"""

import argparse
import json
import os

import rival


def header(count, object_bytes):
    """Name order is file order. Spaces at the end of a header are legal."""
    tensors = {f"object.{n:06d}": {"dtype": "U8", "shape": [object_bytes],
                                   "data_offsets": [n * object_bytes, (n + 1) * object_bytes]} for n in range(count)}
    text = json.dumps(tensors, separators=(",", ":")).encode()
    padded = (8 + len(text) + 4095) // 4096 * 4096 - 8
    return padded.to_bytes(8, "little") + text + b" " * (padded - len(text))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--file", required=True, help="where the payload comes from")
    p.add_argument("--out", required=True)
    p.add_argument("--object", type=rival.size, default=20 << 20)
    p.add_argument("--bytes", type=rival.size, default=None, help="of the payload, rounded down to whole objects (all)")
    o = p.parse_args()
    have = os.stat(o.file).st_size
    count = min(o.bytes or have, have) // o.object
    if count < 1:
        p.error("not one whole object")
    with open(o.file, "rb") as source, open(o.out, "wb") as out:
        head = header(count, o.object)
        out.write(head)
        out.flush()
        left, at = count * o.object, 0
        while left:
            chunk = source.read(min(left, 64 << 20))
            if not chunk:
                raise SystemExit("make_safetensors.py: the file became shorter")
            out.write(chunk)
            left -= len(chunk)
        out.flush()
        os.fsync(out.fileno())
    print(json.dumps({"out": o.out, "tensors": count, "payload_offset": len(head), "bytes": count * o.object}))


if __name__ == "__main__":
    main()
