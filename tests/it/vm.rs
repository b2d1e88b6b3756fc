//! What only the machine of tests/vm/run can show: the real NVMe driver, by its own tracer. Each test says what it
//! needs of the machine; outside, or in another boot, it prints why it is skipped and passes.

mod bench;
mod blocks;
mod dax;
mod depth;
mod doctor;
mod drives;
mod faults;
mod gpu;
mod lanes;
mod limits;
mod opening;
mod peer;
mod qmp;
mod rig;
mod seen;
mod seen_tests;
mod stripe;
mod tags;
mod trace;
