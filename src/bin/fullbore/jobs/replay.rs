//! `replay=FILE`: the objects of a manifest, reissued in its order. docs/replay.md says what a manifest is; what it may hold
//! is checked here, and against the target before anything is issued.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fullbore::Target;
use serde_json::{Map, Value};

use super::script::Section;
use super::spec::Job;
use super::value::Amount;
use super::words::Pattern;
use crate::failure::Failure;
use crate::units::{count, human};

/// The version of the format that is understood.
const VERSION: u64 = 1;
/// Longer ones, some millions of objects, are no manifests: a device never ends.
const LONGEST: u64 = 256 << 20;
/// As with `cmd_size`.
const PAGE: u64 = 4096;
const MOST_COMMAND: u64 = 16 << 20;

/// An object to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub read: bool,
    pub offset: u64,
    pub size: u64,
    /// Not before so long after the start.
    pub at: Option<Duration>,
}

/// A manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    pub file: PathBuf,
    /// Bytes of a command, as recorded.
    command: Option<u32>,
    /// At least one.
    pub entries: Vec<Entry>,
}

impl Replay {
    /// Reads a manifest.
    pub fn read(file: &Path) -> Result<Self, String> {
        let name = file.display();
        let mut text = String::new();
        let read = fs::File::open(file).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
        read.map_err(|error| format!("{name}: {error}: check its name"))?;
        if text.len() as u64 > LONGEST {
            return Err(format!(
                "{name}: longer than {}: check its name, or make several of it",
                human(LONGEST)
            ));
        }
        let all: Value = serde_json::from_str(&text)
            .map_err(|error| format!("{name}: no JSON: {error}: docs/replay.md has the format"))?;
        Self::parse(file, &all).map_err(|why| format!("{name}: {why}"))
    }

    fn parse(file: &Path, all: &Value) -> Result<Self, String> {
        let all = Fields::of(all, "the manifest", &["version", "device", "objects"])?;
        match all.number("version")? {
            Some(VERSION) => {}
            Some(other) => return Err(format!("version {other} is not known here, only {VERSION}")),
            None => return Err(format!("it says no version: add \"version\": {VERSION}")),
        }
        let device = all.0.get("device").ok_or("it has no device: add \"device\": {\"block\": 4096}")?;
        let device = Fields::of(device, "device", &["block", "command"])?;
        let block = device.number("block")?.filter(|block| (512..=PAGE).contains(block));
        let block = block.filter(|block| block.is_power_of_two());
        let block = block.ok_or("device: block is the bytes of a block: write 512, 1024, 2048 or 4096")?;
        let command = device.number("command")?;
        if command.is_some_and(|bytes| bytes == 0 || bytes % PAGE > 0 || bytes > MOST_COMMAND) {
            return Err("device: command is the bytes of one: write whole 4k, 16 MiB at most".into());
        }
        let objects = all.0.get("objects").and_then(Value::as_array);
        let objects = objects.filter(|list| !list.is_empty()).ok_or("objects is to be a list of objects")?;
        let mut entries: Vec<Entry> = Vec::with_capacity(objects.len());
        for (number, object) in (1..).zip(objects) {
            let entry = entry(object, block, entries.last());
            entries.push(entry.map_err(|why| format!("entry {number}: {why}"))?);
        }
        Ok(Self { file: file.to_owned(), command: command.map(|bytes| bytes as u32), entries })
    }

    /// The bytes of the largest object, and the end of the one that ends last.
    fn bounds(&self) -> (u64, u64) {
        let most = self.entries.iter().map(|entry| entry.size).max().unwrap_or(0);
        let end = self.entries.iter().map(|entry| entry.offset + entry.size).max().unwrap_or(0);
        (most, end)
    }

    /// Bytes of all objects.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.size))
    }

    /// Holds every entry against the target.
    pub fn fits(&self, target: &Target) -> Result<(), String> {
        self.fits_in(target.name(), target.size(), u64::from(target.block_size()).max(1))
    }

    fn fits_in(&self, name: &str, size: u64, block: u64) -> Result<(), String> {
        for (number, entry) in (1..).zip(&self.entries) {
            let refuse = |why: String| Err(format!("{}: entry {number}: {why}", self.file.display()));
            if entry.offset + entry.size > size {
                let end = entry.offset + entry.size;
                return refuse(format!(
                    "it ends at byte {end}, and {name} has {size}: replay it on a larger one"
                ));
            }
            if !entry.offset.is_multiple_of(block) || !entry.size.is_multiple_of(block) {
                let (offset, bytes) = (entry.offset, entry.size);
                return refuse(format!(
                    "offset {offset} and size {bytes} are not whole blocks of {block}, as {name} has"
                ));
            }
        }
        Ok(())
    }

    /// Makes a job of it, which then has what the manifest says.
    pub fn apply(self, job: &mut Job, section: &Section) -> Result<(), Failure> {
        if let Some(setting) = section.settings().find(|setting| SAID.contains(&setting.key.name)) {
            return Err(setting.refuse("the manifest of replay says that: leave it out, or replay"));
        }
        let refuse = |why: &str| Err(Failure::Setup(format!("job {}: {why}", job.name)));
        if job.numjobs > 1 || (job.files.len() > 1 && job.stripe.is_none()) {
            return refuse("replay is one thread's, on one target: leave out numjobs, and name one file");
        }
        if self.entries.iter().any(|entry| entry.at.is_some()) && (job.loops > 1 || job.time_based) {
            return refuse(
                "replay of a manifest with at_us is done once: leave out loops and time_based, or at_us",
            );
        }
        let reads = self.entries.iter().filter(|entry| entry.read).count();
        let writes = self.entries.len() - reads;
        let (most, end) = self.bounds();
        job.rw = Pattern { reads: reads > 0, writes: writes > 0, random: false };
        (job.bs, job.size) = (most, Some(Amount::Bytes(end)));
        if let (Some(command), false) =
            (self.command, section.settings().any(|setting| setting.key.name == "cmd_size"))
        {
            job.cmd_size = Some(command);
        }
        job.notes.push(format!(
            "replay={}: {} and {} of up to {}, {} in all; bs is the largest",
            self.file.display(),
            count(reads as u64, "read"),
            count(writes as u64, "write"),
            human(most),
            human(self.bytes())
        ));
        job.replay = Some(Arc::new(self));
        Ok(())
    }
}

/// Keys of a job whose values a manifest gives.
const SAID: &[&str] = &[
    "rw",
    "bs",
    "size",
    "filesize",
    "io_size",
    "offset",
    "offset_increment",
    "nrfiles",
    "rwmixread",
    "rwmixwrite",
    "norandommap",
];

fn entry(value: &Value, block: u64, before: Option<&Entry>) -> Result<Entry, String> {
    let fields = Fields::of(value, "an object", &["op", "offset", "size", "at_us"])?;
    let read = match fields.0.get("op").and_then(Value::as_str) {
        Some("read") => true,
        Some("write") => false,
        _ => return Err("op is to be \"read\" or \"write\"".into()),
    };
    let size = fields.number("size")?.filter(|&size| size > 0);
    let size = size.ok_or("size is to be its bytes, 1 block or more")?;
    // Where none is said, it follows the one before.
    let offset = fields.number("offset")?.unwrap_or(before.map_or(0, |before| before.offset + before.size));
    if !offset.is_multiple_of(block) || !size.is_multiple_of(block) {
        return Err(format!("offset {offset} and size {size} are not whole blocks of {block}"));
    }
    // Half of what 64 bits hold, so that no sum of two passes them.
    if offset.checked_add(size).is_none_or(|end| end > u64::MAX / 2) {
        return Err("offset and size are more than any device holds".into());
    }
    let at = fields.number("at_us")?.map(Duration::from_micros);
    if at.is_some() && at < before.and_then(|before| before.at) {
        return Err("at_us is before that of an earlier entry: sort them by time".into());
    }
    Ok(Entry { read, offset, size, at: at.or(before.and_then(|before| before.at)) })
}

/// An object of JSON, all of whose fields are known.
struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    fn of(value: &'a Value, what: &str, known: &[&str]) -> Result<Self, String> {
        let list = known.join(", ");
        let map = value.as_object().ok_or_else(|| format!("{what} is to be a JSON object of {list}"))?;
        match map.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(format!("{what}: `{key}` is none of {list}: leave it out")),
            None => Ok(Self(map)),
        }
    }

    fn number(&self, name: &str) -> Result<Option<u64>, String> {
        match self.0.get(name) {
            None => Ok(None),
            Some(value) => {
                let number = value.as_u64();
                number.map(Some).ok_or_else(|| format!("{name} is to be a whole number, not {value}"))
            }
        }
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
