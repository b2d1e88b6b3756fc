//! The planner: pure arithmetic from extents to units and commands. No file descriptor, no clock.
//!
//! An extent (a byte range of a target and as many bytes of memory) is cut twice. *Units* of about 1 MiB
//! are what lanes claim, so that one object in flight uses every lane. *Commands* are what the device
//! takes whole. Both cuts are functions of a position alone: a lane that was handed unit 7 needs nothing
//! from the lane that works on unit 6.

mod command;
mod geometry;
mod stripe;
mod units;

pub use command::{Command, next_command, routes};
pub use geometry::Geometry;
pub use stripe::{PARTS, Part, Stripe};
pub use units::{Extents, Unit, UnitCursor};
