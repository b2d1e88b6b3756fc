//! All orders in which ticket, lease, client, region, target and engine can be dropped, with transfers in flight.

use super::{LIMIT, Place, SEED, place};
use crate::support::load::{lease_of, raw};
use crate::support::{self, build, check, child, threads, untouched, within};
use fullbore::{Client, Engine, ErrorKind, HostLease, Op, Region, Target, Ticket, Transfer};
use std::time::Duration;

/// 16 commands, few at a time: in flight while handles go. No more, since 720 orders wait for the disk.
const OBJECT: usize = 512 << 10;
const TAG: u64 = 42;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Ticket,
    Lease,
    Client,
    Region,
    Target,
    Engine,
}

const ALL: [What; 6] = [What::Ticket, What::Lease, What::Client, What::Region, What::Target, What::Engine];

fn permutations(of: &[What]) -> Vec<Vec<What>> {
    if of.len() < 2 {
        return vec![of.to_vec()];
    }
    let with_first = |i: usize| {
        let mut rest = of.to_vec();
        let first = rest.remove(i);
        permutations(&rest).into_iter().map(move |mut p| {
            p.insert(0, first);
            p
        })
    };
    (0..of.len()).flat_map(with_first).collect()
}

/// One of everything: a transfer that a ticket asks for, one that is tagged, and a lease that nobody uses.
struct Everything {
    ticket: Option<Ticket>,
    lease: Option<HostLease>,
    client: Option<Client>,
    region: Option<Region>,
    target: Option<Target>,
    engine: Option<Engine>,
    memory: *mut u8,
    label: String,
}

impl Everything {
    fn new(place: &Place, number: usize, label: String) -> Everything {
        let lanes = 1 + number % 2;
        let builder = Engine::builder().lanes(lanes).clone_buffers((number / 2).is_multiple_of(2));
        let engine = builder.lane_depth(2).command_size(32 << 10).build().expect("an engine");
        let (target, region) = (place.open(&engine), engine.alloc_host(3 * OBJECT).expect("a region"));
        let client = engine.client().expect("a client");
        let object = |i: usize| {
            let mut lease = region.lease(i * OBJECT..(i + 1) * OBJECT).expect("free");
            support::poison(&mut lease);
            lease
        };
        let (first, second, lease) = (object(0), object(1), object(2));
        let ticket = client.submit(Transfer::read(&target).extent(0, first)).expect("accepted");
        client.submit_tagged(Transfer::read(&target).extent(OBJECT as u64, second), TAG).expect("accepted");
        Everything {
            memory: region.as_ptr(),
            ticket: Some(ticket),
            lease: Some(lease),
            client: Some(client),
            region: Some(region),
            target: Some(target),
            engine: Some(engine),
            label,
        }
    }

    /// Transfers under way or not fetched, as far as somebody is left who knows.
    fn active(&self) -> Option<usize> {
        self.engine.as_ref().map(|e| e.stats().active)
    }

    /// Memory stays mapped as long as a transfer is under way over it.
    fn memory_is_there(&mut self) {
        let mapped = is_mapped(self.memory); // first: what is under way after this was so now
        if self.active().is_some_and(|n| n > 0) || self.lease.is_some() || self.region.is_some() {
            assert!(mapped, "{}: memory was freed early", self.label);
        }
    }

    fn drop_one(&mut self, what: What, wait: bool) {
        match what {
            What::Ticket if wait => self.wait_for_ticket(),
            What::Ticket => self.ticket = None,
            What::Lease => {
                let lease = self.lease.take().expect("still here");
                assert!(untouched(&lease), "{}: a lease that no transfer used was written to", self.label);
            }
            What::Client => self.drop_client(),
            What::Region => self.region = None,
            What::Target => self.target = None,
            What::Engine => {
                self.engine = None;
                // A thread that was joined may show for a moment.
                let gone = support::eventually(Duration::from_secs(2), || threads("fullbore-").is_empty());
                assert!(gone, "{}: threads left behind: {:?}", self.label, threads("fullbore-"));
            }
        }
    }

    fn wait_for_ticket(&mut self) {
        let done = self.ticket.take().expect("still here").wait().expect("a completion");
        let (result, bytes) = (done.result.clone(), done.bytes);
        let lease = lease_of(done);
        match result {
            Ok(()) => check(&lease, 0, SEED, &self.label),
            Err(e) => {
                assert!(self.engine.is_none() && e.kind() == ErrorKind::Shutdown, "{}: {e}", self.label);
                assert!(bytes < OBJECT as u64, "{}: whole, and yet shut down", self.label);
            }
        }
    }

    /// After the engine is gone every completion is there at once, and once.
    fn drop_client(&mut self) {
        let client = self.client.take().expect("still here");
        if self.engine.is_none() {
            let mut done = Vec::new();
            assert_eq!(client.poll(&mut done), 1, "{}: one completion of the tagged transfer", self.label);
            assert_eq!(done[0].tag, TAG, "{}", self.label);
            let result = &done[0].result;
            let fine = result.as_ref().err().is_none_or(|e| e.kind() == ErrorKind::Shutdown);
            assert!(fine, "{}: {result:?}", self.label);
        }
    }
}

fn is_mapped(at: *mut u8) -> bool {
    let mut resident = 0u8;
    // SAFETY: asks about a page; answers into a byte that lives across the call.
    unsafe { libc::mincore(at.cast(), 4096, &mut resident) == 0 }
}

#[test]
fn every_order_of_drops() {
    let name = "lifecycle::drops::every_order_of_drops";
    support::child(name, &[]).keep_capabilities().limit(300).run(all_orders);
}

/// Answers whether both transfers were in flight.
fn one_order(place: &Place, number: usize, order: &[What], label: String) -> bool {
    let mut all = Everything::new(place, number, label);
    let in_flight = all.active() == Some(2);
    // In two of three orders the ticket's turn is to be waited for.
    let wait = !number.is_multiple_of(3);
    for what in order {
        all.drop_one(*what, wait);
        all.memory_is_there();
    }
    in_flight
}

fn all_orders() {
    let Some(place) = place() else { return };
    let orders = permutations(&ALL);
    assert_eq!(orders.len(), 720);
    let (mut in_flight, mut resident) = (0, 0);
    for (number, order) in orders.iter().enumerate() {
        let label = format!("{order:?} (number {number})");
        in_flight += within(LIMIT, &label, || one_order(&place, number, order, label.clone())) as usize;
        if number == 99 {
            resident = support::status_kib("VmRSS");
        }
    }
    assert!(in_flight > 360, "only {in_flight} of 720 orders had both transfers in flight");
    let after = support::status_kib("VmRSS");
    assert!(after < resident + (64 << 10), "memory is left behind: {resident} KiB, then {after} KiB");
    // A ring that was closed lets go of its buffers a little later, on a worker of the kernel.
    let unpinned = support::eventually(Duration::from_secs(10), || support::status_kib("VmPin") == 0);
    assert!(unpinned, "no region is left, yet {} KiB are pinned", support::status_kib("VmPin"));
}

/// A region says when what was under way over it has ended, also of a client that is gone: from then on a raw list is not
/// read any more, in whose table it may still be. The lists here are so long that their memory goes back to the kernel.
#[test]
fn a_raw_list_may_go_with_its_region() {
    child("lifecycle::drops::a_raw_list_may_go_with_its_region", &[]).run(|| {
        let engine = build(Engine::builder().null().lanes(1));
        let target = engine.open_null(1 << 20).expect("a target");
        for fetchable in [false, true] {
            let (client, mut region) =
                (engine.client().expect("a client"), engine.alloc_host(4096).expect("memory"));
            // One extent in the region; what follows is in none.
            let mut elsewhere = [0u8; 8];
            let mut list = vec![raw(0, elsewhere.as_mut_ptr(), 8); 1 << 20];
            list[0].ptr = region.as_ptr();
            // SAFETY: the list stays until its region was released, which is what this is about; nothing is moved.
            unsafe { client.submit_raw(&target, Op::Read, &mut list, 0) }.expect("accepted");
            let client = fetchable.then_some(client); // or it goes first
            if let Some(client) = &client {
                client.await_ready(1, Some(LIMIT)).expect("it ends");
            }
            while let Err(error) = region.release(Duration::ZERO) {
                region = error.into_region();
            }
            drop(list);
            drop(client);
        }
    });
}
