//! A row for each job and way.

use super::Shown;
use crate::jobs::run::stats::{READ, WRITE};
use crate::json::cell;

const HEAD: &str = "job,group,jobs,rw,way,bs,iodepth,bytes,seconds,bytes_per_s,iops,lat_mean_ns,lat_p50_ns,lat_p99_ns,lat_max_ns,\
                    cpu_s_per_gib,max_commands_in_flight,max_objects_in_flight,path,swept,error\n";

pub fn table(shown: &[Shown<'_>]) -> String {
    let rows = shown.iter().flat_map(|one| [READ, WRITE].map(|way| row(one, way)));
    HEAD.to_owned() + &rows.flatten().collect::<String>()
}

fn row(one: &Shown<'_>, way: usize) -> Option<String> {
    let counts = &one.counts.ways[way];
    if counts.ios == 0 && one.failed.is_none() {
        return None;
    }
    let times = counts.lat_bins.percentiles(&[50.0, 99.0]);
    let time = |n: usize| times.get(n).copied().unwrap_or(0).to_string();
    let cells = [
        one.job.name.clone(),
        one.group.to_string(),
        one.members.to_string(),
        one.job.rw.name().into(),
        if way == READ { "read" } else { "write" }.into(),
        one.job.bs.to_string(),
        one.job.iodepth.to_string(),
        counts.bytes.to_string(),
        format!("{:.6}", one.timing.ways[way].as_secs_f64()),
        format!("{:.0}", one.rate(way)),
        format!("{:.2}", one.iops(way)),
        format!("{:.0}", counts.lat.mean),
        time(0),
        time(1),
        counts.lat.max.to_string(),
        format!("{:.6}", one.cpu_s_per_gib()),
        one.facts.most_commands.to_string(),
        one.counts.most.to_string(),
        one.path(),
        one.job.swept.as_ref().map_or_else(String::new, |(key, value)| format!("{key}={value}")),
        one.failed.as_ref().map_or_else(|| "0".into(), |(errno, _)| errno.to_string()),
    ];
    Some(cells.map(|text| cell(&text)).join(",") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_jobs_there_are_titles_alone() {
        assert_eq!(table(&[]), HEAD);
    }
}
