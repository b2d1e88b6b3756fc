"""What raw_block.py needs of libfullbore.so, by ctypes: structs, constants and calls as fullbore.h has them.

The library is looked for where FULLBORE_LIBRARY says, else as the linker does.
"""

import ctypes
import errno
import os
from ctypes import POINTER, c_int, c_int64, c_size_t, c_void_p

ABI = 1
READ, WRITE = 1, 2
OPEN_WRITE, OPEN_BUFFERED = 1, 4
TARGET_DRIVE = 4
REGION_REGISTERED = 1
KIND_OUT_OF_BOUNDS, KIND_UNEXPECTED_EOF = 2, 17
NO_EXTENT = 2**32 - 1

_TYPES = {"u32": ctypes.c_uint32, "i32": ctypes.c_int32, "u64": ctypes.c_uint64, "ptr": c_void_p, "text": ctypes.c_char_p}


def _struct(name, *lines):
    """A structure by lines of a type and the fields that have it; `[n]` behind a field: n of them."""
    fields = []
    for kind, *names in (line.split() for line in lines):
        for field, _, count in (name.partition("[") for name in names):
            base = ctypes.c_char if kind == "char" else STRUCTS.get(kind) or _TYPES[kind]
            fields.append((field, base * int(count[:-1]) if count else base))
    STRUCTS[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return STRUCTS[name]


# By their names in the header, without `fullbore_`.
STRUCTS = {}
Error = _struct(
    "error", "u32 domain", "i32 code", "u32 kind extent", "u64 offset length", "text message", "u64 reserved[2]"
)
EngineOptions = _struct(
    "engine_options",
    "u32 size version flags command_size lane_depth lanes processes max_transfers",
    "u64 unit_size deadline_ns grace_ns bounce_bytes",
    "u32 bounce_buffers cufile",
    "u64 gpu_outstanding reserved[6]",
)
OpenOptions = _struct("open_options", "u32 size flags", "u64 create_bytes reserved[4]")
TargetInfo = _struct(
    "target_info",
    "u32 size flags",
    "u64 bytes",
    "u32 block_size memory_alignment max_bytes max_segments max_blocks lanes name_space",
    "i32 node",
    "char model[48] serial[32] address[32] block_name[48]",
    "u64 reserved[4]",
)
RegionInfo = _struct(
    "region_info", "u32 size flags", "ptr ptr", "u64 len", "i32 gpu", "u32 padding", "char note[256]", "u64 reserved[4]"
)
_struct("outcome", "u64 bytes", "i32 error", "u32 reserved")
Extent = _struct("extent", "u64 offset", "ptr ptr", "u64 len", "outcome outcome")
Transfer = _struct(
    "transfer",
    "u32 size op",
    "ptr target extents",
    "u64 count tag",
    "u32 trace_id priority flags require",
    "u64 deadline_ns",
    "ptr marks",
    "u64 id reserved[4]",
)
Completion = _struct(
    "completion", "u64 tag bytes queued_ns total_ns", "i32 result", "u32 paths", "error error",
    "u64 waited_ns copied_ns reserved[2]",
)
Stats = _struct(
    "stats",
    "u32 size lanes lanes_stalled lanes_dead kernel_workers clone_buffers",
    "u64 active quarantined_bytes memlock_bytes commands bytes enters waits retries shorts stale in_flight max_in_flight",
    "u64 reserved[8]",
)

_CALLS = {
    "last_error": (POINTER(Error),),
    "engine_create": (c_int, POINTER(EngineOptions), POINTER(c_void_p)),
    "engine_destroy": (c_int, c_void_p),
    "target_open": (c_int, c_void_p, ctypes.c_char_p, POINTER(OpenOptions), POINTER(c_void_p)),
    "target_get_info": (c_int, c_void_p, POINTER(TargetInfo)),
    "target_set_size": (c_int, c_void_p, ctypes.c_uint64),
    "target_destroy": (c_int, c_void_p),
    "region_register_host": (c_int, c_void_p, c_void_p, ctypes.c_uint64, POINTER(c_void_p)),
    "region_get_info": (c_int, c_void_p, POINTER(RegionInfo)),
    "region_free": (c_int, c_void_p, ctypes.c_uint64),
    "client_create": (c_int, c_void_p, POINTER(c_void_p)),
    "client_destroy": (c_int, c_void_p),
    "submit": (c_int64, c_void_p, POINTER(Transfer), c_size_t),
    "wait": (c_int64, c_void_p, c_size_t, c_size_t, ctypes.c_uint64, POINTER(Completion)),
    "stats_get": (c_int, c_void_p, POINTER(Stats)),
}


def _load():
    library = ctypes.CDLL(os.environ.get("FULLBORE_LIBRARY", f"libfullbore.so.{ABI}"))
    for name, (answer, *arguments) in _CALLS.items():
        function = getattr(library, f"fullbore_{name}")
        function.restype, function.argtypes = answer, arguments
        setattr(library, name, function)
    return library


lib = _load()


def sized(struct, **values):
    """A struct that begins with its size."""
    return struct(size=ctypes.sizeof(struct), **values)


def exception(number, kind, message):
    """What Python raises for an errno (positive): RuntimeError at the end of a file, else OSError."""
    if kind in (KIND_OUT_OF_BOUNDS, KIND_UNEXPECTED_EOF) or number == errno.ENODATA:
        return RuntimeError(message)
    # The module that raw_block stands for hears of a write to what is open for reading from the kernel.
    return OSError(errno.EBADF if number == errno.EROFS else number, message)


def last_exception(answer):
    """What the calling thread's last call, which answered this, failed with; and its extent."""
    error = lib.last_error().contents
    return exception(-answer, error.kind, error.message.decode()), error.extent


def check(answer):
    """Raises what a call of the library failed with."""
    if answer < 0:
        raise last_exception(answer)[0]
    return answer
