//! `--sweep` of jobs: all of them once for each value, one pass after the other.

use super::script::{At, Script, Section, Setting};
use crate::failure::Failure;
use crate::sweep;

/// Puts every job there once for each value.
pub fn expand(script: &mut Script) -> Result<(), Failure> {
    let Some(asked) = script.run_setting("sweep").cloned() else { return Ok(()) };
    if script.run.iter().filter(|setting| setting.key.name == "sweep").count() > 1 {
        return Err(asked.refuse(sweep::TWICE));
    }
    let swept = asked.parse(sweep::parse)?;
    let name = swept.key.name;
    if !swept.key.is_of_jobs() {
        return Err(asked.refuse(format!("{name} is of the table of arms, which runs without --name")));
    }
    let setting = |name: &str, value: &str| Setting::new(name, Some(value), At::CommandLine);
    let mut all = Vec::with_capacity(swept.values.len() * script.sections.len());
    for value in &swept.values {
        let own_value = setting(name, value)?;
        for (number, section) in script.sections.iter().enumerate() {
            let mut own = section.own.clone();
            own.push(own_value.clone());
            if number == 0 {
                own.push(setting("stonewall", "1")?);
            }
            let swept = Some((name, value.clone()));
            all.push(Section { swept, own, ..section.clone() });
        }
    }
    script.sections = all;
    Ok(())
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
        for (line, part) in [
            ("--sweep=iodeth=1,2", "did you mean iodepth?"),
            ("--sweep=tp=1,2", "of the table of arms"),
            ("--sweep=iodepth=1,,2", "empty"),
            ("--sweep=bs=4k --sweep=iodepth=1", "one key is swept at a time"),
        ] {
            let why = swept(&format!("{line} --name=a")).unwrap_err().to_string();
            assert!(
                why.starts_with("--sweep=") && why.contains(part) && !why.contains('\n'),
                "{line}: {why}"
            );
        }
    }
}
