//! Signals and the engine's threads.

use nix::sys::signal::{SigSet, Signal};

/// Keeps the process's signals, and their handlers, off a thread of ours (and off its ring's kernel workers).
pub fn block_signals() {
    let mut signals = SigSet::all();
    // Those that the thread itself brings about: blocked, they would only take its handler from a process that has one.
    let own =
        [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGILL, Signal::SIGFPE, Signal::SIGTRAP, Signal::SIGSYS];
    own.into_iter().for_each(|signal| signals.remove(signal));
    if let Err(error) = signals.thread_block() {
        tracing::debug!(%error, "signals may reach a thread of the engine");
    }
}
