//! Targets.

use super::border::{call, get, hand_out, known_flags};
use super::engine::fullbore_engine;
use super::error::{Failure, in_c};
use super::region::fullbore_region;
use super::sized::{read_or_default, text, write};
use super::types::*;
use crate::api::Target;
use crate::target::{MOST_MEMBERS, OpenOptions};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where bytes live. Any number of threads may use it at once.
pub struct fullbore_target {
    pub(super) target: Target,
    /// Lanes that serve it.
    lanes: u32,
}

fn handle(engine: &fullbore_engine, target: Target) -> fullbore_target {
    fullbore_target { lanes: engine.engine.lanes_of(&target) as u32, target }
}

type Step = fn(OpenOptions) -> OpenOptions;

impl fullbore_open_options {
    fn options(&self) -> Result<OpenOptions, Failure> {
        use fullbore_open_flag::*;
        let all = [
            FULLBORE_OPEN_WRITE,
            FULLBORE_OPEN_CREATE,
            FULLBORE_OPEN_BUFFERED,
            FULLBORE_OPEN_MAPPED,
            FULLBORE_OPEN_POLLED,
            FULLBORE_OPEN_GUARD_SIGBUS,
            FULLBORE_OPEN_FORCE,
        ];
        known_flags(self.flags, all.iter().map(|flag| *flag as u32).sum(), "fullbore_open_options")?;
        let has = |flag: fullbore_open_flag| self.flags & flag as u32 != 0;
        if self.create_bytes > 0 && !has(FULLBORE_OPEN_CREATE) {
            return Err(Failure::invalid(
                "fullbore_open_options.create_bytes means nothing without FULLBORE_OPEN_CREATE; set that flag, or 0 bytes",
            ));
        }
        let mut options = if has(FULLBORE_OPEN_WRITE) { OpenOptions::write() } else { OpenOptions::read() };
        let steps: [(_, Step); 5] = [
            (FULLBORE_OPEN_BUFFERED, OpenOptions::buffered),
            (FULLBORE_OPEN_MAPPED, OpenOptions::mapped),
            (FULLBORE_OPEN_POLLED, OpenOptions::polled),
            (FULLBORE_OPEN_GUARD_SIGBUS, OpenOptions::guard_sigbus),
            (FULLBORE_OPEN_FORCE, OpenOptions::force),
        ];
        for (_, step) in steps.into_iter().filter(|(flag, _)| has(*flag)) {
            options = step(options);
        }
        Ok(if has(FULLBORE_OPEN_CREATE) { options.create(self.create_bytes) } else { options })
    }
}

/// # Safety
/// `options` is NULL, or as long as its size says.
unsafe fn options_of(options: *const fullbore_open_options) -> Result<OpenOptions, Failure> {
    // SAFETY: passed on to the caller.
    unsafe { read_or_default(options)? }.map_or_else(|| Ok(OpenOptions::read()), |options| options.options())
}

/// # Safety
/// `path` is NULL, or a string that ends in a NUL and lives through `'a`.
unsafe fn path_of<'a>(path: *const c_char) -> Result<&'a Path, Failure> {
    // SAFETY: passed on to the caller.
    let path = unsafe { get(path, "path").map(|first| CStr::from_ptr(first))? };
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// Opens a file, a block device, a NVMe namespace by its character device (/dev/ng0n1) or a DAX device (/dev/dax0.0).
/// `path`: ends in a NUL; `options`: NULL for reading. The target is the caller's, to destroy. The first block of a NVMe
/// namespace is read, which takes up to 40 s of a drive that hangs.
///
/// 0, or what the kernel answered (-ENOENT, -EACCES, ...), -EINVAL, -EBUSY (writing to what is mounted or held),
/// -EINVAL with kind FULLBORE_KIND_UNSUPPORTED (no O_DIRECT there). Any thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_target_open(
    engine: *const fullbore_engine,
    path: *const c_char,
    options: *const fullbore_open_options,
    out: *mut *mut fullbore_target,
) -> c_int {
    call(|| {
        let make = || {
            // SAFETY: NULL, or as the header says, each of them.
            let (engine, path, options) =
                unsafe { (get(engine, "engine")?, path_of(path)?, options_of(options)?) };
            Ok(handle(engine, engine.engine.open(path, options)?))
        };
        // SAFETY: NULL, or the caller's.
        unsafe { hand_out(out, make) }
    })
}

/// Opens `count` paths, alike, as one target: `chunk` bytes (whole blocks, at most 1 GiB) go to each in turn. All must be of
/// one kind and geometry, and on at most eight drives. The target is the caller's, to destroy.
///
/// As `fullbore_target_open`; -EINVAL: members of different kinds or geometries, one twice, or more than 64. Any thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_target_open_stripe(
    engine: *const fullbore_engine,
    paths: *const *const c_char,
    count: usize,
    chunk: u64,
    options: *const fullbore_open_options,
    out: *mut *mut fullbore_target,
) -> c_int {
    call(|| {
        let make = || {
            // SAFETY: NULL, or as the header says, each of them.
            let (engine, options) = unsafe { (get(engine, "engine")?, options_of(options)?) };
            // SAFETY: NULL, or `count` strings.
            unsafe { get(paths, "paths")? };
            // Before any is opened, or made.
            if !(1..=MOST_MEMBERS).contains(&count) {
                return Err(Failure::invalid(format!(
                    "a stripe has 1 to {MOST_MEMBERS} members, and {count} were given"
                )));
            }
            let one = |at: usize| {
                // SAFETY: one of `count` strings.
                let path = unsafe { path_of(paths.add(at).read_unaligned())? };
                Ok::<_, Failure>(engine.engine.open(path, options.clone())?)
            };
            let members = (0..count).map(one).collect::<Result<Vec<_>, _>>()?;
            Ok(handle(engine, engine.engine.stripe(&members, chunk)?))
        };
        // SAFETY: NULL, or the caller's.
        unsafe { hand_out(out, make) }
    })
}

/// A target of `bytes` bytes for an engine over the null queue (FULLBORE_ENGINE_NULL). It is the caller's, to destroy.
///
/// 0, -EINVAL, -EOPNOTSUPP: the engine is not over the null queue, -EBADF: it was destroyed. Any thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_target_open_null(
    engine: *const fullbore_engine,
    bytes: u64,
    out: *mut *mut fullbore_target,
) -> c_int {
    call(|| {
        let make = || {
            // SAFETY: NULL, or a live engine.
            let engine = unsafe { get(engine, "engine")? };
            Ok(handle(engine, engine.engine.open_null(bytes)?))
        };
        // SAFETY: NULL, or the caller's.
        unsafe { hand_out(out, make) }
    })
}

/// What a target is. `info->size` is set before. 0 or -EINVAL. Any thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_target_get_info(
    target: *const fullbore_target,
    info: *mut fullbore_target_info,
) -> c_int {
    call(|| {
        // SAFETY: NULL, or a live target.
        let target = unsafe { get(target, "target")? };
        // SAFETY: NULL, or as long as its size says.
        unsafe { write(info, || Ok(info_of(target))) }
    })
}

fn info_of(handle: &fullbore_target) -> fullbore_target_info {
    use fullbore_target_flag::*;
    let target = &handle.target;
    let (geometry, drive) = (target.geometry(), target.drive());
    let flag = |flag: fullbore_target_flag, on| if on { flag as u32 } else { 0 };
    let word = |of: fn(&crate::api::Drive) -> Option<&str>| drive.as_ref().and_then(of).unwrap_or_default();
    fullbore_target_info {
        size: 0,
        flags: flag(FULLBORE_TARGET_DIRECT, target.is_direct())
            | flag(FULLBORE_TARGET_MAPPED, target.is_mapped())
            | flag(FULLBORE_TARGET_DRIVE, drive.is_some())
            | flag(FULLBORE_TARGET_WRITE_CACHE, drive.as_ref().is_some_and(|drive| drive.write_cache)),
        bytes: target.size(),
        block_size: geometry.block,
        memory_alignment: geometry.memory_align,
        max_bytes: geometry.max_bytes,
        max_segments: geometry.max_segments,
        max_blocks: geometry.max_blocks,
        lanes: handle.lanes,
        name_space: drive.as_ref().map_or(0, |drive| drive.namespace),
        node: drive.as_ref().and_then(|drive| drive.node).map_or(-1, |node| node as i32),
        model: text(word(|drive| Some(&drive.model))),
        serial: text(word(|drive| Some(&drive.serial))),
        address: text(word(|drive| drive.address.as_deref())),
        block_name: text(word(|drive| drive.block_name.as_deref())),
        reserved: [0; 4],
    }
}

/// Makes a file `bytes` bytes long; new blocks are preallocated. 0, -EINVAL: not a file, -EROFS: opened for reading, or what
/// the kernel answered (-ENOSPC, ...). Any thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_target_set_size(target: *const fullbore_target, bytes: u64) -> c_int {
    // SAFETY: NULL, or a live target.
    call(|| Ok(unsafe { get(target, "target")? }.target.set_size(bytes)?))
}

/// Refuses transfers from now on (-EBADF); those under way go on. 0 or -EINVAL. Any thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_target_close(target: *const fullbore_target) -> c_int {
    call(|| {
        // SAFETY: NULL, or a live target.
        unsafe { get(target, "target")? }.target.close();
        Ok(())
    })
}

/// Frees the handle; transfers under way go on, and what was opened is closed behind the last one. NULL is nothing. No other
/// thread may be in a call with it.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_target_destroy(target: *mut fullbore_target) -> c_int {
    call(|| {
        if !target.is_null() {
            // SAFETY: of an open call, and the caller's no more.
            drop(unsafe { Box::from_raw(target) });
        }
        Ok(())
    })
}

/// The path that aligned transfers between a target and a region take, and why. `region`: NULL for memory of no region;
/// `info->size` is set before. Of GPU memory it is the path of reads that are not of small pieces. Any thread.
///
/// 0; -EINVAL: of two engines.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_path_query(
    engine: *const fullbore_engine,
    target: *const fullbore_target,
    region: *const fullbore_region,
    info: *mut fullbore_path_info,
) -> c_int {
    call(|| {
        // SAFETY: NULL, or alive, each of them.
        let (engine, target) = unsafe { (get(engine, "engine")?, get(target, "target")?) };
        // SAFETY: as above.
        let region = unsafe { region.as_ref() }.map(fullbore_region::get).transpose()?;
        let make = || {
            let report = engine.engine.path_of(&target.target, region)?;
            let (path, reason) = (report.path as u32, text(&in_c(&report.reason)));
            Ok(fullbore_path_info { size: 0, path, reason, reserved: [0; 4] })
        };
        // SAFETY: NULL, or as long as its size says.
        unsafe { write(info, make) }
    })
}
