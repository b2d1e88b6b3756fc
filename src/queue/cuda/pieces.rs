//! Many small pieces of GPU memory at once: one bulk copy between pinned memory and *staging* on the GPU, and a kernel
//! that moves each piece between staging and its place. A copy a piece reaches half of the link at 128 KiB (FACTS §2).

use super::stream::Stream;
use crate::memory::cuda::{CudaError, DeviceMemory, Gpu, HostMemory};
use cudarc::driver::sys::{CUfunction, CUmodule};
use std::ffi::c_void;
use std::sync::Arc;

/// Stagings: as many units can be between their copy and their kernel.
const STATIONS: usize = 4;
/// Threads of a block, and about how many blocks fill a GPU: see native/copy_pieces.cu.
const THREADS: u32 = 256;
const BLOCKS: u32 = 256;

/// The kernel, for any GPU since 2017: the driver compiles it for the one at hand.
static PTX: &str = concat!(include_str!("../../../native/copy_pieces.ptx"), "\0");

/// A piece: where it lies on the GPU, where in staging, how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub device: u64,
    pub at: usize,
    pub len: usize,
}

/// A line of the kernel's table, as native/copy_pieces.cu has it.
#[repr(C)]
struct Line {
    to: u64,
    from: u64,
    len: u64,
}

struct Station {
    staging: DeviceMemory,
    table: HostMemory,
    /// The table, as the GPU sees it.
    there: u64,
    /// Who uses it.
    token: Option<u32>,
}

/// See the module.
pub(super) struct Pieces {
    gpu: Arc<Gpu>,
    module: CUmodule,
    function: CUfunction,
    pub stream: Stream,
    stations: Vec<Station>,
}

// SAFETY: handles that the driver lets any thread use.
unsafe impl Send for Pieces {}

/// Most pieces that are moved so: a table of 768 KiB. What is smaller on average is copied one by one.
pub const MOST_PIECES: usize = 32 << 10;

impl Pieces {
    /// With stagings of `bytes`; the GPU's context must be current.
    pub fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Pieces, CudaError> {
        let driver = gpu.driver;
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: an out parameter of ours, and a text that ends with a 0.
        let code = unsafe { (driver.cuModuleLoadData)(&mut module, PTX.as_ptr().cast()) };
        driver.check("cuModuleLoadData", code)?;
        // SAFETY: as above.
        let code =
            unsafe { (driver.cuModuleGetFunction)(&mut function, module, c"fullbore_copy_pieces".as_ptr()) };
        let stream = driver.check("cuModuleGetFunction", code).and_then(|()| Stream::new(gpu));
        // From here on the drop of `Pieces` unloads the module.
        let mut pieces = match stream {
            Ok(stream) => Pieces { gpu: gpu.clone(), module, function, stream, stations: Vec::new() },
            Err(error) => {
                // SAFETY: loaded above, and used by nobody.
                let _ = unsafe { (driver.cuModuleUnload)(module) };
                return Err(error);
            }
        };
        for _ in 0..STATIONS {
            let table = HostMemory::new(gpu, MOST_PIECES * size_of::<Line>())?;
            let (there, staging) = (table.on_device()?, DeviceMemory::new(gpu, bytes)?);
            pieces.stations.push(Station { staging, table, there, token: None });
        }
        Ok(pieces)
    }

    pub fn has_room(&self) -> bool {
        self.stations.iter().any(|station| station.token.is_none())
    }

    /// Takes a staging for `token`; answers which and where it is. `None`: all are in use.
    pub fn take(&mut self, token: u32) -> Option<(usize, u64)> {
        let free = self.stations.iter().position(|station| station.token.is_none())?;
        let station = &mut self.stations[free];
        station.token = Some(token);
        Some((free, station.staging.ptr))
    }

    /// What `token` used has ended.
    pub fn give_back(&mut self, token: u32) {
        let mine = self.stations.iter_mut().filter(|station| station.token == Some(token));
        mine.for_each(|station| station.token = None);
    }

    /// Queues in `stream` the kernel that moves pieces out of staging `station` to their places, or the other way round.
    pub fn launch(
        &self,
        stream: &Stream,
        station: usize,
        pieces: &[Piece],
        to_places: bool,
    ) -> Result<(), CudaError> {
        self.gpu.check("cuLaunchKernel")?;
        let Station { staging, table, there, .. } = &self.stations[station];
        for (i, piece) in pieces.iter().take(MOST_PIECES).enumerate() {
            let (place, staged) = (piece.device, staging.ptr + piece.at as u64);
            let (to, from) = if to_places { (place, staged) } else { (staged, place) };
            // SAFETY: the table has room for `MOST_PIECES` lines, and no kernel reads it: the token that used it ended.
            unsafe { table.ptr().cast::<Line>().add(i).write(Line { to, from, len: piece.len as u64 }) };
        }
        let (mut there, mut count) = (*there, pieces.len().min(MOST_PIECES) as u32);
        let slices = (BLOCKS / count.max(1)).max(1);
        let mut parameters: [*mut c_void; 2] = [(&raw mut there).cast(), (&raw mut count).cast()];
        let none: *mut *mut c_void = std::ptr::null_mut();
        // SAFETY: the kernel takes these two parameters; what its table names stays until the mark behind it has ended.
        let code = unsafe {
            (self.gpu.driver.cuLaunchKernel)(
                self.function,
                count,
                slices,
                1,
                THREADS,
                1,
                1,
                0,
                stream.raw(),
                parameters.as_mut_ptr(),
                none,
            )
        };
        self.gpu.driver.check("cuLaunchKernel", code)
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return }; // it went with the context
        // SAFETY: loaded by `new`; nothing of it runs when it goes.
        let _ = unsafe { (self.gpu.driver.cuModuleUnload)(self.module) };
    }
}
