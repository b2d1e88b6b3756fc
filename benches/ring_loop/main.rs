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

mod args;
mod pool;
mod ring;

use std::fs::File;
use std::io::{Error, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

use args::{Config, invalid};
use pool::Pool;
use ring::Outcome;

fn cpu_time() -> Duration {
    // SAFETY: all zeroes is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a live pointer to a rusage. Kernel workers of a ring are threads of this process and count here.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let part = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    part(usage.ru_utime) + part(usage.ru_stime)
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

/// Sets up, reads, and reports.
fn measure(c: &Config, path: &Path) -> Result<serde_json::Value, Error> {
    let flags = if c.direct { libc::O_DIRECT } else { 0 };
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let file_objects = (&file).seek(SeekFrom::End(0))? / c.object;
    if file_objects == 0 {
        return Err(invalid(format!("{} has less than one object of {} bytes", path.display(), c.object)));
    }
    let objects = c.total.map_or(file_objects, |total| total / c.object).max(1);
    let pool = Pool::new(c.pool as usize, c.huge)?;
    let huge_bytes = pool::huge_bytes();

    let start = Barrier::new(c.rings + 1);
    let run = |r| ring::one_ring(c, r, &file, &pool, (objects, file_objects), &start);
    let run = &run;
    let (cpu_before, outcomes) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..c.rings).map(|r| scope.spawn(move || run(r))).collect();
        start.wait(); // every ring is made and its memory registered
        let cpu_before = cpu_time();
        let ended = threads.into_iter().map(|t| t.join().expect("a ring's thread does not panic"));
        (cpu_before, ended.collect::<Vec<_>>())
    });
    let cpu = cpu_time() - cpu_before;
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, Error>>()?;
    let verified = if c.verify { verify(c, path, &pool, &outcomes)? } else { 0 };

    let mut report = report(c, &outcomes, cpu);
    report["objects"] = objects.into();
    report["huge_bytes"] = huge_bytes.into();
    report["verified_bytes"] = verified.into();
    Ok(report)
}

/// Compares what lies in the pool with what pread gives; answers how many bytes that were.
fn verify(c: &Config, path: &Path, pool: &Pool, outcomes: &[Outcome]) -> Result<u64, Error> {
    let file = File::open(path)?;
    let mut expected = vec![0u8; c.cmd as usize];
    let mut verified = 0;
    for (at, offset) in outcomes.iter().flat_map(|o| &o.landed) {
        file.read_exact_at(&mut expected, *offset)?;
        if pool.slice(*at as usize, expected.len()) != expected {
            return Err(Error::other(format!("wrong bytes from file offset {offset}")));
        }
        verified += c.cmd;
    }
    Ok(verified)
}

/// Rates count from the first ring's first command to the last ring's last result.
fn report(c: &Config, outcomes: &[Outcome], cpu: Duration) -> serde_json::Value {
    let ends = outcomes.iter().map(|o| o.begin).min().zip(outcomes.iter().map(|o| o.end).max());
    let seconds = ends.map_or(0.0, |(begin, end)| (end - begin).as_secs_f64());
    let commands: u64 = outcomes.iter().map(|o| o.commands).sum();
    let bytes = commands * c.cmd;
    serde_json::json!({
        "gbps": bytes as f64 / seconds / 1e9,
        "seconds": seconds,
        "bytes": bytes,
        "rings": c.rings,
        "depth": c.depth,
        "cmd": c.cmd,
        "object": c.object,
        "pool": c.share() * c.rings as u64,
        "batch": c.batch,
        "huge": c.huge,
        "fixed": c.fixed,
        "direct": c.direct,
        "async": c.asynchronous,
        "pin": c.pin,
        "workers": format!("{:?}", c.workers).to_lowercase(),
        "one_object": c.one_object,
        "commands": commands,
        "enters": outcomes.iter().map(|o| o.enters).sum::<u64>(),
        "max_in_flight": outcomes.iter().map(|o| o.max_in_flight).max(),
        "cpu_s_per_gib": cpu.as_secs_f64() / (bytes as f64 / (1u64 << 30) as f64),
        "ring_flags": outcomes.first().map(|o| o.flags.clone()),
    })
}

fn run() -> Result<(), Error> {
    let Some(mut c) = args::config(std::env::args().skip(1))? else {
        print!("{}", args::HELP);
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
