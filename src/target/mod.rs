//! Targets: where bytes live. A target knows its limits, encodes a command and decodes a result.

mod dax;
mod inner;
mod ioctl;
mod nvme;
mod open;
mod probe;
mod request;
mod stripe;
mod survey;

pub use dax::DaxDevice;
pub use inner::{Closer, Kind, TargetInner};
pub use nvme::{Controller, Smart, encode as nvme_command, smart};
pub use open::{CommandSizes, OpenOptions, open, open_null};
pub use request::{Decoded, Fault, FileRef, Numbers, Op, Request};
#[cfg(feature = "capi")]
pub use stripe::MOST as MOST_MEMBERS;
pub use stripe::stripe;
pub use survey::{Survey, survey};
