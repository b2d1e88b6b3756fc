//! A GPU's copy engines as a queue: what is put in under a token ends exactly once, in the order of its direction.

mod pieces;
mod stream;

pub use pieces::{MOST_PIECES, Piece};
pub use stream::Ended;

use crate::memory::Window;
use crate::memory::cuda::{CudaError, Gpu};
use crossbeam::queue::SegQueue;
use pieces::Pieces;
use std::io;
use std::sync::Arc;
use stream::{Stream, Waits};

/// A contiguous copy between host and GPU.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    pub host: Window,
    pub device: u64,
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    In = 0,
    Out = 1,
}

/// Moves bytes between host memory and one GPU. It belongs to one lane's thread; host memory that it is given is
/// pinned, or registered with the driver.
pub struct Mover {
    gpu: Arc<Gpu>,
    /// In and out: a GPU has a copy engine for each.
    streams: [Stream; 2],
    waits: [Waits; 2],
    pieces: Option<Pieces>,
    staging: usize,
    ended: Arc<SegQueue<Ended>>,
}

impl Mover {
    /// A mover whose ends are asked for; see [`Mover::sleep`]. A staging has `staging` bytes.
    pub fn new(gpu: &Arc<Gpu>, staging: usize) -> Result<Mover, CudaError> {
        let _entered = gpu.enter()?;
        let ended: Arc<SegQueue<Ended>> = Arc::default();
        let streams = [Stream::new(gpu)?, Stream::new(gpu)?];
        let waits = [Waits::polled(gpu, ended.clone()), Waits::polled(gpu, ended.clone())];
        Ok(Mover { gpu: gpu.clone(), streams, waits, pieces: None, staging, ended })
    }

    /// From now on threads sleep until the ends come, and call `wake` then.
    pub fn sleep(&mut self, wake: Arc<dyn Fn() + Send + Sync>) -> io::Result<()> {
        let names = ["fullbore-gpu-in", "fullbore-gpu-out"];
        for (waits, name) in self.waits.iter_mut().zip(names) {
            *waits = Waits::asleep(&self.gpu, name, self.ended.clone(), wake.clone())?;
        }
        Ok(())
    }

    /// Makes the GPU's context current for the calling thread, the lane's.
    pub fn adopt(&self) -> Result<(), CudaError> {
        self.gpu.adopt()
    }

    /// Queues copies one way.
    pub fn copy(&mut self, token: u32, way: Way, copies: &[Copy]) {
        let (stream, mut queued, mut some) = (&self.streams[way as usize], Ok(()), false);
        for copy in copies {
            queued = queue(stream, way, copy);
            if queued.is_err() {
                break;
            }
            some = true;
        }
        self.end(token, way, None, some, queued);
    }

    /// Whether `scatter` or `gather` would find a staging free. The first time they are made, which takes a while.
    ///
    /// `Err`: there is no kernel or no memory for it; copy the pieces one by one.
    pub fn has_staging(&mut self) -> Result<bool, CudaError> {
        if self.pieces.is_none() {
            self.pieces = Some(Pieces::new(&self.gpu, self.staging)?);
        }
        Ok(self.pieces.as_ref().is_some_and(Pieces::has_room))
    }

    /// Queues bulk copies of `host` into staging, each at its place there, and a kernel that moves the pieces on.
    pub fn scatter(&mut self, token: u32, bulk: &[(Window, usize)], pieces: &[Piece]) {
        let Some((station, staging)) = self.pieces.as_mut().and_then(|p| p.take(token)) else {
            return self.refuse(token);
        };
        let (mut queued, mut some) = (Ok(()), false);
        for (host, at) in bulk {
            queued = queued.and_then(|()| self.streams[0].put(staging + *at as u64, *host));
            some |= queued.is_ok();
        }
        let Some(kernel) = &self.pieces else { return self.refuse(token) };
        // A stream of its own lets the next copies run beside the kernel. Where no event ties the two, it is the copies'.
        let follows = queued.is_ok() && kernel.stream.follow(&self.streams[0]).is_ok();
        let stream = if follows { &kernel.stream } else { &self.streams[0] };
        queued = queued.and_then(|()| kernel.launch(stream, station, pieces, true));
        let on_kernel = follows && queued.is_ok();
        self.end(token, Way::In, on_kernel.then_some(()), some, queued);
    }

    /// Queues a kernel that moves pieces into staging, and one bulk copy of the first bytes of it to `host`.
    pub fn gather(&mut self, token: u32, host: Window, pieces: &[Piece]) {
        let Some((station, staging)) = self.pieces.as_mut().and_then(|p| p.take(token)) else {
            return self.refuse(token);
        };
        let Some(kernel) = &self.pieces else { return self.refuse(token) };
        let launched = kernel.launch(&kernel.stream, station, pieces, false);
        let follows = launched.is_ok() && self.streams[1].follow(&kernel.stream).is_ok();
        let stream = if follows { &self.streams[1] } else { &kernel.stream };
        let queued = launched.and_then(|()| stream.take(host, staging));
        // The kernel runs, whatever came of the copy: its own stream says when it has ended.
        let on_kernel = launched.is_ok() && (!follows || queued.is_err());
        self.end(token, Way::Out, on_kernel.then_some(()), launched.is_ok(), queued);
    }

    fn refuse(&mut self, token: u32) {
        self.end(token, Way::In, None, false, Err(CudaError { call: "fullbore staging", code: 2 }));
    }

    /// Has the token end: when what was queued does, or at once where nothing was.
    fn end(&mut self, token: u32, way: Way, kernel: Option<()>, some: bool, queued: Result<(), CudaError>) {
        if !some {
            return self.ended.push(Ended { token, result: queued, unknown: false });
        }
        let kernel = kernel.and(self.pieces.as_ref()).map(|pieces| &pieces.stream);
        let stream = kernel.unwrap_or(&self.streams[way as usize]);
        self.waits[way as usize].push(token, stream, queued);
    }

    /// Whether ends have to be asked for.
    pub fn asks(&self) -> bool {
        self.waits.iter().any(Waits::asks)
    }

    /// Whether ends are there.
    pub fn ready(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Takes the next end.
    pub fn ended(&mut self) -> Option<Ended> {
        if self.ended.is_empty() {
            self.waits.iter_mut().for_each(Waits::ask);
        }
        let ended = self.ended.pop()?;
        if let (Some(pieces), false) = (&mut self.pieces, ended.unknown) {
            pieces.give_back(ended.token);
        }
        Some(ended)
    }
}

fn queue(stream: &Stream, way: Way, copy: &Copy) -> Result<(), CudaError> {
    match way {
        Way::In => stream.put(copy.device, copy.host),
        Way::Out => stream.take(copy.host, copy.device),
    }
}
