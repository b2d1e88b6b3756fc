//! What measured rates are held against: ceilings that are measured in the same run, and what the drive itself counted.

use std::path::PathBuf;
use std::time::Duration;

use fullbore::machine::{self, Smart};
use fullbore::{Engine, Target};
use serde_json::{Value, json};

use crate::arm::Outcome;
use crate::doctor::quick;
use crate::failure::Failure;
use crate::pairs::Beside;
use crate::units::human;

/// Time of one measurement of a ceiling.
const TIME: Duration = Duration::from_secs(1);

/// How fast the parts of the way are by themselves, in 10^9 bytes a second.
#[derive(Debug, Clone, PartialEq)]
pub struct Ceilings {
    /// Deep reads of the device to host memory.
    pub device: f64,
    /// Copies of pinned memory to each GPU.
    pub links: Vec<(u32, f64)>,
}

impl Ceilings {
    /// Measures them.
    pub fn measure(engine: &Engine, target: &Target, gpus: &[u32]) -> Result<Self, Failure> {
        let failed = |why: String| Failure::Data(format!("measuring ceilings: {why}"));
        let gbps = |found: crate::doctor::Measured| found.bytes as f64 / found.seconds.max(1e-9) / 1e9;
        let device = quick::target(engine, target, TIME).map(gbps).map_err(failed)?;
        let mut links = Vec::new();
        for &gpu in gpus {
            // An engine of its own, whose lanes and bounce buffers are not those under test.
            let engine = Engine::builder().lanes(1).build().map_err(Failure::setup)?;
            links.push((gpu, quick::gpu(&engine, gpu, TIME).map(gbps).map_err(failed)?));
        }
        Ok(Self { device, links })
    }

    fn link(&self) -> Option<f64> {
        (!self.links.is_empty()).then(|| self.links.iter().map(|(_, gbps)| gbps).sum())
    }

    /// Which is the lower one, and how low.
    pub fn binds(&self) -> (&'static str, f64) {
        match self.link() {
            Some(link) if link < self.device => ("link", link),
            _ => ("device", self.device),
        }
    }

    /// A line for people. `best`: the fastest that was measured.
    pub fn line(&self, best: f64) -> String {
        let (which, ceiling) = self.binds();
        let link = match self.link() {
            None => "no link: host memory".into(),
            Some(link) => format!("link {link:.3} GB/s (pinned copies to {} GPU)", self.links.len()),
        };
        format!(
            "ceilings, measured: device {:.3} GB/s (deep reads to host memory), {link}; the {which} binds, and the \
             best reached {:.0} % of it",
            self.device,
            100.0 * best / ceiling.max(1e-9)
        )
    }

    pub fn json(&self, best: f64) -> Value {
        let (which, ceiling) = self.binds();
        json!({
            "device_gbps": self.device,
            "link_gbps": self.link(),
            "links": self.links.iter().map(|(gpu, gbps)| json!({ "gpu": gpu, "gbps": gbps })).collect::<Vec<_>>(),
            "binds": which,
            "binding_gbps": ceiling,
            "best_gbps": best,
            "best_of_ceiling": best / ceiling.max(1e-9),
        })
    }
}

/// What drives count, looked at before.
#[derive(Debug, Clone)]
pub struct Drives {
    nodes: Vec<PathBuf>,
    /// Why nothing is known.
    before: Result<Smart, String>,
}

/// What they counted between two looks, beside our bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// Bytes read and written; or why that is not known.
    pub theirs: Result<(u64, u64), String>,
    pub ours: (u64, u64),
}

/// Of several drives added up.
fn look(nodes: &[PathBuf]) -> Result<Smart, String> {
    let mut sum = Smart { read: 0, written: 0 };
    for node in nodes {
        let one = machine::smart(node).map_err(|error| error.to_string())?;
        sum = Smart { read: sum.read + one.read, written: sum.written + one.written };
    }
    Ok(sum)
}

impl Drives {
    /// A look before. None: there is no NVMe namespace among the nodes.
    pub fn look(nodes: Vec<PathBuf>) -> Option<Self> {
        let before = look(&nodes);
        (!nodes.is_empty()).then_some(Self { nodes, before })
    }

    /// A look after so many bytes of ours were read and written.
    pub fn counted(self, ours: (u64, u64)) -> Counted {
        let theirs = self.before.and_then(|before| {
            let after = look(&self.nodes)?;
            Ok((after.read.saturating_sub(before.read), after.written.saturating_sub(before.written)))
        });
        Counted { theirs, ours }
    }
}

impl Counted {
    /// A line for people.
    pub fn line(&self) -> String {
        let (read, written) = self.ours;
        match &self.theirs {
            Err(why) => format!("SMART: not read: {why}"),
            Ok((smart_read, smart_written)) => format!(
                "SMART: the drive counted {} bytes read and {} written (whole units of {}, all users of the drive); we \
                 read {read} and wrote {written}",
                smart_read,
                smart_written,
                Smart::UNIT
            ),
        }
    }

    pub fn json(&self) -> Value {
        let (read, written) = self.ours;
        let theirs = self.theirs.as_ref().ok();
        json!({
            "read_bytes": theirs.map(|theirs| theirs.0),
            "written_bytes": theirs.map(|theirs| theirs.1),
            "unit": Smart::UNIT,
            "our_read_bytes": read,
            "our_written_bytes": written,
            "error": self.theirs.as_ref().err(),
        })
    }
}

/// All of it for the table of arms.
#[derive(Debug, Default)]
pub struct Honest {
    /// The run before the table, which may find the device, memory and mappings cold.
    pub first: Option<Outcome>,
    pub smart: Option<Counted>,
    pub ceilings: Option<Ceilings>,
    pub beside: Option<Beside>,
}

impl Honest {
    /// Lines for people. `best`: the fastest arm.
    pub fn lines(&self, best: f64) -> Vec<String> {
        let first = self.first.as_ref().map(|first| {
            let (gbps, bytes) = (first.spent.gbps(first.bytes), human(first.bytes));
            format!("first run, apart (device and memory may be cold): {gbps:.3} GB/s over {bytes}")
        });
        let smart = self.smart.as_ref().map(Counted::line);
        let ceilings = self.ceilings.as_ref().map(|it| it.line(best));
        first.into_iter().chain(smart).chain(ceilings).collect()
    }

    pub fn json(&self, all: &mut Value, best: f64) {
        all["first_run"] = self.first.as_ref().map_or(
            Value::Null,
            |first| json!({ "bytes": first.bytes, "gbps": first.spent.gbps(first.bytes) }),
        );
        all["smart"] = self.smart.as_ref().map_or(Value::Null, Counted::json);
        all["ceilings"] = self.ceilings.as_ref().map_or(Value::Null, |it| it.json(best));
        if let Some(beside) = &self.beside {
            all["compare"] = beside.json();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_ceiling_binds() {
        let host = Ceilings { device: 4.0, links: Vec::new() };
        assert_eq!(host.binds(), ("device", 4.0));
        assert!(host.line(3.0).contains("no link: host memory; the device binds, and the best reached 75 %"));
        let one = Ceilings { device: 4.0, links: vec![(0, 3.0)] };
        assert_eq!((one.binds(), one.json(1.5)["best_of_ceiling"].as_f64()), (("link", 3.0), Some(0.5)));
        // Two links together carry more than the device gives.
        assert_eq!(Ceilings { device: 4.0, links: vec![(0, 3.0), (1, 3.0)] }.binds(), ("device", 4.0));
    }

    #[test]
    fn a_drive_that_cannot_be_asked_says_why() {
        assert!(Drives::look(Vec::new()).is_none());
        let counted = Drives::look(vec!["/dev/null".into()]).unwrap().counted((5, 0));
        let line = counted.line();
        assert!(line.starts_with("SMART: not read: ") && line.contains("/dev/null"), "{line}");
        assert!(counted.json()["read_bytes"].is_null() && counted.json()["error"].is_string());
        let counted = Counted { theirs: Ok((512_000, 0)), ours: (500_000, 0) };
        assert!(counted.line().contains("512000 bytes read and 0 written"), "{}", counted.line());
    }
}
