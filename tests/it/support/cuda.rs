//! The stand-ins for libcuda and libcufile (tests/fake_cuda/): built here, found as the real ones are, and controlled.
//!
//! ```ignore
//! #[test]
//! fn lands_in_the_gpu() {
//!     with_cuda("gpu::lands_in_the_gpu", &[("FAKE_CUDA_DEVICES", "2")]).run(|| {
//!         let fake = Fake::load();
//!         let memory = fake.alloc(1, 1 << 20);
//!         // ... a load into it ...
//!         assert_eq!(fake.peek(memory, 5), b"hello");
//!         assert_eq!(fake.violations(), "");
//!     });
//! }
//! ```

use super::{Child, child};
use std::ffi::{CStr, CString, c_char, c_void};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The libraries: file name, what else they are found by, and their sources. One without sources is not built.
const LIBRARIES: &[(&str, &str, &[&str])] = &[
    (
        "libcuda.so.1",
        "libcuda.so",
        &[
            "cuda.c",
            "cuda_device.c",
            "cuda_control.c",
            "cuda_engine.c",
            "cuda_streams.c",
            "cuda_memory.c",
            "cuda_copy.c",
        ],
    ),
    ("libcufile.so.0", "libcufile.so", &["cufile.c"]),
];

/// For ever, in [`Fake::order`].
pub const EVER: u64 = u64::MAX;

/// A [`child`] that finds the stand-ins; tests/fake_cuda/README.md says what `env` may hold. Without
/// a C compiler the test fails: this crate cannot be built without one either.
pub fn with_cuda(test: &str, env: &[(&str, &str)]) -> Child {
    let mut path = folder().display().to_string();
    if let Ok(others) = std::env::var("LD_LIBRARY_PATH") {
        path = if others.starts_with(&path) { others } else { format!("{path}:{others}") };
    }
    let mut all = vec![("LD_LIBRARY_PATH", path.as_str())];
    all.extend(env);
    child(test, &all)
}

/// The folder of the libraries; they are built on the first call of a process. Children find them built.
pub fn folder() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        // In the machine of tests/vm the target folder can be read alone.
        if nix::unistd::access(&folder, nix::unistd::AccessFlags::W_OK).is_err() {
            folder = std::env::temp_dir();
        }
        let folder = folder.join("fake_cuda");
        if std::env::var("FULLBORE_CHILD").is_err() {
            fs::create_dir_all(&folder).expect("the target folder can be written to");
            let lock = File::create(folder.join("lock")).expect("a lock file");
            nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive)
                .map(|_held| LIBRARIES.iter().for_each(|library| build(&folder, library)))
                .expect("the lock");
        }
        folder
    })
}

/// Compiles a library next to its place and renames it there: who has the old one loaded keeps it.
fn build(folder: &Path, (name, also, sources): &(&str, &str, &[&str])) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_cuda");
    let sources: Vec<_> = sources.iter().map(|s| from.join(s)).filter(|s| s.exists()).collect();
    if sources.is_empty() {
        return;
    }
    let new = folder.join(format!("{name}.new"));
    let output = Command::new(std::env::var("CC").unwrap_or("cc".into()))
        .args([
            "-std=c11",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-fPIC",
            "-shared",
            "-fvisibility=hidden",
            "-pthread",
        ])
        .arg(format!("-Wl,-soname,{name}"))
        .arg("-o")
        .arg(&new)
        .args(&sources)
        .arg("-ldl")
        .output()
        .expect("a C compiler");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    fs::rename(&new, folder.join(name)).expect("a library takes its place");
    // A link, so that both names are one library in a process.
    let _ = std::os::unix::fs::symlink(name, folder.join(also));
}

/// The stand-in that this process (a child of [`with_cuda`]) has loaded, or loads now: the same that the crate finds.
#[derive(Clone, Copy, Debug)]
pub struct Fake(usize);

impl Fake {
    /// Loads it and calls cuInit (so that orders by FAKE_CUDA_FAULTS are read).
    #[track_caller]
    pub fn load() -> Fake {
        // SAFETY: loads a library of ours, which runs nothing when it is loaded.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "no libcuda.so.1: is this a child of with_cuda?");
        let fake = Fake(library as usize);
        fake.symbol("fake_cuda_alias"); // or it is a real one
        fake.must("cuInit", &[0]);
        fake
    }

    /// The `after` matching calls that come next do well, then `times` fail. A later order of that name replaces it.
    pub fn order(self, fault: &str, after: u64, times: u64) {
        let fault = CString::new(fault).expect("a name");
        self.raw("fake_cuda_order", &[fault.as_ptr() as u64, after, times]);
    }

    /// Lets copies that hang go on.
    pub fn release(self) {
        self.raw("fake_cuda_release", &[]);
    }

    /// How often an entry point was called, or another count; see tests/fake_cuda/README.md.
    pub fn count(self, name: &str) -> u64 {
        let name = CString::new(name).expect("a name");
        self.raw("fake_cuda_count", &[name.as_ptr() as u64])
    }

    /// Begins anew with most_bytes_outstanding, most_copy and least_copy.
    pub fn clear_most(self) {
        self.raw("fake_cuda_clear_most", &[]);
    }

    /// What was done that a real driver may let through silently, one a line; empty when all is well.
    pub fn violations(self) -> String {
        let text = self.raw("fake_cuda_violations", &[]) as *const c_char;
        // SAFETY: a string that stays as it is until this thread asks again.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Forgets violations that a test provoked.
    pub fn clear_violations(self) {
        self.raw("fake_cuda_clear_violations", &[]);
    }

    /// The host program called cudaDeviceReset.
    pub fn reset_context(self, device: i32) {
        self.raw("fake_cuda_reset_context", &[device as u64]);
    }

    /// Where the CPU can reach the bytes of a device pointer.
    #[track_caller]
    pub fn alias(self, pointer: u64) -> *mut u8 {
        let alias = self.raw("fake_cuda_alias", &[pointer]) as *mut u8;
        assert!(!alias.is_null(), "{pointer:#x} is no device pointer");
        alias
    }

    /// The bytes there are in device memory now.
    #[track_caller]
    pub fn peek(self, pointer: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        // SAFETY: the alias of device memory is mapped for good; the caller's range is inside an allocation.
        unsafe { self.alias(pointer).copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
        bytes
    }

    /// Puts bytes into device memory, behind the driver's back.
    #[track_caller]
    pub fn poke(self, pointer: u64, bytes: &[u8]) {
        // SAFETY: as in `peek`.
        unsafe { self.alias(pointer).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Calls an entry point of the driver API; answers its CUresult. Integers are widened; pointers are addresses and
    /// must be what the function takes.
    pub fn call(self, name: &str, args: &[u64]) -> u32 {
        self.raw(name, args) as u32
    }

    /// Like [`Fake::call`], and fails the test if the answer is not CUDA_SUCCESS.
    #[track_caller]
    pub fn must(self, name: &str, args: &[u64]) {
        assert_eq!(self.call(name, args), 0, "{name}({args:x?})");
    }

    /// Calls an entry point whose first argument says where to put its answer (a handle, a pointer, a number).
    #[track_caller]
    pub fn make(self, name: &str, args: &[u64]) -> u64 {
        let mut answer = 0u64;
        let mut all = vec![&raw mut answer as u64];
        all.extend(args);
        self.must(name, &all);
        answer
    }

    /// The device's primary context, retained once more.
    #[track_caller]
    pub fn retain(self, device: i32) -> u64 {
        self.make("cuDevicePrimaryCtxRetain", &[device as u64])
    }

    /// Runs `body` with the device's primary context current on this thread.
    #[track_caller]
    pub fn on<T>(self, device: i32, body: impl FnOnce() -> T) -> T {
        self.must("cuCtxPushCurrent_v2", &[self.retain(device)]);
        let answer = body();
        self.make("cuCtxPopCurrent_v2", &[]);
        answer
    }

    /// Device memory of the device's primary context, which is retained for good.
    #[track_caller]
    pub fn alloc(self, device: i32, bytes: u64) -> u64 {
        self.on(device, || self.make("cuMemAlloc_v2", &[bytes]))
    }

    /// Gives memory of [`Fake::alloc`] back.
    #[track_caller]
    pub fn free(self, device: i32, pointer: u64) {
        self.on(device, || self.must("cuMemFree_v2", &[pointer]));
    }

    /// Runs `body` and checks that it leaves this thread's stack of contexts as it was.
    #[track_caller]
    pub fn unchanged<T>(self, body: impl FnOnce() -> T) -> T {
        let now = || (self.make("cuCtxGetCurrent", &[]), self.raw("fake_cuda_depth", &[]));
        let before = now();
        let answer = body();
        assert_eq!(now(), before, "the thread's current context, and how many it has");
        answer
    }

    fn raw(self, name: &str, args: &[u64]) -> u64 {
        type Any = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u64;
        let mut all = [0u64; 11];
        all[..args.len()].copy_from_slice(args);
        let [a, b, c, d, e, f, g, h, i, j, k] = all;
        // SAFETY: all arguments of the API are integers and pointers; a function finds those it has in their places
        // and does not see the others.
        unsafe {
            let function: Any = std::mem::transmute::<*mut c_void, Any>(self.symbol(name));
            function(a, b, c, d, e, f, g, h, i, j, k)
        }
    }

    fn symbol(self, name: &str) -> *mut c_void {
        let c_name = CString::new(name).expect("a name");
        // SAFETY: the library stays loaded; the name ends with a zero.
        let symbol = unsafe { libc::dlsym(self.0 as *mut c_void, c_name.as_ptr()) };
        assert!(!symbol.is_null(), "the stand-in has no {name}");
        symbol
    }
}
