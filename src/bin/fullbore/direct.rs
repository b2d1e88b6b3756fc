//! Plain O_DIRECT I/O: what the serial arm does, and what lays out and re-reads files beside the engine.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fullbore::{Client, Engine, Region, Target, Transfer};
use nix::fcntl::OFlag;

use crate::args::ALIGN;

/// Bytes that start on a page, from a vector a page too long: no `unsafe` is needed for that.
pub struct PageBuf {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl PageBuf {
    pub fn new(len: usize) -> Self {
        let bytes = vec![0; len + ALIGN as usize];
        let start = bytes.as_ptr().align_offset(ALIGN as usize);
        Self { bytes, start, len }
    }
}

impl Deref for PageBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }
}

impl DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

/// What the engine's target holds, without the engine: one file, or several with a chunk of each in turn. A DAX
/// device can only be mapped, and so the engine itself has to do: to host memory, one command after another.
pub enum Plain {
    Files {
        files: Vec<File>,
        /// Bytes of a chunk; of one file all.
        chunk: u64,
    },
    Mapped(Box<Mapped>),
}

/// A mapped target, by way of the engine.
pub struct Mapped {
    target: Target,
    client: Client,
    region: Region,
}

/// Bytes that go through a [`Mapped`] at once.
const AT_ONCE: usize = 4 << 20;

impl Mapped {
    pub fn new(engine: &Engine, target: Target) -> Result<Self, fullbore::Error> {
        Ok(Self { target, client: engine.client()?, region: engine.alloc_host(AT_ONCE)? })
    }

    fn read_or_write(&self, op: Op, piece: &mut [u8], offset: u64) -> Result<usize, fullbore::Error> {
        let len =
            piece.len().min(AT_ONCE).min(usize::try_from(self.target.size() - offset).unwrap_or(AT_ONCE));
        let mut lease = self.region.lease(0..len)?;
        let transfer = match op {
            Op::Read => Transfer::read(&self.target),
            Op::Write => {
                lease.copy_from_slice(&piece[..len]);
                Transfer::write(&self.target)
            }
        };
        let transfer = transfer.extent(offset, lease);
        let done = self.client.submit(transfer).map_err(|rejected| rejected.error)?.wait()?;
        let leases = done.into_leases()?;
        if let (Op::Read, Some(lease)) = (op, leases.first()) {
            piece[..len].copy_from_slice(lease);
        }
        Ok(len)
    }
}

impl Plain {
    /// Opens existing files past the page cache, or through it: mapped files live there. An error comes with the name
    /// of its file.
    pub fn open(
        paths: &[&Path],
        stripe: Option<u64>,
        write: bool,
        cached: bool,
    ) -> Result<Self, (PathBuf, io::Error)> {
        let open_one = |path: &&Path| {
            let file = if cached {
                OpenOptions::new().read(true).write(write).open(path)
            } else {
                open(path, write)
            };
            file.map_err(|error| (path.to_path_buf(), error))
        };
        let files = paths.iter().map(open_one).collect::<Result<_, _>>()?;
        Ok(Self::Files { files, chunk: stripe.unwrap_or(u64::MAX) })
    }

    /// Bytes: of a stripe whole chunks, as many of each member as the smallest has.
    pub fn size(&self) -> io::Result<u64> {
        let (files, chunk) = match self {
            Self::Files { files, chunk } => (files, *chunk),
            Self::Mapped(mapped) => return Ok(mapped.target.size()),
        };
        let ends = files.iter().map(|mut file| file.seek(SeekFrom::End(0)));
        let least = ends.collect::<io::Result<Vec<_>>>()?.into_iter().min().unwrap_or(0);
        let members = files.len() as u64;
        Ok(if members == 1 { least } else { least / chunk * chunk * members })
    }

    /// Reads or writes some of `piece` and says how many bytes.
    fn move_some(&self, op: Op, piece: &mut [u8], offset: u64) -> io::Result<usize> {
        let (files, chunk) = match self {
            Self::Files { files, chunk } => (files, *chunk),
            Self::Mapped(mapped) => return mapped.read_or_write(op, piece, offset).map_err(io::Error::other),
        };
        let (index, members, within) = (offset / chunk, files.len() as u64, offset % chunk);
        let file = &files[(index % members) as usize];
        let (place, left) = (index / members * chunk + within, chunk - within);
        let len = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        match op {
            Op::Read => file.read_at(&mut piece[..len], place),
            Op::Write => file.write_at(&piece[..len], place),
        }
    }
}

/// Opens an existing file past the page cache.
pub fn open(path: &Path, write: bool) -> io::Result<File> {
    OpenOptions::new().read(true).write(write).custom_flags(OFlag::O_DIRECT.bits()).open(path)
}

/// Whether direct I/O really works on this file, which must hold nothing yet: some file systems open it
/// and refuse the first read.
pub fn probe(file: &File) -> io::Result<()> {
    let mut page = PageBuf::new(ALIGN as usize);
    page.fill(0x5a);
    file.write_all_at(&page, 0)?;
    page.fill(0);
    file.read_exact_at(&mut page, 0)?;
    if page.iter().all(|&byte| byte == 0x5a) {
        return Ok(());
    }
    Err(io::Error::other("a direct read did not give what a direct write wrote"))
}

/// What is done with a piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Read,
    Write,
}

impl Op {
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Moves one object as the loaders do that this project exists to replace: a command, wait, the next.
///
/// `buf` may be longer than `len`, up to the next page: the odd end of a file is read into the rest.
pub fn serial_object(
    plain: &Plain,
    op: Op,
    cmd: usize,
    buf: &mut [u8],
    offset: u64,
    len: usize,
) -> io::Result<()> {
    let mut at = 0;
    while at < len {
        let ask = cmd.min(len - at).next_multiple_of(ALIGN as usize).min(buf.len() - at);
        match plain.move_some(op, &mut buf[at..at + ask], offset + at as u64) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file ended early")),
            Ok(moved) => at += moved,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn page_buffers_start_on_a_page() {
        for len in [0, 1, 4096, 100_000] {
            let buf = PageBuf::new(len);
            assert_eq!((buf.len(), buf.as_ptr() as usize % ALIGN as usize), (len, 0));
        }
    }

    #[test]
    fn objects_move_in_commands_with_an_odd_end() {
        let path = std::env::temp_dir().join(format!("fullbore-serial-{}", std::process::id()));
        let guard = crate::stop::MadeFile::new(path.clone());
        let want: Vec<u8> = (0..300_001u32).map(|i| (i % 251) as u8).collect();
        File::create(&path).unwrap().write_all(&want).unwrap();
        let file = Plain::Files { files: vec![File::open(guard.path()).unwrap()], chunk: u64::MAX };
        let mut buf = PageBuf::new(want.len().next_multiple_of(4096));
        serial_object(&file, Op::Read, 131_072, &mut buf, 0, want.len()).unwrap();
        assert!(buf[..want.len()] == want);
        let beyond = serial_object(&file, Op::Read, 131_072, &mut buf[..4096], 1 << 20, 4096);
        assert_eq!(beyond.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn chunks_go_to_the_members_in_turn() {
        let file = |name: &str, bytes: &[u8]| {
            let path = std::env::temp_dir().join(format!("fullbore-striped-{name}-{}", std::process::id()));
            std::fs::write(&path, bytes).unwrap();
            let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            std::fs::remove_file(path).unwrap();
            file
        };
        let chunk = |byte: u8| [byte; 4096];
        // The first is longer: its odd rest is no part of the stripe.
        let first = [chunk(0), chunk(2), chunk(4), chunk(9)].concat();
        let files = vec![file("a", &first), file("b", &[chunk(1), chunk(3), chunk(5)].concat())];
        let plain = Plain::Files { files, chunk: 4096 };
        assert_eq!(plain.size().unwrap(), 6 * 4096);
        let mut buf = PageBuf::new(6 * 4096);
        serial_object(&plain, Op::Read, 131_072, &mut buf, 0, 6 * 4096).unwrap();
        assert!((0..6).all(|n| buf[n * 4096..][..4096] == chunk(n as u8)));
        buf.fill(7);
        serial_object(&plain, Op::Write, 131_072, &mut buf, 4096, 2 * 4096).unwrap();
        serial_object(&plain, Op::Read, 131_072, &mut buf, 0, 6 * 4096).unwrap();
        let got: Vec<u8> = buf.iter().copied().step_by(4096).collect();
        assert_eq!(got, [0, 7, 7, 3, 4, 5]);
    }
}
