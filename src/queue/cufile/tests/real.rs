//! The real library with a real GPU, where a machine has both.

use super::rig::{Library, Temporary, child, pattern, until};
use super::*;
use crate::queue::cufile::workers::Left;
use crate::target::Op;
use crossbeam::queue::SegQueue;
use std::ffi::{CStr, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

const LEN: usize = 8 << 20;

/// What the test needs of the CUDA driver.
struct Cuda(*mut c_void);

impl Cuda {
    fn call(&self, name: &CStr, a: u64, b: u64, c: u64) -> i32 {
        // SAFETY: each function of the driver called below takes integers and pointers, at most three (more registers
        // than it reads do no harm), and answers an int.
        unsafe {
            let at = libc::dlsym(self.0, name.as_ptr());
            assert!(!at.is_null(), "{name:?}");
            let function: extern "C" fn(u64, u64, u64) -> i32 = std::mem::transmute(at);
            function(a, b, c)
        }
    }

    /// The first GPU's context and so much of its memory, all 0xee.
    fn open() -> Result<(Cuda, u64, u64), String> {
        // SAFETY: as any program that uses CUDA.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err("no libcuda.so.1".into());
        }
        let cuda = Cuda(library);
        let (mut device, mut context, mut memory) = (0i32, 0u64, 0u64);
        let address = |at: *mut c_void| at.expose_provenance() as u64;
        let well = |name: &CStr, a, b, c| match cuda.call(name, a, b, c) {
            0 => Ok(()),
            result => Err(format!("{} answers {result}", name.to_string_lossy())),
        };
        well(c"cuInit", 0, 0, 0)?;
        well(c"cuDeviceGet", address((&raw mut device).cast()), 0, 0)?;
        well(c"cuDevicePrimaryCtxRetain", address((&raw mut context).cast()), device as u64, 0)?;
        well(c"cuCtxSetCurrent", context, 0, 0)?;
        well(c"cuMemAlloc_v2", address((&raw mut memory).cast()), LEN as u64, 0)?;
        well(c"cuMemsetD8_v2", memory, 0xee, LEN as u64)?;
        Ok((cuda, context, memory))
    }
}

#[test]
fn the_real_library_reads_into_a_real_gpu() {
    child("real::the_real_library_reads_into_a_real_gpu", Library::Real, &[], || {
        let (cuda, context, memory) = match Cuda::open() {
            Ok(open) => open,
            Err(why) => return eprintln!("skipped: no GPU: {why}"),
        };
        let cufile = match CuFile::load() {
            Ok(cufile) => cufile,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        eprintln!("measured: {}", cufile.reason());
        let path = std::env::temp_dir().join(format!("fullbore-real-{}", std::process::id()));
        std::fs::write(&path, pattern(LEN)).unwrap();
        let path = Temporary(path);
        let file = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
        let done: Arc<SegQueue<Done>> = Arc::default();
        let current = (cuda.0 as u64, context);
        let prepare = move || assert_eq!(Cuda(current.0 as _).call(c"cuCtxSetCurrent", current.1, 0, 0), 0);
        let workers = Workers::new(&cufile, 2, done.clone(), Box::new(|| ()), Box::new(prepare));
        let within = Duration::from_secs(20);
        let (one, fd) = (cufile.clone(), file.as_raw_fd());
        let handle = match workers.within(within, move || one.register_file(fd)).unwrap() {
            Ok(handle) => handle,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let (one, owner) = (cufile.clone(), Arc::new(()));
        let buffer =
            workers.within(within, move || one.register_buffer(memory, LEN, owner)).unwrap().unwrap();
        let again = cufile.register_buffer(memory, LEN, Arc::new(())).unwrap_err();
        assert_eq!(again.code(), Some(5023), "{again}");
        let job = |op, at: u64, file_offset, len, user| {
            let (handle, buffer) = (handle.clone(), buffer.clone());
            workers.submit(Job { op, handle, buffer, offset_in_buffer: at, file_offset, len, user }).unwrap();
        };
        let answers = |n| {
            until("the answers", || done.len() == n);
            (0..n)
                .map(|_| done.pop().unwrap())
                .for_each(|done| assert_eq!(done.result, Ok(LEN / 8), "{done:?}"));
        };
        (0..8).for_each(|i| job(Op::Read, i * LEN as u64 / 8, i * LEN as u64 / 8, LEN / 8, i));
        answers(8);
        let mut host = vec![0u8; LEN];
        let to = host.as_mut_ptr().expose_provenance() as u64;
        assert_eq!(cuda.call(c"cuMemcpyDtoH_v2", to, memory, LEN as u64), 0);
        assert!(host == pattern(LEN), "what the GPU has is not what the file has");
        job(Op::Write, LEN as u64 / 8, 0, LEN / 8, 9);
        answers(1);
        assert!(std::fs::read(&path).unwrap()[..LEN / 8] == pattern(LEN)[LEN / 8..LEN / 4]);
        job(Op::Read, 0, LEN as u64, LEN / 8, 10);
        until("the answer", || !done.is_empty());
        assert_eq!(done.pop().unwrap().result, Ok(0), "the end of the file");
        assert_eq!(workers.shutdown(within), Left::default());
        drop((handle, buffer));
        eprintln!("measured: read, written, and let go of");
    });
}
