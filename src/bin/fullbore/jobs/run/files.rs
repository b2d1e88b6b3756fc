//! The files of jobs: how they are called, how long they must be, and those that are made.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};

use crate::args::ALIGN;
use crate::failure::{self, Failure};
use crate::jobs::spec::Job;
use crate::jobs::value::Amount;
use crate::lay_out::lay_out;
use crate::place::{is_device_name, why};
use crate::progress::Progress;
use crate::stop::MadeFile;
use crate::units::{human, short};

/// More bytes than any file has: what is near the end of 64 bits is a slip of the pen.
const MOST: u64 = 1 << 62;

/// The files of a clone of a job.
pub fn names(job: &Job, clone: usize) -> Vec<PathBuf> {
    if !job.files.is_empty() {
        // All clones share them, in the first folder. An absolute name stays what it is.
        let folder = job.directories.first().cloned().unwrap_or_default();
        return job.files.iter().map(|file| folder.join(file)).collect();
    }
    let folder = match job.directories.len() {
        0 => PathBuf::new(),
        several => job.directories[clone % several].clone(),
    };
    // A slash in a job's name is no folder.
    let name = job.name.replace('/', "_");
    (0..job.nrfiles).map(|file| folder.join(format!("{name}.{clone}.{file}"))).collect()
}

/// What a clone uses of a file that has so many bytes, or that is to be made (`None`): where it begins, and how much.
pub fn range(job: &Job, clone: usize, files: usize, bytes: Option<u64>) -> Result<(u64, u64), String> {
    let whole = match (bytes, job.filesize, job.size) {
        (Some(bytes), ..) => bytes,
        (None, Some(bytes), _) => bytes,
        (None, None, Some(Amount::Bytes(size))) => size / files as u64,
        _ => return Err("it is to be made, and nothing says how large: add size=1g".into()),
    };
    let part_of_it = [job.offset, job.offset_increment].iter().any(|at| matches!(at, Amount::Percent(_)));
    if bytes.is_none() && job.filesize.is_none() && part_of_it {
        return Err("it is to be made, and an offset is a part of it: add filesize=1g".into());
    }
    let start =
        job.offset.of(whole).saturating_add(job.offset_increment.of(whole).saturating_mul(clone as u64));
    let len = match job.size {
        Some(Amount::Bytes(size)) => size / files as u64,
        Some(part) => part.of(whole),
        None => whole.saturating_sub(start),
    };
    let len = job.filesize.map_or(len, |most| len.min(most));
    let end = start.checked_add(len).filter(|end| (*end).max(whole) <= MOST);
    let end = end.ok_or("offset and size are more than any device holds: lower one")?;
    match bytes {
        Some(bytes) if end > bytes => Err(format!(
            "it holds {}, and the job goes to {}: lower size or offset",
            human(bytes),
            human(end)
        )),
        _ if len < job.bs => Err(format!(
            "{len} bytes of it do not hold one object of {}: lower bs or raise size",
            short(job.bs)
        )),
        _ => Ok((start, len)),
    }
}

/// The seed of content in a file. Two files differ, so that bytes which went to the wrong one are wrong there.
pub fn seed(path: &Path, job: &Job, run: u64) -> u64 {
    let seed = if job.randrepeat { job.randseed } else { job.randseed ^ run };
    let name = path.as_os_str().as_encoded_bytes();
    name.iter().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// The files that this run made, and how large those must be that it is yet to make.
#[derive(Debug, Default)]
pub struct Made {
    needs: HashMap<PathBuf, u64>,
    made: HashSet<PathBuf>,
}

impl Made {
    /// Looks through all jobs, so that a file is made large enough for each.
    pub fn of(jobs: &[Job]) -> Self {
        let mut needs = HashMap::new();
        for job in jobs {
            for clone in 0..job.numjobs {
                let names = names(job, clone);
                let Ok((start, len)) = range(job, clone, names.len(), None) else { continue };
                for name in names {
                    let need: &mut u64 = needs.entry(name).or_default();
                    *need = (*need).max(start + len).max(job.filesize.unwrap_or(0));
                }
            }
        }
        Self { needs, made: HashSet::new() }
    }

    /// Looks at the files of all jobs, before the first runs: whether each may be used so, and is large enough.
    pub fn look(&self, jobs: &[Job]) -> Result<(), Failure> {
        for job in jobs {
            for clone in 0..job.numjobs {
                let names = names(job, clone);
                for path in &names {
                    let bytes = self.check(job, path)?;
                    // Sizes of devices, stripes and replays are known when they are open.
                    if let Some(bytes) = bytes.filter(|_| job.stripe.is_none() && job.replay.is_none()) {
                        range(job, clone, names.len(), Some(bytes)).map_err(|why| refusal(job, path, why))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a file of a job may be used so, and how large it is or will be; `None` of a device.
    fn check(&self, job: &Job, path: &Path) -> Result<Option<u64>, Failure> {
        let refuse = |why: String| Err(refusal(job, path, why));
        let meta = match fs::metadata(path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_device_name(path) => {
                return refuse("there is no such device: check filename".into());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if !job.allow_file_create {
                    return refuse(
                        "it is not there, and allow_file_create=0: leave that out, or make it".into(),
                    );
                }
                if let Some(bytes) = self.needs.get(path) {
                    return Ok(Some(bytes.next_multiple_of(ALIGN)));
                }
                let why = range(job, 0, names(job, 0).len(), None).err();
                return refuse(why.unwrap_or_else(|| "nothing says how large it is: add size=1g".into()));
            }
            Err(error) => return refuse(format!("{error}: check filename")),
        };
        let kind = meta.file_type();
        if !meta.is_file() && !kind.is_block_device() && !kind.is_char_device() {
            return refuse("neither a file nor a device: name one of these in filename".into());
        }
        if job.rw.writes && !job.destructive && !self.made.contains(path) {
            return refuse(format!("rw={} would overwrite it: add allow_destructive=1", job.rw.name()));
        }
        Ok(meta.is_file().then_some(meta.len()))
    }

    /// Sees that a file of a job is there and may be used so; makes it if it is not there.
    pub fn ready(&mut self, job: &Job, path: &Path, seed: u64) -> Result<(), Failure> {
        let Some(bytes) = self.check(job, path)? else { return Ok(()) };
        if !path.exists() {
            make(job, path, bytes, seed)
                .map_err(|why| why.map_or(Failure::Stopped, |why| refusal(job, path, why)))?;
            self.made.insert(path.to_owned());
        } else if !job.direct && job.invalidate {
            let file = File::open(path);
            // As in fio, what cannot be dropped stays.
            let _ = file.map(|file| posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED));
        }
        Ok(())
    }

    /// Removes a job's files, those that were made.
    pub fn unlink(&mut self, job: &Job) {
        for name in (0..job.numjobs).flat_map(|clone| names(job, clone)) {
            if self.made.remove(&name)
                && let Err(error) = fs::remove_file(&name)
            {
                failure::tell(format_args!("{} is left behind: {error}", name.display()));
            }
        }
    }
}

fn refusal(job: &Job, path: &Path, why: String) -> Failure {
    Failure::Setup(format!("job {}: {}: {why}", job.name, path.display()))
}

/// Makes a file full of content. One that is not whole does not stay. `Err(None)`: Ctrl-C.
fn make(job: &Job, path: &Path, bytes: u64, seed: u64) -> Result<(), Option<String>> {
    let say = |error: io::Error| {
        let remedy = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space",
            io::ErrorKind::InvalidInput => "add direct=0",
            io::ErrorKind::NotFound => "make its folder",
            _ => "look at its folder",
        };
        Some(format!("making it: {}: {remedy}, or name another file in filename", why(&error)))
    };
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(say)?;
    let made = MadeFile::new(path.to_owned());
    drop(new);
    let flags = if job.direct && !job.mapped { OFlag::O_DIRECT.bits() } else { 0 };
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path).map_err(say)?;
    let progress = Progress::new(&format!("{}: laying out", job.name), Some(bytes));
    lay_out(&file, bytes, seed, &progress).map_err(|failed| failed.and_then(|(_, error)| say(error)))?;
    made.keep();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content;
    use crate::jobs::tests::job;

    #[test]
    fn files_are_called_as_in_fio() {
        let named = |line: &str, clone| {
            let names = names(&job(line), clone);
            names.iter().map(|name| name.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(named("", 1), ["a.1.0"]);
        assert_eq!(named("--nrfiles=2 --directory=/x:/y", 3), ["/y/a.3.0", "/y/a.3.1"]);
        assert_eq!(named("--filename=b:/c --directory=/x", 0), ["/x/b", "/c"]);
        assert_eq!(named("--filename=b --directory=/x:/y", 1), ["/x/b"]);
    }

    #[test]
    fn ranges_are_of_each_file_and_clone() {
        let range = |line: &str, clone, files, bytes| range(&job(line), clone, files, bytes);
        assert_eq!(range("--size=1m", 0, 1, None), Ok((0, 1 << 20)));
        assert_eq!(range("--size=1m --offset=8k", 0, 2, Some(1 << 20)), Ok((8192, 512 << 10)));
        assert_eq!(
            range("--size=25% --offset_increment=25%", 3, 1, Some(1 << 20)),
            Ok((768 << 10, 256 << 10))
        );
        assert_eq!(range("--offset=4k", 0, 1, Some(12_288)), Ok((4096, 8192)));
        for (line, bytes) in
            [("", None), ("--size=50%", None), ("--size=2m", Some(1 << 20)), ("--bs=1m", Some(4096))]
        {
            assert!(range(line, 0, 1, bytes).unwrap_err().contains(": "), "{line}");
        }
        assert!(range("--size=1m --offset=1m", 0, 1, Some(1 << 20)).is_err());
    }

    #[test]
    fn a_file_is_made_large_enough_for_all_jobs_and_full_of_content() {
        let path = std::env::temp_dir().join(format!("fullbore-made-{}", std::process::id()));
        let line = format!("--filename={} --size=64k --direct=0", path.display());
        let jobs = [job(&line), job(&format!("{line} --offset=64k --rw=write --unlink=1"))];
        let mut made = Made::of(&jobs);
        let seed = seed(&path, &jobs[0], 1);
        made.ready(&jobs[0], &path, seed).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!((bytes.len(), content::check(&bytes, 0, seed).bytes), (128 << 10, 0));
        // What this run made may be written; in another run it may not.
        made.ready(&jobs[1], &path, seed).unwrap();
        let refused = Made::of(&jobs).ready(&jobs[1], &path, seed).unwrap_err().to_string();
        assert!(refused.contains("allow_destructive"), "{refused}");
        made.unlink(&jobs[1]);
        assert!(!path.exists());
        let none =
            Made::of(&jobs).ready(&job("--filename=/dev/ng99n99 --size=1m"), "/dev/ng99n99".as_ref(), 0);
        assert!(none.unwrap_err().to_string().contains("no such device"));
    }

    #[test]
    fn seeds_differ_by_file_and_not_by_run() {
        let (a, b) = (Path::new("/a"), Path::new("/b"));
        assert_ne!(seed(a, &job(""), 0), seed(b, &job(""), 0));
        assert_eq!(seed(a, &job(""), 0), seed(a, &job(""), 5));
        assert_ne!(seed(a, &job("--randrepeat=0"), 0), seed(a, &job("--randrepeat=0"), 5));
        assert_ne!(seed(a, &job("--randseed=4"), 0), seed(a, &job(""), 0));
    }
}
