//! Targets: where bytes live. A target knows its limits, encodes a command and decodes a result.

mod file;
mod ioctl;
#[allow(dead_code, unused_imports)] // Until targets are made of it.
pub mod nvme;
mod open;
mod probe;

pub use file::{Closer, Decoded, FileRef, Kind, Op, Request, TargetInner};
pub use open::{OpenOptions, open, open_null};
