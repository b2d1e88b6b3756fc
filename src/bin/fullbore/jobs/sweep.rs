//! `--sweep=KEY=A,B,C`: all jobs once for each value, one pass after the other, and a table of what each came to.

use super::script::{At, Script, Section, Setting};
use crate::failure::Failure;

/// Most values, so that a slip of the pen is no run of a week.
const MOST: usize = 64;

/// Puts every job there once for each value.
pub fn expand(script: &mut Script) -> Result<(), Failure> {
    let Some(sweep) = script.run_setting("sweep").cloned() else { return Ok(()) };
    let (name, values) = sweep.parse(|text| {
        text.split_once('=').ok_or("write a key and its values, like iodepth=1,2,4".to_owned()).map(
            |(name, values)| {
                (name.trim().to_owned(), values.split(',').map(str::to_owned).collect::<Vec<_>>())
            },
        )
    })?;
    if values.len() > MOST {
        return Err(sweep.refuse(format!("more than {MOST} values: leave some out")));
    }
    let setting = |name: &str, value: &str| Setting::new(name, Some(value), At::CommandLine);
    let mut all = Vec::with_capacity(values.len() * script.sections.len());
    for value in &values {
        let swept = setting(&name, value)?;
        if swept.key.name == "name" || !swept.key.is_of_jobs() {
            return Err(sweep.refuse(format!("{name} is no key of a job that could be swept: name another")));
        }
        for (number, section) in script.sections.iter().enumerate() {
            let mut own = section.own.clone();
            own.push(swept.clone());
            if number == 0 {
                own.push(setting("stonewall", "1")?);
            }
            let swept = Some((swept.key.name, value.trim().to_owned()));
            all.push(Section { swept, own, ..section.clone() });
        }
    }
    script.sections = all;
    Ok(())
}

/// A row of the table.
#[derive(Debug, Clone)]
pub struct Row {
    pub job: String,
    pub key: &'static str,
    pub value: String,
    /// Bytes a second, both ways together.
    pub rate: f64,
    pub iops: f64,
    /// Of latency, in words.
    pub p50: String,
    pub p99: String,
    pub cpu_s_per_gib: f64,
}

/// Cells of the longest bar.
const LONGEST: usize = 40;

/// The table, with a bar for each rate: the curve.
pub fn table(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let most = rows.iter().map(|row| row.rate).fold(0.0, f64::max);
    let width = |of: fn(&Row) -> &str, title: &str| {
        rows.iter().map(|row| of(row).len()).max().unwrap_or(0).max(title.len())
    };
    let (job, value) = (width(|row| &row.job, "job"), width(|row| &row.value, first.key));
    let mut out = format!(
        "\nSweep of {}:\n  {:<job$} {:>value$} {:>8} {:>10} {:>9} {:>9} {:>9}\n",
        first.key, "job", first.key, "GB/s", "IOPS", "lat p50", "lat p99", "CPU s/GiB"
    );
    for row in rows {
        let cells = if most > 0.0 { (row.rate / most * LONGEST as f64).round() as usize } else { 0 };
        out += &format!(
            "  {:<job$} {:>value$} {:>8.3} {:>10.1} {:>9} {:>9} {:>9.3} {}\n",
            row.job,
            row.value,
            row.rate / 1e9,
            row.iops,
            row.p50,
            row.p99,
            row.cpu_s_per_gib,
            "#".repeat(cells)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::tests::script;

    fn swept(line: &str) -> Result<Vec<String>, Failure> {
        let mut script = script(line)?;
        expand(&mut script)?;
        let words = |section: &Section| section.own.iter().map(Setting::word).collect::<Vec<_>>().join(" ");
        Ok(script.sections.iter().map(|section| format!("{} {}", section.name, words(section))).collect())
    }

    #[test]
    fn every_job_is_there_for_every_value() {
        let all = swept("--sweep=iodepth=1,2 --name=a --bs=1m --name=b").unwrap();
        let wanted = [
            "a --bs=1m --iodepth=1 --stonewall=1",
            "b --iodepth=1",
            "a --bs=1m --iodepth=2 --stonewall=1",
            "b --iodepth=2",
        ];
        assert_eq!(all, wanted);
        assert_eq!(swept("--name=a").unwrap().len(), 1);
        for line in [
            "--sweep=iodepth",
            "--sweep=bogus=1",
            "--sweep=name=a,b",
            "--sweep=output=a",
            "--sweep=iodepth=1,,2",
        ] {
            let why = swept(&format!("{line} --name=a")).unwrap_err().to_string();
            assert!(why.contains(": ") && !why.contains('\n'), "{line}: {why}");
        }
    }

    #[test]
    fn the_longest_bar_is_the_fastest() {
        let row = |value: &str, rate| Row {
            job: "a".into(),
            key: "iodepth",
            value: value.into(),
            rate,
            iops: 1.0,
            p50: "1 us".into(),
            p99: "2 us".into(),
            cpu_s_per_gib: 0.1,
        };
        let text = table(&[row("1", 1e9), row("16", 4e9)]);
        let bars: Vec<usize> = text.lines().skip(3).map(|line| line.matches('#').count()).collect();
        assert_eq!(bars, [10, 40], "{text}");
        assert!(table(&[]).is_empty());
    }
}
