//! What a drive behind passthrough answers: 0, a status, or the kernel's errno. It moves all of a command or nothing.

use super::device::Device;
use super::log::Fault;
use crate::target::{Op, Request};

/// Statuses of commands that may succeed when they are asked again: busy inside, a read error that passes.
const PASSING: [i32; 3] = [0x006, 0x004, 0x281];
/// Those that may not: the same with "do not retry", aborted by the driver, a range that is not there, a comparison.
const FINAL: [i32; 5] = [0x4006, 0x4281, 0x007, OUT_OF_RANGE, 0x285];
const OUT_OF_RANGE: i32 = 0x080;

/// Whether a command may be asked again after this status.
pub fn passes(status: i32) -> bool {
    PASSING.contains(&status)
}

impl Device {
    pub(super) fn pass_through(&mut self, request: &Request, disk: usize) -> i32 {
        let rng = &mut self.rng;
        if rng.chance(self.faults.again) {
            if rng.chance(300) {
                self.counts.add(Fault::Again);
                return -libc::EAGAIN;
            }
            self.counts.add(Fault::StatusPasses);
            return rng.pick(&PASSING);
        }
        if rng.chance(self.faults.fail) {
            if rng.chance(300) {
                self.counts.add(Fault::Failed);
                return -rng.pick(&[libc::EIO, libc::ENODEV, libc::EINVAL]);
            }
            self.counts.add(Fault::StatusFinal);
            return rng.pick(&FINAL);
        }
        let (disk, len) = (&mut self.disks[disk], request.window.len() as u64);
        match request.op {
            Op::Flush => {}
            _ if request.offset + len > disk.end => return OUT_OF_RANGE,
            Op::Read => disk.read(request.offset, len, request.window),
            Op::Write => disk.write(request.offset, len, request.window),
        }
        0
    }
}
