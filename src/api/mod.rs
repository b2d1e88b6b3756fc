//! What a user holds: engine, target, region, client, transfer, ticket, statistics.

mod builder;
mod client;
mod cufile;
mod engine;
mod file_slots;
mod gpu;
mod groups;
pub mod machine;
mod marks;
mod raw;
mod records;
mod shared;
mod stats;
mod submit;
mod target;
mod ticket;

pub use builder::EngineBuilder;
pub use client::{Client, TransferId};
pub use cufile::CuFileUse;
pub use engine::Engine;
pub use records::WorkRecord;
#[cfg(feature = "capi")]
pub use shared::ring_refusal;
pub use stats::{LaneStats, Stats};
pub use submit::Rejected;
pub use target::{Drive, Target};
pub use ticket::Ticket;
