//! What the kernel is asked to do for a test: memory that blocks, forbidden system calls, limits, counts.

use super::Folder;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};
use nix::sys::resource::{Resource, setrlimit};
use std::num::NonZeroUsize;

/// Anonymous pages of the test's own, zero and untouched at first.
#[derive(Debug)]
pub struct Pages {
    ptr: NonNull<u8>,
    len: usize,
}

const READ_WRITE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

impl Pages {
    pub fn new(len: usize) -> Pages {
        let flags = MapFlags::MAP_PRIVATE;
        // SAFETY: new anonymous memory at an address of the kernel's choice touches nothing of ours.
        let ptr = unsafe { mmap_anonymous(None, NonZeroUsize::new(len).unwrap(), READ_WRITE, flags) };
        Pages { ptr: ptr.expect("memory for a test").cast(), len }
    }

    /// Unmaps the pages, and maps new ones at the same address; nobody gets in between.
    pub fn renew(&mut self) {
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED;
        let (addr, len) = (NonZeroUsize::new(self.addr()), NonZeroUsize::new(self.len).unwrap());
        // SAFETY: replaces our own mapping; no transfer is under way over it, and `&mut self` has no borrower.
        unsafe { mmap_anonymous(addr, len, READ_WRITE, flags) }.expect("memory for a test");
    }

    /// `len` bytes of address space over the same `file`, again and again: much to register, little to hold.
    pub fn repeated(file: &File, len: usize) -> Pages {
        let pages = Pages::new(len);
        let each = file.metadata().expect("a length").len() as usize;
        for from in (0..len).step_by(each) {
            let addr = NonZeroUsize::new(pages.ptr.as_ptr() as usize + from);
            let part = NonZeroUsize::new(each.min(len - from)).unwrap();
            let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
            // SAFETY: replaces a part of the mapping that was just made and that nobody knows yet.
            let done = unsafe { mmap(addr, part, READ_WRITE, flags, file, 0) };
            done.expect("the file can be mapped");
        }
        pages
    }

    pub fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    pub fn addr(&self) -> usize {
        self.ptr.as_ptr() as usize
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The bytes, while no transfer is under way over them.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped while this lives; tests look only when nothing is in flight.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// The bytes, while no transfer is under way over them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }

    /// Whether the pages may be read and written.
    pub fn accessible(&self, yes: bool) {
        let protection = if yes { READ_WRITE } else { ProtFlags::PROT_NONE };
        // SAFETY: our own mapping; nobody looks at its bytes meanwhile.
        unsafe { mprotect(self.ptr.cast(), self.len, protection) }.expect("our own mapping can be protected");
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours; tests end their transfers before.
        let _ = unsafe { munmap(self.ptr.cast(), self.len) };
    }
}

/// Memory whose first touch blocks whoever touches it, also the kernel, until it is served: userfaultfd.
#[derive(Debug)]
pub struct Stuck(OwnedFd);

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// The arguments of UFFDIO_REGISTER and of UFFDIO_ZEROPAGE have this form.
#[repr(C)]
struct Range {
    start: u64,
    len: u64,
    mode: u64,
    out: u64,
}

const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;

impl Stuck {
    /// `Err` says why this process may not (it needs root, or sysctl vm.unprivileged_userfaultfd).
    pub fn new() -> Result<Stuck, String> {
        // SAFETY: makes a descriptor, or fails.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
        if fd < 0 {
            return Err(format!("no userfaultfd for kernel faults: {}", std::io::Error::last_os_error()));
        }
        // SAFETY: a new descriptor, ours alone.
        let stuck = Stuck(unsafe { OwnedFd::from_raw_fd(fd as i32) });
        let mut api = Api { api: 0xaa, features: 0, ioctls: 0 };
        // SAFETY: the argument has the form that UFFDIO_API wants and lives across the call.
        let rc = unsafe { libc::ioctl(stuck.0.as_raw_fd(), UFFDIO_API, &mut api) };
        if rc == 0 { Ok(stuck) } else { Err(format!("UFFDIO_API: {}", std::io::Error::last_os_error())) }
    }

    /// From now on a first touch of these pages blocks.
    pub fn watch(&self, ptr: *mut u8, len: usize) {
        self.call(UFFDIO_REGISTER, ptr, len, 1);
    }

    /// Waits until somebody is blocked.
    pub fn touched(&self, within: Duration) -> bool {
        let timeout = PollTimeout::try_from(within).expect("a short time");
        poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], timeout) == Ok(1)
    }

    /// Gives these pages zeros; whoever is blocked goes on.
    pub fn serve(&self, ptr: *mut u8, len: usize) {
        self.call(UFFDIO_ZEROPAGE, ptr, len, 0);
    }

    fn call(&self, request: libc::c_ulong, ptr: *mut u8, len: usize, mode: u64) {
        let mut range = Range { start: ptr as u64, len: len as u64, mode, out: 0 };
        // SAFETY: the argument has the form that both calls want and lives across the call; the pages are the test's.
        let rc = unsafe { libc::ioctl(self.0.as_raw_fd(), request, &mut range) };
        assert_eq!(rc, 0, "userfaultfd {request:x}: {}", std::io::Error::last_os_error());
    }
}

/// From now on `call` fails with `errno` in this thread and those that it starts: what a container's seccomp profile
/// does. Call it in a child only: there is no way back.
pub fn forbid(call: libc::c_long, errno: i32) {
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0), // the number of the call
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program lives across the call, which copies it.
    let rc = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter)
    };
    assert_eq!(rc, 0, "a filter can be set: {}", std::io::Error::last_os_error());
}

/// Sets a limit of this process, soft and hard. Call it in a child only.
pub fn limit(resource: Resource, value: u64) {
    setrlimit(resource, value, value).unwrap_or_else(|e| panic!("{resource:?} = {value}: {e}"));
}

/// Makes this process a user that nobody else is, if it may: the kernel counts locked pages and threads by user, and
/// other tests are running. No capability is left. Call it in a child only. False: this process may not.
/// The folders, too, are that user's from then on, so that it can remove them.
pub fn become_nobody<'a>(folders: impl IntoIterator<Item = &'a Folder>) -> bool {
    if super::effective_capabilities() == 0 {
        return false;
    }
    let id = 1_000_000 + std::process::id();
    for folder in folders {
        std::os::unix::fs::chown(&folder.path, Some(id), Some(id)).expect("root may give folders away");
    }
    // SAFETY: numbers only. The C library changes all threads.
    let rc = unsafe { libc::setresgid(id, id, id) | libc::setresuid(id, id, id) };
    assert_eq!(rc, 0, "root may be anybody: {}", std::io::Error::last_os_error());
    // SAFETY: numbers only: /proc/self stays readable.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
    assert_eq!(super::effective_capabilities(), 0, "capabilities go with root");
    true
}

/// A number of /proc/self/status that is in kB (VmPin: pinned pages), in bytes.
pub fn status_bytes(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("every process has a status");
    let line =
        status.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':')).expect("the line is there");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}
