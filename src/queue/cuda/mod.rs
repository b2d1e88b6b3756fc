//! A GPU's copy engines as a queue: what is put in under a token ends exactly once. One way, copies run in the order in which they
//! are put in; a kernel behind one may end after the copies that follow it.

mod pieces;
mod stream;
mod waits;

pub use pieces::{MOST_PIECES, Piece};
pub use waits::Ended;

use crate::memory::Window;
use crate::memory::cuda::{CudaError, Gpu};
use pieces::Pieces;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use stream::Stream;
use waits::Waits;

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
    /// In and out: a GPU has a copy engine for each. A second stream each way gained nothing (54.5 of 54.6 GB/s, H200).
    streams: [Stream; 2],
    waits: [Waits; 2],
    pieces: Option<Pieces>,
    staging: usize,
    ended: VecDeque<Ended>,
}

impl Mover {
    /// A mover whose stagings have `staging` bytes.
    pub fn new(gpu: &Arc<Gpu>, staging: usize) -> Result<Mover, CudaError> {
        let _entered = gpu.enter()?;
        let (streams, waits) = ([Stream::new(gpu)?, Stream::new(gpu)?], [Waits::new(gpu), Waits::new(gpu)]);
        Ok(Mover { gpu: gpu.clone(), streams, waits, pieces: None, staging, ended: VecDeque::new() })
    }

    /// Makes the GPU's context current for the calling thread, the lane's.
    pub fn adopt(&self) -> Result<(), CudaError> {
        self.gpu.adopt()
    }

    /// Queues copies one way.
    pub fn copy(&mut self, token: u32, way: Way, copies: &[Copy]) {
        let bytes = copies.iter().map(|copy| copy.host.len() as u64).sum();
        let stream = &self.streams[way as usize];
        let mut some = false;
        let queued = copies.iter().try_for_each(|copy| {
            match way {
                Way::In => stream.put(copy.device, copy.host)?,
                Way::Out => stream.take(copy.host, copy.device)?,
            }
            some = true;
            Ok(())
        });
        self.end((token, way, bytes), some.then_some(On::Copies), queued);
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
        let taken = self.pieces.as_mut().and_then(|pieces| pieces.take(token));
        let (Some((station, staging)), Some(kernel)) = (taken, &self.pieces) else {
            return self.end((token, Way::In, 0), None, Err(NO_STAGING));
        };
        let bytes = bulk.iter().map(|(host, _)| host.len() as u64).sum();
        let copies = &self.streams[Way::In as usize];
        let mut on = None;
        let queued = bulk.iter().try_for_each(|(host, at)| {
            copies.put(staging + *at as u64, *host)?;
            on = Some(On::Copies);
            Ok(())
        });
        // A stream of its own lets the next copies run beside the kernel. Where no event ties the two, it is the copies'.
        let follows = queued.is_ok() && kernel.stream.follow(copies).is_ok();
        let stream = if follows { &kernel.stream } else { copies };
        let queued = queued.and_then(|()| kernel.launch(stream, station, pieces, true));
        if follows && queued.is_ok() {
            on = Some(On::Kernel);
        }
        self.end((token, Way::In, bytes), on, queued);
    }

    /// Queues a kernel that moves pieces into staging, and one bulk copy of the first bytes of it to `host`.
    pub fn gather(&mut self, token: u32, host: Window, pieces: &[Piece]) {
        let taken = self.pieces.as_mut().and_then(|pieces| pieces.take(token));
        let (Some((station, staging)), Some(kernel)) = (taken, &self.pieces) else {
            return self.end((token, Way::Out, 0), None, Err(NO_STAGING));
        };
        let copies = &self.streams[Way::Out as usize];
        let launched = kernel.launch(&kernel.stream, station, pieces, false);
        let follows = launched.is_ok() && copies.follow(&kernel.stream).is_ok();
        let stream = if follows { copies } else { &kernel.stream };
        let queued = launched.and_then(|()| stream.take(host, staging));
        // The kernel runs, whatever came of the copy: its own stream says when it has ended.
        let on = if follows && queued.is_ok() { On::Copies } else { On::Kernel };
        self.end((token, Way::Out, host.len() as u64), launched.is_ok().then_some(on), queued);
    }

    /// Has the token end: when what was queued last does, or at once where nothing was (`on`: none).
    fn end(&mut self, (token, way, bytes): (u32, Way, u64), on: Option<On>, queued: Result<(), CudaError>) {
        let copies = &self.streams[way as usize];
        let stream = match (on, &self.pieces) {
            (None, _) => return self.ended.push_back(Ended { token, result: queued, unknown: false }),
            (Some(On::Kernel), Some(pieces)) => &pieces.stream,
            _ => copies,
        };
        self.waits[way as usize].push(token, bytes, stream, queued);
    }

    /// How long to sleep before ends are looked for; `None`: nothing is in flight.
    pub fn next_look(&self) -> Option<Duration> {
        self.waits.iter().filter_map(Waits::next_look).min()
    }

    /// Whether ends are there already.
    pub fn ready(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Takes the next end.
    pub fn ended(&mut self) -> Option<Ended> {
        if self.ended.is_empty() {
            self.waits.iter_mut().for_each(|waits| waits.look(&mut self.ended));
        }
        let ended = self.ended.pop_front()?;
        if let (Some(pieces), false) = (&mut self.pieces, ended.unknown) {
            pieces.give_back(ended.token);
        }
        Some(ended)
    }
}

/// The stream that ends last.
#[derive(Clone, Copy)]
enum On {
    Copies,
    Kernel,
}

/// The lane asks whether there is one before.
const NO_STAGING: CudaError = CudaError { call: "fullbore staging", code: 2 };
