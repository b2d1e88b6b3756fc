//! A completion against what the device really did.

use super::memory::POISON;
use super::ride::{Ride, Span, State};
use super::world::{CACHED, World};
use crate::error::ErrorKind;
use crate::lane::{Completion, Path};
use crate::queue::sim::{BLANK, Command, Device, bytes, content, passes};
use crate::target::Op;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// How often a lane asks again with nothing gained.
const ATTEMPTS: u32 = 8;

/// What a command came to, by its answers alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Moved,
    Failed(Failed),
    /// It was not asked to the end: only a stop explains that.
    Dropped,
}

/// Where a command failed, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failed {
    at: u64,
    kind: ErrorKind,
    errno: Option<i32>,
    status: Option<u16>,
    /// It was asked again too often. Or its transfer was stopped by then: that is no failure.
    exhausted: bool,
}

impl Failed {
    fn errno(at: u64, kind: ErrorKind, errno: i32) -> Fate {
        Fate::Failed(Failed { at, kind, errno: Some(errno), status: None, exhausted: errno == libc::EAGAIN })
    }

    fn status(at: u64, status: i32, exhausted: bool) -> Fate {
        let kind = if status == 0x080 { ErrorKind::OutOfBounds } else { ErrorKind::Io };
        Fate::Failed(Failed { at, kind, errno: None, status: Some(status as u16), exhausted })
    }
}

/// What an error says, its place first.
type Told = (Option<u32>, Option<u64>, Option<u64>, ErrorKind, Option<i32>, Option<u16>);

/// Bytes of an extent that one command was to move.
struct Part<'a> {
    span: usize,
    range: Range<u64>,
    fate: Fate,
    command: &'a Command,
}

fn zero(op: Op) -> (ErrorKind, i32) {
    match op {
        Op::Write => (ErrorKind::Io, libc::ENOSPC),
        _ => (ErrorKind::UnexpectedEof, libc::ENODATA),
    }
}

fn kind_of(errno: i32) -> ErrorKind {
    match errno {
        libc::ENOSPC => ErrorKind::Resource,
        libc::EACCES => ErrorKind::Permission,
        _ => ErrorKind::Io,
    }
}

/// Replays the answers to a command that was to move up to `end`.
fn fate(command: &Command, start: u64, end: u64, block: u64) -> Fate {
    let (mut done, mut attempts, mut fate) = (0, 0, Fate::Dropped);
    for (offset, result) in &command.answers {
        assert_eq!(fate, Fate::Dropped, "asked again after it had ended: {command:?}");
        assert_eq!(*offset, command.offset + done, "went on at the wrong place: {command:?}");
        let at = start.max(*offset);
        match -*result {
            libc::EAGAIN | libc::EINTR if attempts < ATTEMPTS => attempts += 1,
            libc::EAGAIN | libc::EINTR => fate = Failed::errno(at, ErrorKind::Io, libc::EAGAIN),
            // Its buffer went while it was queued: asked again without.
            libc::EFAULT => {}
            errno if errno > 0 => fate = Failed::errno(at, kind_of(errno), errno),
            _ if command.passthrough => match *result {
                0 => fate = Fate::Moved,
                status if passes(status) && attempts < ATTEMPTS => attempts += 1,
                status => fate = Failed::status(at, status, passes(status)),
            },
            _ => {
                let moved = done + *result as u64;
                if command.offset + moved >= end {
                    fate = Fate::Moved;
                } else if moved / block * block > done {
                    (done, attempts) = (moved / block * block, 0);
                } else {
                    let (kind, errno) = zero(command.op);
                    fate = Failed::errno(at, kind, errno);
                }
            }
        }
    }
    fate
}

impl World {
    /// Takes the completion of a transfer in.
    pub fn completed(&self, index: usize, completion: Completion) {
        let abandoned = completion.result.as_ref().err().is_some_and(|e| e.kind() == ErrorKind::Abandoned);
        {
            let rides = self.rides.borrow();
            let ride = &rides[index];
            assert_eq!(ride.state, State::UnderWay, "I3: a second completion");
            assert!(self.core.consume(ride.handle).is_none(), "I3: consumed twice");
            assert!(abandoned || !self.holds(index + 1), "I1: memory came back with commands over it");
            let device = self.device.borrow();
            if abandoned {
                let due = ride.deadline.saturating_add(self.plan.grace) <= self.now();
                let shut = self.core.closing.load(Ordering::SeqCst) || self.leaked();
                assert!(due || shut, "I5: abandoned before its time");
                assert!(completion.transfer.is_none(), "I1: an abandoned transfer hands its memory back");
            } else {
                self.compare(index, ride, &completion, &device);
            }
        }
        {
            let ride = &mut self.rides.borrow_mut()[index];
            ride.state = if abandoned { State::Abandoned } else { State::Returned };
            ride.error = completion.result.as_ref().err().map(|error| error.kind());
        }
        if !abandoned {
            let fences = std::mem::take(&mut self.rides.borrow_mut()[index].fences);
            drop(completion);
            for fence in fences {
                fence.check();
                self.memory.give_back(fence);
            }
        }
        self.settle_accounts();
    }

    fn compare(&self, index: usize, ride: &Ride, completion: &Completion, device: &Device) {
        let log: Vec<Command> = device.log[index + 1].iter().map(|c| self.laid(ride.target, c)).collect();
        let parts = parts(ride, &log, device.disks[ride.target].block);
        let flushes: Vec<(usize, Fate)> =
            log.iter().filter(|c| c.op == Op::Flush).map(|c| (c.disk, fate(c, 0, 0, 1))).collect();
        let context = || format!("transfer {}: {completion:?}, {ride:?}", index + 1);
        let mut moved = vec![0; ride.spans.len()];
        for part in parts.iter().filter(|part| part.fate == Fate::Moved) {
            moved[part.span] += part.range.end - part.range.start;
        }
        // I4: bytes, over all and for each extent; an errno for each that is not whole, and for no other.
        assert_eq!(completion.bytes, moved.iter().sum::<u64>(), "I4: bytes, {}", context());
        for (span, (bytes, errno)) in outcomes(ride, completion).into_iter().enumerate() {
            assert_eq!(bytes, moved[span], "I4: bytes of extent {span}, {}", context());
            assert_eq!(
                errno == 0,
                bytes == ride.spans[span].len,
                "I4: errno {errno} of extent {span}, {}",
                context()
            );
        }
        self.compare_result(ride, completion, (&parts, &flushes), &context);
        let paths = parts
            .iter()
            .filter(|p| p.fate == Fate::Moved)
            .map(|p| path(ride, p))
            .fold(0, |all, p| all | p as u32);
        assert_eq!(completion.paths.0, paths, "I6: paths, {}", context());
        let other = parts.iter().find(|part| ride.require.is_some_and(|wanted| path(ride, part) != wanted));
        assert!(other.is_none(), "I6: issued by another path: {:?}, {}", other.map(|p| p.command), context());
        assert!(completion.times.queued <= completion.times.total, "{}", context());
        let started = ride.submitted + completion.times.queued.as_nanos() as u64;
        let first = log.iter().map(|command| command.begun).min();
        assert!(
            first.is_none_or(|first| started <= first),
            "its first command was at {first:?}, {}",
            context()
        );
        self.compare_bytes(index + 1, ride, &parts, device);
        let flushed = ride.durable || ride.op == Op::Flush;
        if completion.result.is_ok() && flushed {
            assert!(self.flushed(ride, &flushes), "I12: a disk without a flush, {}", context());
            let durable = |c: &Command| c.write <= device.disks[c.disk].durable;
            assert!(log.iter().all(durable), "I12: not durable, {}", context());
        }
    }

    fn compare_result(
        &self,
        ride: &Ride,
        completion: &Completion,
        (parts, flushes): (&[Part], &[(usize, Fate)]),
        context: &dyn Fn() -> String,
    ) {
        let of_part = parts.iter().filter_map(|part| match part.fate {
            Fate::Failed(f) => {
                let left = Some(part.range.end - f.at);
                Some((f.exhausted, (Some(part.span as u32), Some(f.at), left, f.kind, f.errno, f.status)))
            }
            _ => None,
        });
        let of_flush = flushes.iter().filter_map(|(_, fate)| match fate {
            Fate::Failed(f) => Some((f.exhausted, (None, None, None, f.kind, f.errno, f.status))),
            _ => None,
        });
        let mut failures: Vec<(bool, Told)> = of_part.chain(of_flush).collect();
        failures.sort_by_key(|(_, (span, at, ..))| (*span, *at));
        let asked: u64 = ride.spans.iter().map(|span| span.len).sum();
        let flushed = self.flushed(ride, flushes) || !(ride.durable || ride.op == Op::Flush);
        let whole = completion.bytes == asked && flushed;
        let Err(error) = &completion.result else {
            assert!(failures.is_empty(), "I4: a failure was not told: {failures:?}, {}", context());
            return assert!(whole, "I4: success, and not all was done, {}", context());
        };
        assert!(!whole, "I4: all was done, and yet {}", context());
        // Of a stopped transfer a command is not asked again, however often it was before: that is no failure.
        let stopped = ride.cancelled.is_some() || self.explains(ride, ErrorKind::TimedOut);
        let stopped = stopped || self.core.closing.load(Ordering::SeqCst) || self.failed.get();
        let sure = failures.iter().find(|(exhausted, _)| !(*exhausted && stopped)).map(|(_, told)| *told);
        let told = (error.extent_index(), error.offset(), error.length(), error.kind());
        let told: Told = (told.0, told.1, told.2, told.3, error.errno(), error.nvme_status());
        // Nothing is known of a command that was refused; what failed before it in the transfer is told first.
        let refused = told.3 == ErrorKind::PathUnavailable;
        let place = |told: &Told| (told.0, told.1);
        match sure {
            Some(sure) if !refused => {
                let first =
                    failures.iter().take_while(|(_, f)| place(f) <= place(&sure)).any(|(_, f)| *f == told);
                assert!(first, "I4: not the first failure: {failures:?}, {}", context());
            }
            Some(sure) => assert!(place(&told) <= place(&sure), "I4: not the first failure, {}", context()),
            None if failures.iter().any(|(_, f)| *f == told) => {}
            None => assert!(self.explains(ride, told.3), "I3: stopped for no reason, {}", context()),
        }
        assert!(!refused || self.explains(ride, told.3), "I6: the path was there, {}", context());
    }

    /// Whether each disk of the target was flushed.
    fn flushed(&self, ride: &Ride, flushes: &[(usize, Fate)]) -> bool {
        self.disks_of(ride.target).all(|disk| flushes.contains(&(disk, Fate::Moved)))
    }

    /// Whether something stopped a transfer that would be told as `kind`.
    fn explains(&self, ride: &Ride, kind: ErrorKind) -> bool {
        match kind {
            ErrorKind::Cancelled => ride.cancelled.is_some(),
            ErrorKind::TimedOut => ride.deadline <= self.now(),
            ErrorKind::Shutdown => self.core.closing.load(Ordering::SeqCst),
            ErrorKind::LaneFailed => self.failed.get(),
            ErrorKind::PathUnavailable => {
                let gone = |span: &Span| self.memory.is_gone(span.window);
                ride.require.is_some() && ride.spans.iter().any(gone)
            }
            _ => false,
        }
    }

    /// The bytes themselves, in memory and on the disk.
    fn compare_bytes(&self, trace: usize, ride: &Ride, parts: &[Part], device: &Device) {
        for (number, span) in ride.spans.iter().enumerate() {
            let whole: Vec<&Part> =
                parts.iter().filter(|p| p.span == number && p.fate == Fate::Moved).collect();
            let memory = bytes(span.window);
            for (at, byte) in span.range().zip(memory) {
                let sure = whole.iter().any(|part| part.range.contains(&at));
                let (disk, there) = self.place(ride.target, at);
                let disk = &device.disks[disk];
                let (is, wanted, unmoved) = match ride.op {
                    Op::Write => (disk.data[there as usize], content(trace as u32, at), BLANK),
                    _ => (*byte, content(disk.salt, there), POISON),
                };
                let right = is == wanted || !sure && is == unmoved;
                assert!(right, "I4: transfer {trace}, extent {number}: {is:#x} at {at}, not {wanted:#x}");
            }
        }
    }
}

/// The commands of a transfer, each with the bytes of the extent it was for; they neither overlap nor repeat.
fn parts<'a>(ride: &Ride, log: &'a [Command], block: u64) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    for command in log.iter().filter(|command| command.op != Op::Flush) {
        assert_eq!(command.op, ride.op);
        let covers = |range: Range<u64>| {
            command.offset.max(range.start)..(command.offset + command.len).min(range.end)
        };
        let mut found = (0..ride.spans.len()).filter(|span| !covers(ride.spans[*span].range()).is_empty());
        let span = found.next().expect("a command for no extent");
        assert!(found.next().is_none(), "a command for two extents");
        let range = covers(ride.spans[span].range());
        let fate = fate(command, range.start, range.end, block);
        parts.push(Part { span, range, fate, command });
    }
    parts.sort_by_key(|part: &Part| (part.span, part.range.start));
    for pair in parts.windows(2) {
        let apart = pair[0].span != pair[1].span || pair[0].range.end <= pair[1].range.start;
        assert!(apart, "two commands for the same bytes: {:?}, {:?}", pair[0].command, pair[1].command);
    }
    parts
}

/// Bytes and errno of each extent, as the client sees them.
fn outcomes(ride: &Ride, completion: &Completion) -> Vec<(u64, i32)> {
    match (&ride.raw, &completion.transfer) {
        (Some(raw), None) => raw.iter().map(|e| (e.outcome.bytes, e.outcome.errno)).collect(),
        (None, Some(transfer)) => {
            transfer.extents().iter().map(|e| (e.bytes(), e.error().unwrap_or(0))).collect()
        }
        (None, None) if ride.op == Op::Flush => Vec::new(),
        _ => panic!("the transfer did not come back"),
    }
}

fn path(ride: &Ride, part: &Part) -> Path {
    let window = ride.spans[part.span].window;
    let straight = (window.addr()..window.addr() + window.len() as u64).contains(&part.command.addr);
    match (straight, ride.target == CACHED, part.command.fixed) {
        (false, ..) if part.command.passthrough => Path::UringCmdScratch,
        (_, _, true) if part.command.passthrough => Path::UringCmdFixed,
        (_, _, false) if part.command.passthrough => Path::UringCmd,
        (false, ..) => Path::Scratch,
        (_, false, true) => Path::Fixed,
        (_, false, false) => Path::Plain,
        (_, true, true) => Path::FixedBuffered,
        (_, true, false) => Path::Buffered,
    }
}
