//! Encodes a command for NVMe passthrough (NVM Command Set Specification, "Read", "Write", "Flush").

use super::super::{Numbers, Op};
use crate::memory::Window;
use fullbore_sys::nvme_uring_cmd;

/// Most blocks in one command: their number is 16 bits wide and counted from 0.
pub const MAX_BLOCKS: u32 = 1 << 16;

/// Namespace number that is no namespace's: the kernel answers EINVAL, the device sees nothing.
const NO_NAMESPACE: u32 = 0;

/// Encodes a command over `window` from byte `offset` of a namespace.
///
/// Offset and length must be whole blocks, 1 to 65 536 of them (none for a flush). The kernel does not compare
/// the device's block count with the memory it maps, so a command that breaks this would let the device write
/// past its memory: it is made one that the kernel refuses (EINVAL).
pub fn encode(op: Op, numbers: Numbers, offset: u64, window: Window) -> nvme_uring_cmd {
    let Numbers { nsid, lba_shift, timeout_ms } = numbers;
    let opcode = match op {
        Op::Flush => 0x00,
        Op::Write => 0x01,
        Op::Read => 0x02,
    };
    let mut command = nvme_uring_cmd { opcode, nsid, timeout_ms, ..nvme_uring_cmd::default() };
    if op == Op::Flush {
        return command;
    }
    let blocks = (window.len() as u64) >> lba_shift;
    let whole = (window.len() as u64 | offset) & ((1 << lba_shift) - 1) == 0;
    if !whole || blocks == 0 || blocks > MAX_BLOCKS as u64 || window.len() > u32::MAX as usize {
        return nvme_uring_cmd { nsid: NO_NAMESPACE, ..command };
    }
    let lba = offset >> lba_shift;
    command.addr = window.addr();
    command.data_len = window.len() as u32;
    command.cdw10 = lba as u32;
    command.cdw11 = (lba >> 32) as u32;
    command.cdw12 = blocks as u32 - 1;
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Scratch;

    const TIMEOUT_MS: u32 = 30_000;

    fn encode(
        op: Op,
        nsid: u32,
        lba_shift: u8,
        offset: u64,
        window: Window,
        timeout_ms: u32,
    ) -> nvme_uring_cmd {
        super::encode(op, Numbers { nsid, lba_shift, timeout_ms }, offset, window)
    }

    /// Memory for a command; its pages are never touched.
    fn memory(len: usize) -> (Scratch, Window) {
        let scratch = Scratch::new(1, len.next_multiple_of(4096)).unwrap();
        let window = scratch.window(0).sub(0, len);
        (scratch, window)
    }

    #[test]
    fn a_read_has_what_the_specification_asks_for() {
        let (_memory, window) = memory(128 << 10);
        let command = encode(Op::Read, 3, 12, 20 << 20, window, TIMEOUT_MS);
        let expected = nvme_uring_cmd {
            opcode: 2,
            nsid: 3,
            addr: window.addr(),
            data_len: 128 << 10,
            cdw10: 5120,
            cdw12: 31,
            timeout_ms: TIMEOUT_MS,
            ..Default::default()
        };
        assert_eq!(format!("{command:?}"), format!("{expected:?}"));
        assert_eq!(encode(Op::Write, 3, 12, 20 << 20, window, TIMEOUT_MS).opcode, 1);
    }

    #[test]
    fn a_flush_moves_nothing() {
        let (_memory, window) = memory(4096);
        for window in [Window::empty(), window] {
            let command = encode(Op::Flush, 1, 12, 4096, window, TIMEOUT_MS);
            let expected = nvme_uring_cmd { nsid: 1, timeout_ms: TIMEOUT_MS, ..Default::default() };
            assert_eq!(format!("{command:?}"), format!("{expected:?}"));
        }
    }

    /// From the first block to the last of 2^33 and of the largest there can be: the number is 64 bits wide.
    #[test]
    fn blocks_and_bytes_agree_everywhere() {
        let (_memory, whole) = memory(32 << 20);
        for shift in 9..=16_u8 {
            for total in [1_u64 << 33, i64::MAX as u64 >> shift] {
                for blocks in [1_u64, 2, 8, 255, 256, 257] {
                    for lba in [0, 1, u32::MAX as u64, u32::MAX as u64 + 1, total - blocks] {
                        let window = whole.sub(0, (blocks << shift) as usize);
                        let command = encode(Op::Read, 1, shift, lba << shift, window, TIMEOUT_MS);
                        assert_eq!((command.cdw11 as u64) << 32 | command.cdw10 as u64, lba);
                        assert_eq!((command.cdw12 as u64 + 1) << shift, command.data_len as u64);
                        assert_eq!(command.data_len as usize, window.len());
                        assert_eq!((command.cdw13, command.cdw14, command.cdw15), (0, 0, 0));
                    }
                }
            }
        }
    }

    #[test]
    fn the_most_blocks_fit_their_16_bits() {
        let (_memory, window) = memory(32 << 20);
        let command = encode(Op::Write, 1, 9, 0, window, TIMEOUT_MS);
        assert_eq!((command.nsid, command.cdw12, command.data_len), (1, 0xffff, 32 << 20));
    }

    /// A command whose blocks and memory differ would make the device write where it may not.
    #[test]
    fn what_is_not_whole_blocks_is_a_command_that_the_kernel_refuses() {
        let (_memory, whole) = memory((32 << 20) + 512);
        for (shift, offset, len) in [
            (12, 0, 0),
            (12, 0, 512),
            (12, 0, 4097),
            (12, 512, 4096),
            (12, 4095, 4096),
            // One block too many.
            (9, 0, (32 << 20) + 512),
        ] {
            let command = encode(Op::Read, 1, shift, offset, whole.sub(0, len), TIMEOUT_MS);
            let none = (NO_NAMESPACE, 0, 0, 0);
            assert_eq!((command.nsid, command.addr, command.data_len, command.cdw12), none, "{offset} {len}");
        }
    }
}
