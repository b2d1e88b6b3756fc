//! The report for people, in the shape of fio's.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use super::numbers::{Unit, short, unit_of, within};
use super::{Disk, Job, Shown};
use crate::dates::ctime;
use crate::jobs::run::stats::{BOUNDS, READ, Sum, WRITE, shares};
use crate::jobs::run::waves;
use crate::sweep::Sweep;
use crate::units::{count, human};

/// What will run.
pub fn head(jobs: &[Job]) -> String {
    let mut out = String::new();
    for (number, group) in waves(jobs).concat() {
        let job = &jobs[number];
        let bs = short(job.bs, true, Unit::Byte);
        let engine = job.ioengine.as_ref().map_or("fullbore", |(name, _)| name);
        let _ = writeln!(
            out,
            "{}: (g={group}): rw={}, bs=(R) {bs}-{bs}, (W) {bs}-{bs}, ioengine={engine}, iodepth={}",
            job.name,
            job.rw.name(),
            job.iodepth
        );
        if job.numjobs > 1 {
            out += "...\n";
        }
        for note in &job.notes {
            let _ = writeln!(out, "{}: note: {note}", job.name);
        }
    }
    let threads: usize = jobs.iter().map(|job| job.numjobs).sum();
    let _ =
        writeln!(out, "fullbore-{}\nStarting {}", env!("CARGO_PKG_VERSION"), count(threads as u64, "thread"));
    out
}

/// What came of it.
pub fn body(shown: &[Shown<'_>], sweep: Option<&Sweep>, disks: &[Disk]) -> String {
    let mut out = String::new();
    shown.iter().for_each(|one| job(&mut out, one, shown));
    status(&mut out, shown);
    out += &sweep.map_or_else(String::new, Sweep::table);
    if !disks.is_empty() {
        out += "\nDisk stats (read/write):\n";
    }
    for disk in disks {
        let ([reads, writes], [merged, merged_writes], [read_ticks, write_ticks]) =
            (disk.ios, disk.merges, disk.ticks);
        let _ = writeln!(
            out,
            "  {}: ios={reads}/{writes}, merge={merged}/{merged_writes}, ticks={read_ticks}/{write_ticks}, in_queue={}, \
             util={:.2}%",
            disk.name, disk.in_queue, disk.util
        );
    }
    out
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

fn job(out: &mut String, one: &Shown<'_>, all: &[Shown<'_>]) {
    let error =
        one.failed.as_ref().map_or_else(|| " 0".into(), |(errno, words)| format!("{errno:2} ({words})"));
    let _ = writeln!(
        out,
        "\n{}: (groupid={}, jobs={}): err={error}: pid={}: {}",
        one.job.name,
        one.group,
        one.members,
        std::process::id(),
        ctime(SystemTime::now())
    );
    if let Some(description) = &one.job.description {
        let _ = writeln!(out, "  Description  : [{description}]");
    }
    for way in [READ, WRITE] {
        self::way(out, one, way, all);
    }
    spread(out, one);
    let ran = one.timing.sum.as_secs_f64().max(1e-9);
    let usage = &one.usage;
    let _ = writeln!(
        out,
        "  cpu          : usr={:.2}%, sys={:.2}%, ctx={}, majf={}, minf={}",
        usage.user / ran * 100.0,
        usage.system / ran * 100.0,
        usage.switches,
        usage.major,
        usage.minor
    );
    depths(out, one);
    fullbore(out, one);
}

fn way(out: &mut String, one: &Shown<'_>, way: usize, all: &[Shown<'_>]) {
    let counts = &one.counts.ways[way];
    if counts.ios == 0 {
        return;
    }
    let rate = one.rate(way) as u64;
    let _ = writeln!(
        out,
        "  {}: IOPS={}, BW={} ({})({}/{}msec)",
        if way == READ { "read" } else { "write" },
        short(one.iops(way) as u64, false, Unit::None),
        short(rate, true, Unit::BytePerSecond),
        short(rate, false, Unit::BytePerSecond),
        short(counts.bytes, true, Unit::Byte),
        millis(one.timing.ways[way])
    );
    for (name, sum) in [("slat", &counts.slat), ("clat", &counts.clat), (" lat", &counts.lat)] {
        times(out, name, sum);
    }
    if one.job.clat_percentiles {
        percentiles(
            out,
            "clat",
            &counts.clat_bins.percentiles(&one.job.percentiles),
            &counts.clat,
            &one.job.percentiles,
        );
    }
    if one.job.lat_percentiles {
        percentiles(
            out,
            "lat",
            &counts.lat_bins.percentiles(&one.job.percentiles),
            &counts.lat,
            &one.job.percentiles,
        );
    }
    samples(out, one, way, all);
}

fn times(out: &mut String, name: &str, sum: &Sum) {
    let (unit, scale) = unit_of(sum.min, sum.max, sum.stddev());
    let scaled = |ns: u64| within((ns as f64 / scale) as u64, 6, false, Unit::None);
    let _ = writeln!(
        out,
        "    {name} ({unit}): min={}, max={}, avg={:5.2}, stdev={:5.2}",
        scaled(sum.min),
        scaled(sum.max),
        sum.mean / scale,
        sum.stddev() / scale
    );
}

fn percentiles(out: &mut String, name: &str, values: &[u64], sum: &Sum, list: &[f64]) {
    let (unit, scale) = unit_of(sum.min, sum.max, sum.stddev());
    let scaled: Vec<u64> = values.iter().map(|&ns| (ns as f64 / scale) as u64).collect();
    let width = scaled.iter().max().map_or(1, |most| most.to_string().len()).max(5);
    let _ = writeln!(out, "    {name} percentiles ({unit}):");
    // As fio has them: each with the decimals of the one that has most, and what a line of 80 holds.
    let decimals = |percent: &f64| percent.to_string().split_once('.').map_or(0, |(_, behind)| behind.len());
    let decimals = list.iter().map(decimals).max().unwrap_or(0);
    let (before, a_line) = (decimals + 3, (73 / (decimals + 14)).max(1));
    let cells: Vec<String> = list
        .iter()
        .zip(&scaled)
        .map(|(percent, value)| format!("{percent:before$.decimals$}th=[{value:width$}]"))
        .collect();
    let lines: Vec<String> = cells.chunks(a_line).map(|line| format!("     | {}", line.join(", "))).collect();
    let _ = writeln!(out, "{}", lines.join(",\n"));
}

fn samples(out: &mut String, one: &Shown<'_>, way: usize, all: &[Shown<'_>]) {
    let (rate, iops) = (&one.samples[way].rate, &one.samples[way].iops);
    if rate.n == 0 {
        return;
    }
    // As fio: from 1 GiB/s on in MiB/s.
    let (unit, scale) = if rate.mean > 1024.0 * 1024.0 { ('M', 1024) } else { ('K', 1) };
    let _ = writeln!(
        out,
        "   bw (  {unit}iB/s): min={:5}, max={:5}, per={:3.2}%, avg={:5.2}, stdev={:5.2}, samples={}",
        rate.min / scale,
        rate.max / scale,
        share_of_group(one, way, all),
        rate.mean / scale as f64,
        rate.stddev() / scale as f64,
        rate.n
    );
    let _ = writeln!(
        out,
        "   iops        : min={:5}, max={:5}, avg={:5.2}, stdev={:5.2}, samples={}",
        iops.min,
        iops.max,
        iops.mean,
        iops.stddev(),
        iops.n
    );
}

/// Percent of its group's rate.
pub fn share_of_group(one: &Shown<'_>, way: usize, all: &[Shown<'_>]) -> f64 {
    let group: f64 = all.iter().filter(|other| other.group == one.group).map(|other| other.rate(way)).sum();
    let mean = one.samples[way].rate.mean * 1024.0;
    if group > 0.0 { (mean / group * 100.0).min(100.0) } else { 0.0 }
}

fn spread(out: &mut String, one: &Shown<'_>) {
    let spread = &one.counts.spread;
    let total = one.counts.ways.iter().map(|way| way.ios).sum();
    let mut ms: Vec<String> = BOUNDS.iter().map(u64::to_string).collect();
    ms.extend(["2000".into(), ">=2000".into()]);
    let names = &ms[..10];
    for (unit, names, shares) in [
        ("nsec", names, shares(&spread.ns, total, 0.01).to_vec()),
        ("usec", names, shares(&spread.us, total, 0.01).to_vec()),
        ("msec", &ms[..], shares(&spread.ms, total, 0.01).to_vec()),
    ] {
        let cells: Vec<String> = names
            .iter()
            .zip(shares)
            .filter(|(_, share)| *share > 0.0)
            .map(|(name, share)| format!("{name}={share:.2}%"))
            .collect();
        for line in cells.chunks(5) {
            let _ = writeln!(out, "  lat ({unit})   : {}", line.join(", "));
        }
    }
}

fn depths(out: &mut String, one: &Shown<'_>) {
    let counts = &one.counts;
    let line = |names: [&str; 7], of: &[u64; 7]| {
        let shares = shares(of, of.iter().sum(), 0.1);
        let cells = names.iter().zip(shares).map(|(name, share)| format!("{name}={share:.1}%"));
        cells.collect::<Vec<_>>().join(", ")
    };
    let batches = ["0", "4", "8", "16", "32", "64", ">=64"];
    let _ =
        writeln!(out, "  IO depths    : {}", line(["1", "2", "4", "8", "16", "32", ">=64"], &counts.depth));
    let _ = writeln!(out, "     submit    : {}", line(batches, &counts.submit));
    let _ = writeln!(out, "     complete  : {}", line(batches, &counts.complete));
    let _ = writeln!(
        out,
        "     issued rwts: total={},{},0,0 short=0,0,0,0 dropped=0,0,0,0",
        counts.ways[READ].ios, counts.ways[WRITE].ios
    );
    let _ =
        writeln!(out, "     latency   : target=0, window=0, percentile=100.00%, depth={}", one.job.iodepth);
}

/// What fio's report does not have.
fn fullbore(out: &mut String, one: &Shown<'_>) {
    let facts = &one.facts;
    let _ = writeln!(
        out,
        "  fullbore     : path={}, {} of depth {}, commands in flight most={} mean={:.1}, objects most={}, cpu={:.3} s/GiB",
        one.path(),
        count(facts.lanes as u64, "lane"),
        facts.lane_depth,
        facts.most_commands,
        facts.mean_commands,
        one.counts.most,
        one.cpu_s_per_gib()
    );
    let _ = writeln!(out, "     split     : {}", one.counts.split.line());
    if let Some(first) = &one.first {
        let (gbps, bytes) = (first.gbps(), human(first.all()));
        let _ = writeln!(
            out,
            "     first run : {gbps:.3} GB/s over {bytes}, apart (device and memory may be cold)"
        );
    }
    let checked = &one.counts.checked;
    if checked.bytes > 0 {
        let bytes = short(checked.bytes, true, Unit::Byte);
        let found = match &checked.first {
            None => "every byte is right".into(),
            Some(first) => format!("{} bytes are WRONG: {first}", checked.wrong),
        };
        let _ = writeln!(out, "     verify    : {bytes} checked, {found}");
    }
    if facts.kernel_workers > 0 {
        let workers = count(facts.kernel_workers as u64, "kernel worker");
        let _ = writeln!(out, "     note      : the file system hands commands to {workers}");
    }
    if let Some(note) = &facts.note {
        let _ = writeln!(out, "     note      : {note}");
    }
}

/// The lines of each group.
fn status(out: &mut String, shown: &[Shown<'_>]) {
    let mut groups: Vec<usize> = shown.iter().map(|one| one.group).collect();
    groups.dedup();
    for group in groups {
        let _ = writeln!(out, "\nRun status group {group} (all jobs):");
        let of = || shown.iter().filter(move |one| one.group == group);
        for (way, name) in [(READ, "   READ"), (WRITE, "  WRITE")] {
            let with = || of().filter(move |one| one.counts.ways[way].ios > 0);
            let bytes: u64 = with().map(|one| one.counts.ways[way].bytes).sum();
            if bytes == 0 {
                continue;
            }
            let times = || with().map(|one| one.timing.ways[way]);
            let (least, most) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
            let rates = || with().map(|one| one.rate(way));
            let (slow, fast) = (rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max));
            let both = |rate: f64, binary| short(rate as u64, binary, Unit::BytePerSecond);
            let all = bytes as f64 / most.as_secs_f64().max(1e-9);
            let _ = writeln!(
                out,
                "{name}: bw={} ({}), {}-{} ({}-{}), io={} ({}), run={}-{}msec",
                both(all, true),
                both(all, false),
                both(slow, true),
                both(fast, true),
                both(slow, false),
                both(fast, false),
                short(bytes, true, Unit::Byte),
                short(bytes, false, Unit::Byte),
                millis(least),
                millis(most)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_has_the_group_and_times_have_no_padding() {
        let line = "--name=a --filename=/x --bs=128k --name=b --stonewall --filename=/x --bs=128k";
        let text = head(&crate::jobs::tests::jobs(line).unwrap());
        assert!(text.starts_with("a: (g=0): rw=read, bs=(R) 128KiB-128KiB"), "{text}");
        assert!(text.contains("\nb: (g=1): rw=read"), "{text}");
        let mut out = String::new();
        let mut sum = Sum::default();
        [7, 9].into_iter().for_each(|ns| sum.add(ns));
        times(&mut out, "slat", &sum);
        assert!(out.starts_with("    slat (nsec): min=7, max=9, avg= 8.00, stdev="), "{out}");
    }

    /// Two decimals for all would make 100.00th of 99.999.
    #[test]
    fn percentiles_have_the_decimals_that_fio_gives_them() {
        for (list, line) in [
            (vec![50.0, 99.0], "     |  50th=[    7],  99th=[    7]\n"),
            (vec![1.0, 99.95], "     |  1.00th=[    7], 99.95th=[    7]\n"),
            (vec![1.0, 99.999], "     |  1.000th=[    7], 99.999th=[    7]\n"),
        ] {
            let mut out = String::new();
            percentiles(&mut out, "clat", &[7, 7], &Sum::default(), &list);
            assert!(out.ends_with(line), "{out}");
        }
    }
}
