//! The engine under test with its target and its pool: one for the whole run, so that every arm moves
//! between the same file and the same memory.

use std::sync::Arc;
use std::time::Duration;

use fullbore::{Engine, LaneStats, Mem, Target};

use crate::args::Plan;
use crate::counted;
use crate::failure::Failure;
use crate::place::Place;
use crate::pool::{Part, Pool, layout};
use crate::units::{count, human};

/// Objects the pool holds beyond those in flight.
const SPARE: usize = 4;
/// Most that a smaller object gets of a pool that others of a sweep need; each place has a transfer.
const MOST_SLOTS: u64 = 16 << 10;
/// Far below what any device does: a transfer that waits for a full pool ahead of it is not late.
const SLOWEST: usize = 50_000_000;
/// Bytes of an urgent load.
pub const URGENT: u64 = 8 << 20;

pub struct Rig {
    pub engine: Arc<Engine>,
    pub target: Target,
    pub pool: Pool,
    /// The extents of an object, or of a request.
    pub parts: Vec<Part>,
    /// Room for an urgent load beside the others.
    urgent: Option<(Pool, Vec<Part>)>,
}

/// Starts the engine. This comes before the file is made: where io_uring is refused, or a GPU is not there, nothing is
/// left to undo.
pub fn engine(plan: &Plan) -> Result<Engine, Failure> {
    let in_flight = plan.max_depth() * plan.jobs;
    let patience = Duration::from_secs(30 + (in_flight as u64 * plan.item()) / SLOWEST as u64);
    let memory = &plan.memory;
    let mut builder = Engine::builder()
        .lane_depth(plan.lane_depth)
        .max_transfers(in_flight.max(1024))
        .deadline(Some(patience))
        .lanes(plan.lanes)
        .processes(plan.processes)
        .gpu_polling(memory.polling);
    if let Some((bytes, buffers)) = memory.bounce {
        builder = builder.bounce(bytes, buffers);
    }
    if let Some(bytes) = memory.outstanding {
        builder = builder.gpu_outstanding(bytes);
    }
    if let Some(bytes) = plan.cmd_size {
        builder = builder.command_size(bytes);
    }
    let engine = builder.build().map_err(Failure::setup)?;
    if let Some(&most) = memory.gpus.iter().max() {
        let there = engine.gpus().map_err(Failure::setup)?;
        if most >= there {
            let (mem, there) = (memory.name(), count(there.into(), "GPU"));
            return Err(Failure::Setup(format!(
                "--mem={mem}: there is no gpu:{most}, this process sees {there}: name others with --mem, or look at \
                 CUDA_VISIBLE_DEVICES"
            )));
        }
    }
    Ok(engine)
}

/// Objects that the pool holds.
fn slots(plan: &Plan) -> usize {
    plan.max_depth() * plan.jobs + SPARE
}

/// Gives all values of a sweep as many distinct bytes of memory, since fewer are more in the CPU's caches. Requests are
/// large, and have what is in flight.
pub fn level(plans: &mut [Plan]) {
    let bytes = |plan: &Plan| if plan.requests.is_some() { 0 } else { slots(plan) as u64 * plan.bs };
    let most = plans.iter().map(bytes).max().unwrap_or(0);
    if plans.len() > 1 {
        plans.iter_mut().for_each(|plan| plan.footprint = most);
    }
}

impl Rig {
    pub fn new(engine: Engine, plan: &Plan, place: &Place) -> Result<Self, Failure> {
        let target = place.target(plan, &engine)?;
        if target.size() < place.size {
            let (plain, size) = (place.plain_name(), human(target.size()));
            return Err(Failure::Setup(format!("{}: it holds {size}, less than {plain}", place.name())));
        }
        let slots = match plan.requests {
            Some(_) => plan.max_depth(),
            None => slots(plan).max((plan.footprint / plan.bs).min(MOST_SLOTS) as usize),
        };
        let pool = Pool::new(&engine, plan, slots)?;
        let piece = plan.memory.scatter.unwrap_or(plan.bs);
        let parts = layout(plan.item(), plan.bs, piece);
        let urgent = match &plan.requests {
            Some(requests) if requests.probe => {
                let bs = URGENT.min(place.size / 4096 * 4096);
                let memory = crate::options::Memory { scatter: None, ..plan.memory.clone() };
                let plan = Plan { bs, requests: None, memory, ..plan.clone() };
                Some((Pool::new(&engine, &plan, 1)?, layout(bs, bs, bs)))
            }
            _ => None,
        };
        Ok(Self { engine: Arc::new(engine), target, pool, parts, urgent })
    }

    /// The same engine and target, with a pool of its own for so many objects of another plan.
    pub fn with(&self, plan: &Plan, slots: usize) -> Result<Self, Failure> {
        let pool = Pool::new(&self.engine, plan, slots)?;
        let parts = layout(plan.item(), plan.bs, plan.bs);
        Ok(Self { engine: self.engine.clone(), target: self.target.clone(), pool, parts, urgent: None })
    }

    /// The first `count` places of the pool, an object or a request each.
    pub fn items(&self, count: usize) -> Result<Vec<Vec<Mem>>, Failure> {
        (0..count).map(|slot| self.pool.item(slot, &self.parts)).collect()
    }

    /// Memory for an urgent load, if there are such.
    pub fn urgent(&self) -> Result<Option<Mem>, Failure> {
        let Some((pool, parts)) = &self.urgent else { return Ok(None) };
        Ok(pool.item(0, parts)?.pop())
    }

    /// What the engine has to say about its memory, if not all is as fast as it could be. GPU memory is never registered
    /// with rings.
    pub fn note(&self) -> Option<&str> {
        self.pool.region().registration_note().filter(|_| self.pool.region().gpu().is_none())
    }

    /// Bytes of a command: what was asked for, or the engine's choice, or less if the drive takes less whole.
    pub fn command(&self) -> u32 {
        self.target.geometry().max_bytes
    }

    /// The path that the library says it will take, and why; the arms report what was taken.
    pub fn path(&self) -> String {
        let report = self.engine.path(&self.target, self.pool.region());
        format!("{} ({})", report.path, report.reason)
    }

    /// What the lanes that serve the target have counted so far.
    pub fn lanes(&self) -> Vec<LaneStats> {
        counted::of_target(self.engine.stats().lanes)
    }

    /// What those of GPUs have counted.
    pub fn gpu_lanes(&self) -> Vec<LaneStats> {
        counted::of_gpus(self.engine.stats().lanes)
    }

    /// Threads of the kernel that work for those lanes at this moment.
    pub fn kernel_workers(&self) -> usize {
        self.lanes().iter().map(|lane| lane.kernel_workers).sum()
    }
}
