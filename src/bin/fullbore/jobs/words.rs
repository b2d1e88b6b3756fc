//! What single values of a job mean here: words of fio's with a counterpart, and those without.

use super::script::Setting;
use crate::failure::Failure;
use crate::options::{self, Gpus, Rival};
use crate::{args, units};

/// Which way I/O goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    pub reads: bool,
    pub writes: bool,
    pub random: bool,
}

impl Pattern {
    pub fn is_mixed(self) -> bool {
        self.reads && self.writes
    }

    /// As fio names it.
    pub fn name(self) -> &'static str {
        match (self.random, self.reads, self.writes) {
            (false, true, false) => "read",
            (false, false, _) => "write",
            (false, true, true) => "rw",
            (true, true, false) => "randread",
            (true, false, _) => "randwrite",
            (true, true, true) => "randrw",
        }
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let pattern = |reads, writes, random| Ok(Self { reads, writes, random });
        match text {
            "read" => pattern(true, false, false),
            "write" => pattern(false, true, false),
            "rw" | "readwrite" => pattern(true, true, false),
            "randread" => pattern(true, false, true),
            "randwrite" => pattern(false, true, true),
            "randrw" => pattern(true, true, true),
            "trim" | "randtrim" | "trimwrite" | "randtrimwrite" => {
                Err("the engine discards nothing: write read, write, randread, randwrite, rw or randrw"
                    .into())
            }
            _ if text.contains(':') => {
                Err("no number goes with it: leave out the colon and what follows".into())
            }
            _ => Err(format!("`{text}` is none of read, write, randread, randwrite, rw, randrw")),
        }
    }
}

/// Whom a job is compared with.
pub fn rival(text: &str) -> Result<Rival, String> {
    match text {
        "fio" => Ok(Rival::Fio),
        "serial" => Ok(Rival::Serial),
        _ => Err(format!("`{text}` is none of fio, serial")),
    }
}

/// What fio engine the job names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theirs {
    /// One I/O at a time.
    Sync,
    /// A ring, or libaio.
    Async,
    /// NVMe passthrough.
    Passthrough,
}

pub fn positive(value: Option<u64>) -> Option<u64> {
    value.filter(|&value| value > 0)
}

/// A switch that cannot be off.
pub fn only_on(s: &Setting, always: &str) -> Result<(), Failure> {
    if s.is_on() { Ok(()) } else { Err(s.refuse(format!("{always} in any case: leave it out"))) }
}

/// Whole pages, so many bytes at most.
pub fn pages(most: u64) -> impl Fn(&str) -> Result<u64, String> {
    move |text| match units::size(text)? {
        bytes if bytes == 0 || bytes % args::ALIGN != 0 || bytes > most => {
            Err(format!("give a multiple of 4k up to {}", units::short(most)))
        }
        bytes => Ok(bytes),
    }
}

pub fn ioengine(text: &str) -> Result<Option<(String, Theirs)>, String> {
    let theirs = match text {
        "fullbore" => return Ok(None),
        "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" => Theirs::Sync,
        "io_uring" | "libaio" => Theirs::Async,
        "io_uring_cmd" => Theirs::Passthrough,
        _ => {
            return Err(format!(
                "`{text}` has no counterpart: write io_uring, io_uring_cmd, libaio or psync, or leave it out"
            ));
        }
    };
    Ok(Some((text.to_owned(), theirs)))
}

/// fio's methods of `verify`; each means ours.
const METHODS: [&str; 19] = [
    "md5",
    "crc64",
    "crc32",
    "crc32c",
    "crc32c-intel",
    "crc16",
    "crc7",
    "sha1",
    "sha256",
    "sha512",
    "sha3-224",
    "sha3-256",
    "sha3-384",
    "sha3-512",
    "xxhash",
    "meta",
    "pattern",
    "pattern_hdr",
    "1",
];

/// Whether content is checked.
pub fn checks(text: &str) -> Result<bool, String> {
    match text {
        "0" | "none" | "null" => Ok(false),
        _ if METHODS.contains(&text) => Ok(true),
        _ => Err(format!("`{text}` is no method of fio's: write 1, or 0 for no check")),
    }
}

pub fn memory(text: &str) -> Result<Vec<u32>, String> {
    match text {
        "host" | "malloc" | "shm" | "mmap" | "mmaphuge" | "shmhuge" => Ok(Vec::new()),
        "cudamalloc" => Ok(vec![0]),
        _ if text.starts_with("gpu:") => options::gpus(text).map(|Gpus(gpus)| gpus),
        _ => Err(format!(
            "`{text}` has no counterpart: write malloc, mmap, shm, mmaphuge, shmhuge, host, cudamalloc or gpu:0"
        )),
    }
}

pub fn mem_policy(text: &str) -> Result<Option<u32>, String> {
    match text.split_once(':') {
        None if matches!(text, "default" | "local") => Ok(None),
        Some(("prefer", node)) => node.parse().map(Some).map_err(|_| "write prefer:0".into()),
        _ => Err("the engine prefers a node and binds to none: write prefer:N or default".into()),
    }
}
