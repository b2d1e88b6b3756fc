//! Facts in, findings out, and nothing else: every finding can be tested without the machine that shows it.

mod device;
mod gpu;
pub mod pair;
mod process;
#[cfg(test)]
pub mod sample;

use super::facts::{Device, Facts, What};

/// How a thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Ok,
    /// It works, and something can be mended.
    Better,
    /// It does not work.
    Broken,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Better => "could be better",
            Self::Broken => "broken",
        }
    }
}

/// What a finding is about: a heading of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    Process,
    Machine,
    Device(String),
    Gpu(u32),
    Gpus,
}

/// One thing that was found. What is not well has a command that mends it, or shows more; words after `#` are comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub about: About,
    pub level: Level,
    pub text: String,
    pub remedy: Option<String>,
}

/// Findings about one thing, in the making.
struct Notes {
    about: About,
    list: Vec<Finding>,
}

impl Notes {
    fn on(about: About) -> Self {
        Self { about, list: Vec::new() }
    }

    fn add(&mut self, level: Level, text: impl Into<String>, remedy: Option<String>) {
        self.list.push(Finding { about: self.about.clone(), level, text: text.into(), remedy });
    }

    fn ok(&mut self, text: impl Into<String>) {
        self.add(Level::Ok, text, None);
    }

    fn better(&mut self, text: impl Into<String>, remedy: impl Into<String>) {
        self.add(Level::Better, text, Some(remedy.into()));
    }

    fn broken(&mut self, text: impl Into<String>, remedy: impl Into<String>) {
        self.add(Level::Broken, text, Some(remedy.into()));
    }
}

/// Everything that is to be said, in the order in which it is read.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut all = process::findings(&facts.process, &facts.machine);
    let mut machine = Notes::on(About::Machine);
    for unseen in &facts.unseen {
        machine.better(unseen.what.clone(), unseen.remedy.clone());
    }
    all.extend(machine.list);
    for device in &facts.devices {
        all.extend(device::findings(device, &facts.machine));
        if facts.quick_bench && device.what == What::Folder {
            all.push(unmeasured(device));
        }
        let pairs = facts.pairs.iter().filter(|pair| pair.device == device.path);
        all.extend(pairs.flat_map(|pair| pair::findings(pair, device)));
    }
    all.extend(gpu::findings(&facts.gpus, &facts.machine));
    all
}

/// The file that was made to look at a folder is too small, and too new, to be read for seconds.
fn unmeasured(folder: &Device) -> Finding {
    let mut notes = Notes::on(About::Device(folder.path.clone()));
    notes.ok("not measured, being a folder: name a large file in it");
    notes.list.remove(0)
}

/// The worst of them.
pub fn worst(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule that operators rely on: what is not well says what to do, in one line.
    #[test]
    fn what_is_not_well_has_a_remedy() {
        let mut all = judge(&sample::healthy());
        all.extend(judge(&sample::sick()));
        assert!(all.iter().any(|finding| finding.level == Level::Broken));
        for finding in &all {
            assert_eq!(finding.remedy.is_some(), finding.level != Level::Ok, "{finding:?}");
            let text = format!("{}{}", finding.text, finding.remedy.as_deref().unwrap_or_default());
            assert!(!text.contains('\n') && !finding.text.is_empty(), "{finding:?}");
        }
    }

    #[test]
    fn a_healthy_machine_has_nothing_to_mend() {
        let all = judge(&sample::healthy());
        assert_eq!(worst(&all), Level::Ok, "{all:#?}");
        assert!(all.len() > 5);
        assert_eq!(worst(&[]), Level::Ok);
    }

    #[test]
    fn a_folder_says_that_it_is_not_measured() {
        let said = |quick_bench, what| {
            let mut facts = Facts { quick_bench, ..sample::healthy() };
            facts.devices[2].what = what;
            judge(&facts).iter().filter(|finding| finding.text.contains("not measured")).count()
        };
        assert_eq!([said(true, What::Folder), said(false, What::Folder), said(true, What::File)], [1, 0, 0]);
    }

    #[test]
    fn what_is_not_here_could_be() {
        let mut facts = sample::healthy();
        facts
            .unseen
            .push(super::super::facts::Unseen { what: "ng2n1 is not here".into(), remedy: "x".into() });
        let all = judge(&facts);
        assert_eq!(worst(&all), Level::Better);
        assert!(all.iter().any(|finding| finding.about == About::Machine && finding.text.contains("ng2n1")));
    }
}
