//! The stand-in library, built and loaded as the real one is: in a process of its own, by the test executing itself.

use super::super::*;
use crossbeam::queue::SegQueue;
use std::ffi::{CStr, CString, c_char, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const WHO: &str = "FULLBORE_CUFILE_CHILD";
const DONE: &str = "child-came-to-its-end";

/// Which stand-in a child finds.
#[derive(Clone, Copy, Debug)]
pub enum Library {
    None,
    /// This machine's, if it has one.
    Real,
    Whole,
    Old,
    Broken,
}

/// Runs `body` in a child with this library and environment; see `tests/it/support/child.rs`.
#[track_caller]
pub fn child(test: &str, library: Library, env: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var(WHO).is_ok_and(|who| who == test) {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_secs(50));
            eprintln!("the child took too long");
            std::process::exit(9);
        });
        body();
        came_to_end();
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("queue::cufile::tests::{test}"), "--nocapture", "--test-threads=1"]);
    command.env(WHO, test).envs(env.iter().copied());
    if !matches!(library, Library::Real) {
        command.env("LD_LIBRARY_PATH", build(library));
    }
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    err.lines()
        .filter(|line| line.contains("skipped") || line.contains("measured"))
        .for_each(|line| eprintln!("{line}"));
    let well = output.status.success() && out.contains(DONE);
    assert!(well, "child of {test} {env:?}: {}\n{out}\n{err}", output.status);
}

/// Says so to the parent; answers a child's exit code.
pub fn came_to_end() -> i32 {
    println!("{DONE}");
    0
}

/// The folder of a library, built beside this program, once by each process.
fn build(library: Library) -> PathBuf {
    static BUILT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let mut built = lock(&BUILT);
    let program = std::env::current_exe().unwrap();
    let folder = program.with_file_name(format!("fake-cufile-{library:?}"));
    if built.contains(&folder) || matches!(library, Library::None | Library::Real) {
        return folder;
    }
    std::fs::create_dir_all(&folder).unwrap();
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-shared", "-fPIC", "-pthread"]);
    match library {
        Library::Old => drop(cc.arg("-DFAKE_CUFILE_OLD")),
        Library::Broken => drop(cc.arg("-DFAKE_CUFILE_BROKEN")),
        _ => {}
    }
    let new = folder.join(format!("new-{}", std::process::id()));
    cc.arg("-o").arg(&new).arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_cuda/cufile.c")).arg("-ldl");
    assert!(cc.status().unwrap().success(), "the stand-in does not compile");
    // Another run of the tests may have the old one loaded.
    std::fs::rename(new, folder.join("libcufile.so.0")).unwrap();
    built.push(folder.clone());
    folder
}

/// The stand-in's own functions.
pub struct Fake(*mut c_void);

impl Fake {
    pub fn loaded() -> Fake {
        // SAFETY: it only looks for what is loaded.
        let library = unsafe { libc::dlopen(c"libcufile.so.0".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW) };
        assert!(!library.is_null(), "the stand-in is not loaded");
        Fake(library)
    }

    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: a library that stays loaded.
        let at = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!at.is_null(), "{name:?} is not the stand-in's");
        at
    }

    pub fn order(&self, fault: &str, after: u64, times: u64) {
        let at = self.symbol(c"fake_cufile_order");
        // SAFETY: its signature, as tests/fake_cuda/cufile_faults.h has it.
        let order: extern "C" fn(*const c_char, u64, u64) = unsafe { std::mem::transmute(at) };
        order(CString::new(fault).unwrap().as_ptr(), after, times);
    }

    pub fn release(&self) {
        // SAFETY: as above.
        let release: extern "C" fn() = unsafe { std::mem::transmute(self.symbol(c"fake_cufile_release")) };
        release();
    }

    pub fn count(&self, function: &str) -> u64 {
        // SAFETY: as above.
        let count: extern "C" fn(*const c_char) -> u64 =
            unsafe { std::mem::transmute(self.symbol(c"fake_cufile_count")) };
        count(CString::new(function).unwrap().as_ptr())
    }

    pub fn violations(&self) -> String {
        let at = self.symbol(c"fake_cufile_violations");
        // SAFETY: as above; the text is the library's, for ever.
        unsafe {
            let violations: extern "C" fn() -> *const c_char = std::mem::transmute(at);
            CStr::from_ptr(violations()).to_string_lossy().into_owned()
        }
    }
}

/// Stands for GPU memory: bytes that others write to behind our back.
pub struct Memory {
    at: *mut u8,
    len: usize,
    freed: Arc<AtomicUsize>,
}

// SAFETY: a pointer and a length; tests read only when nothing writes.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(len: usize, freed: &Arc<AtomicUsize>) -> Arc<Memory> {
        let at = Box::into_raw(vec![0xee_u8; len].into_boxed_slice()).cast();
        Arc::new(Memory { at, len, freed: freed.clone() })
    }

    pub fn base(&self) -> u64 {
        self.at.expose_provenance() as u64
    }

    pub fn bytes(&self) -> Vec<u8> {
        // SAFETY: all of it is ours and initialised.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }.to_vec()
    }

    pub fn fill(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len);
        // SAFETY: inside of ours.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at, bytes.len()) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.freed.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the box that `new` took apart.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.at, self.len)) });
    }
}

/// Content that says where it is.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 4096 * 7 + i % 251) as u8).collect()
}

pub const LEN: usize = 1 << 20;

/// One file of `LEN` bytes, one buffer as long, and workers between them.
pub struct Rig {
    pub cufile: Arc<CuFile>,
    pub fake: Fake,
    pub path: Temporary,
    pub freed: Arc<AtomicUsize>,
    pub memory: Arc<Memory>,
    pub handle: Arc<Handle>,
    pub buffer: Arc<Buffer>,
    pub done: Arc<SegQueue<Done>>,
    pub wakes: Arc<AtomicU64>,
    pub prepared: Arc<AtomicU64>,
    pub workers: Workers,
}

impl Rig {
    pub fn new(threads: usize) -> Rig {
        let cufile = CuFile::load().unwrap();
        let path = std::env::temp_dir().join(format!("fullbore-cufile-{}", std::process::id()));
        let path = Temporary(path);
        std::fs::write(&path, pattern(LEN)).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let freed = Arc::new(AtomicUsize::new(0));
        let memory = Memory::new(LEN, &freed);
        let handle = cufile.register_file(file.as_raw_fd()).unwrap();
        let buffer = cufile.register_buffer(memory.base(), LEN, memory.clone()).unwrap();
        let (done, wakes, prepared) =
            (Arc::default(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (woken, ready) = (wakes.clone(), prepared.clone());
        let workers = Workers::new(
            &cufile,
            threads,
            Arc::clone(&done),
            Box::new(move || _ = woken.fetch_add(1, Ordering::SeqCst)),
            Box::new(move || _ = ready.fetch_add(1, Ordering::SeqCst)),
        );
        let fake = Fake::loaded();
        Rig { cufile, fake, path, freed, memory, handle, buffer, done, wakes, prepared, workers }
    }

    pub fn job(&self, op: crate::target::Op, at: u64, len: usize, user: u64) -> Job {
        let (handle, buffer) = (self.handle.clone(), self.buffer.clone());
        Job { op, handle, buffer, offset_in_buffer: at, file_offset: at, len, user }
    }

    pub fn read(&self, at: u64, len: usize, user: u64) {
        self.workers.submit(self.job(crate::target::Op::Read, at, len, user)).unwrap();
    }

    /// The next answer; fails if none comes.
    #[track_caller]
    pub fn answer(&self) -> Done {
        until("an answer", || !self.done.is_empty());
        self.done.pop().unwrap()
    }
}

/// A file's name; the file goes with it.
pub struct Temporary(pub PathBuf);

impl AsRef<Path> for Temporary {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[track_caller]
pub fn until(what: &str, mut it: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !it() {
        assert!(Instant::now() < end, "{what} did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}
