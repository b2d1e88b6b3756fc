//! The program `fullbore`: measures with the engine. Each subcommand is a module of its own.

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

mod args;
#[cfg(test)]
mod args_tests;
mod arm;
mod arms_page;
mod bench;
mod ceilings;
mod compare;
mod content;
mod counted;
mod dates;
mod direct;
mod doctor;
mod failure;
mod fio;
mod honest;
mod html;
mod jobs;
mod json;
mod kv;
mod kv_workload;
mod lay_out;
mod member;
mod options;
mod pairs;
mod place;
#[cfg(test)]
mod place_tests;
mod pool;
mod progress;
mod report;
mod requests;
mod rig;
mod serial;
mod series;
mod sheets;
mod sink;
mod stop;
mod sweep;
mod threads;
mod timeline;
mod units;
mod verify;
mod work;

use failure::Failure;

/// Moves large objects between storage and memory at the rate of the device, and measures it
#[derive(Parser)]
#[command(version, after_help = "--help-all is the help of every command, with every key.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(Box<args::BenchArgs>),
    Doctor(doctor::Args),
}

fn main() -> ExitCode {
    match run() {
        Ok(status) => status,
        Err(failure) => {
            failure::tell(&failure);
            failure.status().into()
        }
    }
}

fn run() -> Result<ExitCode, Failure> {
    let words: Vec<OsString> = env::args_os().collect();
    if let Some(text) = help(&words) {
        return jobs::print(&text).map(|()| ExitCode::SUCCESS);
    }
    if words.get(1).is_some_and(|word| word == "bench")
        && let Some(result) = jobs::front(&words[2..])
    {
        return result.map(|()| ExitCode::SUCCESS);
    }
    let lines = if words.get(1).is_some_and(|word| word == "bench") {
        sweep::lines(words)?
    } else {
        vec![(words, None)]
    };
    // All values of a sweep are read before any of them runs.
    let mut plans = Vec::with_capacity(lines.len());
    for (words, swept) in lines {
        match parse(words)?.command {
            Command::Bench(args) => plans.push(args.plan()?.of_sweep(swept)),
            Command::Doctor(args) => return doctor::run(args),
        }
    }
    bench::run(plans).map(|()| ExitCode::SUCCESS)
}

/// Help that clap does not know: of bench, whose keys are in a table of their own, and of all.
fn help(words: &[OsString]) -> Option<String> {
    let words: Vec<_> = words.iter().skip(1).map(|word| word.to_str().unwrap_or_default()).collect();
    let whole = |name: &str| {
        let mut cli = Cli::command();
        cli.build();
        let of = cli.find_subcommand_mut(name).map(|command| command.render_long_help().to_string());
        of.unwrap_or_else(|| cli.render_long_help().to_string())
    };
    match words.as_slice() {
        ["help", "bench"] => Some(jobs::SHORT_HELP.to_owned()),
        ["doctor", "--help-all"] => Some(whole("doctor")),
        ["--help-all"] | ["help", "--help-all"] => {
            Some(format!("{}\n{}\n{}", whole(""), jobs::help_all(), whole("doctor")))
        }
        _ => None,
    }
}

fn parse(words: Vec<OsString>) -> Result<Cli, Failure> {
    match Cli::try_parse_from(words) {
        Ok(cli) => Ok(cli),
        // Help and version are no failures; and where a word is missing, all of them are told.
        Err(error) if error.exit_code() == 0 || error.kind() == MISSING => error.exit(),
        Err(error) => Err(Failure::Setup(one_line(&error.to_string()))),
    }
}

const MISSING: ErrorKind = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

/// The cause in a message of clap's: its first paragraph, the rest is about help.
fn one_line(text: &str) -> String {
    let cause = text.split("\n\n").next().unwrap_or(text).trim_start_matches("error: ");
    cause.lines().map(str::trim).collect::<Vec<_>>().join(" ") + ": see --help"
}
