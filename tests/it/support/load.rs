//! Loads that check themselves: destination poisoned, bytes compared where they landed.

use super::{check, poison};
use fullbore::{
    Client, Completion, Engine, HostLease, Op, PathSet, RawExtent, RawOutcome, Region, Target, Transfer,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The lease of a transfer with one extent.
pub fn lease_of(done: Completion) -> HostLease {
    let transfer = done.transfer.expect("only an abandoned transfer keeps its memory");
    transfer.into_extents().remove(0).into_mem().into_host().expect("memory of the engine's own")
}

/// Loads `lease` from `offset` and checks every byte.
#[track_caller]
pub fn load(
    client: &Client,
    target: &Target,
    mut lease: HostLease,
    offset: u64,
    seed: u64,
) -> (HostLease, PathSet) {
    poison(&mut lease);
    let ticket = client.submit(Transfer::read(target).extent(offset, lease)).expect("room for a transfer");
    let done = ticket.wait().expect("a completion");
    done.result.as_ref().expect("the load succeeds");
    let paths = done.paths;
    let lease = lease_of(done);
    check(&lease, offset, seed, "a load");
    (lease, paths)
}

/// The path of aligned direct loads into `region`: where other tests of this user hold all the memory that may be
/// locked, it is not registered, and says so.
pub fn path_into(region: &Region) -> &'static str {
    if region.is_registered() { "uring fixed" } else { "uring" }
}

pub fn raw(offset: u64, ptr: *mut u8, len: usize) -> RawExtent {
    RawExtent { offset, ptr, len: len as u64, outcome: RawOutcome::default() }
}

/// Loads raw extents; their memory and the list stay until this returns, with the one completion.
#[track_caller]
pub fn load_raw(client: &Client, target: &Target, extents: &mut [RawExtent]) -> Completion {
    let mut done = Vec::new();
    // SAFETY: the caller keeps list and memory, and touches neither before this returns: after the completion.
    unsafe { client.submit_raw(target, Op::Read, extents, 7) }.expect("room for a transfer");
    client.wait(1, &mut done, Some(Duration::from_secs(20))).expect("a wait");
    assert_eq!(done.len(), 1, "one transfer, one completion");
    done.remove(0)
}

/// A thread that loads objects over all lanes, and checks them, until it is told to stop.
#[derive(Debug)]
pub struct Background {
    stop: Arc<AtomicBool>,
    loaded: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Background {
    /// Loads all of `target`, whose content is of `seed`, in objects of `each` bytes.
    pub fn start(engine: &Engine, target: &Target, each: usize, seed: u64) -> Background {
        let (client, target) = (engine.client().expect("a client"), target.clone());
        let region = engine.alloc_host(each).expect("memory");
        let (stop, loaded) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, count) = (stop.clone(), loaded.clone());
        let thread = std::thread::spawn(move || {
            let mut lease = region.lease(0..each).expect("a lease");
            for offset in (0..target.size()).step_by(each).cycle() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let (back, paths) = load(&client, &target, lease, offset, seed);
                assert_eq!(paths.to_string(), path_into(&region), "a load in the background");
                lease = back;
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Background { stop, loaded, thread }
    }

    /// Objects loaded so far.
    pub fn loaded(&self) -> u64 {
        self.loaded.load(Ordering::Relaxed)
    }

    /// Waits until `more` objects were loaded since now.
    pub fn goes_on(&self, more: u64) -> bool {
        let from = self.loaded();
        super::eventually(Duration::from_secs(10), || {
            self.loaded() >= from + more || self.thread.is_finished()
        }) && !self.thread.is_finished()
    }

    /// Stops it. Fails if one of its loads did.
    #[track_caller]
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("all loads in the background succeeded")
    }
}
