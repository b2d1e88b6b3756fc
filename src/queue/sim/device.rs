//! The simulated device: what lanes push is accepted, owned for a while, and answered, more or less well.

use super::disk::Disk;
use super::log::{Command, Counts, Fault, Faults};
use super::port::{Owned, Port};
use super::rng::Rng;
use crate::memory::Window;
use crate::queue::{Answer, Wait};
use crate::target::{Op, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Answered when the device is woken, not before.
const NEVER: u64 = u64::MAX;

type Guard = Box<dyn Fn(usize, &Request)>;

/// See the module.
pub struct Device {
    pub rng: Rng,
    pub clock: Arc<AtomicU64>,
    pub faults: Faults,
    pub counts: Counts,
    pub disks: Vec<Disk>,
    pub ports: Vec<Port>,
    /// By trace id.
    pub log: Vec<Vec<Command>>,
    /// Is shown each request, and its lane, before its memory is touched.
    pub guard: Guard,
    /// Is shown each request that begins a command, and its lane.
    pub begun: Guard,
    accepted: u64,
}

/// The transfer that a request belongs to.
pub fn trace_of(request: &Request) -> usize {
    (request.user_data >> 32) as usize
}

fn overlap(a: Window, b: Window) -> bool {
    let (a, b) = (a.addr()..a.addr() + a.len() as u64, b.addr()..b.addr() + b.len() as u64);
    a.start < b.end && b.start < a.end
}

impl Device {
    pub fn new(rng: Rng, clock: Arc<AtomicU64>, faults: Faults, disks: Vec<Disk>, traces: usize) -> Device {
        Device {
            rng,
            clock,
            faults,
            counts: Counts::default(),
            disks,
            ports: Vec::new(),
            log: vec![Vec::new(); traces],
            guard: Box::new(|_, _| {}),
            begun: Box::new(|_, _| {}),
            accepted: 0,
        }
    }

    pub fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Takes a request into the submission queue.
    pub fn push(&mut self, port: usize, request: &Request) -> bool {
        let lane = &mut self.ports[port];
        if lane.queued.len() == lane.room {
            return false;
        }
        let again = lane.held().any(|held| held.user_data == request.user_data);
        assert!(!again, "pushed twice: lane {port}, {request:?}");
        let slot = request.user_data as u32 & !(u32::MAX << lane.slot_bits);
        let latest = &mut lane.latest[slot as usize];
        if *latest != request.user_data && *latest != 0 {
            lane.old.push(*latest);
        }
        *latest = request.user_data;
        let file = request.file.slot.expect("targets of the simulation have a slot");
        assert!(lane.files.contains(&file), "lane {port} was not told of file {file}");
        if let Some(buffer) = request.buffer {
            assert!(lane.knows(request, buffer), "no such registered buffer: lane {port}, {request:?}");
        }
        lane.queued.push_back(*request);
        self.note(port, request);
        true
    }

    fn note(&mut self, port: usize, request: &Request) {
        let (offset, len) = (request.offset, request.window.len() as u64);
        let now = self.now();
        let disk = request.file.slot.unwrap_or(0) as usize;
        let commands = &mut self.log[trace_of(request)];
        let known = commands.iter_mut().find(|c| (c.port, c.user_data) == (port, request.user_data));
        match known {
            Some(command) => {
                command.ask_again(now, request.buffer.is_some());
                assert_eq!(offset + len, command.offset + command.len, "asked for another rest: {request:?}");
            }
            None => {
                (self.begun)(port, request);
                commands.push(Command {
                    port,
                    disk,
                    passthrough: self.disks[disk].passthrough,
                    user_data: request.user_data,
                    op: request.op,
                    offset,
                    len,
                    addr: request.window.addr(),
                    fixed: request.buffer.is_some(),
                    begun: now,
                    answers: Vec::new(),
                    answered: 0,
                    write: 0,
                })
            }
        }
    }

    /// Accepts what was pushed, or less, and waits.
    pub fn enter(&mut self, port: usize, wait: Wait) -> Result<u32, i32> {
        let pushed = self.ports[port].queued.len();
        if self.ports[port].broken {
            self.counts.add(Fault::Broken);
            return Err(libc::EBADF);
        }
        if self.rng.chance(self.faults.refuse) {
            self.counts.add(Fault::Refused);
            return Err(self.rng.pick(&[libc::EAGAIN, libc::EBUSY]));
        }
        let mut taken = pushed;
        if pushed > 0 && self.rng.chance(self.faults.fewer) {
            self.counts.add(Fault::Fewer);
            taken = self.rng.below(pushed as u64) as usize;
        }
        for _ in 0..taken {
            self.accept(port);
        }
        // As the kernel: who was not given all it wanted to submit does not wait.
        if let (true, Wait::ForOne { timeout }) = (taken == pushed, wait) {
            self.settle(port);
            let until = timeout.map_or(NEVER, |timeout| self.now().saturating_add(timeout.as_nanos() as u64));
            if !self.ports[port].ready() {
                self.sleep(port, until);
            }
        }
        Ok(taken as u32)
    }

    fn sleep(&mut self, port: usize, until: u64) {
        if !self.ports[port].draining {
            self.ports[port].asleep = Some(until);
            return;
        }
        let next = self.ports[port].next_event().min(until).max(self.now() + 1);
        assert!(next != NEVER, "a drain waits without a limit");
        self.clock.store(next, Ordering::Relaxed);
        self.settle(port);
    }

    fn accept(&mut self, port: usize) {
        let Some(request) = self.ports[port].queued.pop_front() else { return };
        let window = request.window;
        if window.len() > 0 {
            let shared = self.ports.iter().flat_map(|p| &p.owned).find(|o| overlap(o.request.window, window));
            assert!(shared.is_none(), "I1: memory of two commands at once: {request:?} and {shared:?}");
        }
        let mut due = self.now() + self.rng.within(500, 50_000);
        if self.rng.chance(self.faults.slow) {
            self.counts.add(Fault::Slow);
            due += self.rng.within(100_000, 3_000_000);
        }
        if self.rng.chance(self.faults.never) {
            self.counts.add(Fault::Never);
            due = NEVER;
        }
        self.accepted += 1;
        let number = self.accepted;
        let writes = self.disks[request.file.slot.unwrap_or(0) as usize].writes;
        let lane = &mut self.ports[port];
        let lost = request.buffer.is_some_and(|buffer| !lane.knows(&request, buffer));
        lane.owned.push(Owned { request, due, number, writes, lost });
        lane.unreaped += 1;
        assert!(
            lane.unreaped <= lane.depth,
            "I2: {} in flight on lane {port} of depth {}",
            lane.unreaped,
            lane.depth
        );
    }

    /// Answers what is due, in any order, and hears the bell.
    pub fn settle(&mut self, port: usize) {
        let now = self.now();
        let lane = &mut self.ports[port];
        let rings = lane.rings.load(Ordering::SeqCst);
        lane.bell |= rings > lane.heard;
        lane.heard = rings;
        loop {
            let lane = &self.ports[port];
            let due: Vec<usize> = (0..lane.owned.len()).filter(|i| lane.owned[*i].due <= now).collect();
            if due.is_empty() {
                break;
            }
            let chosen = self.rng.pick(&due);
            let owned = self.ports[port].owned.swap_remove(chosen);
            if self.ports[port].owned.iter().any(|other| other.number < owned.number) {
                self.counts.add(Fault::Reordered);
            }
            let result = self.answer(port, &owned);
            let answer = Answer { user_data: owned.request.user_data, result };
            self.ports[port].answers.push((answer, true));
        }
        let lane = &mut self.ports[port];
        if !lane.old.is_empty() && self.rng.chance(self.faults.stale) {
            self.counts.add(Fault::Stale);
            let answer = Answer { user_data: self.rng.pick(&lane.old), result: self.rng.below(4096) as i32 };
            lane.answers.push((answer, false));
        }
    }

    fn answer(&mut self, port: usize, owned: &Owned) -> i32 {
        let request = &owned.request;
        (self.guard)(port, request);
        let disk = request.file.slot.unwrap_or(0) as usize;
        let (now, passthrough) = (self.now(), self.disks[disk].passthrough);
        let result = if owned.lost {
            self.counts.add(Fault::BufferGone);
            -libc::EFAULT
        } else if passthrough {
            self.pass_through(request, disk)
        } else {
            self.perform(request, disk)
        };
        let done = if passthrough { result == 0 } else { result >= 0 };
        let commands = &mut self.log[trace_of(request)];
        let command = commands.iter_mut().find(|c| (c.port, c.user_data) == (port, request.user_data));
        let command = command.expect("what is answered was pushed");
        command.answers.push((request.offset, result));
        command.answered = now;
        if request.op == Op::Write && done {
            command.write = self.disks[disk].writes;
        }
        if request.op == Op::Flush && done {
            self.disks[disk].durable = self.disks[disk].durable.max(owned.writes);
        }
        result
    }

    /// Does what the request asks for, or less; answers as the kernel would.
    fn perform(&mut self, request: &Request, disk: usize) -> i32 {
        let rng = &mut self.rng;
        if rng.chance(self.faults.again) {
            self.counts.add(Fault::Again);
            return -rng.pick(&[libc::EAGAIN, libc::EINTR]);
        }
        if rng.chance(self.faults.fail) {
            self.counts.add(Fault::Failed);
            return -rng.pick(&[libc::EIO, libc::ENOSPC, libc::EINVAL, libc::EACCES]);
        }
        if request.op == Op::Flush {
            return 0;
        }
        let (disk, wanted) = (&mut self.disks[disk], request.window.len() as u64);
        let there = disk.end.saturating_sub(request.offset).min(wanted);
        let mut moved = there;
        if rng.chance(self.faults.zero) {
            self.counts.add(Fault::Zero);
            moved = 0;
        } else if there > disk.block && rng.chance(self.faults.short) {
            self.counts.add(Fault::Short);
            moved = rng.within(1, (there - 1) / disk.block) * disk.block;
        } else if there < wanted {
            let fault = if there == 0 { Fault::EndOfFile } else { Fault::UnalignedShort };
            self.counts.add(fault);
        }
        match request.op {
            _ if moved == 0 => {}
            Op::Read => disk.read(request.offset, moved, request.window),
            _ => disk.write(request.offset, moved, request.window),
        }
        moved as i32
    }

    /// The device comes to: what was never to be answered is answered soon. Answers how many.
    pub fn revive(&mut self) -> usize {
        let (now, mut revived) = (self.now(), 0);
        for owned in self.ports.iter_mut().flat_map(|port| &mut port.owned).filter(|owned| owned.due == NEVER)
        {
            owned.due = now + self.rng.within(1_000, 100_000);
            self.counts.add(Fault::Late);
            revived += 1;
        }
        revived
    }
}
