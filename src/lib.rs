//! fullbore
mod error;
mod plan;
pub use error::*;
