//! fio's language: jobs on the command line and in job files, run by the engine, reported in fio's forms.

use std::ffi::OsString;
use std::io::{self, Write};

use crate::failure::Failure;
use crate::fio::Fio;
use crate::options::Rival;
use crate::stop;

mod ini;
pub mod keys;
mod line;
mod reference;
mod replay;
mod report;
mod run;
#[cfg(test)]
mod run_tests;
mod script;
mod spec;
mod sweep;
mod table;
#[cfg(test)]
mod tests;
mod unsupported;
mod value;
mod words;

pub use reference::{SHORT as SHORT_HELP, help_all};
use report::{Report, Said};
use spec::Job;
pub use words::checks;

/// Looks at the words behind `bench`: answers what became of them, or `None` when they ask for the table of arms.
pub fn front(words: &[OsString]) -> Option<Result<(), Failure>> {
    // A file name that is no text is for the table of arms; jobs are text.
    let odd = words.iter().find(|word| word.to_str().is_none());
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(odd) = odd {
        let why = format!("{}: jobs are text: write it in UTF-8", odd.to_string_lossy());
        return line::asks_for_jobs(&words).then_some(Err(Failure::Setup(why)));
    }
    for word in &words {
        match word.trim_start_matches('-') {
            "help-all" if word.starts_with('-') => return Some(print(&reference::help_all())),
            "help" | "h" if word.starts_with('-') => return Some(print(reference::SHORT)),
            _ => {}
        }
    }
    if line::asks_for_jobs(&words) {
        return Some(run_jobs(&words));
    }
    line::check_arms(&words).err().map(Err)
}

/// A reader that went away is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Setup(format!("this cannot be printed: {error}: is the disk full?")))
        }
        _ => Ok(()),
    }
}

fn run_jobs(words: &[String]) -> Result<(), Failure> {
    let mut script = line::read(words, &|name| std::env::var(name).ok())?;
    Said::of(&script)?;
    if script.has("showcmd") {
        return print(&format!("{}\n", script.command_line()));
    }
    sweep::expand(&mut script)?;
    let jobs = script.sections.iter().map(Job::of).collect::<Result<Vec<_>, _>>()?;
    if script.has("readonly")
        && let Some(job) = jobs.iter().find(|job| job.rw.writes)
    {
        let (name, rw) = (&job.name, job.rw.name());
        return Err(Failure::Setup(format!(
            "job {name}: rw={rw} writes: leave out --readonly, or write rw=read"
        )));
    }
    if script.has("parse-only") {
        return Ok(());
    }
    if jobs.iter().any(|job| job.compare == Some(Rival::Fio)) {
        // Said now, not when all jobs have run.
        Fio::find()?;
    }
    stop::install()?;
    let mut report = Report::new(&script, &jobs)?;
    run::run(&jobs, &mut report)
}
