//! Engines.

use super::border::{call, count, get, hand_out, known_flags};
use super::error::Failure;
use super::sized::read_or_default;
use super::types::*;
use crate::api::{CuFileUse, Engine, EngineBuilder};
use crate::topology::Lanes;
use std::ffi::c_int;
use std::time::Duration;

/// Owns lanes, targets and regions. Any number of threads may use it at once.
pub struct fullbore_engine {
    pub(super) engine: Engine,
}

/// Makes an engine and starts its lanes. `options`: NULL for the defaults. The engine is the caller's, to destroy.
///
/// 0, or: -EINVAL (options), -EOPNOTSUPP, -EACCES (the kernel gives no io_uring: the message says what forbids it),
/// -ENOMEM, -EMFILE (limits). `*out` is NULL then. Any thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_engine_create(
    options: *const fullbore_engine_options,
    out: *mut *mut fullbore_engine,
) -> c_int {
    call(|| {
        let make = || {
            // SAFETY: NULL, or as long as its size says.
            let builder = match unsafe { read_or_default(options)? } {
                None => Engine::builder(),
                Some(options) => builder(&options)?,
            };
            Ok(fullbore_engine { engine: builder.build()? })
        };
        // SAFETY: NULL, or the caller's.
        unsafe { hand_out(out, make) }
    })
}

/// Sets an option, unless it is 0.
fn with<T: PartialEq + Default>(
    builder: EngineBuilder,
    value: T,
    set: impl FnOnce(EngineBuilder, T) -> EngineBuilder,
) -> EngineBuilder {
    if value == T::default() { builder } else { set(builder, value) }
}

fn builder(options: &fullbore_engine_options) -> Result<EngineBuilder, Failure> {
    use fullbore_engine_flag::*;
    if options.version != FULLBORE_ABI {
        let version = options.version;
        return Err(Failure::invalid(format!(
            "fullbore_engine_options.version is {version}; this library speaks {FULLBORE_ABI}: set it to FULLBORE_ABI, and \
             build the program against this library's header"
        )));
    }
    let (null, no_clone) = (FULLBORE_ENGINE_NULL as u32, FULLBORE_ENGINE_NO_CLONE as u32);
    let polling = FULLBORE_ENGINE_GPU_POLLING as u32;
    known_flags(options.flags, null | no_clone | polling, "fullbore_engine_options")?;
    let mut builder = Engine::builder()
        .lanes(lanes(options.lanes)?)
        .cufile(cufile(options.cufile)?)
        .clone_buffers(options.flags & no_clone == 0)
        .gpu_polling(options.flags & polling != 0);
    if options.flags & null != 0 {
        builder = builder.null();
    }
    builder = with(builder, options.command_size, EngineBuilder::command_size);
    builder = with(builder, options.lane_depth, EngineBuilder::lane_depth);
    builder = with(builder, options.processes, EngineBuilder::processes);
    builder = with(builder, options.max_transfers as usize, EngineBuilder::max_transfers);
    builder = with(builder, options.unit_size, EngineBuilder::unit_size);
    builder = with(builder, options.gpu_outstanding, EngineBuilder::gpu_outstanding);
    builder = with(builder, options.grace_ns, |builder, ns| builder.grace(Duration::from_nanos(ns)));
    builder = with(builder, options.deadline_ns, |builder, ns| {
        builder.deadline((ns != FULLBORE_FOREVER).then_some(Duration::from_nanos(ns)))
    });
    if options.bounce_bytes != 0 || options.bounce_buffers != 0 {
        let bytes = if options.bounce_bytes == 0 { 8 << 20 } else { options.bounce_bytes };
        let buffers = if options.bounce_buffers == 0 { 8 } else { options.bounce_buffers };
        builder = builder.bounce(bytes, buffers as usize);
    }
    Ok(builder)
}

fn lanes(lanes: u32) -> Result<Lanes, Failure> {
    match lanes {
        n if n == fullbore_lanes::FULLBORE_LANES_AUTO as u32 => Ok(Lanes::Auto),
        n if n == fullbore_lanes::FULLBORE_LANES_PER_QUEUE as u32 => Ok(Lanes::PerQueue),
        n if n == fullbore_lanes::FULLBORE_LANES_PER_NUMA as u32 => Ok(Lanes::PerNuma),
        n @ 1..=64 => Ok(Lanes::Count(n as usize)),
        n => Err(Failure::invalid(format!(
            "fullbore_engine_options.lanes is {n}; give 1 to 64, or one of fullbore_lanes"
        ))),
    }
}

fn cufile(cufile: u32) -> Result<CuFileUse, Failure> {
    match cufile {
        n if n == fullbore_cufile::FULLBORE_CUFILE_WHERE_DIRECT as u32 => Ok(CuFileUse::WhereDirect),
        n if n == fullbore_cufile::FULLBORE_CUFILE_NEVER as u32 => Ok(CuFileUse::Never),
        n if n == fullbore_cufile::FULLBORE_CUFILE_ASKED as u32 => Ok(CuFileUse::Asked),
        n => Err(Failure::invalid(format!(
            "fullbore_engine_options.cufile is {n}; give one of fullbore_cufile"
        ))),
    }
}

/// Stops all transfers, drains them within the grace and ends the lanes; every transfer still gets its completion. NULL is
/// nothing. Targets, regions, clients and marks of it live on, to be destroyed before or after; calls over them answer
/// -EBADF then. No other thread may be in a call with this engine. In a forked child it only frees the child's copy.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_engine_destroy(engine: *mut fullbore_engine) -> c_int {
    call(|| {
        if !engine.is_null() {
            // SAFETY: of `fullbore_engine_create`, and the caller's no more.
            drop(unsafe { Box::from_raw(engine) });
        }
        Ok(())
    })
}

/// How many GPUs this process sees (CUDA_VISIBLE_DEVICES); -EOPNOTSUPP where there is no driver or no GPU. Any thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_gpus(engine: *const fullbore_engine) -> i64 {
    // SAFETY: NULL, or a live engine.
    count(|| Ok(unsafe { get(engine, "engine")? }.engine.gpus()? as usize))
}
