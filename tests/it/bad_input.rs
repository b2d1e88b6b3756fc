//! Bad input of every kind is a typed error before anything is issued, and what was handed in comes back whole.

mod builder;
mod devices;
mod opening;
mod raw;
mod required;
mod transfers;

use crate::support::{self, Folder, folders};
use fullbore::{Client, Engine, Error, ErrorKind, OpenOptions, Region, Rejected, Target, Transfer};

pub const SIZE: u64 = (1 << 20) + 100;
pub const SEED: u64 = 5;

/// An engine with a file to read, one to write and a region. The file system is the first that takes O_DIRECT.
pub struct Bench {
    pub engine: Engine,
    pub client: Client,
    pub region: Region,
    pub read: Target,
    pub write: Target,
    pub folder: Folder,
}

/// `None`, printed, where there is no ring or no O_DIRECT.
pub fn bench() -> Option<Bench> {
    let folder = support::uring().then(folders)?.into_iter().next()?;
    let engine = Engine::builder().lanes(2).build().expect("an engine");
    let (read, write) = (folder.file("read", SIZE, SEED), folder.file("write", 1 << 20, SEED));
    Some(Bench {
        client: engine.client().expect("a client"),
        region: engine.alloc_host(1 << 20).expect("a region"),
        read: engine.open(read, OpenOptions::read()).expect("opens"),
        write: engine.open(write, OpenOptions::write()).expect("opens"),
        folder,
        engine,
    })
}

/// What an engine issued and holds so far.
pub fn issued(engine: &Engine) -> (u64, u64, usize) {
    let stats = engine.stats();
    (stats.lanes.iter().map(|l| l.commands).sum(), stats.lanes.iter().map(|l| l.bytes).sum(), stats.active)
}

/// The error is of `kind`, and its message has each of `words` (cause and remedy).
#[track_caller]
pub fn is(error: &Error, kind: ErrorKind, words: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for word in words {
        assert!(text.contains(word), "\"{word}\" is not in: {text}");
    }
}

/// `attempt` fails with `kind` and a message with `words`, and nothing was issued.
#[track_caller]
pub fn refused<T>(
    engine: &Engine,
    kind: ErrorKind,
    words: &[&str],
    attempt: impl FnOnce() -> Result<T, Error>,
) -> Error {
    let before = issued(engine);
    let error = match attempt() {
        Ok(_) => panic!("{kind:?} ({words:?}) was expected"),
        Err(error) => error,
    };
    is(&error, kind, words);
    assert_eq!(issued(engine), before, "something was issued in spite of: {error}");
    error
}

/// Submitting fails so; the transfer comes back whole, its leases as they were.
#[track_caller]
pub fn rejected(bench: &Bench, kind: ErrorKind, words: &[&str], transfer: Transfer) -> Error {
    let ask = |t: &Transfer| t.extents().iter().map(|e| (e.offset(), e.len())).collect::<Vec<_>>();
    let asked = ask(&transfer);
    let mut back = None;
    let error = refused(&bench.engine, kind, words, || {
        bench.client.submit(transfer).map_err(|Rejected { transfer, error }| {
            back = Some(transfer);
            error
        })
    });
    let transfer = back.expect("handed back");
    assert_eq!(ask(&transfer), asked, "the transfer comes back as it was");
    // Tagged submission judges alike.
    let again = bench.client.submit_tagged(transfer, 1).expect_err("refused again");
    is(&again.error, kind, words);
    let (count, mut held) = (asked.len(), 0);
    for extent in again.transfer.into_extents() {
        let len = extent.len() as usize;
        if let Some(mut lease) = extent.into_mem().into_host() {
            lease.fill(1);
            assert_eq!(lease.len(), len, "the lease is usable");
        }
        held += 1;
    }
    assert_eq!(held, count, "every lease came back");
    error
}
