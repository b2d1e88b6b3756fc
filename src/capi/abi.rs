//! The layout that programs were compiled against. A change here is a change of the interface: FULLBORE_ABI says so, and
//! tests/c/abi.c has the same numbers.

use super::types::*;
use crate::memory::{RawExtent, RawOutcome};
use std::mem::offset_of;

macro_rules! layout {
    ($($name:ident: $size:literal { $($field:ident: $at:literal),+ $(,)? })*) => {
        $(const _: () = {
            assert!(size_of::<$name>() == $size && align_of::<$name>() == 8);
            $(assert!(offset_of!($name, $field) == $at);)+
        };)*
    };
}

layout! {
    fullbore_error: 56 { domain: 0, code: 4, kind: 8, extent: 12, offset: 16, length: 24, message: 32, reserved: 40 }
    fullbore_engine_options: 128 {
        size: 0, version: 4, flags: 8, command_size: 12, lane_depth: 16, lanes: 20, processes: 24, max_transfers: 28,
        unit_size: 32, deadline_ns: 40, grace_ns: 48, bounce_bytes: 56, bounce_buffers: 64, cufile: 68,
        gpu_outstanding: 72, reserved: 80,
    }
    fullbore_open_options: 48 { size: 0, flags: 4, create_bytes: 8, reserved: 16 }
    fullbore_alloc_options: 40 { size: 0, flags: 4, node: 8, padding: 12, reserved: 16 }
    fullbore_outcome: 16 { bytes: 0, error: 8, reserved: 12 }
    fullbore_extent: 40 { offset: 0, ptr: 8, len: 16, outcome: 24 }
    fullbore_transfer: 112 {
        size: 0, op: 4, target: 8, extents: 16, count: 24, tag: 32, trace_id: 40, priority: 44, flags: 48, require: 52,
        deadline_ns: 56, marks: 64, id: 72, reserved: 80,
    }
    fullbore_completion: 128 {
        tag: 0, bytes: 8, queued_ns: 16, total_ns: 24, result: 32, paths: 36, error: 40, waited_ns: 96, copied_ns: 104,
        reserved: 112,
    }
    fullbore_target_info: 240 {
        size: 0, flags: 4, bytes: 8, block_size: 16, memory_alignment: 20, max_bytes: 24, max_segments: 28,
        max_blocks: 32, lanes: 36, name_space: 40, node: 44, model: 48, serial: 96, address: 128, block_name: 160,
        reserved: 208,
    }
    fullbore_region_info: 320 { size: 0, flags: 4, ptr: 8, len: 16, gpu: 24, padding: 28, note: 32, reserved: 288 }
    fullbore_path_info: 488 { size: 0, path: 4, reason: 8, reserved: 456 }
    fullbore_stats: 184 {
        size: 0, lanes: 4, lanes_stalled: 8, lanes_dead: 12, kernel_workers: 16, clone_buffers: 20, active: 24,
        quarantined_bytes: 32, memlock_bytes: 40, commands: 48, bytes: 56, enters: 64, waits: 72, retries: 80,
        shorts: 88, stale: 96, in_flight: 104, max_in_flight: 112, reserved: 120,
    }
}

// A list from C is the engine's own kind of list.
const _: () = {
    assert!(
        size_of::<RawExtent>() == 40 && offset_of!(RawExtent, ptr) == 8 && offset_of!(RawExtent, len) == 16
    );
    assert!(offset_of!(RawExtent, offset) == 0 && offset_of!(RawExtent, outcome) == 24);
    assert!(
        size_of::<RawOutcome>() == 16
            && offset_of!(RawOutcome, bytes) == 0
            && offset_of!(RawOutcome, errno) == 8
    );
};
