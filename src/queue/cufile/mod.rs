//! cuFile (GPUDirect Storage): files read into and written from GPU memory, by the device itself where the machine can.
//!
//! The library is found at run time. Its synchronous calls run on a few threads of our own ([`Workers`]); its batches are
//! not used at all: submitting one has been seen never to return. Who may use it when is decided elsewhere: here is
//! only what it can ([`CuFile::mode`]), and why.

mod error;
mod mode;
mod register;
#[cfg(all(test, not(loom), not(miri)))]
mod tests;
mod workers;

pub use error::CuFileError;
pub use mode::{Mode, misaligned};
pub use register::{Buffer, Handle};
pub use workers::{Done, Job, Workers};

use crate::memory::{ForkGuard, lock};
use crate::topology::block_signals;
use fullbore_sys::cufile::Table;
use mode::Facts;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The library with its driver open. There is one in a process, and it stays open: others in the process may use it
/// too, and a call that hangs must not have the library closed under it.
#[derive(Debug)]
pub struct CuFile {
    table: Table,
    guard: ForkGuard,
    mode: Mode,
    reason: String,
}

/// How long the driver may take to open. It looks at every GPU and drive; a second or two is usual.
const OPEN_WITHIN: Duration = Duration::from_secs(10);

enum Slot {
    Empty,
    Opening,
    Failed(String),
    Open(Arc<CuFile>),
}

static SLOT: Mutex<Slot> = Mutex::new(Slot::Empty);
static CHANGED: Condvar = Condvar::new();
/// Of the process that loaded first.
static GUARD: OnceLock<ForkGuard> = OnceLock::new();

impl CuFile {
    /// Loads the library and opens its driver, once for the process; after a failure it is tried again. The error says
    /// why not, and what helps. It takes 10 s at most; a driver that hangs is waited for again by the next call.
    pub fn load() -> Result<Arc<CuFile>, String> {
        CuFile::load_within(OPEN_WITHIN)
    }

    fn load_within(limit: Duration) -> Result<Arc<CuFile>, String> {
        let guard = match GUARD.get() {
            Some(guard) => *guard,
            None => {
                let made = ForkGuard::new().map_err(|e| format!("cannot map a page for cuFile: {e}"))?;
                *GUARD.get_or_init(|| made)
            }
        };
        if guard.forked() {
            return Err(AFTER_FORK.to_owned());
        }
        let until = Instant::now() + limit;
        let mut slot = lock(&SLOT);
        if matches!(*slot, Slot::Empty | Slot::Failed(_)) {
            *slot = Slot::Opening;
            let thread = std::thread::Builder::new().name("fullbore-cufile".into());
            if let Err(error) = thread.spawn(move || open_into_slot(guard)) {
                *slot = Slot::Empty;
                return Err(format!(
                    "cannot start a thread to open cuFile; raise the limit (ulimit -u): {error}"
                ));
            }
        }
        loop {
            match &*slot {
                Slot::Open(cufile) => return Ok(cufile.clone()),
                Slot::Failed(why) => return Err(why.clone()),
                Slot::Opening | Slot::Empty => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!(
                    "cuFile did not open its driver within {limit:?}; see cufile.log, and whether nvidia-smi answers"
                ));
            }
            slot = CHANGED.wait_timeout(slot, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What becomes of a request on this machine.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The mode in a sentence, with what is missing for a better one.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Refuses what only the process that loaded cuFile may do.
    fn check_fork(&self, call: &'static str) -> Result<(), CuFileError> {
        if self.guard.forked() { Err(CuFileError::refused(call, AFTER_FORK)) } else { Ok(()) }
    }
}

const AFTER_FORK: &str = "the process forked after cuFile was loaded, and CUDA does not survive that; load it in the \
                          child alone, or fork before";

fn open_into_slot(guard: ForkGuard) {
    block_signals();
    let opened = open(guard);
    *lock(&SLOT) = match opened {
        Ok(cufile) => Slot::Open(Arc::new(cufile)),
        Err(why) => Slot::Failed(why),
    };
    CHANGED.notify_all();
}

fn open(guard: ForkGuard) -> Result<CuFile, String> {
    let table = Table::load().map_err(|why| {
        format!(
            "libcufile cannot be loaded ({why}); install it (package libcufile of CUDA, or nvidia-cufile of pip) \
             and put its folder into LD_LIBRARY_PATH"
        )
    })?;
    // SAFETY: it takes nothing; that it is called once in a process is for `SLOT` to see to.
    let answer = unsafe { (table.driver_open)() };
    match CuFileError::check("cuFileDriverOpen", answer) {
        Err(error) if error.code() == Some(5026) => {} // another user of cuFile in this process was first
        opened => opened.map_err(|error| error.to_string())?,
    }
    let (mode, reason) = Facts::ask(&table).judge();
    tracing::debug!(%reason, "cuFile is open");
    Ok(CuFile { table, guard, mode, reason })
}
