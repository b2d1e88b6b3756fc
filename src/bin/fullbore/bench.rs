//! `fullbore bench`: the serial loop, then the engine with more and more objects in flight, then a pass
//! that checks every byte.

use crate::args::{BenchArgs, Plan};
use crate::arm;
use crate::compare;
use crate::content;
use crate::direct::Plain;
use crate::failure::Failure;
use crate::fio::Fio;
use crate::place::{Place, Truth};
use crate::report::{self, Facts, Report, Row};
use crate::rig::{self, Rig};
use crate::stop;
use crate::verify;
use crate::work::{Feed, Order};

pub fn run(args: BenchArgs) -> Result<(), Failure> {
    let plan = args.plan()?;
    let fio = plan.compare.then(Fio::find).transpose()?;
    stop::install()?;
    let sink = report::sink(&plan)?;
    let engine = rig::engine(&plan)?;
    let place = Place::of(&plan, &engine)?;
    place.lay_out()?;
    let rig = Rig::new(engine, &plan, &place)?;
    let facts = Facts {
        lanes: rig.lanes(),
        pool_objects: rig.slots(),
        pool_bytes: rig.footprint(rig.slots()),
        command: rig.command(&plan),
        path: rig.path(),
        note: rig.note().map(str::to_owned),
    };
    let mut report = Report::new(&plan, &place, facts, sink);
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
    let plain = place.plain(plan.rw.writes())?;
    arms(rig, plan, place, &plain, report)?;
    report.workers();
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
        Truth::Pread => format!(", against pread of {}", place.plain_name()),
    };
    report.say(&[String::new(), format!("checking every byte where it lands{against}:")]);
    check(rig, plan, place, report)
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
    let mut pool = rig.leases(rig.slots())?;
    if plan.rw.writes() {
        // Neither zeros, which some drives store as nothing, nor anything that passes for content of ours.
        pool.iter_mut().for_each(|lease| content::fill(lease, 256, 0));
    }
    // Before the clock: the first touch of the pool and the file by either way of loading them.
    let warm = Feed::of(order, rig.slots() as u64);
    arm::engine(rig, plan, plan.max_depth(), pool, &warm, "warming up")?;

    let mut pool = rig.leases(rig.slots())?;
    let serial = arm::serial(plain, plan, &mut pool, &Feed::new(order, plan.limit))?;
    drop(pool);
    let slow = serial.spent.gbps(serial.bytes);
    report.add(Row { arm: "serial", iodepth: 1, outcome: serial, times_serial: 1.0, verified: None });
    for &depth in &plan.depths {
        let feed = Feed::new(order, plan.limit);
        let phase = format!("engine, {} in flight", depth * plan.jobs);
        let outcome = arm::engine(rig, plan, depth, rig.leases(rig.slots())?, &feed, &phase)?;
        let times_serial = outcome.spent.gbps(outcome.bytes) / slow;
        report.add(Row { arm: "engine", iodepth: depth, outcome, times_serial, verified: None });
    }
    Ok(())
}

/// The pass of its own that decides whether the numbers above mean anything.
fn check(rig: &Rig, plan: &Plan, place: &Place, report: &mut Report<'_>) -> Result<(), Failure> {
    let mut wrong = 0;
    for index in 0..report.rows.len() {
        let depth = report.rows[index].iodepth * plan.jobs;
        let (name, found) = match report.rows[index].arm {
            "serial" => ("serial".to_owned(), verify::serial(rig, plan, place)?),
            name => (format!("{name} {depth}"), verify::engine(rig, plan, place, depth, index)?),
        };
        wrong += found.mismatches;
        report.say(&[format!("  {}", found.line(&name))]);
        report.rows[index].verified = Some(found);
    }
    if wrong > 0 {
        return Err(Failure::Data(format!(
            "{wrong} bytes are not what belongs there: the storage or the engine is broken"
        )));
    }
    Ok(())
}
