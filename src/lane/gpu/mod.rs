//! The lane of a GPU: one thread that moves every transfer to and from its memory, in one order over all requests.
//!
//! It claims units as other lanes do. A unit from a mapped target is copied straight out of the mapping. Any other gets a
//! pinned *bounce buffer*, which a transfer of its own (the unit's *child*) fills by the lanes of the target; when that is
//! done the buffer is queued for the GPU. A store goes the other way round. The copy engine is first in, first out and
//! knows no priorities (FACTS §5), so few bytes are put into it at a time and the order is made here.
//!
//! While only the GPU works the lane sleeps on its bell, until about the time when a copy should have ended by the rate seen
//! so far, and looks in small steps from then on (`queue/cuda/waits.rs`).

mod bounce;
mod copies;
mod direct;
mod lane;
mod layout;
mod route;
mod slot;
mod unit;

pub use lane::{GpuLane, GpuSpec};
pub use layout::SLACK;
pub use route::{path_of, path_of_job};

use super::job::Job;
use super::slots::Handle;
use crate::error::Error;
use crate::target::TargetInner;

/// Takes a lane's child transfers in. The engine does it; lanes know nothing of dealing.
pub trait Feeder: Send + Sync {
    /// Submits a child in an entry that is kept for it, with its parent's class and deadline (on the engine's clock).
    fn feed(&self, child: Job, class: u8, deadline: u64, tag: u64) -> Result<Handle, Error>;

    /// How many bytes in flight keep all lanes of a target busy.
    fn appetite(&self, target: &TargetInner) -> u64;
}
