//! `fullbore bench`: the serial loop, then the engine with more and more objects in flight, then a pass
//! that checks every byte.

use std::path::PathBuf;

use crate::args::{Limit, Plan};
use crate::arm::{self, Outcome};
use crate::ceilings::{Known, Way};
use crate::compare;
use crate::content;
use crate::direct::{PageBuf, Plain};
use crate::failure::Failure;
use crate::fio::Fio;
use crate::honest::Drives;
use crate::options::Rival;
use crate::place::{Place, Truth};
use crate::pool::put;
use crate::report::{Facts, Report, Row};
use crate::requests;
use crate::rig::{self, Rig};
use crate::serial::{self, At, Recorded};
use crate::sheets::{self, Out, Sheet};
use crate::stop::{self, MadeFile};
use crate::timeline::{Tape, Timeline};
use crate::verify;
use crate::work::{Feed, Order};

/// Runs a plan, or one for each value of a sweep.
pub fn run(mut plans: Vec<Plan>) -> Result<(), Failure> {
    rig::level(&mut plans);
    let Some(first) = plans.first() else { return Ok(()) };
    let fio = plans.iter().any(|plan| plan.compare == Some(Rival::Fio)).then(Fio::find).transpose()?;
    stop::install()?;
    plans.iter().filter(|plan| plan.swept.is_some()).try_for_each(try_value)?;
    let files = || plans.iter().flat_map(|plan| &plan.files);
    let mut out = Out::open(first, files())?;
    let arms = |plan: &Plan| (plan.depths.len() + usize::from(plan.serial != Some(false))) * plan.repeat;
    let sections = plans.iter().map(arms).sum();
    let taken = files().chain(&first.output);
    out.timeline = first.timeline.as_deref().map(|path| Timeline::new(path, sections, taken)).transpose()?;
    let mut common = Common { fio, ..Common::default() };
    let mut failure = None;
    for plan in plans {
        match one(plan, &mut common, &mut out) {
            Ok(()) => continue,
            Err(why) => failure = Some(why),
        }
        break;
    }
    common.settle_ceilings();
    // What ran is reported, also when what came next could not start.
    sheets::finish(&mut out, &common.sheets, failure.as_ref())?;
    failure.map_or(Ok(()), Err)
}

/// Whether a value of a sweep can run: said before another is measured. A file that would be made goes again, empty.
fn try_value(plan: &Plan) -> Result<(), Failure> {
    let tried = rig::engine(plan).and_then(|engine| Place::of(plan, &engine));
    tried.map(drop).map_err(|failure| match (failure, &plan.swept) {
        (Failure::Setup(why), Some((key, value))) => Failure::Setup(format!("with {key}={value}: {why}")),
        (failure, _) => failure,
    })
}

/// What the values of a sweep have in common.
#[derive(Default)]
struct Common {
    fio: Option<Fio>,
    known: Known,
    /// What each came to.
    sheets: Vec<Sheet>,
    /// The file that was made for the one before, and what it was made for.
    made: Option<(MadeFile, Vec<PathBuf>, u64)>,
}

impl Common {
    /// Uses the file that was made before if this plan would make the same; else that goes. Answers whether it does.
    fn reuses(&mut self, plan: &mut Plan) -> bool {
        match &self.made {
            Some((made, files, size)) if *files == plan.files && *size == plan.new_file_size() => {
                plan.files = vec![made.path().to_owned()];
                // It is ours.
                plan.destructive |= plan.rw.writes();
                true
            }
            _ => {
                self.made = None;
                false
            }
        }
    }

    /// Later measurements of the same way are as good as those that were made beside a value.
    fn settle_ceilings(&mut self) {
        for sheet in &mut self.sheets {
            let Some(Ok(best)) = self.known.best(&sheet.way) else { continue };
            sheet.json["ceilings"] = best.json(sheet.best());
            sheet.ceilings = Some(Ok(best.clone()));
        }
    }
}

fn one(mut plan: Plan, common: &mut Common, out: &mut Out) -> Result<(), Failure> {
    let files = plan.files.clone();
    let reuses = common.reuses(&mut plan);
    let engine = rig::engine(&plan)?;
    let mut place = Place::of(&plan, &engine)?;
    match common.made.take().filter(|_| reuses) {
        Some((made, ..)) => place.made = Some(made),
        None => place.lay_out()?,
    }
    let rig = Rig::new(engine, &plan, &place)?;
    let facts = Facts {
        lanes: rig.lanes(),
        pool_objects: rig.pool.slots(),
        pool_bytes: rig.pool.footprint(rig.pool.slots()),
        mapped: rig.target.is_mapped(),
        command: rig.command(),
        path: rig.path(),
        note: rig.note().map(str::to_owned),
    };
    let mut report = Report::new(&plan, &place, facts, out);
    let result = measure(&rig, &plan, &place, common, &mut report);
    common.sheets.push(report.sheet(way(&plan, &place), result.as_ref().err()));
    if let Some(made) = place.made.take() {
        common.made = Some((made, files, plan.new_file_size()));
    }
    result
}

/// What the ceilings are measured of.
fn way(plan: &Plan, place: &Place) -> Way {
    Way {
        files: place.members.iter().map(|member| member.path.clone()).collect(),
        stripe: plan.stripe,
        mapped: plan.mapped,
        buffered: false,
        processes: plan.processes,
        gpus: plan.memory.gpus.clone(),
        writes: plan.rw.writes(),
    }
}

fn measure(
    rig: &Rig,
    plan: &Plan,
    place: &Place,
    common: &mut Common,
    report: &mut Report<'_>,
) -> Result<(), Failure> {
    let plain = place.plain(plan, &rig.engine, plan.rw.writes())?;
    let drives = Drives::look(place.passthrough().collect());
    arms(rig, plan, place, &plain, report)?;
    report.workers();
    if let Some(drives) = drives {
        let moved = report.honest.first.iter().chain(report.rows.iter().map(|row| &row.outcome));
        let moved = moved.map(|outcome| outcome.bytes).sum();
        let ours = if plan.rw.writes() { (0, moved) } else { (moved, 0) };
        report.honest.smart = Some(drives.counted(ours));
    }
    // Curves are held against them in any case.
    if plan.ceilings || plan.swept.is_some() || plan.draws() {
        report.honest.ceilings = Some(common.known.measure(&way(plan, place), plan.ceilings)?);
    }
    report.say(&report.honest.lines(report.best(), plan.swept.is_some()));
    if plan.compare == Some(Rival::Serial) {
        let beside = compare::with_serial(rig, plan, place)?;
        report.say(&[vec![String::new()], beside.lines()].concat());
        report.honest.beside = Some(beside);
    }
    if let Some(fio) = common.fio.as_ref().filter(|_| plan.compare == Some(Rival::Fio)) {
        let compared = compare::run(fio, rig, plan, place)?;
        report.say(&[vec![String::new()], compared.lines()].concat());
        report.compared = Some(compared);
    }
    if !plan.verify {
        report.say(&[String::new(), "not checked: --verify=0".into()]);
        return Ok(());
    }
    let against = match place.truth {
        Truth::Content(_) => String::new(),
        Truth::Pread if place.is_dax() => ", against copies by the CPU".into(),
        Truth::Pread => format!(", against pread of {}", place.plain_name()),
    };
    report.say(&[String::new(), format!("checking every byte where it lands{against}:")]);
    check(rig, plan, place, report)
}

/// Whether the serial arm runs. Memory of GPUs and DAX devices are out of reach of a plain loop here.
fn has_serial(plan: &Plan, place: &Place) -> Result<bool, Failure> {
    let possible = !plan.memory.on_gpu() && !place.is_dax();
    if plan.serial == Some(true) && !possible {
        return Err(Failure::setup("the serial arm reads no DAX devices: leave it out of --arm"));
    }
    Ok(possible && plan.serial.unwrap_or(plan.requests.is_none()))
}

/// The measured arms. What lies in the pool, or on the file after writes, is not looked at here.
fn arms(
    rig: &Rig,
    plan: &Plan,
    place: &Place,
    plain: &Plain,
    report: &mut Report<'_>,
) -> Result<(), Failure> {
    let order = Order::new(place.size, plan.bs, plan.rw.random());
    let has_serial = has_serial(plan, place)?;
    report.honest.first = Some(warm_up(rig, plan, order)?);
    for round in 0..plan.repeat {
        let mut slow = None;
        let named = |arm: String| if round > 0 { format!("{arm}, round {}", round + 1) } else { arm };
        if has_serial {
            let outcome = serial(rig, plan, plain, order, report.tape(rig, named("serial".into()))?, report)?;
            slow = Some(outcome.gbps());
            let times_serial = Some(1.0);
            report.add(Row { arm: "serial", iodepth: 1, outcome, times_serial, round, ..Row::default() });
        }
        for &depth in &plan.depths {
            let phase = format!("engine, {} in flight", depth * plan.jobs);
            let tape = report.tape(rig, named(phase.clone()))?;
            let outcome = match &plan.requests {
                Some(requests) => {
                    let feed = requests::feed(plan, requests, order);
                    requests::run(rig, plan, requests, depth, &feed, (&phase, tape.as_ref()))
                }
                None => {
                    let feed = Feed::new(order, plan.limit);
                    arm::engine(
                        rig,
                        plan,
                        depth,
                        rig.items(rig.pool.slots())?,
                        &feed,
                        (&phase, tape.as_ref()),
                    )
                }
            };
            // Also of an arm that failed: what went before can be seen.
            let kept = report.keep(tape.map(|tape| tape.section(&rig.engine)));
            let outcome = outcome?;
            kept?;
            let times_serial = slow.map(|slow| outcome.gbps() / slow);
            report.add(Row { arm: "engine", iodepth: depth, outcome, times_serial, round, ..Row::default() });
        }
    }
    Ok(())
}

/// The serial arm.
fn serial(
    rig: &Rig,
    plan: &Plan,
    plain: &Plain,
    order: Order,
    tape: Option<Tape>,
    report: &mut Report<'_>,
) -> Result<Outcome, Failure> {
    let mut pool = rig.items(rig.pool.slots())?;
    let feed = match &plan.requests {
        Some(requests) => requests::feed(plan, requests, order),
        None => Feed::new(order, plan.limit),
    };
    let Some(tape) = tape else {
        let load = |slot: usize, at: At<'_>| serial::item(plain, plan, (&rig.parts, &mut pool[slot]), at);
        return serial::run(plan, rig.pool.slots(), &feed, load);
    };
    let aim = arm::whole(rig, plan);
    let mut recorded = Recorded::new(plain, plan, tape.track(0, "loop"), aim, tape.room_for_work());
    let load = |slot: usize, at: At<'_>| recorded.item((&rig.parts, &mut pool[slot]), at);
    let outcome = serial::run(plan, rig.pool.slots(), &feed, load);
    let kept = report.keep(Some(recorded.section(tape)));
    outcome.and_then(|outcome| kept.map(|()| outcome))
}

/// Before the clock: the first touch of the pool and the file by either way of loading them; of a mapping, by all of
/// it, since each page costs a fault.
fn warm_up(rig: &Rig, plan: &Plan, order: Order) -> Result<Outcome, Failure> {
    let mut pool = rig.items(rig.pool.slots())?;
    if plan.rw.writes() {
        // Neither zeros, which some drives store as nothing, nor anything that passes for content of ours.
        let mut by = PageBuf::new(plan.bs as usize);
        for mem in pool.iter_mut().flatten() {
            put(mem, &mut by, |bytes| content::fill(bytes, 256, 0))?;
        }
    }
    let objects = plan.objects_an_item();
    let least = if plan.memory.on_gpu() { 1 } else { pool.len() as u64 };
    let all = if rig.target.is_mapped() { order.count().div_ceil(objects) } else { 0 };
    let limit = Limit { time_based: false, runtime: None };
    let feed = Feed::requests(order, objects, limit, least.max(all));
    arm::engine(rig, plan, plan.max_depth(), pool, &feed, ("first run", None))
}

/// The pass of its own that decides whether the numbers above mean anything: of each arm once, however often it ran.
fn check(rig: &Rig, plan: &Plan, place: &Place, report: &mut Report<'_>) -> Result<(), Failure> {
    let mut wrong = 0;
    let arms = report.rows.len() / plan.repeat.max(1);
    for index in 0..arms {
        // What was written last is there to stay, so that later runs know the file by its content.
        let stays = plan.rw.writes() && plan.limit.runtime.is_none() && index == arms - 1;
        let cover = if stays { u64::MAX } else { verify::COVER };
        let depth = report.rows[index].iodepth * plan.jobs;
        let (name, found) = match report.rows[index].arm {
            "serial" => ("serial".to_owned(), verify::serial(rig, plan, place, cover)?),
            name => (format!("{name} {depth}"), verify::engine(rig, plan, place, depth, (index, cover))?),
        };
        wrong += found.mismatches;
        report.say(&[format!("  {}", found.line(&name))]);
        for round in 0..plan.repeat {
            report.rows[round * arms + index].verified = Some(found.clone());
        }
    }
    if wrong > 0 {
        return Err(Failure::Data(format!(
            "{wrong} bytes are not what belongs there: the storage or the engine is broken"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_file_stays_for_the_next_value_unless_that_needs_another() {
        let path = std::env::temp_dir().join(format!("fullbore-kept-{}", std::process::id()));
        std::fs::write(&path, "x").unwrap();
        let (mut plan, _) = crate::place_tests::nowhere();
        plan.files.clear();
        let made = (MadeFile::new(path.clone()), Vec::new(), plan.new_file_size());
        let mut common = Common { made: Some(made), ..Common::default() };
        let mut same = Plan { rw: crate::args::Rw::Write, ..plan.clone() };
        assert!(common.reuses(&mut same) && path.exists());
        assert_eq!((same.files, same.destructive), (vec![path.clone()], true));
        let mut larger = Plan { size: Some(1 << 20), ..plan };
        assert!(
            !common.reuses(&mut larger) && !path.exists() && larger.files.is_empty() && !larger.destructive
        );
    }
}
