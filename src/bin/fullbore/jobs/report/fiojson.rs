//! JSON with fio's names, and an object `fullbore` with what fio does not have.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::normal::share_of_group;
use super::{Disk, Lane, Shown};
use crate::dates::{ctime, date};
use crate::failure::Failure;
use crate::jobs::run::stats::{BOUNDS, Bins, READ, Sum, WRITE, shares};
use crate::jobs::script::{Script, Setting};

/// The whole report. `bins`: json+.
pub fn all(
    script: &Script,
    shown: &[Shown<'_>],
    disks: &[Disk],
    (now, elapsed, left): (SystemTime, Duration, Duration),
    bins: bool,
    failure: Option<&Failure>,
) -> Value {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut all = json!({
        "fio version": format!("fullbore-{}", env!("CARGO_PKG_VERSION")),
        "timestamp": since.as_secs(),
        "timestamp_ms": since.as_millis() as u64,
        "time": ctime(now),
    });
    let common = script.sections.first().map_or(&[][..], |section| &section.inherited);
    if !common.is_empty() {
        all["global options"] = options(common);
    }
    let jobs = shown.iter().map(|one| job(script, one, shown, (elapsed, left), bins));
    all["jobs"] = jobs.collect();
    all["disk_util"] = disks.iter().map(disk).collect();
    all["fullbore"] = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "date": date(now),
        "error": failure.map(Failure::to_string),
    });
    all
}

fn options(settings: &[Setting]) -> Value {
    settings
        .iter()
        .map(|setting| (setting.key.name.to_owned(), setting.text().into()))
        .collect::<Map<_, _>>()
        .into()
}

fn job(
    script: &Script,
    one: &Shown<'_>,
    all: &[Shown<'_>],
    (elapsed, left): (Duration, Duration),
    bins: bool,
) -> Value {
    let (counts, spread) = (&one.counts, &one.counts.spread);
    let total = counts.ways.iter().map(|way| way.ios).sum();
    let ran = one.timing.sum.as_secs_f64().max(1e-9);
    // In fio's order: percentiles, bins and depths that are gone through in turn are to rise.
    let mut job = json!({
        "jobname": one.job.name,
        "groupid": one.group,
        "error": one.failed.as_ref().map_or(0, |(errno, _)| *errno),
        "eta": left.as_secs_f64().ceil() as u64,
        "elapsed": elapsed.as_secs() + 1,
        "job options": options(script.sections.get(one.number).map_or(&[], |section| &section.own)),
        "read": way(one, READ, all, bins),
        "write": way(one, WRITE, all, bins),
        "trim": nothing(),
        "sync": { "total_ios": 0, "lat_ns": sum(&Sum::default()) },
        "job_runtime": one.timing.sum.as_millis() as u64,
        "usr_cpu": one.usage.user / ran * 100.0,
        "sys_cpu": one.usage.system / ran * 100.0,
        "ctx": one.usage.switches,
        "majf": one.usage.major,
        "minf": one.usage.minor,
        "iodepth_level": distribution(&["1", "2", "4", "8", "16", "32", ">=64"], &counts.depth),
        "iodepth_submit": distribution(&BATCHES, &counts.submit),
        "iodepth_complete": distribution(&BATCHES, &counts.complete),
        "latency_ns": times(&shares(&spread.ns, total, 0.01)),
        "latency_us": times(&shares(&spread.us, total, 0.01)),
        "latency_ms": times(&shares(&spread.ms, total, 0.01)),
        "latency_depth": one.job.iodepth,
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
        "fullbore": fullbore(one),
    });
    job["job options"]["name"] = one.job.name.as_str().into();
    if let Some(description) = &one.job.description {
        job["desc"] = description.as_str().into();
    }
    job
}

const BATCHES: [&str; 7] = ["0", "4", "8", "16", "32", "64", ">=64"];

fn distribution(names: &[&str; 7], counts: &[u64; 7]) -> Value {
    let shares = shares(counts, counts.iter().sum(), 0.1);
    names
        .iter()
        .zip(shares)
        .map(|(name, share)| ((*name).to_owned(), share.into()))
        .collect::<Map<_, _>>()
        .into()
}

fn times(shares: &[f64]) -> Value {
    let mut names: Vec<String> = BOUNDS.iter().map(u64::to_string).collect();
    names.extend(["2000".into(), ">=2000".into()]);
    names.into_iter().zip(shares).map(|(name, share)| (name, (*share).into())).collect::<Map<_, _>>().into()
}

fn sum(sum: &Sum) -> Value {
    json!({ "min": sum.min, "max": sum.max, "mean": sum.mean, "stddev": sum.stddev(), "N": sum.n })
}

/// A sum with its percentiles, and its bins in json+.
fn detailed(of: &Sum, bins: &Bins, percentiles: Option<&[f64]>, with_bins: bool) -> Value {
    let mut value = sum(of);
    let Some(list) = percentiles.filter(|_| of.n > 0) else { return value };
    let found = list.iter().zip(bins.percentiles(list));
    value["percentile"] =
        found.map(|(percent, ns)| (format!("{percent:.6}"), ns.into())).collect::<Map<_, _>>().into();
    if with_bins {
        value["bins"] = bins.filled().map(|(ns, n)| (ns.to_string(), n.into())).collect::<Map<_, _>>().into();
    }
    value
}

fn way(one: &Shown<'_>, way: usize, all: &[Shown<'_>], bins: bool) -> Value {
    let (counts, samples) = (&one.counts.ways[way], &one.samples[way]);
    let list = |wanted: bool| wanted.then_some(&one.job.percentiles[..]);
    let (rate, iops) = (&samples.rate, &samples.iops);
    let bytes_a_second = if counts.ios > 0 { one.rate(way) } else { 0.0 };
    json!({
        "io_bytes": counts.bytes,
        "io_kbytes": counts.bytes >> 10,
        "bw_bytes": bytes_a_second as u64,
        "bw": bytes_a_second as u64 >> 10,
        "iops": if counts.ios > 0 { one.iops(way) } else { 0.0 },
        "runtime": one.timing.ways[way].as_millis() as u64,
        "total_ios": counts.ios,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": sum(&counts.slat),
        "clat_ns": detailed(&counts.clat, &counts.clat_bins, list(one.job.clat_percentiles), bins),
        "lat_ns": detailed(&counts.lat, &counts.lat_bins, list(one.job.lat_percentiles), bins),
        "bw_min": rate.min,
        "bw_max": rate.max,
        "bw_agg": if rate.n > 0 { share_of_group(one, way, all) } else { 0.0 },
        "bw_mean": rate.mean,
        "bw_dev": rate.stddev(),
        "bw_samples": rate.n,
        "iops_min": iops.min,
        "iops_max": iops.max,
        "iops_mean": iops.mean,
        "iops_stddev": iops.stddev(),
        "iops_samples": iops.n,
    })
}

/// What fio says of a way that nothing went.
fn nothing() -> Value {
    let none = sum(&Sum::default());
    json!({
        "io_bytes": 0, "io_kbytes": 0, "bw_bytes": 0, "bw": 0, "iops": 0.0, "runtime": 0, "total_ios": 0,
        "short_ios": 0, "drop_ios": 0, "slat_ns": none, "clat_ns": none, "lat_ns": none,
        "bw_min": 0, "bw_max": 0, "bw_agg": 0.0, "bw_mean": 0.0, "bw_dev": 0.0, "bw_samples": 0,
        "iops_min": 0, "iops_max": 0, "iops_mean": 0.0, "iops_stddev": 0.0, "iops_samples": 0,
    })
}

fn fullbore(one: &Shown<'_>) -> Value {
    let (facts, checked) = (&one.facts, &one.counts.checked);
    json!({
        "path": one.path(),
        "reason": facts.path,
        "paths": facts.paths,
        "storage_paths": facts.storage_paths,
        "cmd_size": facts.command,
        "lanes": facts.lanes,
        "lane_depth": facts.lane_depth,
        "max_commands_in_flight": facts.most_commands,
        "mean_commands_in_flight": facts.mean_commands,
        "max_objects_in_flight": one.counts.most,
        "objects_in_flight": one.timing.flying,
        "first_run": one.first.as_ref().map(|it| json!({ "bytes": it.all(), "gbps": it.gbps() })),
        "split_mean_ns": one.counts.split.json(),
        "each_lane": facts.each_lane.iter().map(lane).collect::<Vec<_>>(),
        "cpu_s_per_gib": one.cpu_s_per_gib(),
        "kernel_workers": facts.kernel_workers,
        "verified_bytes": checked.bytes,
        "mismatches": checked.wrong,
        "first_mismatch": checked.first,
        "note": facts.note,
        "notes": one.notes,
        "swept": one.job.swept.as_ref().map(|(key, value)| json!({ "key": key, "value": value })),
        "error": one.failed.as_ref().map(|(_, words)| words),
    })
}

fn lane(lane: &Lane) -> Value {
    let occupancy = lane.occupancy.iter().map(|(depth, enters)| (depth.to_string(), (*enters).into()));
    json!({
        "drive": lane.drive,
        "queue": lane.queue,
        "depth": lane.depth,
        "cpus": lane.cpus,
        "commands": lane.commands,
        "occupancy": occupancy.collect::<Map<_, _>>(),
        "command_lat_ns": { "p50": lane.p50, "p99": lane.p99 },
    })
}

fn disk(disk: &Disk) -> Value {
    json!({
        "name": disk.name,
        "read_ios": disk.ios[READ],
        "write_ios": disk.ios[WRITE],
        "read_merges": disk.merges[READ],
        "write_merges": disk.merges[WRITE],
        "read_ticks": disk.ticks[READ],
        "write_ticks": disk.ticks[WRITE],
        "in_queue": disk.in_queue,
        "util": disk.util,
    })
}
