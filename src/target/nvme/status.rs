//! The status of an NVMe completion (NVM Express Base Specification 2.0, figures 92 to 98, "Status Code").

use crate::error::ErrorKind;
use std::fmt;

/// The status field of a completion without its phase bit: what passthrough answers when it is greater than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u16);

/// Status code types.
const GENERIC: u8 = 0;
const SPECIFIC: u8 = 1;
const MEDIA: u8 = 2;
const PATH: u8 = 3;

/// The device says that the same command would fail again.
const DO_NOT_RETRY: u16 = 0x4000;

impl Status {
    /// Status code type: whose codes `sc` is one of.
    pub fn sct(self) -> u8 {
        (self.0 >> 8 & 7) as u8
    }

    /// Status code.
    pub fn sc(self) -> u8 {
        self.0 as u8
    }

    /// Whether the command did what it should.
    pub fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }

    /// Whether the same command may be asked again, a bounded number of times.
    ///
    /// The device's own word, DNR, comes first, but drives leave it out where it should be. So what cannot change by
    /// waiting a little is not asked again either: a command that is wrong, a range that is not there, a right
    /// that is missing. Nor is an aborted one: the driver aborts what was too slow (FACTS §4), and asking again
    /// would lead it to reset the controller, for all of its users. What this table does not know is DNR's to say.
    pub fn may_retry(self) -> bool {
        if self.is_success() || self.0 & DO_NOT_RETRY != 0 {
            return false;
        }
        match (self.sct(), self.sc()) {
            // Wrong commands; 03 (a command identifier twice) is the driver's affair and passes.
            (GENERIC, 0x01 | 0x02 | 0x0b..=0x18 | 0x1a | 0x1e | 0x1f | 0x26..=0x2d) => false,
            // Abort requested, or by a reservation; sanitizing and formatting last for minutes.
            (GENERIC, 0x07 | 0x1b | 0x1c | 0x1d | 0x84) => false,
            // Write protected, range, capacity, reserved by another host.
            (GENERIC, 0x20 | 0x80 | 0x81 | 0x83) => false,
            (SPECIFIC, _) => false,
            // Protection information, comparison, right, blocks never written: the medium will say so again.
            (MEDIA, 0x82..=0x88) => false,
            (PATH, 0x01) => false,
            _ => true,
        }
    }

    /// The kind of error that a caller sees.
    pub fn kind(self) -> ErrorKind {
        match (self.sct(), self.sc()) {
            (GENERIC, 0x80) => ErrorKind::OutOfBounds,
            (GENERIC, 0x81) => ErrorKind::Resource,
            (GENERIC, 0x20) | (SPECIFIC, 0x82) => ErrorKind::ReadOnly,
            (GENERIC, 0x15 | 0x83) | (MEDIA, 0x86) => ErrorKind::Permission,
            (GENERIC, 0x01 | 0x12) => ErrorKind::Unsupported,
            _ => ErrorKind::Io,
        }
    }

    /// Its name in the specification.
    pub fn name(self) -> Option<&'static str> {
        match self.sct() {
            GENERIC => generic(self.sc()),
            SPECIFIC => specific(self.sc()),
            MEDIA => media(self.sc()),
            PATH => path(self.sc()),
            7 => Some("Vendor Specific"),
            _ => None,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name().unwrap_or("Unknown NVMe status");
        write!(f, "{name}: sct {}, sc {:#04x}", self.sct(), self.sc())?;
        f.write_str(if self.0 & DO_NOT_RETRY != 0 { ", do not retry" } else { "" })
    }
}

fn generic(sc: u8) -> Option<&'static str> {
    Some(match sc {
        0x00 => "Successful Completion",
        0x01 => "Invalid Command Opcode",
        0x02 => "Invalid Field in Command",
        0x03 => "Command ID Conflict",
        0x04 => "Data Transfer Error",
        0x05 => "Commands Aborted due to Power Loss Notification",
        0x06 => "Internal Error",
        0x07 => "Command Abort Requested",
        0x08 => "Command Aborted due to SQ Deletion",
        0x09 => "Command Aborted due to Failed Fused Command",
        0x0a => "Command Aborted due to Missing Fused Command",
        0x0b => "Invalid Namespace or Format",
        0x0c => "Command Sequence Error",
        0x0d => "Invalid SGL Segment Descriptor",
        0x0e => "Invalid Number of SGL Descriptors",
        0x0f => "Data SGL Length Invalid",
        0x10 => "Metadata SGL Length Invalid",
        0x11 => "SGL Descriptor Type Invalid",
        0x12 => "Invalid Use of Controller Memory Buffer",
        0x13 => "PRP Offset Invalid",
        0x14 => "Atomic Write Unit Exceeded",
        0x15 => "Operation Denied",
        0x16 => "SGL Offset Invalid",
        0x18 => "Host Identifier Inconsistent Format",
        0x19 => "Keep Alive Timer Expired",
        0x1a => "Keep Alive Timeout Invalid",
        0x1b => "Command Aborted due to Preempt and Abort",
        0x1c => "Sanitize Failed",
        0x1d => "Sanitize In Progress",
        0x1e => "SGL Data Block Granularity Invalid",
        0x1f => "Command Not Supported for Queue in CMB",
        0x20 => "Namespace is Write Protected",
        0x21 => "Command Interrupted",
        0x22 => "Transient Transport Error",
        0x23 => "Command Prohibited by Command and Feature Lockdown",
        0x24 => "Admin Command Media Not Ready",
        0x80 => "LBA Out of Range",
        0x81 => "Capacity Exceeded",
        0x82 => "Namespace Not Ready",
        0x83 => "Reservation Conflict",
        0x84 => "Format In Progress",
        _ => return None,
    })
}

/// Of the many that are specific to a command, those of read, write and flush, and of zones.
fn specific(sc: u8) -> Option<&'static str> {
    Some(match sc {
        0x80 => "Conflicting Attributes",
        0x81 => "Invalid Protection Information",
        0x82 => "Attempted Write to Read Only Range",
        0x83 => "Command Size Limit Exceeded",
        0xb8 => "Zone Boundary Error",
        0xb9 => "Zone Is Full",
        0xba => "Zone Is Read Only",
        0xbb => "Zone Is Offline",
        0xbc => "Zone Invalid Write",
        0xbd => "Too Many Active Zones",
        0xbe => "Too Many Open Zones",
        0xbf => "Invalid Zone State Transition",
        _ => return None,
    })
}

fn media(sc: u8) -> Option<&'static str> {
    Some(match sc {
        0x80 => "Write Fault",
        0x81 => "Unrecovered Read Error",
        0x82 => "End-to-end Guard Check Error",
        0x83 => "End-to-end Application Tag Check Error",
        0x84 => "End-to-end Reference Tag Check Error",
        0x85 => "Compare Failure",
        0x86 => "Access Denied",
        0x87 => "Deallocated or Unwritten Logical Block",
        0x88 => "End-to-end Storage Tag Check Error",
        _ => return None,
    })
}

fn path(sc: u8) -> Option<&'static str> {
    Some(match sc {
        0x00 => "Internal Path Error",
        0x01 => "Asymmetric Access Persistent Loss",
        0x02 => "Asymmetric Access Inaccessible",
        0x03 => "Asymmetric Access Transition",
        0x60 => "Controller Pathing Error",
        0x70 => "Host Pathing Error",
        0x71 => "Command Aborted By Host",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_ones_have_their_names_and_all_have_numbers() {
        for (status, text) in [
            // 641: what FACTS §3 saw of an injected media error.
            (641, "Unrecovered Read Error: sct 2, sc 0x81"),
            (0x4012, "Invalid Use of Controller Memory Buffer: sct 0, sc 0x12, do not retry"),
            (0x0007, "Command Abort Requested: sct 0, sc 0x07"),
            (0x4080, "LBA Out of Range: sct 0, sc 0x80, do not retry"),
            (0x0371, "Command Aborted By Host: sct 3, sc 0x71"),
            (0x07ab, "Vendor Specific: sct 7, sc 0xab"),
            (0x05ab, "Unknown NVMe status: sct 5, sc 0xab"),
            (0x0099, "Unknown NVMe status: sct 0, sc 0x99"),
        ] {
            assert_eq!(Status(status).to_string(), text);
        }
    }

    #[test]
    fn more_and_retry_delay_are_no_part_of_the_code() {
        let status = Status(0x3800 | 0x281);
        assert_eq!((status.sct(), status.sc()), (2, 0x81));
        assert!(status.may_retry());
        assert!(Status(0x2000).is_success() && !Status(1).is_success());
    }

    #[test]
    fn do_not_retry_is_obeyed_whatever_the_code() {
        for code in 0..0x800 {
            assert!(!Status(code | DO_NOT_RETRY).may_retry(), "{}", Status(code));
        }
    }

    #[test]
    fn what_may_change_is_asked_again_and_what_cannot_is_not() {
        for code in [0x004, 0x006, 0x021, 0x022, 0x082, 0x280, 0x281, 0x302, 0x303, 0x371, 0x7c0] {
            assert!(Status(code).may_retry(), "{}", Status(code));
        }
        // Abort Requested above all: a second expiry resets the controller (FACTS §4).
        for code in [
            0x007, 0x001, 0x002, 0x00b, 0x012, 0x013, 0x01d, 0x020, 0x080, 0x081, 0x083, 0x181, 0x1b9, 0x286,
            0x301,
        ] {
            assert!(!Status(code).may_retry(), "{}", Status(code));
        }
    }

    #[test]
    fn kinds_that_a_caller_can_act_on() {
        assert_eq!(Status(0x4080).kind(), ErrorKind::OutOfBounds);
        assert_eq!(Status(0x4020).kind(), ErrorKind::ReadOnly);
        assert_eq!(Status(0x0286).kind(), ErrorKind::Permission);
        assert_eq!(Status(0x0281).kind(), ErrorKind::Io);
    }
}
