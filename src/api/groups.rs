//! Groups of lanes: one for all files, one for each drive, on the CPUs of its hardware queues.

use super::shared::{ANSWER, Shared};
use crate::error::{Error, ErrorKind};
use crate::lane::{Control, Inbox, LaneOptions, LaneSpec, LaneThread, QueueKind};
use crate::queue::{copy, nothing};
use crate::target::{Kind, TargetInner};
use crate::topology::{Lanes, Place, QueueMap, default_lanes, lane_cpus, place_lanes};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Most groups of an engine.
const MOST: usize = 256;
/// Lanes that copy from one memory device, unless told: a few CPUs saturate it.
const COPIERS: usize = 4;
/// Copies that such a lane takes on at once: about a unit, so that lanes end together.
const COPIES: u32 = 8;

/// Lanes that serve the same targets.
pub struct Group {
    /// The drive that they serve, and its queues as they were then; `None` for files.
    pub drive: Option<(String, QueueMap)>,
    pub lanes: Vec<GroupLane>,
}

/// A lane as its group knows it.
pub struct GroupLane {
    pub inbox: Arc<Inbox>,
    pub place: Place,
    /// The ring's flags, or what kept the thread off its CPUs.
    pub flags: String,
}

/// All groups. They only come; submission finds one without a lock.
pub struct Groups {
    groups: Box<[OnceLock<Group>]>,
    /// Held while one is made.
    growing: Mutex<()>,
    /// Taken out when the engine ends.
    threads: Mutex<Vec<LaneThread>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Groups {
    pub fn new() -> Groups {
        Groups {
            groups: (0..MOST).map(|_| OnceLock::new()).collect(),
            growing: Mutex::new(()),
            threads: Mutex::default(),
        }
    }

    /// The group of that number.
    pub fn get(&self, number: usize) -> Option<&Group> {
        self.groups.get(number)?.get()
    }

    /// All there are.
    pub fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().map_while(OnceLock::get)
    }

    /// Asks all lanes to end and waits for them. False: some did not end in time.
    pub fn stop(&self, grace: Duration) -> bool {
        stop_lanes(&mut lock(&self.threads), grace)
    }

    /// Leaves the threads to the process that has them.
    pub fn forget(&self) {
        std::mem::forget(std::mem::take(&mut *lock(&self.threads)));
    }
}

/// Asks lanes to end and waits for them. False: some did not end in time.
fn stop_lanes(threads: &mut [LaneThread], grace: Duration) -> bool {
    threads.iter().for_each(LaneThread::stop);
    let until = Instant::now() + grace + Duration::from_secs(1);
    // Each is waited for, also after one that did not end.
    let late = threads
        .iter_mut()
        .filter_map(|t| (!t.join(until.saturating_duration_since(Instant::now()))).then_some(()));
    late.count() == 0
}

impl Shared {
    /// The group that serves a target, made if there is none.
    pub fn group_for(&self, target: &TargetInner) -> Result<usize, Error> {
        let Some(drive) = drive_of(target) else { return Ok(0) };
        let _growing = lock(&self.groups.growing);
        // A drive that was plugged in under the name of another has queues of its own.
        if let Some(known) = self.groups.iter().position(|group| group.drive.as_ref() == Some(&drive)) {
            return Ok(known);
        }
        let settings = &self.settings;
        let (lanes, depth) = (settings.lanes, settings.lane_depth);
        let places = match target.kind {
            Kind::Dax => self.places_near(drive.1.node),
            _ => place_lanes(&drive.1, &self.topology, &self.allowed, lanes, depth, settings.processes),
        };
        self.grow(Some(drive), places, self.queue_for(target))
    }

    /// Makes the group of all files, which comes first.
    pub fn grow_files(&self) -> Result<(), Error> {
        let (topology, allowed) = (&self.topology, &self.allowed);
        let nodes = topology.within(allowed).nodes.iter().filter(|node| !node.cpus.is_empty()).count();
        let count = match self.settings.lanes {
            Lanes::Count(count) => count,
            Lanes::PerNuma => nodes.max(1),
            _ => default_lanes(allowed),
        };
        let depth = self.settings.lane_depth;
        let place = |cpus| Place { node: topology.node_of(&cpus), cpus, queue: None, depth };
        let places = lane_cpus(topology, allowed, count).into_iter().map(place).collect();
        let _growing = lock(&self.groups.growing);
        let queue = if self.settings.null {
            QueueKind::Local { work: nothing }
        } else {
            QueueKind::Uring { source: self.table_ring.source(), polled: false }
        };
        self.grow(None, places, queue).map(drop)
    }

    fn queue_for(&self, target: &TargetInner) -> QueueKind {
        match target.kind {
            Kind::Dax => QueueKind::Local { work: copy },
            _ => QueueKind::Uring { source: self.table_ring.source(), polled: target.polled },
        }
    }

    /// Lanes that copy: on the CPUs nearest to the memory, as many as asked for, or enough of them to saturate it.
    fn places_near(&self, node: Option<u32>) -> Vec<Place> {
        let cpus =
            node.map_or_else(|| self.allowed.clone(), |node| self.topology.nearest_cpus(node, &self.allowed));
        let count = match self.settings.lanes {
            Lanes::Count(count) => count,
            Lanes::PerNuma => 1,
            _ => cpus.len().clamp(1, COPIERS),
        };
        let depth = self.settings.lane_depth.min(COPIES);
        let place = Place { node: self.topology.node_of(&cpus), cpus, queue: None, depth };
        vec![place; count]
    }

    /// Starts lanes, tells them of the regions there are, and makes them known.
    fn grow(
        &self,
        drive: Option<(String, QueueMap)>,
        places: Vec<Place>,
        queue: QueueKind,
    ) -> Result<usize, Error> {
        let number = self.groups.iter().count();
        let Some(group) = self.groups.groups.get(number) else {
            let message = "an engine serves at most 255 drives; build a second one";
            return Err(Error::new(ErrorKind::Resource, message));
        };
        // Regions neither come nor go meanwhile: the new lanes miss none.
        let _still = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut threads = Vec::with_capacity(places.len());
        let made = self.start_lanes(&places, queue, &mut threads).and_then(|()| self.introduce(&threads));
        if let Err(error) = made {
            stop_lanes(&mut threads, self.settings.grace);
            return Err(error);
        }
        let lanes = threads.iter().zip(places).map(|(thread, place)| GroupLane {
            inbox: thread.inbox.clone(),
            place,
            flags: thread.description.clone(),
        });
        let _ = group.set(Group { drive, lanes: lanes.collect() });
        self.core.add_lanes(threads.iter().map(|thread| thread.inbox.clone()));
        lock(&self.groups.threads).append(&mut threads);
        Ok(number)
    }

    fn start_lanes(
        &self,
        places: &[Place],
        kind: QueueKind,
        threads: &mut Vec<LaneThread>,
    ) -> Result<(), Error> {
        let first = self.core.see_lanes(<[_]>::len);
        for (number, place) in places.iter().enumerate() {
            let options = LaneOptions {
                depth: place.depth as usize,
                command_size: self.settings.command_size,
                first_generation: 0,
            };
            let (number, cpus) = (first + number, place.cpus.clone());
            let spec = LaneSpec { number, kind, options, cpus, grace: self.settings.grace };
            threads.push(LaneThread::start(&self.core, spec)?);
        }
        Ok(())
    }

    /// Makes new lanes adopt every region that is registered.
    fn introduce(&self, threads: &[LaneThread]) -> Result<(), Error> {
        let lanes: Vec<_> = threads.iter().map(|thread| thread.inbox.clone()).collect();
        for region in self.core.regions.all() {
            let Some(slabs) = region.pinned() else { continue };
            let within = ANSWER + super::shared::pin_time(region.len() as u64);
            let message = |acks| Control::AddBuffers { id: region.id, slabs, acks };
            let errno = match super::shared::tell(&lanes, within, message) {
                Some(Ok(())) => continue,
                other => other.and_then(Result::err).unwrap_or(libc::ETIMEDOUT),
            };
            let why = self.explain_pin(&std::io::Error::from_raw_os_error(errno), region.len() as u64);
            let message = format!(
                "the drive's lanes cannot take over the registered regions: {why}; release some, or open drives before"
            );
            return Err(Error::os(message, errno).with_kind(ErrorKind::Resource));
        }
        Ok(())
    }
}

/// The drive that gets lanes of its own, and its hardware queues; `None`: the files' lanes serve it.
fn drive_of(target: &TargetInner) -> Option<(String, QueueMap)> {
    let (mut name, disks) = target.drive()?;
    if let Some(dax) = &target.dax {
        return Some((name, QueueMap { queues: Vec::new(), node: dax.node }));
    }
    let map = disks.iter().find_map(|disk| QueueMap::read(disk).ok())?;
    if target.polled {
        name += " polled";
    }
    let (writes, reads) = (map.interrupt_queues(), map.read_queues());
    let map = match target.kind {
        _ if target.polled => map.polled_queues(),
        // The block layer's reads may have queues of their own (nvme.write_queues): the fewer have less room.
        Kind::Block if reads.queues.len() < writes.queues.len() => reads,
        _ => writes,
    };
    (!map.queues.is_empty()).then_some((name, map))
}
