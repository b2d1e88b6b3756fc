//! The command line.

use std::io::{Error, ErrorKind};
use std::path::PathBuf;

pub const HELP: &str = "\
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
pub struct Config {
    pub file: Option<PathBuf>,
    pub create: Option<u64>,
    pub rings: usize,
    pub depth: u32,
    pub cmd: u64,
    pub object: u64,
    pub pool: u64,
    pub total: Option<u64>,
    pub batch: u32,
    pub huge: bool,
    pub fixed: bool,
    pub direct: bool,
    pub asynchronous: bool,
    pub pin: bool,
    pub workers: Workers,
    pub one_object: bool,
    pub verify: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workers {
    Any,
    Own,
    Next,
}

pub fn invalid(text: String) -> Error {
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

impl Default for Config {
    fn default() -> Config {
        Config {
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
        }
    }
}

impl Config {
    /// Bytes of the pool that one ring has to itself: whole objects.
    pub fn share(&self) -> u64 {
        self.pool / self.rings as u64 / self.object * self.object
    }

    /// Bytes per registered buffer, which holds at most 1 GiB: as many whole objects as that takes.
    pub fn buffer_size(&self) -> u64 {
        (1 << 30) / self.object * self.object
    }
}

/// The arguments; `None` if they ask for help.
pub fn config(args: impl Iterator<Item = String>) -> Result<Option<Config>, Error> {
    let mut c = Config::default();
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
    check(&c)?;
    Ok(Some(c))
}

fn check(c: &Config) -> Result<(), Error> {
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
    if c.share() / c.cmd < u64::from(c.depth) {
        return Err(invalid("the pool needs room for one object and for depth commands per ring".into()));
    }
    Ok(())
}
