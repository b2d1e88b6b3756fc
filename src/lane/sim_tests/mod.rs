//! Seeded schedules: the real lane code over a simulated device, with the invariants checked at every step.
//!
//! Everything runs on one thread, without a system call that matters: a seed repeats its schedule. The world (clients,
//! the watchdog, other lanes) moves between the steps of a lane, and also *within* them, wherever a lane calls its
//! queue. `FULLBORE_SEED` and `FULLBORE_SCHEDULES` set the first seed and how many schedules run.

mod check;
mod client;
mod completion;
mod memory;
mod mutations;
mod plan;
mod quiet;
mod ride;
mod run;
mod schedules;
mod stripes;
mod transitions;
mod world;
