//! Groups of lanes: one for all files, one for each drive, on the CPUs of its hardware queues.

use super::shared::{ANSWER, Shared};
use crate::error::{Error, ErrorKind};
use crate::lane::{Control, Inbox, LaneOptions, LaneSpec, LaneThread, QueueKind};
use crate::memory::lock;
use crate::queue::{COPY, NOTHING};
use crate::target::{Kind, TargetInner};
use crate::topology::{Lanes, Place, QueueMap, default_lanes, lane_cpus, place_lanes};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
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
    pub(super) growing: Mutex<()>,
    /// Taken out when the engine ends.
    threads: Mutex<Vec<LaneThread>>,
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

    /// Leaves the threads to the process that has them. A forked child waits for no lock that its parent held.
    pub fn forget(&self) {
        if let Ok(mut threads) = self.threads.try_lock() {
            std::mem::forget(std::mem::take(&mut *threads));
        }
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
        let Some(drive) = self.drive_of(target)? else { return Ok(0) };
        let _growing = lock(&self.groups.growing);
        if let Some(known) = self.groups.iter().position(|group| group.is_for(&drive)) {
            return Ok(known);
        }
        let settings = &self.settings;
        let (lanes, depth) = (settings.lanes, settings.lane_depth);
        let places = match target.kind {
            Kind::Dax => self.places_near(drive.1.node),
            _ => place_lanes(&drive.1, &self.topology, &self.allowed, lanes, depth, settings.processes),
        };
        let lanes = places.into_iter().map(|place| (place, self.queue_for(target))).collect();
        self.grow(Some(drive), lanes)
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
        let lane = |cpus| {
            let queue = match self.settings.null {
                true => QueueKind::Local { work: NOTHING },
                false => QueueKind::Uring { source: self.table_ring.source(), polled: false },
            };
            (Place { node: topology.node_of(&cpus), cpus, queue: None, depth }, queue)
        };
        let lanes = lane_cpus(topology, allowed, count).into_iter().map(lane).collect();
        let _growing = lock(&self.groups.growing);
        self.grow(None, lanes).map(drop)
    }

    fn queue_for(&self, target: &TargetInner) -> QueueKind {
        match target.kind {
            Kind::Dax => QueueKind::Local { work: COPY },
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
    pub(super) fn grow(
        &self,
        drive: Option<(String, QueueMap)>,
        lanes: Vec<(Place, QueueKind)>,
    ) -> Result<usize, Error> {
        let number = self.groups.iter().count();
        let Some(group) = self.groups.groups.get(number) else {
            let message = "an engine has at most 256 groups of lanes, one for each drive that was opened; build a \
                           second engine";
            return Err(Error::new(ErrorKind::Resource, message));
        };
        let mut threads = Vec::with_capacity(lanes.len());
        let (places, queues): (Vec<_>, Vec<_>) = lanes.into_iter().unzip();
        let started = self.start_lanes(&places, queues, &mut threads);
        // Regions neither come nor go from here on: the new lanes miss none.
        let still = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let made = started.and_then(|()| self.introduce(&threads));
        if let Err(error) = made {
            drop(still); // nobody need wait for lanes that go again
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
        queues: Vec<QueueKind>,
        threads: &mut Vec<LaneThread>,
    ) -> Result<(), Error> {
        let first = self.core.see_lanes(<[_]>::len);
        for (number, (place, kind)) in places.iter().zip(queues).enumerate() {
            let options = LaneOptions {
                depth: place.depth as usize,
                command_size: self.settings.command_sizes.largest(),
                first_generation: 0,
                spread: self.allowed.len() >= 2 * places.len(),
            };
            let (number, cpus) = (first + number, place.cpus.clone());
            let spec = LaneSpec { number, kind, options, cpus, grace: self.settings.grace };
            threads.push(LaneThread::start(&self.core, spec)?);
        }
        Ok(())
    }

    /// Makes new lanes adopt every region that is registered.
    fn introduce(&self, threads: &[LaneThread]) -> Result<(), Error> {
        let lanes = threads.iter().map(|thread| thread.inbox.clone());
        let lanes: Vec<_> = lanes.filter(|lane| lane.has_ring).collect();
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

impl Group {
    /// Whether all its lanes run.
    pub(super) fn is_alive(&self) -> bool {
        self.lanes.iter().all(|lane| lane.inbox.alive.load(Ordering::Relaxed))
    }

    /// Whether it serves that drive. One that was plugged in under the name of another has queues of its own, and a
    /// group that lost a lane is not given more to do: opened anew, the drive gets new lanes.
    fn is_for(&self, (name, map): &(String, QueueMap)) -> bool {
        let same = self.drive.as_ref().is_some_and(|(known, queues)| known == name && queues.is_like(map));
        same && self.is_alive()
    }
}

impl Shared {
    /// The drive that gets lanes of its own, and its hardware queues; `None`: the files' lanes serve it.
    fn drive_of(&self, target: &TargetInner) -> Result<Option<(String, QueueMap)>, Error> {
        let Some((mut name, disks)) = target.drive() else { return Ok(None) };
        if let Some(dax) = &target.dax {
            return Ok(Some((name, QueueMap { queues: Vec::new(), node: dax.node })));
        }
        // Of several paths the one with the fewest tags: a command may take any.
        let maps = disks.iter().filter_map(|disk| QueueMap::read(disk).ok());
        let least = |map: &QueueMap| map.queues.iter().map(|queue| queue.tags).min();
        let map = maps.min_by_key(least).filter(|map| !map.interrupt_queues().queues.is_empty());
        if target.polled {
            name += " polled";
            let polled = map.map(|map| map.polled_queues()).filter(|map| !map.queues.is_empty());
            let message =
                "sysfs shows no queue that the driver polls; is /sys mounted? Else leave polled() off";
            return polled.map(|map| Some((name, map))).ok_or(Error::new(ErrorKind::Unsupported, message));
        }
        match map {
            Some(map) => Ok(Some((name, seen_by(target.kind, &map)))),
            None if target.kind == Kind::Nvme => {
                tracing::warn!(drive = %target.name, "sysfs does not show its queues: few commands are kept in flight");
                Ok(Some((name, QueueMap::unknown(self.allowed.clone()))))
            }
            None => Ok(None),
        }
    }
}

/// The queues that a target's commands land on. The block layer's reads may have fewer of their own
/// (nvme.write_queues): then each lane keeps to what they have room for.
fn seen_by(kind: Kind, map: &QueueMap) -> QueueMap {
    let (mut queues, reads) = (map.interrupt_queues(), map.read_queues().queues.len() as u32);
    let all = queues.queues.len() as u32;
    if kind == Kind::Block && reads < all {
        queues.queues.iter_mut().for_each(|queue| queue.tags = (queue.tags * reads / all).max(1));
    }
    queues
}
