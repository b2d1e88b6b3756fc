//! What a name of `--filename` is: a file, a block device, an NVMe namespace or a DAX device, and how it is reached with the
//! engine and without.

use std::ffi::OsString;
use std::fs;
use std::mem;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use fullbore::{Drive, Engine, Error, OpenOptions, Target};

use crate::args::Plan;
use crate::failure::Failure;

/// One file or device.
#[derive(Debug)]
pub struct Member {
    /// What the engine opens.
    pub path: PathBuf,
    /// What plain reads and writes go to: the same, or the block device of an NVMe namespace.
    pub plain: PathBuf,
    /// Of a character device: an NVMe namespace has to be opened to know its block device.
    target: Option<Target>,
}

/// How the engine opens what is measured. For writing only when the plan writes, which needs --allow-destructive
/// for what was there before.
fn options(plan: &Plan) -> OpenOptions {
    let mut options = if plan.rw.writes() { OpenOptions::write() } else { OpenOptions::read() };
    if plan.polled {
        options = options.polled();
    }
    if plan.mapped {
        // One that is cut short is a failure, not the end of the program.
        options = options.mapped().guard_sigbus();
    }
    options
}

/// What the library says a caller may do to write to a device that is in use. No option of this program does it.
const FORCE: [&str; 4] = [
    ", or ask for it with OpenOptions::force",
    ", or ask to write all the same with OpenOptions::force",
    ", or force",
    " Else force",
];

/// The library's words, without the remedy that this program does not have, and with the program's names for others.
pub fn refusal(error: &Error, here: &[(&str, &str)]) -> String {
    let text = FORCE.iter().fold(error.to_string(), |text, remedy| text.replace(remedy, ""));
    let ours = here.iter().find(|(theirs, _)| text.contains(theirs));
    ours.map_or(text.clone(), |(_, ours)| format!("{text} (here: {ours})"))
}

/// The same for the table of arms.
fn unopened(error: Error) -> Failure {
    Failure::Setup(refusal(&error, &[("polled()", "--polled")]))
}

impl Member {
    pub fn file(path: PathBuf) -> Self {
        Self { plain: path.clone(), path, target: None }
    }

    /// Looks at an existing file or device. A character device is opened: only the engine knows it.
    pub fn existing(plan: &Plan, engine: &Engine, path: &Path, meta: &fs::Metadata) -> Result<Self, Failure> {
        if !meta.file_type().is_char_device() {
            return Ok(Self::file(path.to_owned()));
        }
        let target = engine.open(path, options(plan)).map_err(unopened)?;
        if target.is_mapped() {
            return Ok(Self { plain: path.to_owned(), path: path.to_owned(), target: Some(target) });
        }
        let block = target.drive().and_then(|drive| drive.block_name).ok_or_else(|| {
            Failure::Setup(format!(
                "{}: no block device shows it, which the serial arm needs: is /sys mounted?",
                path.display()
            ))
        })?;
        Ok(Self { path: path.to_owned(), plain: Path::new("/dev").join(block), target: Some(target) })
    }

    /// The target, opened if it was not.
    pub fn target(&self, plan: &Plan, engine: &Engine) -> Result<Target, Failure> {
        match &self.target {
            Some(target) => Ok(target.clone()),
            None => engine.open(&self.path, options(plan)).map_err(unopened),
        }
    }

    /// Whether it is a DAX device, which plain reads cannot reach.
    pub fn is_dax(&self) -> bool {
        self.target.as_ref().is_some_and(Target::is_mapped)
    }

    /// The drive that is reached by passthrough.
    pub fn drive(&self) -> Option<Drive> {
        self.target.as_ref().and_then(Target::drive)
    }
}

/// The names in `--filename`: a colon parts them, as in fio, and `\:` is a colon.
pub fn names(text: &Path) -> Result<Vec<PathBuf>, Failure> {
    let (mut names, mut name) = (Vec::new(), Vec::new());
    let mut bytes = text.as_os_str().as_bytes().iter().copied();
    loop {
        let byte = bytes.next();
        match byte {
            Some(b'\\') if matches!(bytes.clone().next(), Some(b':' | b'\\')) => name.extend(bytes.next()),
            Some(b':') | None => names.push(PathBuf::from(OsString::from_vec(mem::take(&mut name)))),
            Some(byte) => name.push(byte),
        }
        if byte.is_none() {
            break;
        }
    }
    if names.iter().any(|name| name.as_os_str().is_empty()) {
        return Err(Failure::setup(
            "--filename has an empty name: give A or A:B, and \\: for a colon in a name",
        ));
    }
    Ok(names)
}
