//! One ring on one thread.

use std::fs::File;
use std::io::Error;
use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::time::Instant;

use io_uring::{IoUring, opcode, squeue, types};

use crate::args::{Config, Workers};
use crate::pool::Pool;

/// The ring with the most flags this kernel takes. The engine steps down in the same order.
fn ring(depth: u32) -> Result<(IoUring, String), Error> {
    let mut names = vec!["SINGLE_ISSUER", "DEFER_TASKRUN", "COOP_TASKRUN", "NO_SQARRAY"];
    loop {
        let mut b = IoUring::builder();
        for name in &names {
            match *name {
                "SINGLE_ISSUER" => b.setup_single_issuer(),
                "DEFER_TASKRUN" => b.setup_defer_taskrun(),
                "COOP_TASKRUN" => b.setup_coop_taskrun(),
                _ => b.setup_no_sqarray(),
            };
        }
        let entries = depth.next_power_of_two();
        match b.setup_cqsize(entries * 2).build(entries) {
            Ok(ring) => return Ok((ring, names.join("|"))),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) && names.pop().is_some() => {}
            Err(e) => return Err(e),
        }
    }
}

fn allowed_cpus() -> Vec<usize> {
    // SAFETY: all zeroes is a valid (empty) cpu_set_t.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer and the size belong to the same local value.
    let rc = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    if rc != 0 {
        return Vec::new();
    }
    // SAFETY: the index is below CPU_SETSIZE.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

fn mask(cpu: usize) -> libc::cpu_set_t {
    // SAFETY: all zeroes is a valid (empty) cpu_set_t.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` came out of allowed_cpus and is below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    set
}

/// What one ring did.
pub struct Outcome {
    pub commands: u64,
    pub enters: u64,
    pub max_in_flight: u32,
    pub flags: String,
    pub begin: Instant,
    pub end: Instant,
    /// Where the reads that lie in the pool at the end came from: (pool offset, file offset).
    pub landed: Vec<(u64, u64)>,
}

/// The ring, its registrations and its flags; everything that is not part of the measured time.
fn prepare(c: &Config, r: usize, file: &File, pool: &Pool) -> Result<(IoUring, String), Error> {
    let cpus = allowed_cpus();
    let cpu = |n: usize| cpus.get(n % cpus.len().max(1)).copied();
    if let (true, Some(cpu)) = (c.pin, cpu(r)) {
        // SAFETY: the pointer and the size belong to the same value, alive over the call.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &mask(cpu)) };
    }
    let (ring, flags) = ring(c.depth)?;
    let submitter = ring.submitter();
    submitter.register_files(&[file.as_raw_fd()])?;
    if c.fixed {
        // A registered buffer has at most 1 GiB. No object straddles two of them.
        let (share, step) = (c.share() as usize, c.buffer_size() as usize);
        let base = pool.base.wrapping_add(r * share);
        let buffers: Vec<libc::iovec> = (0..share)
            .step_by(step)
            .map(|at| libc::iovec { iov_base: base.wrapping_add(at).cast(), iov_len: step.min(share - at) })
            .collect();
        // SAFETY: the memory belongs to `pool`, which outlives every ring.
        unsafe { submitter.register_buffers(&buffers)? };
    }
    if let (Workers::Own, Some(cpu)) | (Workers::Next, Some(cpu)) =
        (c.workers, cpu(r + usize::from(c.workers == Workers::Next)))
    {
        submitter.register_iowq_aff(&mask(cpu))?;
    }
    Ok((ring, flags))
}

/// Which command comes next, and which memory is busy.
struct Feed<'a> {
    c: &'a Config,
    ring: u64,
    file_objects: u64,
    /// Commands begun, and commands to do in all.
    next: u64,
    total: u64,
    /// Per place of one command in this ring's memory: in flight, and the file offset last read into it.
    busy: Vec<bool>,
    from: Vec<u64>,
    /// Places whose command the kernel wants to be asked again.
    again: Vec<usize>,
}

impl Feed<'_> {
    fn new(c: &Config, r: usize, objects: u64, file_objects: u64) -> Feed<'_> {
        let rings = c.rings as u64;
        let mine = (objects + rings - 1 - r as u64) / rings;
        let places = (c.share() / c.cmd) as usize;
        Feed {
            c,
            ring: r as u64,
            file_objects,
            next: 0,
            total: mine * (c.object / c.cmd),
            busy: vec![false; places],
            from: vec![u64::MAX; places],
            again: Vec::new(),
        }
    }

    /// The place of the next command, if one may begin now.
    fn next(&mut self, in_flight: u32) -> Option<usize> {
        if let Some(place) = self.again.pop() {
            return Some(place);
        }
        let per_object = self.c.object / self.c.cmd;
        let (object, piece) = (self.next / per_object, self.next % per_object);
        let place = (self.next % self.busy.len() as u64) as usize;
        if self.next == self.total || self.busy[place] || (self.c.one_object && piece == 0 && in_flight > 0) {
            return None;
        }
        let object = (object * self.c.rings as u64 + self.ring) % self.file_objects;
        self.busy[place] = true;
        self.from[place] = object * self.c.object + piece * self.c.cmd;
        self.next += 1;
        Some(place)
    }

    /// The command of `place`, which lies at `memory`.
    fn entry(&self, place: usize, memory: *mut u8) -> squeue::Entry {
        let (file, len, offset) = (types::Fixed(0), self.c.cmd as u32, self.from[place]);
        let entry = if self.c.fixed {
            let buffer = (place as u64 * self.c.cmd / self.c.buffer_size()) as u16;
            opcode::ReadFixed::new(file, memory, len, buffer).offset(offset).build()
        } else {
            opcode::Read::new(file, memory, len).offset(offset).build()
        };
        let flags = if self.c.asynchronous { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
        entry.flags(flags).user_data(place as u64)
    }

    /// Takes a result; answers how many commands ended by it.
    fn ended(&mut self, place: usize, result: i32) -> Result<u64, Error> {
        match result {
            n if i64::from(n) == self.c.cmd as i64 => {
                self.busy[place] = false;
                Ok(1)
            }
            n if n == -libc::EAGAIN || n == -libc::EINTR => {
                self.again.push(place);
                Ok(0)
            }
            n if n < 0 => Err(Error::from_raw_os_error(-n)),
            n => {
                Err(Error::other(format!("short read: {n} of {} bytes at {}", self.c.cmd, self.from[place])))
            }
        }
    }
}

/// One ring's whole life: set up, wait for the others, read, done.
pub fn one_ring(
    c: &Config,
    r: usize,
    file: &File,
    pool: &Pool,
    (objects, file_objects): (u64, u64),
    start: &Barrier,
) -> Result<Outcome, Error> {
    let made = prepare(c, r, file, pool);
    let mut feed = Feed::new(c, r, objects, file_objects);
    let origin = r as u64 * c.share();
    let place_at = |place: usize| origin + place as u64 * c.cmd;
    start.wait(); // also after an error, so that nobody is left waiting
    let (mut ring, flags) = made?;

    let begin = Instant::now();
    let (mut in_flight, mut enters, mut commands, mut max_in_flight) = (0u32, 0u64, 0u64, 0u32);
    loop {
        while in_flight < c.depth {
            let Some(place) = feed.next(in_flight) else { break };
            let entry = feed.entry(place, pool.base.wrapping_add(place_at(place) as usize));
            // SAFETY: the memory is a place of the pool, which outlives the ring, and `busy` keeps every other
            // command out of it until this one has completed.
            unsafe { ring.submission().push(&entry) }.expect("the queue has depth entries");
            in_flight += 1;
        }
        max_in_flight = max_in_flight.max(in_flight);
        if in_flight == 0 {
            break;
        }
        match ring.submit_and_wait(c.batch.min(in_flight) as usize) {
            Ok(_) => enters += 1,
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
            Err(e) => return Err(e),
        }
        for cqe in ring.completion() {
            in_flight -= 1;
            commands += feed.ended(cqe.user_data() as usize, cqe.result())?;
        }
    }
    let end = Instant::now();
    let landed = feed.from.iter().enumerate().filter(|(_, offset)| **offset != u64::MAX);
    let landed = landed.map(|(place, offset)| (place_at(place), *offset)).collect();
    Ok(Outcome { commands, enters, max_in_flight, flags, begin, end, landed })
}
