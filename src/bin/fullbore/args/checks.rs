//! What can be checked of a command line before anything is opened. Each refusal is one line with its remedy.

use std::time::Duration;

use fullbore::Lanes;

use super::{ALIGN, BenchArgs, MOST_TRANSFERS, refuse};
use crate::failure::Failure;
use crate::options::Rival;
use crate::units;

impl BenchArgs {
    pub(super) fn check_numbers(&self) -> Result<(), Failure> {
        let numbers = [
            ("iodepth", self.iodepth.unwrap_or(1), 4096),
            ("numjobs", self.numjobs, 256),
            ("lanes", if let Lanes::Count(lanes) = self.lanes { lanes } else { 1 }, 64),
            ("lane_depth", self.lane_depth as usize, 4096),
            ("processes", self.processes as usize, 1024),
        ];
        for (name, value, most) in numbers {
            if value == 0 || value > most {
                return refuse(format!("--{name}={value} is out of range: give 1 to {most}"));
            }
        }
        let of_arms = self.more.arm.iter().flat_map(|arms| arms.depths.iter().copied()).max();
        let objects = self.iodepth.or(of_arms).unwrap_or(1).saturating_mul(self.numjobs);
        if objects > MOST_TRANSFERS {
            return refuse(format!(
                "--iodepth (or --arm) and --numjobs make {objects} objects in flight: lower one, to {MOST_TRANSFERS} or less"
            ));
        }
        Ok(())
    }

    pub(super) fn check_sizes(&self) -> Result<(), Failure> {
        let sizes = [("bs", Some(self.bs)), ("cmd_size", self.cmd_size)];
        for (name, value) in sizes.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            if value == 0 || value % ALIGN != 0 {
                return refuse(format!("--{name}={value} is not a multiple of 4k: give one, like 128k"));
            }
        }
        if let Some(given) = self.cmd_size.filter(|bytes| *bytes > 16 << 20).map(units::short) {
            return refuse(format!("--cmd_size={given} is more than any device takes: give 16m or less"));
        }
        if self.bs > 1 << 40 {
            return refuse(format!("--bs={} is too large an object: give 1t or less", units::short(self.bs)));
        }
        if self.size.is_some_and(|size| size < self.bs) {
            let (size, bs) = (units::short(self.size.unwrap_or(0)), units::short(self.bs));
            return refuse(format!(
                "--size={size} does not hold one object of --bs={bs}: raise it or lower --bs"
            ));
        }
        Ok(())
    }

    pub(super) fn check_combinations(&self) -> Result<(), Failure> {
        if self.time_based && self.runtime.is_none() {
            return refuse("--time_based needs a time: add --runtime=10s");
        }
        let runtime = self.more.seconds.or(self.runtime);
        if runtime == Some(Duration::ZERO) {
            return refuse("--runtime=0 measures nothing: give a time like 10s, or leave it out");
        }
        let (fio, rival) = (self.compare == Some(Rival::Fio), self.compare.map_or("", Rival::name));
        if self.compare.is_some() && self.rw.writes() {
            let rw = self.rw.name();
            return refuse(format!(
                "--compare={rival} does not do --rw={rw}: compare with --rw=read or randread"
            ));
        }
        if self.compare.is_some() && runtime.is_some() {
            return refuse(format!(
                "--compare={rival} moves the same bytes on both sides: leave out --runtime, use --size"
            ));
        }
        if self.allow_destructive && !self.rw.writes() {
            return refuse("--allow-destructive is only for writing: add --rw=write or leave it out");
        }
        if fio && self.stripe.is_some() {
            return refuse("--compare=fio knows no stripes: compare on one file or device, without --stripe");
        }
        Ok(())
    }

    pub(super) fn check_stripe(&self, files: usize) -> Result<(), Failure> {
        match self.stripe {
            None if files > 1 => refuse(format!(
                "{files} files in --filename: add --stripe=1m to make one of them (or write \\:)"
            )),
            Some(_) if files < 2 => {
                refuse("--stripe needs several files or devices: give --filename=A:B, or leave it out")
            }
            Some(chunk) if chunk == 0 || chunk % ALIGN != 0 || chunk > 1 << 30 => refuse(format!(
                "--stripe={chunk} is not a chunk size: give a multiple of 4k up to 1g, like 1m"
            )),
            _ => Ok(()),
        }
    }
}
