//! `fullbore bench`: the serial loop, then the engine with more and more objects in flight, then a pass
//! that checks every byte.

use crate::args::{BenchArgs, Limit, Plan};
use crate::arm::{self, Outcome};
use crate::compare;
use crate::content;
use crate::direct::{PageBuf, Plain};
use crate::failure::Failure;
use crate::fio::Fio;
use crate::honest::{Ceilings, Drives};
use crate::options::Rival;
use crate::place::{Place, Truth};
use crate::pool::put;
use crate::report::{self, Facts, Report, Row};
use crate::requests;
use crate::rig::{self, Rig};
use crate::serial::{self, Recorded};
use crate::stop;
use crate::timeline::{Tape, Timeline};
use crate::verify;
use crate::work::{Feed, Order};

pub fn run(args: BenchArgs) -> Result<(), Failure> {
    let plan = args.plan()?;
    let fio = (plan.compare == Some(Rival::Fio)).then(Fio::find).transpose()?;
    stop::install()?;
    let sink = report::sink(&plan)?;
    let arms = (plan.depths.len() + usize::from(plan.serial != Some(false))) * plan.repeat;
    let taken = plan.files.iter().chain(&plan.output);
    let timeline = plan.timeline.as_deref().map(|path| Timeline::new(path, arms, taken)).transpose()?;
    let engine = rig::engine(&plan)?;
    let place = Place::of(&plan, &engine)?;
    place.lay_out()?;
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
    let mut report = Report::new(&plan, &place, facts, sink);
    report.timeline = timeline;
    let result = measure(&rig, &plan, &place, fio.as_ref(), &mut report);
    report.finish(result.as_ref().err())?;
    result
}

fn measure(
    rig: &Rig,
    plan: &Plan,
    place: &Place,
    fio: Option<&Fio>,
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
    if plan.ceilings {
        let ceilings = Ceilings::measure(&rig.engine, &rig.target, &plan.memory.gpus)?;
        report.honest.ceilings = Some(ceilings);
    }
    report.say(&report.honest.lines(report.best()));
    if plan.compare == Some(Rival::Serial) {
        let beside = compare::with_serial(rig, plan, place)?;
        report.say(&[vec![String::new()], beside.lines()].concat());
        report.honest.beside = Some(beside);
    }
    if let Some(fio) = fio {
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
            slow = Some(outcome.spent.gbps(outcome.bytes));
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
            let times_serial = slow.map(|slow| outcome.spent.gbps(outcome.bytes) / slow);
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
    let feed = Feed::new(order, plan.limit);
    let Some(tape) = tape else {
        let load = |slot: usize, offset| serial::object(plain, plan, (&rig.parts, &mut pool[slot]), offset);
        return serial::run(plan, rig.pool.slots(), &feed, load);
    };
    let aim = arm::whole(rig, plan);
    let mut recorded = Recorded::new(plain, plan, tape.track(0, "loop"), aim, tape.room_for_work());
    let load = |slot: usize, offset| recorded.object((&rig.parts, &mut pool[slot]), offset);
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
