//! Ceilings: how fast the parts of the way are by themselves, measured in the same run as what is held against them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore::{Engine, OpenOptions, Target};
use serde_json::{Value, json};

use crate::doctor::{Measured, quick};
use crate::failure::Failure;
use crate::stop;
use crate::units::count;

/// Time of one measurement.
const TIME: Duration = Duration::from_secs(1);

/// How fast the parts of a way are, in 10^9 bytes a second.
#[derive(Debug, Clone, PartialEq)]
pub struct Ceilings {
    /// Deep reads of the device to host memory.
    pub device: f64,
    /// Copies of pinned memory to each GPU.
    pub links: Vec<(u32, f64)>,
}

/// What is said where something was faster.
const OTHERS: &str = "a ceiling is a second of deep reads into 64 MiB: what is over sooner, has the device more to itself, or lands in less \
     memory, which stays in the CPU's caches, may pass it";

/// Ceilings, or why there are none.
pub type Found = Result<Ceilings, String>;

/// What they are measured of.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Way {
    pub files: Vec<PathBuf>,
    pub stripe: Option<u64>,
    pub mapped: bool,
    pub buffered: bool,
    /// That share the drive's tags.
    pub processes: u32,
    pub gpus: Vec<u32>,
    pub writes: bool,
}

/// What was measured so far, and how often.
#[derive(Debug, Default)]
pub struct Known(Vec<(Way, Found, usize)>);

/// Measurements of one way at most.
const OFTEN: usize = 8;

impl Known {
    /// Measures the ceilings of a way, also where they are known: of several measurements the best is kept, since what is
    /// lower had others on the device. That there are none is a failure only where they were asked for.
    pub fn measure(&mut self, way: &Way, asked: bool) -> Result<Found, Failure> {
        if way.writes {
            return Ok(Err("the device's ceiling is by deep reads, which is none of what writes".into()));
        }
        let index = match self.0.iter().position(|(known, ..)| known == way) {
            Some(index) => index,
            None => {
                self.0.push((way.clone(), Err("nothing was tried".into()), 0));
                self.0.len() - 1
            }
        };
        let (_, found, times) = &mut self.0[index];
        if *times < OFTEN {
            let now = Ceilings::measure(way);
            stop::check()?;
            *found = better(found, now);
            *times += 1;
        }
        match found {
            Err(why) if asked => Err(Failure::Data(format!("measuring ceilings: {why}"))),
            found => Ok(found.clone()),
        }
    }

    /// The best of all measurements of a way, if it was measured.
    pub fn best(&self, way: &Way) -> Option<&Found> {
        self.0.iter().find(|(known, ..)| known == way).map(|(_, found, _)| found)
    }
}

fn better(before: &Found, now: Found) -> Found {
    let (Ok(before), Ok(now)) = (before, &now) else {
        return if before.is_ok() { before.clone() } else { now };
    };
    let links = before.links.iter().zip(&now.links).map(|(a, b)| (a.0, a.1.max(b.1))).collect();
    Ok(Ceilings { device: before.device.max(now.device), links })
}

impl Way {
    /// By an engine of its own, so that neither few lanes nor small commands of what is under test are in it.
    fn engine(&self) -> Result<Engine, String> {
        Engine::builder().processes(self.processes.max(1)).build().map_err(|error| error.to_string())
    }

    fn target(&self, engine: &Engine) -> Result<Target, String> {
        let mut options = OpenOptions::read();
        if self.buffered {
            options = options.buffered();
        }
        if self.mapped {
            options = options.mapped();
        }
        let open = |file: &PathBuf| engine.open(file, options.clone()).map_err(|error| error.to_string());
        let Some(chunk) = self.stripe else {
            return match &self.files[..] {
                [] => Err("there is no file".into()),
                files if devices(files).len() > 1 => {
                    Err("the files are on several devices, which no single one is the ceiling of".into())
                }
                files => open(&files[0]),
            };
        };
        let members = self.files.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        engine.stripe(&members, chunk).map_err(|error| error.to_string())
    }
}

/// What files lie on, or are.
fn devices(files: &[PathBuf]) -> BTreeSet<Option<u64>> {
    let one = |file: &PathBuf| {
        let meta = fs::metadata(Path::new(file)).ok()?;
        let is_device = meta.file_type().is_block_device() || meta.file_type().is_char_device();
        Some(if is_device { meta.rdev() } else { meta.dev() })
    };
    files.iter().map(one).collect()
}

impl Ceilings {
    fn measure(way: &Way) -> Found {
        let gbps = |found: Measured| found.gbps();
        let engine = way.engine()?;
        let device = quick::target(&engine, &way.target(&engine)?, TIME).map(gbps)?;
        drop(engine);
        let mut links = Vec::new();
        for &gpu in &way.gpus {
            let engine = Engine::builder().lanes(1).build().map_err(|error| error.to_string())?;
            links.push((gpu, quick::gpu(&engine, gpu, TIME).map(gbps)?));
        }
        Ok(Self { device, links })
    }

    pub fn link(&self) -> Option<f64> {
        (!self.links.is_empty()).then(|| self.links.iter().map(|(_, gbps)| gbps).sum())
    }

    /// Which is the lower one, and how low.
    pub fn binds(&self) -> (&'static str, f64) {
        match self.link() {
            Some(link) if link < self.device => ("link", link),
            _ => ("device", self.device),
        }
    }

    /// A rate's share of the lower one.
    pub fn share(&self, gbps: f64) -> f64 {
        gbps / self.binds().1.max(1e-9)
    }

    /// How a rate can be clearly above the lower one, if it is.
    pub fn passed(&self, gbps: f64) -> Option<&'static str> {
        (self.share(gbps) > 1.05).then_some(OTHERS)
    }

    /// Each with what it is called in a chart: the device's, and the link's where there is one.
    pub fn named(&self) -> Vec<(f64, String)> {
        let binds = |which: &str| if self.binds().0 == which { ", which binds" } else { "" };
        let device = format!("device, deep reads: {:.3} GB/s{}", self.device, binds("device"));
        let link = self.link().map(|link| {
            let gpus = count(self.links.len() as u64, "GPU");
            (link, format!("link of {gpus}, pinned copies: {link:.3} GB/s{}", binds("link")))
        });
        [(self.device, device)].into_iter().chain(link).collect()
    }

    /// A line for people. `best`: the fastest that was measured.
    pub fn line(&self, best: f64) -> String {
        let (which, _) = self.binds();
        let link = match self.link() {
            None => "no link: host memory".into(),
            Some(link) => {
                format!("link {link:.3} GB/s (pinned copies to {})", count(self.links.len() as u64, "GPU"))
            }
        };
        let others = self.passed(best).map_or_else(String::new, |why| format!(" ({why})"));
        format!(
            "ceilings, measured: device {:.3} GB/s (deep reads to host memory), {link}; the {which} binds, and the \
             best reached {:.0} % of it{others}",
            self.device,
            100.0 * self.share(best)
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
            "best_of_ceiling": self.share(best),
        })
    }
}

/// The line of a report, and that of one without.
pub fn line(found: &Found, best: f64) -> String {
    match found {
        Ok(ceilings) => ceilings.line(best),
        Err(why) => format!("ceilings: not measured: {why}"),
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
        let names: Vec<String> = one.named().into_iter().map(|(_, name)| name).collect();
        assert!(
            !names[0].contains("binds") && names[1].contains("link of 1 GPU") && names[1].contains("binds")
        );
        // Two links together carry more than the device gives.
        assert_eq!(Ceilings { device: 4.0, links: vec![(0, 3.0), (1, 3.0)] }.binds(), ("device", 4.0));
    }

    #[test]
    fn of_several_measurements_the_best_is_kept() {
        let found = |device, link| Ok(Ceilings { device, links: vec![(3, link)] });
        assert_eq!(better(&found(4.0, 1.0), found(2.0, 3.0)), found(4.0, 3.0));
        assert_eq!(better(&Err("a".into()), found(2.0, 3.0)), found(2.0, 3.0));
        assert_eq!(better(&found(2.0, 3.0), Err("a".into())), found(2.0, 3.0));
        assert_eq!(better(&Err("a".into()), Err("b".into())), Err("b".into()));
        let slow = Ceilings { device: 1.0, links: Vec::new() };
        assert!(
            slow.line(2.0).contains("200 % of it (a ceiling is a second")
                && slow.line(1.0).ends_with("100 % of it")
        );
    }

    #[test]
    fn what_writes_or_cannot_be_read_has_none() {
        let mut known = Known::default();
        let writes = Way { writes: true, ..Way::default() };
        // Also where they were asked for: it is no failure of the run.
        assert!(known.measure(&writes, true).unwrap().unwrap_err().contains("reads"));
        let gone = Way { files: vec!["/nowhere/at/all".into()], ..Way::default() };
        assert!(known.measure(&gone, false).unwrap().is_err());
        let asked = known.measure(&gone, true).unwrap_err().to_string();
        assert!(asked.contains("measuring ceilings: ") && !asked.contains('\n'), "{asked}");
        let apart = Way { files: vec!["/dev/null".into(), "/proc/version".into()], ..Way::default() };
        let found = known.measure(&apart, false).unwrap();
        // Without rings there is another reason.
        assert!(found.unwrap_err().contains(if Engine::builder().build().is_ok() { "several" } else { "" }));
    }
}
