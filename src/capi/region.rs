//! Regions.

use super::border::{call, get, hand_out, known_flags, small};
use super::engine::fullbore_engine;
use super::error::{Failure, in_c};
use super::sized::{read_or_default, text, write};
use super::types::*;
use crate::error::{Error, ErrorKind};
use crate::memory::{AllocOptions, Region, RegionRange, ReleaseError};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::IntoRawFd;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// Memory that the engine may move to and from. Any number of threads may use it at once, but for `fullbore_region_free`.
pub struct fullbore_region {
    /// `None` only inside of `fullbore_region_free`.
    region: Option<Region>,
}

impl fullbore_region {
    pub(super) fn get(&self) -> Result<&Region, Failure> {
        self.region.as_ref().ok_or_else(|| {
            Failure::invalid("the region is being freed by another thread; free it when no call uses it")
        })
    }
}

/// # Safety
/// `out` is NULL, or may be written.
unsafe fn make(
    engine: *const fullbore_engine,
    out: *mut *mut fullbore_region,
    how: impl FnOnce(&crate::api::Engine) -> Result<Region, Failure>,
) -> c_int {
    // SAFETY: passed on to the caller; the engine is NULL or alive.
    call(|| unsafe {
        hand_out(out, || Ok(fullbore_region { region: Some(how(&get(engine, "engine")?.engine)?) }))
    })
}

fn bytes_of(bytes: u64) -> Result<usize, Failure> {
    usize::try_from(bytes).map_err(|_| Failure::invalid("no such length; give the bytes of the memory"))
}

/// Allocates `bytes` bytes of page-aligned host memory, registered with the rings. `options`: NULL for huge pages where they
/// can be had. The region is the caller's, to free; so is the memory, with it.
///
/// 0, -EINVAL, -ENOMEM. Any thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_region_alloc(
    engine: *const fullbore_engine,
    bytes: u64,
    options: *const fullbore_alloc_options,
    out: *mut *mut fullbore_region,
) -> c_int {
    let how = |engine: &crate::api::Engine| {
        // SAFETY: NULL, or as long as its size says.
        let options = match unsafe { read_or_default(options)? } {
            None => AllocOptions::default(),
            Some(options) => options.options()?,
        };
        Ok(engine.alloc_host_with(bytes_of(bytes)?, &options)?)
    };
    // SAFETY: as the header says.
    unsafe { make(engine, out, how) }
}

impl fullbore_alloc_options {
    fn options(&self) -> Result<AllocOptions, Failure> {
        let no_huge = fullbore_alloc_flag::FULLBORE_ALLOC_NO_HUGE as u32;
        let on_node = fullbore_alloc_flag::FULLBORE_ALLOC_ON_NODE as u32;
        known_flags(self.flags, no_huge | on_node, "fullbore_alloc_options")?;
        let node = (self.flags & on_node != 0).then_some(self.node);
        if self.node != 0 && node.is_none() {
            return Err(Failure::invalid(
                "fullbore_alloc_options.node means nothing without FULLBORE_ALLOC_ON_NODE; set that flag, or node 0",
            ));
        }
        Ok(AllocOptions { huge: self.flags & no_huge == 0, node })
    }
}

/// Registers `len` bytes of the caller's memory at `ptr`. Until `fullbore_region_free` has answered 0 it must stay mapped,
/// and not be remapped or freed; of regions that overlap, until all are gone. While a transfer over it is under way nobody else
/// may access its bytes.
///
/// 0 (also where the kernel refuses to register it, see `fullbore_region_info.note`: commands go unregistered then),
/// -EINVAL. Any thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_region_register_host(
    engine: *const fullbore_engine,
    ptr: *mut c_void,
    len: u64,
    out: *mut *mut fullbore_region,
) -> c_int {
    let how = |engine: &crate::api::Engine| {
        let ptr = NonNull::new(ptr.cast()).ok_or_else(|| super::border::null("ptr"))?;
        // SAFETY: the caller's word, as the header says.
        Ok(unsafe { engine.register_host(ptr, bytes_of(len)?)? })
    };
    // SAFETY: as the header says.
    unsafe { make(engine, out, how) }
}

/// Registers `len` bytes of the caller's GPU memory at the device pointer `ptr` (cudaMalloc, a tensor's data_ptr()). Its GPU
/// is found from the pointer, and all of it must lie in one allocation. The first one of a GPU makes its lane and its bounce
/// buffers, which takes some 10 ms. Until `fullbore_region_free` has answered 0 it must not
/// be freed, nor its context destroyed. While a transfer over it is under way nobody else, kernels included, may access it;
/// kernels that used it before must have ended.
///
/// 0; -EOPNOTSUPP: no CUDA driver or GPU; -EINVAL, -ERANGE: not GPU memory, or not all of it; -EIO with domain CUDA. Any
/// thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_region_register_cuda(
    engine: *const fullbore_engine,
    ptr: u64,
    len: u64,
    out: *mut *mut fullbore_region,
) -> c_int {
    // SAFETY: the caller's word, as the header says.
    let how = |engine: &crate::api::Engine| Ok(unsafe { engine.register_cuda(ptr, bytes_of(len)?)? });
    // SAFETY: as the header says.
    unsafe { make(engine, out, how) }
}

/// Allocates `bytes` bytes on GPU `gpu`, as CUDA counts (within CUDA_VISIBLE_DEVICES). What is in it is not defined. It is
/// freed with the region.
///
/// 0; -ENOENT: no such GPU; -ENOMEM; else as `fullbore_region_register_cuda`. Any thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_region_alloc_gpu(
    engine: *const fullbore_engine,
    gpu: u32,
    bytes: u64,
    out: *mut *mut fullbore_region,
) -> c_int {
    let how = |engine: &crate::api::Engine| Ok(engine.alloc_gpu(gpu, bytes_of(bytes)?)?);
    // SAFETY: as the header says.
    unsafe { make(engine, out, how) }
}

/// Maps `bytes` bytes of PCI peer memory: memory that the device at `address` ("0000:01:00.0") publishes, such as a NVMe
/// drive's controller memory buffer (kernel 6.2; root). It is never registered with the rings. Where one device does not
/// reach another, transfers fail, and say so.
///
/// 0, -EINVAL, -EOPNOTSUPP: the device publishes none, -ENOMEM. Any thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_region_map_peer(
    engine: *const fullbore_engine,
    address: *const c_char,
    bytes: u64,
    out: *mut *mut fullbore_region,
) -> c_int {
    let how = |engine: &crate::api::Engine| {
        // SAFETY: NULL, or a string that ends in a NUL.
        let address = unsafe { get(address, "address").map(|first| CStr::from_ptr(first))? };
        let address =
            address.to_str().map_err(|_| Failure::invalid("`address` is not text; give 0000:01:00.0"))?;
        Ok(engine.map_peer(address, bytes_of(bytes)?)?)
    };
    // SAFETY: as the header says.
    unsafe { make(engine, out, how) }
}

/// What a region is. `info->size` is set before. 0 or -EINVAL. Any thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_region_get_info(
    region: *const fullbore_region,
    info: *mut fullbore_region_info,
) -> c_int {
    call(|| {
        // SAFETY: NULL, or a live region.
        let region = unsafe { get(region, "region")? }.get()?;
        let make = || {
            let registered = fullbore_region_flag::FULLBORE_REGION_REGISTERED as u32;
            let gpu = fullbore_region_flag::FULLBORE_REGION_GPU as u32;
            Ok(fullbore_region_info {
                size: 0,
                flags: if region.is_registered() { registered } else { 0 }
                    | if region.gpu().is_some() { gpu } else { 0 },
                ptr: region.as_ptr().cast(),
                len: region.len() as u64,
                gpu: region.gpu().map_or(-1, |gpu| gpu as i32),
                padding: 0,
                note: text(&in_c(region.registration_note().unwrap_or_default())),
                reserved: [0; 4],
            })
        };
        // SAFETY: NULL, or as long as its size says.
        unsafe { write(info, make) }
    })
}

/// Its first byte (of GPU memory a device pointer, which the CPU must not follow); NULL if `region` is. Any thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_region_ptr(region: *const fullbore_region) -> *mut c_void {
    super::border::value(std::ptr::null_mut(), || {
        // SAFETY: NULL, or a live region.
        Ok(unsafe { get(region, "region")? }.get()?.as_ptr().cast())
    })
}

/// The bytes `from .. from + len` of a region, while nobody else has any of them.
///
/// # Safety
/// As for the exports.
unsafe fn range(region: *const fullbore_region, from: u64, len: u64) -> Result<RegionRange, Failure> {
    // SAFETY: NULL, or a live region.
    let region = unsafe { get(region, "region")? }.get()?;
    let outside = || Error::new(ErrorKind::OutOfBounds, "the range ends outside its region").at(from, len);
    let end = from.checked_add(len).filter(|end| *end <= region.len() as u64).ok_or_else(outside)?;
    Ok(region.range(from as usize..end as usize)?)
}

/// Copies `len` bytes at byte `from` of a region of GPU memory to host memory `to`, and waits for that: for checks, not for
/// speed. Any thread.
///
/// 0, -EINVAL, -ERANGE, -EBUSY: another such call has the bytes; what the driver answers.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_region_copy_out(
    region: *const fullbore_region,
    from: u64,
    to: *mut c_void,
    len: u64,
) -> c_int {
    call(|| {
        if to.is_null() {
            return Err(super::border::null("to"));
        }
        // SAFETY: as the header says.
        let range = unsafe { range(region, from, len)? };
        // SAFETY: the caller's `len` bytes, which nobody else uses during the call.
        let to = unsafe { std::slice::from_raw_parts_mut(to.cast(), range.len()) };
        Ok(range.copy_out(to)?)
    })
}

/// Copies `len` bytes at `from`, host memory, to byte `to` of a region of GPU memory, and waits for that; see
/// `fullbore_region_copy_out`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_region_copy_in(
    region: *const fullbore_region,
    to: u64,
    from: *const c_void,
    len: u64,
) -> c_int {
    call(|| {
        if from.is_null() {
            return Err(super::border::null("from"));
        }
        // SAFETY: as the header says.
        let mut range = unsafe { range(region, to, len)? };
        // SAFETY: the caller's `len` bytes, which nobody changes during the call.
        let from = unsafe { std::slice::from_raw_parts(from.cast(), range.len()) };
        Ok(range.copy_in(from)?)
    })
}

/// Exports GPU memory as a dma-buf: a descriptor that is the caller's, to close. Its address and length must be whole pages
/// (4096). Any thread.
///
/// The descriptor, or -EINVAL, or -EOPNOTSUPP: not GPU memory, or the driver exports none.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_region_export_dma_buf(region: *const fullbore_region) -> c_int {
    // SAFETY: NULL, or a live region.
    small(|| Ok(unsafe { get(region, "region")? }.get()?.export_dma_buf()?.into_raw_fd()))
}

/// How long lanes may take to let go of a region.
const ANSWER: Duration = Duration::from_secs(5);

/// Frees a region: takes it out of every ring, and gives back memory that was allocated. NULL is nothing. What is in flight
/// over it makes this fail, unless it ends within `drain_ns` ns (0: it is not waited for; FULLBORE_FOREVER: behind an abandoned
/// transfer that may be for ever); submit nothing over it meanwhile. Lanes that do not answer are waited for 5 s more. No
/// other thread may be in a call with this region.
///
/// 0: it is gone, and memory that was registered may be freed. Else the region stays as it is, its memory must stay too, and
/// this is to be called again: -EBUSY: transfers are in flight; -EINPROGRESS: late results of an abandoned one may still land
/// in it, or a lane does not answer; -ECHILD: this process forked from the one that has it.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_region_free(region: *mut fullbore_region, drain_ns: u64) -> c_int {
    call(|| {
        if region.is_null() {
            return Ok(());
        }
        // SAFETY: a live region, and no other call uses it.
        release(&mut unsafe { &mut *region }.region, Duration::from_nanos(drain_ns))?;
        // SAFETY: of a call above, and the caller's no more.
        drop(unsafe { Box::from_raw(region) });
        Ok(())
    })
}

fn release(place: &mut Option<Region>, drain: Duration) -> Result<(), Failure> {
    let until = Instant::now().checked_add(drain);
    let mut pause = Duration::from_micros(50);
    loop {
        let Some(region) = place.take() else {
            return Err(Failure::invalid("the region is being freed by another thread; free it once"));
        };
        let Err(error) = region.release(ANSWER) else { return Ok(()) };
        let (kind, message) = (kind_of(&error), error.to_string());
        *place = Some(error.into_region());
        let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        if kind == ErrorKind::Forked || left.is_zero() {
            return Err(Error::new(kind, message).into());
        }
        // Transfers tell their clients when they end, not whoever frees: it looks again, less and less often.
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

fn kind_of(error: &ReleaseError) -> ErrorKind {
    match error {
        ReleaseError::Busy { .. } => ErrorKind::InUse,
        ReleaseError::Quarantined(_) => ErrorKind::Quarantined,
        ReleaseError::Forked(_) => ErrorKind::Forked,
    }
}
