//! The integration tests: one program, so that it is linked once.

mod bad_input;
mod bench;
mod conformance;
mod cost;
mod dax;
mod doctor;
mod fake_cuda;
mod gpu;
mod layering;
mod lifecycle;
mod processes;
mod raw_options;
mod refusals;
mod registration;
mod stalls;
mod stripes;
mod support;
mod sweep;
mod vm;
mod workers;
