//! The command line as fio reads it: `--key=value`, `--key value`, `--name=` starts a job, other words are job files.

use std::path::{Path, PathBuf};

use super::ini;
use super::keys::{self, Kind};
use super::script::{At, Script, Section, Setting};
use crate::failure::Failure;

const OF_JOBS: &str = "it is of jobs, not of the table of arms";

/// A word that names a key: without its hyphens, and the value behind `=`.
fn option(word: &str) -> Option<(&str, Option<&str>)> {
    // A hyphen alone is a job file: the standard input.
    let text = word.strip_prefix("--").or_else(|| word.strip_prefix('-').filter(|rest| !rest.is_empty()))?;
    Some(text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value))))
}

/// Whether the next word is the value.
fn takes_next(name: &str) -> bool {
    keys::find(name).is_ok_and(|key| !key.kind.may_be_bare())
}

/// Whether the words ask for jobs: one is named, or a job file is.
pub fn asks_for_jobs(words: &[String]) -> bool {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some((name, value)) = option(word) else { return true };
        if keys::find(name).is_ok_and(|key| matches!(key.name, "name" | "replay")) {
            return true;
        }
        if value.is_none() && takes_next(name) {
            words.next();
        }
    }
    false
}

/// Why a word is none of the table of arms, if it is none.
pub fn check_arms(words: &[String]) -> Result<(), Failure> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some((name, value)) = option(word) else { continue };
        let refuse = |why: String| Err(Failure::Setup(format!("--{name}: {why}")));
        match keys::find(name) {
            Ok(key) if key.is_of_arms() => {}
            Ok(_) => {
                return refuse(format!("{OF_JOBS}: name one with --name=NAME, or give a job file"));
            }
            Err(why) => return refuse(why),
        }
        if value.is_none() && takes_next(name) {
            words.next();
        }
    }
    Ok(())
}

/// What a line is being made into.
#[derive(Default)]
struct Reader {
    script: Script,
    defaults: Vec<Setting>,
    current: Option<Section>,
}

impl Reader {
    fn end_section(&mut self) {
        self.script.sections.extend(self.current.take());
    }

    fn take(&mut self, setting: Setting) {
        if setting.key.name == "name" {
            self.end_section();
            if setting.text() != "global" {
                let (name, inherited) = (setting.text().to_owned(), self.defaults.clone());
                self.current = Some(Section { name, inherited, own: Vec::new(), swept: None });
            }
        } else if setting.key.is_of_the_run() {
            self.script.run.push(setting);
        } else if let Some(section) = &mut self.current {
            section.own.push(setting);
        } else {
            self.defaults.push(setting);
        }
    }
}

/// Reads the words, and the job files among them. `env` answers the environment's variables.
pub fn read(words: &[String], env: &dyn Fn(&str) -> Option<String>) -> Result<Script, Failure> {
    let mut reader = Reader::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some((name, value)) = option(word) else {
            // As in fio, a hyphen alone is a job file on stdin.
            reader.script.files.push(PathBuf::from(if word == "-" { "/dev/stdin" } else { word }));
            continue;
        };
        let bare = matches!(keys::find(name), Ok(key) if key.kind == Kind::Bool);
        let value = match value {
            Some(value) => Some(value.to_owned()),
            None if takes_next(name) => words.next().cloned(),
            // As in fio, a number behind such a key is its value: `--direct 1`.
            None if bare => match words.as_slice().first().map(String::as_str) {
                Some("0" | "1") => words.next().cloned(),
                _ => None,
            },
            None => None,
        };
        reader.take(Setting::new(name, value.as_deref(), At::CommandLine)?);
    }
    reader.end_section();
    let replays = reader.defaults.iter().any(|setting| setting.key.name == "replay");
    if replays && reader.script.sections.is_empty() && reader.script.files.is_empty() {
        let inherited = reader.defaults.clone();
        let section = Section { name: "replay".into(), inherited, own: Vec::new(), swept: None };
        reader.script.sections.push(section);
    }
    let Reader { mut script, defaults, .. } = reader;
    let wanted: Vec<String> = script
        .run
        .iter()
        .filter(|setting| setting.key.name == "section")
        .map(|setting| setting.text().to_owned())
        .collect();
    if let ([], Some(setting)) = (&script.files[..], script.run_setting("section")) {
        return Err(setting.refuse("it picks sections of job files: name one, or leave it out"));
    }
    for file in script.files.clone() {
        let mut sections = ini::read(&file, &defaults, env)?;
        sections.retain(|section| wanted.is_empty() || wanted.contains(&section.name));
        script.sections.extend(sections);
    }
    if script.sections.is_empty() {
        return Err(nothing(&script.files, &wanted));
    }
    Ok(script)
}

fn nothing(files: &[PathBuf], wanted: &[String]) -> Failure {
    let names = files.iter().map(|file| Path::display(file).to_string()).collect::<Vec<_>>().join(", ");
    Failure::Setup(match (files, wanted) {
        ([], _) => "no job: name one with --name=NAME, or give a job file".into(),
        (_, []) => format!("{names}: no job in it: begin one with [name]"),
        _ => format!("{names}: no section {}: check --section", wanted.join(", ")),
    })
}
