//! The rival that has no engine: the least code that keeps N rings full.
//!
//! One thread per ring, one registered file, one registered pool of memory, `depth` reads in flight, and nothing
//! else: no queues between threads, no tickets, no deadlines, no statistics beyond two counters. What the engine
//! loses against this program is what the engine itself costs.
//!
//! ```text
//! cargo bench --bench ring_loop -- --file=/dev/shm/x --create=4g --rings=2 --depth=32
//! ```
//!
//! It reads the file as objects of `--object` bytes, in order, each object as commands of `--cmd` bytes. Ring r of N
//! takes objects r, r+N, r+2N and so on, and past the end of the file it starts again at the front. One line of JSON
//! on standard output; `gbps` is in units of 10^9 bytes a second. Without `--file` it reads a small file of its own
//! in the temp folder, so that `cargo bench` and `cargo test --benches` run it too.

use std::fs::File;
use std::io::{Error, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};

const HELP: &str = "\
ring_loop: a plain io_uring loop with no engine

  --file=PATH     file or block device to read (default: a small file of its own)
  --create=SIZE   make PATH with this size first, if it does not exist; it is left there
  --rings=N       rings, one thread each (1)
  --depth=N       commands in flight per ring (32)
  --cmd=SIZE      bytes per command (128k)
  --object=SIZE   bytes per object (20m)
  --pool=SIZE     bytes of destination memory, all rings together (160m)
  --total=SIZE    bytes to read in whole objects, all rings together (as many as the file has)
  --batch=N       completions each enter waits for: min_complete (1)
  --huge=0|1      MADV_HUGEPAGE for the pool (1)
  --fixed=0|1     registered buffers and READ_FIXED, or plain READ (1)
  --direct=0|1    O_DIRECT (1)
  --async=0|1     IOSQE_ASYNC on every command (0)
  --pin=0|1       thread of ring r on the r-th allowed CPU (0)
  --workers=any|own|next
                  kernel workers of ring r on any CPU, on the r-th allowed, or on the one after it (any)
  --one_object=0|1
                  wait for an object to end before the next begins (0)
  --verify=0|1    compare what lies in the pool at the end with pread (0)
";

#[derive(Clone)]
struct Config {
    file: Option<PathBuf>,
    create: Option<u64>,
    rings: usize,
    depth: u32,
    cmd: u64,
    object: u64,
    pool: u64,
    total: Option<u64>,
    batch: u32,
    huge: bool,
    fixed: bool,
    direct: bool,
    asynchronous: bool,
    pin: bool,
    workers: Workers,
    one_object: bool,
    verify: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Workers {
    Any,
    Own,
    Next,
}

fn invalid(text: String) -> Error {
    Error::new(ErrorKind::InvalidInput, text)
}

/// `128k`, `20m`, `4g`: powers of two, as fio reads them.
fn size(text: &str) -> Result<u64, Error> {
    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_lowercase) {
        Some(b'k') => (&text[..text.len() - 1], 10),
        Some(b'm') => (&text[..text.len() - 1], 20),
        Some(b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let value: u64 = digits.parse().map_err(|_| invalid(format!("not a size: {text}")))?;
    value.checked_mul(1 << shift).ok_or_else(|| invalid(format!("too large: {text}")))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, Error> {
    text.parse().map_err(|_| invalid(format!("not a number: {text}")))
}

fn flag(text: &str) -> Result<bool, Error> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(invalid(format!("expected 0 or 1: {text}"))),
    }
}

fn config(args: impl Iterator<Item = String>) -> Result<Option<Config>, Error> {
    let mut c = Config {
        file: None,
        create: None,
        rings: 1,
        depth: 32,
        cmd: 128 << 10,
        object: 20 << 20,
        pool: 160 << 20,
        total: None,
        batch: 1,
        huge: true,
        fixed: true,
        direct: true,
        asynchronous: false,
        pin: false,
        workers: Workers::Any,
        one_object: false,
        verify: false,
    };
    for arg in args {
        let (key, value) = arg.split_once('=').unwrap_or((&arg, ""));
        match key {
            "--file" => c.file = Some(value.into()),
            "--create" => c.create = Some(size(value)?),
            "--rings" => c.rings = number(value)?,
            "--depth" => c.depth = number(value)?,
            "--cmd" => c.cmd = size(value)?,
            "--object" => c.object = size(value)?,
            "--pool" => c.pool = size(value)?,
            "--total" => c.total = Some(size(value)?),
            "--batch" => c.batch = number(value)?,
            "--huge" => c.huge = flag(value)?,
            "--fixed" => c.fixed = flag(value)?,
            "--direct" => c.direct = flag(value)?,
            "--async" => c.asynchronous = flag(value)?,
            "--pin" => c.pin = flag(value)?,
            "--workers" => {
                c.workers = match value {
                    "any" => Workers::Any,
                    "own" => Workers::Own,
                    "next" => Workers::Next,
                    _ => return Err(invalid(format!("--workers={value}: any, own or next"))),
                }
            }
            "--one_object" => c.one_object = flag(value)?,
            "--verify" => c.verify = flag(value)?,
            "--help" | "-h" => return Ok(None),
            // What `cargo bench`, `cargo test` and criterion's test mode pass to every benchmark.
            "--bench" | "--test" | "--nocapture" | "--quiet" => {}
            _ if !key.starts_with('-') => {} // a name filter
            _ => return Err(invalid(format!("unknown argument {arg}"))),
        }
    }
    if c.rings == 0
        || c.depth == 0
        || c.batch == 0
        || c.cmd == 0
        || c.object == 0
        || !c.object.is_multiple_of(c.cmd)
    {
        return Err(invalid(
            "rings, depth, batch and cmd are at least 1, and object is a multiple of cmd".into(),
        ));
    }
    if c.object > 1 << 30 {
        return Err(invalid("an object is at most 1 GiB, the size of one registered buffer".into()));
    }
    // A command may not land where another one is still in flight, and objects keep their own place in the pool.
    if share(&c) / c.cmd < u64::from(c.depth) {
        return Err(invalid("the pool needs room for one object and for depth commands per ring".into()));
    }
    Ok(Some(c))
}

/// Page-aligned memory, every page touched, aligned to 2 MiB so that huge pages fit from the first byte on.
struct Pool {
    map: *mut libc::c_void,
    map_len: usize,
    base: *mut u8,
    len: usize,
}

// SAFETY: `base` is plain memory owned by this value; threads only pass parts of it to the kernel.
unsafe impl Sync for Pool {}

const HUGE: usize = 2 << 20;

impl Pool {
    fn new(len: usize, huge: bool) -> Result<Pool, Error> {
        let len = len.next_multiple_of(HUGE);
        let map_len = len + HUGE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice aliases nothing.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                map_len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let base = map.cast::<u8>().wrapping_add(map.align_offset(HUGE));
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the range lies inside the mapping made above. A refusal (no huge pages in this kernel) is fine:
        // AnonHugePages in the report says what came of it.
        unsafe { libc::madvise(base.cast(), len, advice) };
        // SAFETY: the range lies inside the mapping made above, and nothing else refers to it yet.
        unsafe { std::ptr::write_bytes(base, 0xa5, len) };
        Ok(Pool { map, map_len, base, len })
    }

    fn slice(&self, at: usize, len: usize) -> &[u8] {
        assert!(at + len <= self.len);
        // SAFETY: inside the mapping (asserted), initialised by `new`, and only called when no read is in flight.
        unsafe { std::slice::from_raw_parts(self.base.add(at), len) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; every ring that used it is gone, as the threads are scoped within it.
        unsafe { libc::munmap(self.map, self.map_len) };
    }
}

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

struct Outcome {
    commands: u64,
    enters: u64,
    max_in_flight: u32,
    flags: String,
    end: Instant,
    /// Where the reads that lie in the pool at the end came from: (pool offset, file offset).
    landed: Vec<(u64, u64)>,
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
        // A registered buffer has at most 1 GiB. No object straddles two of them: see `buffer_size`.
        let (share, step) = (share(c) as usize, buffer_size(c) as usize);
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

/// Bytes per registered buffer: as many whole objects as 1 GiB holds.
fn buffer_size(c: &Config) -> u64 {
    (1 << 30) / c.object * c.object
}

/// One ring's whole life: set up, wait for the others, read, done.
fn one_ring(
    c: &Config,
    r: usize,
    file: &File,
    pool: &Pool,
    objects: u64,
    file_objects: u64,
    start: &Barrier,
) -> Result<Outcome, Error> {
    let made = prepare(c, r, file, pool);
    start.wait(); // also after an error, so that nobody is left waiting
    let (mut ring, flags) = made?;

    let cmd = c.cmd;
    let rings = c.rings as u64;
    let per_object = c.object / cmd;
    let total = (objects + rings - 1 - r as u64) / rings * per_object;
    let share = share(c);
    let slots = share / cmd;
    let origin = r as u64 * share;
    let per_buffer = buffer_size(c);
    let mut busy = vec![false; slots as usize];
    let mut from = vec![u64::MAX; slots as usize];
    let mut again: Vec<u64> = Vec::new();
    let (mut next, mut in_flight, mut enters, mut commands, mut max_in_flight) =
        (0u64, 0u32, 0u64, 0u64, 0u32);

    loop {
        while in_flight < c.depth {
            let slot = match again.pop() {
                Some(slot) => slot,
                None => {
                    let slot = next % slots;
                    let object_ends = c.one_object && next % per_object == 0 && in_flight > 0;
                    if next == total || busy[slot as usize] || object_ends {
                        break;
                    }
                    let object = (next / per_object * rings + r as u64) % file_objects;
                    busy[slot as usize] = true;
                    from[slot as usize] = object * c.object + next % per_object * cmd;
                    next += 1;
                    slot
                }
            };
            let at = origin + slot * cmd;
            let memory = pool.base.wrapping_add(at as usize);
            let offset = from[slot as usize];
            let file = types::Fixed(0);
            let mut entry = if c.fixed {
                let buffer = (slot * cmd / per_buffer) as u16;
                opcode::ReadFixed::new(file, memory, cmd as u32, buffer).offset(offset).build()
            } else {
                opcode::Read::new(file, memory, cmd as u32).offset(offset).build()
            };
            if c.asynchronous {
                entry = entry.flags(io_uring::squeue::Flags::ASYNC);
            }
            // SAFETY: the memory is a slot of the pool, which outlives the ring, and `busy` keeps every other
            // command out of it until this one has completed.
            unsafe { ring.submission().push(&entry.user_data(slot)) }.expect("the queue has depth entries");
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
            let slot = cqe.user_data();
            in_flight -= 1;
            match cqe.result() {
                n if n as i64 == cmd as i64 => {
                    busy[slot as usize] = false;
                    commands += 1;
                }
                n if n == -libc::EAGAIN || n == -libc::EINTR => again.push(slot),
                n if n < 0 => return Err(Error::from_raw_os_error(-n)),
                n => {
                    return Err(Error::other(format!(
                        "short read: {n} of {cmd} bytes at {}",
                        from[slot as usize]
                    )));
                }
            }
        }
    }
    let end = Instant::now();
    let landed = from.iter().enumerate().filter(|(_, offset)| **offset != u64::MAX);
    let landed = landed.map(|(slot, offset)| (origin + slot as u64 * cmd, *offset)).collect();
    Ok(Outcome { commands, enters, max_in_flight, flags, end, landed })
}

/// Bytes of the pool that one ring has to itself: whole objects.
fn share(c: &Config) -> u64 {
    c.pool / c.rings as u64 / c.object * c.object
}

fn cpu_time() -> Duration {
    // SAFETY: all zeroes is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a live pointer to a rusage. Kernel workers of a ring are threads of this process and count here.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let part = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    part(usage.ru_utime) + part(usage.ru_stime)
}

fn huge_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("AnonHugePages:"));
    line.and_then(|line| line.split_whitespace().nth(1)).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0)
        << 10
}

/// Content that differs in every 512 bytes and that no file system can leave out as a hole.
fn create(path: &Path, len: u64) -> Result<(), Error> {
    let mut file = File::options().write(true).create_new(true).open(path)?;
    let mut block = vec![0u8; 1 << 20];
    let mut at = 0;
    while at < len {
        for (i, sector) in block.chunks_mut(512).enumerate() {
            let mut word = at + i as u64 * 512;
            for bytes in sector.chunks_mut(8) {
                bytes.copy_from_slice(&word.to_le_bytes());
                word = word.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            }
        }
        let n = (len - at).min(block.len() as u64);
        file.write_all(&block[..n as usize])?;
        at += n;
    }
    file.sync_all()
}

fn measure(c: &Config, path: &Path) -> Result<serde_json::Value, Error> {
    let flags = if c.direct { libc::O_DIRECT } else { 0 };
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let file_objects = {
        use std::io::{Seek, SeekFrom};
        (&file).seek(SeekFrom::End(0))? / c.object
    };
    if file_objects == 0 {
        return Err(invalid(format!("{} has less than one object of {} bytes", path.display(), c.object)));
    }
    let objects = c.total.map_or(file_objects, |total| total / c.object).max(1);
    let pool = Pool::new(c.pool as usize, c.huge)?;
    let huge = huge_bytes();

    let start = Barrier::new(c.rings + 1);
    let run = |r| one_ring(c, r, &file, &pool, objects, file_objects, &start);
    let run = &run;
    let (begin, cpu_before, outcomes) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..c.rings).map(|r| scope.spawn(move || run(r))).collect();
        let cpu_before = cpu_time();
        start.wait();
        let begin = Instant::now();
        let outcomes: Vec<_> =
            threads.into_iter().map(|t| t.join().expect("a ring's thread does not panic")).collect();
        (begin, cpu_before, outcomes)
    });
    let cpu = cpu_time() - cpu_before;
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, Error>>()?;

    let mut verified = 0u64;
    if c.verify {
        let file = File::open(path)?;
        let mut expected = vec![0u8; c.cmd as usize];
        for (at, offset) in outcomes.iter().flat_map(|o| &o.landed) {
            file.read_exact_at(&mut expected, *offset)?;
            if pool.slice(*at as usize, expected.len()) != expected {
                return Err(Error::other(format!("wrong bytes from file offset {offset}")));
            }
            verified += c.cmd;
        }
    }
    let end = outcomes.iter().map(|o| o.end).max().unwrap_or(begin);
    let commands: u64 = outcomes.iter().map(|o| o.commands).sum();
    let enters: u64 = outcomes.iter().map(|o| o.enters).sum();
    let bytes = commands * c.cmd;
    let seconds = end.saturating_duration_since(begin).as_secs_f64();
    Ok(serde_json::json!({
        "gbps": bytes as f64 / seconds / 1e9,
        "seconds": seconds,
        "bytes": bytes,
        "objects": objects,
        "rings": c.rings,
        "depth": c.depth,
        "cmd": c.cmd,
        "object": c.object,
        "pool": share(c) * c.rings as u64,
        "batch": c.batch,
        "huge": c.huge,
        "huge_bytes": huge,
        "fixed": c.fixed,
        "direct": c.direct,
        "async": c.asynchronous,
        "pin": c.pin,
        "workers": format!("{:?}", c.workers).to_lowercase(),
        "one_object": c.one_object,
        "commands": commands,
        "enters": enters,
        "max_in_flight": outcomes.iter().map(|o| o.max_in_flight).max(),
        "cpu_s_per_gib": cpu.as_secs_f64() / (bytes as f64 / (1u64 << 30) as f64),
        "ring_flags": outcomes.first().map(|o| o.flags.clone()),
        "verified_bytes": verified,
    }))
}

fn run() -> Result<(), Error> {
    let Some(mut c) = config(std::env::args().skip(1))? else {
        print!("{HELP}");
        return Ok(());
    };
    if let Some(path) = c.file.clone() {
        if let (Some(len), false) = (c.create, path.exists()) {
            create(&path, len)?;
        }
        println!("{}", measure(&c, &path)?);
        return Ok(());
    }
    // No file named: a small one of our own, gone afterwards.
    let path = std::env::temp_dir().join(format!("fullbore-ring-loop-{}", std::process::id()));
    c.verify = true;
    let result = create(&path, 4 * c.object).and_then(|()| match measure(&c, &path) {
        Err(e) if c.direct && e.raw_os_error() == Some(libc::EINVAL) => {
            eprintln!("ring_loop: {} takes no O_DIRECT, reading it through the page cache", path.display());
            measure(&Config { direct: false, ..c.clone() }, &path)
        }
        other => other,
    });
    std::fs::remove_file(&path)?;
    println!("{}", result?);
    Ok(())
}

fn main() {
    match run() {
        Ok(()) => {}
        // A benchmark of io_uring has nothing to say where io_uring is refused; the test mode of CI goes on.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            eprintln!("ring_loop: skipped, io_uring is refused here: {e}");
        }
        Err(e) => {
            eprintln!("ring_loop: {e}");
            std::process::exit(1);
        }
    }
}
