//! Raw lists say what transfers say: path, deadline, marks, durable; and a client is one descriptor of an event loop.

use crate::bad_input::{Bench, bench, is, issued, refused};
use crate::support::load::{path_into, raw};
use crate::support::{check, poison, within};
use fullbore::{
    Client, Completion, Error, ErrorKind as K, Marks, Op, OpenOptions, Path, Priority, RawExtent, RawOptions,
    Target, TransferId, Work, WorkRecord,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(20);
const KIB: usize = 1 << 10;

fn submit(
    b: &Bench,
    (target, op): (&Target, Op),
    list: &mut [RawExtent],
    options: RawOptions,
) -> Result<TransferId, Error> {
    // SAFETY: list and memory outlive the completion: each test fetches it before they go.
    unsafe { b.client.submit_raw(target, op, list, options) }
}

fn one(client: &Client) -> Completion {
    let mut done = Vec::new();
    client.wait(1, &mut done, Some(WAIT)).expect("a wait");
    assert_eq!(done.len(), 1, "one transfer, one completion");
    done.remove(0)
}

#[test]
fn a_path_can_be_demanded_of_a_raw_list() {
    let Some(b) = bench() else { return };
    let read = (&b.read, Op::Read);
    let good = raw(0, b.region.as_ptr(), 64 * KIB);
    let by = |path| RawOptions::tag(9).require(path);
    refused(&b.engine, K::PathUnavailable, &["cufile", "demanded"], || {
        submit(&b, read, &mut [good], by(Path::CuFile)).map(drop)
    });
    // What is not aligned goes through scratch, and what is in no region is not fixed: the extent is named.
    let mut pages = vec![0u8; 3 * 4096];
    let inside = pages.as_mut_ptr().wrapping_add(pages.as_ptr().align_offset(4096));
    for (bad, word) in [(raw(1, b.region.as_ptr(), 4096), "align"), (raw(0, inside, 4096), "not registered")]
    {
        let error = refused(&b.engine, K::PathUnavailable, &[word], || {
            submit(&b, read, &mut [good, bad], by(Path::Fixed)).map(drop)
        });
        assert!(!b.region.is_registered() || error.extent_index() == Some(1), "{error}");
    }
    let path = if path_into(&b.region) == "uring fixed" { Path::Fixed } else { Path::Plain };
    let mut list = [good];
    submit(&b, read, &mut list, by(path)).expect("that one would run");
    let done = one(&b.client);
    done.result.expect("loaded");
    assert_eq!((done.tag, done.paths.to_string().as_str()), (9, path.name()));
    b.region.release(WAIT).expect("no refused list counts against the region");
}

#[test]
fn a_raw_list_has_a_deadline_of_its_own() {
    let Some(b) = bench() else { return };
    let mut list = [raw(0, b.region.as_ptr(), 64 * KIB)];
    submit(&b, (&b.read, Op::Read), &mut list, RawOptions::tag(1).deadline(Duration::ZERO)).expect("taken");
    is(&one(&b.client).result.expect_err("it was over when it began"), K::TimedOut, &["deadline"]);
    assert_eq!(list[0].outcome.errno, libc::ETIMEDOUT);
    let options = RawOptions::tag(2).no_deadline().priority(Priority::Urgent).trace_id(7);
    submit(&b, (&b.read, Op::Read), &mut list, options).expect("taken");
    one(&b.client).result.expect("it has all the time there is");
}

#[test]
fn marks_land_in_a_raw_list() {
    let Some(b) = bench() else { return };
    let mut lease = b.region.lease(0..256 * KIB).expect("a lease");
    poison(&mut lease);
    drop(lease);
    let at = |i: usize| raw((i * 64 * KIB) as u64, b.region.as_ptr().wrapping_add(i * 64 * KIB), 64 * KIB);
    let mut list: Vec<_> = (0..4).map(at).collect();
    let marks = Marks::after([0, 3]).expect("marks");
    let with = |tag| RawOptions::tag(tag).marks(&marks);
    for round in 0..3 {
        submit(&b, (&b.read, Op::Read), &mut list, with(round)).expect("taken");
        marks.wait(0, WAIT).expect("the first");
        marks.wait(1, WAIT).expect("the last");
        one(&b.client).result.expect("loaded");
        assert!(marks.ended() && marks.landed() == 2);
    }
    check(&b.region.lease(0..256 * KIB).expect("a lease"), 0, crate::bad_input::SEED, "what has landed");
    // Refused lists give the marks back.
    let few = &mut list[..2];
    refused(&b.engine, K::InvalidInput, &["behind extent 3"], || {
        submit(&b, (&b.read, Op::Read), few, with(4)).map(drop)
    });
    let elsewhere = with(5).require(Path::CuFile);
    submit(&b, (&b.read, Op::Read), &mut list, elsewhere).expect_err("another path would run");
    submit(&b, (&b.read, Op::Read), &mut list, with(6)).expect("the marks are free");
    one(&b.client).result.expect("loaded");
}

/// A durable write is a command more, the flush behind it; of a read the word means nothing.
#[test]
fn a_raw_write_can_be_durable() {
    let Some(b) = bench() else { return };
    let mut list = [raw(0, b.region.as_ptr(), 4 * KIB)];
    let mut commands = |target: &Target, op, options: RawOptions| {
        let before = issued(&b.engine).0;
        submit(&b, (target, op), &mut list, options).expect("taken");
        one(&b.client).result.expect("done");
        issued(&b.engine).0 - before
    };
    let durable = || RawOptions::tag(1).durable();
    assert_eq!(commands(&b.write, Op::Write, durable()), 2);
    assert_eq!(commands(&b.write, Op::Write, RawOptions::tag(1)), 1);
    assert_eq!(commands(&b.read, Op::Read, durable()), 1);
    let transfer = fullbore::Transfer::read(&b.read).durable();
    let transfer = transfer.extent(0, b.region.range(0..4 * KIB).expect("a range"));
    b.client.submit(transfer).expect("taken").wait().expect("an end").result.expect("a read too");
}

/// Readable while something is there, and no longer: by loads, and by a flush with a tag.
#[test]
fn a_descriptor_is_readable_while_completions_are_there() {
    let Some(b) = bench() else { return };
    let wait = |ms: u16| {
        let mut fds = [PollFd::new(b.client.completion_fd().expect("a descriptor"), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(ms)).expect("poll")
    };
    let mut lists = [[raw(0, b.region.as_ptr(), 64 * KIB)], [raw(0, b.region.as_ptr(), 64 * KIB)]];
    let [before, after] = &mut lists;
    submit(&b, (&b.read, Op::Read), before, RawOptions::tag(1)).expect("taken");
    within(
        WAIT,
        "a completion",
        || while b.engine.stats().lanes.iter().map(|l| l.bytes).sum::<u64>() == 0 {},
    );
    assert_eq!(wait(20_000), 1, "what was there before the descriptor was");
    submit(&b, (&b.read, Op::Read), after, RawOptions::tag(2)).expect("taken");
    let flush = b.client.flush_tagged(&b.write, 3).expect("taken");
    let mut tags = Vec::new();
    while tags.len() < 3 {
        assert_eq!(wait(20_000), 1, "{tags:?} are not all");
        let Some(done) = b.client.poll_one() else { continue };
        done.result.expect("done");
        tags.push(done.tag);
    }
    assert!(b.client.poll_one().is_none());
    assert_eq!(wait(0), 0, "nothing is there");
    tags.sort_unstable();
    assert_eq!(tags, [1, 2, 3]);
    assert!(!b.client.cancel(flush), "it is over");
    assert!(!b.client.cancel(TransferId::from_u64(u64::MAX)), "there is no such transfer");
    assert_eq!(TransferId::from_u64(flush.to_u64()), flush);
    assert_eq!(b.client.await_ready(1, Some(Duration::from_millis(1))).expect("a wait"), 0);
}

/// Waiting leaves the completions where they are.
#[test]
fn completions_can_be_awaited_and_left() {
    let Some(b) = bench() else { return };
    let target = b.engine.open(b.read.name(), OpenOptions::read()).expect("opens");
    let mut lists: Vec<_> = (0..5).map(|_| [raw(0, b.region.as_ptr(), 4 * KIB)]).collect();
    for (list, tag) in lists.iter_mut().zip(0..) {
        submit(&b, (&target, Op::Read), list, RawOptions::tag(tag)).expect("taken");
    }
    assert_eq!(b.client.await_ready(5, None).expect("all"), 5);
    assert_eq!(b.client.await_ready(100, None).expect("no more are under way"), 5);
    let mut done = Vec::new();
    assert_eq!(b.client.wait(1, &mut done, None).expect("a wait"), 5);
    is(&b.client.await_ready(1, None).expect_err("for ever"), K::InvalidInput, &["under way"]);
}

/// Every command of a load is recorded once, inside of the transfer's time; what finds no room is counted.
#[test]
fn what_lanes_did_is_recorded() {
    let Some(b) = bench() else { return };
    assert_eq!(b.engine.take_records().0.len(), 0, "off until it is asked for");
    b.engine.record_work(20).expect("on");
    let mut list = [raw(0, b.region.as_ptr(), 1024 * KIB)];
    let began = Instant::now();
    submit(&b, (&b.read, Op::Read), &mut list, RawOptions::tag(1).trace_id(77)).expect("taken");
    one(&b.client).result.expect("loaded");
    let (records, lost) = b.engine.take_records();
    assert_eq!((records.iter().map(|r| r.bytes).sum::<u64>(), lost), (1 << 20, 0));
    let mut places: Vec<_> = records.iter().map(|r| (r.offset, r.bytes)).collect();
    places.sort_unstable();
    let end = places.iter().fold(0, |at, &(offset, bytes)| if offset == at { at + bytes } else { u64::MAX });
    assert_eq!(end, 1 << 20, "one behind the other: {places:?}");
    for record in &records {
        assert!(began <= record.begun && record.begun <= record.ended && record.ended <= Instant::now());
        assert_eq!(
            (record.work, record.trace_id, record.op, record.failed),
            (Work::Command, 77, Op::Read, false)
        );
        let alike = |r: &&WorkRecord| (r.lane, r.slot) == (record.lane, record.slot);
        let at_once = |r: &&WorkRecord| r.begun < record.ended && record.begun < r.ended;
        assert_eq!(
            records.iter().filter(alike).filter(at_once).count(),
            1,
            "a place has one command at a time"
        );
    }
    // Eight commands a transfer, or two on tmpfs.
    for tag in 0..32 / records.len() as u64 {
        submit(&b, (&b.read, Op::Read), &mut list, RawOptions::tag(tag)).expect("taken");
        one(&b.client).result.expect("loaded");
    }
    let (records, lost) = b.engine.take_records();
    assert_eq!((records.len(), lost), (20, 32 - 20));
}

/// Lanes read the clock once a turn. What they take in meanwhile does not begin before it was submitted.
#[test]
fn nothing_begins_before_it_was_submitted() {
    const COUNT: u32 = 20_000;
    let Some(b) = bench() else { return };
    b.engine.record_work(8 * COUNT as usize).expect("on");
    let mut lists: Vec<_> = (0..4).map(|_| [raw(0, b.region.as_ptr(), 4 * KIB)]).collect();
    let (mut submitted, mut done, mut free) = (Vec::new(), Vec::new(), vec![0, 1, 2, 3]);
    for id in 1..=COUNT {
        if free.is_empty() {
            b.client.wait(1, &mut done, Some(WAIT)).expect("a wait");
            assert!(!done.is_empty(), "in time");
        }
        for completion in done.drain(..) {
            completion.result.expect("loaded");
            free.push(completion.tag);
        }
        let tag = free.pop().expect("one of four is over");
        submitted.push(Instant::now());
        let options = RawOptions::tag(tag).trace_id(id);
        submit(&b, (&b.read, Op::Read), &mut lists[tag as usize], options).expect("taken");
    }
    b.client.wait(4 - free.len(), &mut done, Some(WAIT)).expect("all");
    let (records, lost) = b.engine.take_records();
    assert!(records.len() >= COUNT as usize && lost == 0);
    let early = records.iter().filter(|r| r.begun < submitted[r.trace_id as usize - 1]).count();
    assert_eq!(early, 0, "of {} commands", records.len());
}
