//! What measured rates are held against: ceilings that are measured in the same run, and what the drive itself counted.

use std::path::PathBuf;

use fullbore::machine::{self, Smart};
use serde_json::{Value, json};

use crate::arm::Outcome;
use crate::ceilings;
use crate::pairs::Beside;
use crate::units::human;

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
    pub ceilings: Option<ceilings::Found>,
    pub beside: Option<Beside>,
}

impl Honest {
    /// Lines for people. `best`: the fastest arm.
    pub fn lines(&self, best: f64, swept: bool) -> Vec<String> {
        let first = self.first.as_ref().map(|first| {
            let (gbps, bytes) = (first.gbps(), human(first.bytes));
            format!("first run, apart (device and memory may be cold): {gbps:.3} GB/s over {bytes}")
        });
        let smart = self.smart.as_ref().map(Counted::line);
        // Those of a sweep are below its table.
        let ceilings = self.ceilings.as_ref().filter(|_| !swept).map(|found| ceilings::line(found, best));
        first.into_iter().chain(smart).chain(ceilings).collect()
    }

    pub fn json(&self, all: &mut Value, best: f64) {
        all["first_run"] = self
            .first
            .as_ref()
            .map_or(Value::Null, |first| json!({ "bytes": first.bytes, "gbps": first.gbps() }));
        all["smart"] = self.smart.as_ref().map_or(Value::Null, Counted::json);
        let measured = self.ceilings.as_ref().and_then(|found| found.as_ref().ok());
        all["ceilings"] = measured.map_or(Value::Null, |it| it.json(best));
        if let Some(beside) = &self.beside {
            all["compare"] = beside.json();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
