//! GPU memory, by the CUDA driver API. The library is loaded when it is first needed: a machine without it builds and
//! runs all the same, and says so when GPU memory is asked for.
//!
//! Contexts of the caller are not touched: a device's primary context, which the CUDA runtime uses too, is retained,
//! and made current only around a call. Nothing pageable is handed to the driver: a pageable copy of 120 KiB held its
//! lock for 34-80 ms (FACTS §5).

mod device_memory;
mod driver;
mod gpu;
mod pinned;
mod words;

pub use device_memory::{DeviceMemory, Held, copy_in, copy_out, is_device};
pub use driver::{CudaError, NOT_READY};
pub use gpu::{Gpu, count};
pub use pinned::{HostMemory, MOST as MOST_PINNED, Pinned};
pub use words::{Word, Words};
