//! What both front ends make of their text: sections with settings, in order, each with where it stood.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::keys::{self, Key, Kind};
use crate::failure::Failure;
use crate::sweep::Swept;
use crate::units::{self, quoted};

/// Where a setting stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    CommandLine,
    Line(Arc<str>, usize),
}

/// A key with its value.
#[derive(Debug, Clone)]
pub struct Setting {
    pub key: &'static Key,
    /// None: the key stood alone.
    pub value: Option<String>,
    pub at: At,
}

/// Closed loops over requests and KV caches are not jobs: their objects, sizes and depth are not those of a job.
const OF_ARMS: &str = "it is of the table of arms, which runs where no job is named";

impl PartialEq for Setting {
    /// Where they stood is not compared.
    fn eq(&self, other: &Self) -> bool {
        self.key.name == other.key.name && self.text() == other.text()
    }
}

impl Setting {
    /// Looks the key up, and checks that it belongs there and has a value if it needs one.
    pub fn new(name: &str, value: Option<&str>, at: At) -> Result<Self, Failure> {
        let wrong = |why: String| Err(refusal(&at, name, value, &why));
        let key = match keys::find(name) {
            Ok(key) => key,
            Err(why) => return wrong(why),
        };
        if key.is_of_the_run() {
            if matches!(at, At::Line(..)) {
                return wrong(format!(
                    "it is about the whole run: give it on the command line, --{}",
                    key.name
                ));
            }
        } else if !key.is_of_jobs() {
            return wrong(match at {
                At::CommandLine => format!("{OF_ARMS}: leave out --name and job files, or this key"),
                At::Line(..) => format!("{OF_ARMS}: give it on a command line without jobs, --{}", key.name),
            });
        }
        let value = value.map(|text| text.trim().to_owned());
        if !key.kind.may_be_bare() && value.as_deref().is_none_or(str::is_empty) {
            return wrong(format!("it needs a value, a {}: write {}=...", key.kind.name(), key.name));
        }
        if key.kind.may_be_bare()
            && let Err(why) = units::switch(value.as_deref().unwrap_or("1"))
        {
            return wrong(why);
        }
        Ok(Self { key, value, at })
    }

    /// The value; of a switch that stood alone, 1.
    pub fn text(&self) -> &str {
        self.value.as_deref().unwrap_or("1")
    }

    pub fn is_on(&self) -> bool {
        units::switch(self.text()).unwrap_or(false)
    }

    /// A refusal of it.
    pub fn refuse(&self, why: impl fmt::Display) -> Failure {
        refusal(&self.at, self.key.name, self.value.as_deref(), &why.to_string())
    }

    /// Reads the value.
    pub fn parse<T>(&self, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, Failure> {
        parse(self.text()).map_err(|why| self.refuse(why))
    }

    /// As a word of a command line.
    pub fn word(&self) -> String {
        match (&self.value, self.key.kind) {
            (None, Kind::Flag) => format!("--{}", self.key.name),
            _ => quoted(&format!("--{}={}", self.key.name, self.text())),
        }
    }
}

/// As much of a text as a message has room for, on one line.
pub fn cut(text: &str) -> String {
    const MOST: usize = 200;
    let end = if text.chars().nth(MOST).is_some() { "..." } else { "" };
    let shown = text.chars().take(MOST);
    shown.map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).chain(end.chars()).collect()
}

/// One line: where, what, and why not.
fn refusal(at: &At, name: &str, value: Option<&str>, why: &str) -> Failure {
    let (name, value) = (cut(name), value.map_or_else(String::new, |value| format!("={}", cut(value))));
    Failure::Setup(match at {
        At::CommandLine => format!("--{name}{value}: {why}"),
        At::Line(file, line) => format!("{file}:{line}: {name}{value}: {why}"),
    })
}

/// A refusal of something else at a line of a file.
pub fn refuse_line(file: &Arc<str>, line: usize, why: impl fmt::Display) -> Failure {
    Failure::Setup(format!("{file}:{line}: {why}"))
}

/// A job as it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    pub name: String,
    /// What it has from [global] sections and the head of the command line.
    pub inherited: Vec<Setting>,
    /// What it says itself.
    pub own: Vec<Setting>,
    /// The key and value of a sweep that it was made for.
    pub swept: Option<Swept>,
}

impl Section {
    /// All settings, the later ones to win.
    pub fn settings(&self) -> impl Iterator<Item = &Setting> {
        self.inherited.iter().chain(&self.own)
    }
}

/// A whole run as it was written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Script {
    pub sections: Vec<Section>,
    /// About the run.
    pub run: Vec<Setting>,
    /// Job files that were named.
    pub files: Vec<PathBuf>,
}

impl Script {
    /// The last setting of that name about the run.
    pub fn run_setting(&self, name: &str) -> Option<&Setting> {
        self.run.iter().rev().find(|setting| setting.key.name == name)
    }

    pub fn has(&self, name: &str) -> bool {
        self.run_setting(name).is_some_and(Setting::is_on)
    }

    /// The command line that says the same.
    pub fn command_line(&self) -> String {
        let mut words = vec!["fullbore".to_owned(), "bench".to_owned()];
        let mut common: &[Setting] = &[];
        for (number, section) in self.sections.iter().enumerate() {
            // A [global] section only adds to what is common, so what is new is at its end.
            let new = section.inherited.get(common.len()..).unwrap_or_default();
            if number > 0 && !new.is_empty() {
                words.push("--name=global".into());
            }
            words.extend(new.iter().map(Setting::word));
            common = &section.inherited;
            words.push(quoted(&format!("--name={}", section.name)));
            words.extend(section.own.iter().map(Setting::word));
        }
        words.join(" ")
    }
}
