//! The program `fullbore`: measures with the engine. Each subcommand is a module of its own.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod args;
#[cfg(test)]
mod args_tests;
mod arm;
mod bench;
mod compare;
mod content;
mod counted;
mod direct;
mod doctor;
mod failure;
mod fio;
mod json;
mod member;
mod options;
mod place;
#[cfg(test)]
mod place_tests;
mod pool;
mod progress;
mod report;
mod requests;
mod rig;
mod serial;
mod stop;
mod units;
mod verify;
mod work;

/// Moves large objects between storage and memory at the rate of the device, and measures it
#[derive(Parser)]
#[command(version)]
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
    let result = match Cli::parse().command {
        Command::Bench(args) => bench::run(*args).map(|()| ExitCode::SUCCESS),
        Command::Doctor(args) => doctor::run(args),
    };
    match result {
        Ok(status) => status,
        Err(failure) => {
            eprintln!("fullbore: {failure}");
            failure.status().into()
        }
    }
}
