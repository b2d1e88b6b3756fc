//! The log: what the library says through crate `tracing`, to a C program's function.

use super::border::call;
use super::error::{Failure, in_c, one_line};
use super::types::{fullbore_log_fn, fullbore_log_level};
use crate::error::{Error, ErrorKind};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::fmt::Write;
use std::sync::{OnceLock, PoisonError, RwLock};
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

/// Who is told, and what of.
struct Listener {
    level: u32,
    hears: unsafe extern "C" fn(u32, *const std::ffi::c_char, *const std::ffi::c_char, *mut c_void),
    user: *mut c_void,
}

// SAFETY: the function may be called by any thread, with the pointer that was given with it: the header says so.
unsafe impl Send for Listener {}
// SAFETY: as above.
unsafe impl Sync for Listener {}

static LISTENER: RwLock<Option<Listener>> = RwLock::new(None);
/// Whether the process's subscriber is ours: there is one, for ever.
static OURS: OnceLock<bool> = OnceLock::new();

thread_local! {
    /// The listener is being called by this thread.
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

/// Has `log` called with each line of the log up to `level` (a `fullbore_log_level`), with `user`; NULL: nobody any more.
/// It is the whole process's, for every engine. When this returns the one before is called no more: it waits for calls that
/// are being made, so hold no lock here that the function takes. Any thread, but not from within the function itself.
///
/// 0; -EINVAL: no such level; -EBUSY: the process has a subscriber of Rust's crate tracing already; -EDEADLK: called by
/// the function itself.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_log_set(log: fullbore_log_fn, level: u32, user: *mut c_void) -> c_int {
    call(|| {
        if TELLING.get() {
            let message = "fullbore_log_set was called by the log's own function; call it from elsewhere";
            return Err(Error::os(message, libc::EDEADLK).with_kind(ErrorKind::InvalidInput).into());
        }
        let known =
            fullbore_log_level::FULLBORE_LOG_ERROR as u32..=fullbore_log_level::FULLBORE_LOG_DEBUG as u32;
        if log.is_some() && !known.contains(&level) {
            return Err(Failure::invalid(format!(
                "there is no log level {level}; give one of fullbore_log_level"
            )));
        }
        let ours = *OURS.get_or_init(|| tracing::subscriber::set_global_default(ToListener).is_ok());
        if !ours {
            let message = "the process has a subscriber of Rust's crate tracing already, which gets the log";
            return Err(Error::new(ErrorKind::InUse, message).into());
        }
        let listener = log.map(|hears| Listener { level, hears, user });
        *LISTENER.write().unwrap_or_else(PoisonError::into_inner) = listener;
        tracing::callsite::rebuild_interest_cache();
        Ok(())
    })
}

/// The subscriber: it hands events on, and knows no spans.
struct ToListener;

fn number(level: &Level) -> u32 {
    (match *level {
        Level::ERROR => fullbore_log_level::FULLBORE_LOG_ERROR,
        Level::WARN => fullbore_log_level::FULLBORE_LOG_WARN,
        Level::INFO => fullbore_log_level::FULLBORE_LOG_INFO,
        _ => fullbore_log_level::FULLBORE_LOG_DEBUG,
    }) as u32
}

impl Subscriber for ToListener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        if TELLING.get() {
            return false; // the lock below is this thread's already
        }
        let listener = LISTENER.read().unwrap_or_else(PoisonError::into_inner);
        listener.as_ref().is_some_and(|listener| number(metadata.level()) <= listener.level)
    }

    fn event(&self, event: &Event<'_>) {
        if TELLING.get() {
            return; // the function called the library, which has something to say: no lock twice, no telling without end
        }
        let mut line = Line::default();
        event.record(&mut line);
        let (source, message) = (one_line(event.metadata().target()), one_line(&in_c(&line.0)));
        let level = number(event.metadata().level());
        let listener = LISTENER.read().unwrap_or_else(PoisonError::into_inner);
        // The level once more: what `enabled` said before may be of another listener.
        let Some(listener) = listener.as_ref().filter(|listener| level <= listener.level) else { return };
        TELLING.set(true);
        // SAFETY: the caller's function; it does not unwind, by its type.
        unsafe { (listener.hears)(level, source.as_ptr(), message.as_ptr(), listener.user) };
        TELLING.set(false);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// An event's message, and its fields behind it.
#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let space = if self.0.is_empty() { "" } else { " " };
        let _ = match field.name() {
            "message" => {
                let rest = std::mem::take(&mut self.0);
                write!(self.0, "{value:?}{}{rest}", if rest.is_empty() { "" } else { " " })
            }
            name => write!(self.0, "{space}{name}={value:?}"),
        };
    }
}
