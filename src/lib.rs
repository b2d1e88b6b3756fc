//! fullbore moves large objects between storage and memory at the rate of the device.
//!
//! Submit a transfer over registered memory; every command of it is in flight as soon as the device has room; you
//! get exactly one completion; nothing is copied that need not be; and you can ask which path ran.
//!
//! ```
//! use fullbore::{Engine, OpenOptions, Transfer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let file = std::env::temp_dir().join(format!("fullbore-doc-{}", std::process::id()));
//! # std::fs::write(&file, vec![7u8; 4 << 20])?;
//! let engine = Engine::builder().lane_depth(32).build()?;
//! # let options = OpenOptions::read().buffered(); // the temp folder may be any file system
//! # let _ = OpenOptions::read();
//! let drive = engine.open(&file, options)?;
//! let pool = engine.alloc_host(8 << 20)?;
//! let client = engine.client()?;
//!
//! let ticket = client.submit(Transfer::read(&drive).extent(0, pool.lease(0..4 << 20)?).trace_id(7))?;
//! let done = ticket.wait()?;
//! println!("{} bytes in {:?} by {}", done.bytes, done.times.total, done.paths);
//!
//! // The completion gives the leases back, and with them the bytes; or says what failed.
//! let leases = done.into_leases()?;
//! assert!(leases[0].iter().all(|byte| *byte == 7));
//! # std::fs::remove_file(&file)?;
//! # Ok(())
//! # }
//! ```
//!
//! Linux only. See the repository's ARCHITECTURE.md for the data path, the invariants and who owns memory.

#[cfg(not(target_os = "linux"))]
compile_error!("fullbore drives Linux's io_uring; it builds on Linux only");

mod api;
#[cfg(feature = "capi")]
mod capi;
mod error;
mod lane;
mod memory;
mod plan;
mod queue;
mod target;
mod topology;

pub use api::machine;
pub use api::{
    Client, CuFileUse, Drive, Engine, EngineBuilder, LaneStats, Rejected, Stats, Target, Ticket, TransferId,
    WorkRecord,
};
pub use error::{Error, ErrorKind};
pub use lane::{
    Completion, Extent, LatencyHistogram, Marks, Path, PathReport, PathSet, Priority, RawOptions, Times,
    Transfer, Work,
};
pub use memory::{AllocOptions, HostLease, Mem, RawExtent, RawOutcome, Region, RegionRange, ReleaseError};
pub use plan::Geometry;
pub use target::{Op, OpenOptions};
pub use topology::Lanes;
