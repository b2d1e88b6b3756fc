//! The C interface: the only exported symbols of the library, `fullbore_*`. The header native/include/fullbore.h is made
//! of this module by cbindgen (native/header.sh).
//!
//! Each export is a thin form of a call of [`crate::api`]: it turns pointers into references, sized structs into options,
//! and an error into a negative errno with details for the calling thread. Every one of them is inside
//! [`border::call`], so that no panic crosses.
//!
//! Pointers are the caller's word (I10: this is a room with `unsafe`): a handle is one that a create call gave and no
//! destroy call took, an array has as many elements as is said, a struct is as long as its `size`. What can be seen
//! without following them (NULL, alignment, size, flags, engine) is checked.
#![allow(non_camel_case_types)]

mod abi;
mod border;
mod client;
mod engine;
mod error;
mod log;
mod marks;
mod names;
mod region;
mod sized;
mod stats;
mod stats_json;
mod target;
mod types;
mod version;

#[cfg(test)]
mod tests;
