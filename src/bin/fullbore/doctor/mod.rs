//! `fullbore doctor`: says which path bytes would take on this machine, and what stands in the way of a better one.

mod describe;
mod facts;
mod gather;
mod json;
mod judge;
pub mod quick;
mod text;

use crate::failure::Failure;
use crate::stop;
pub use facts::Measured;
pub use gather::memory_limit;
use judge::Level;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Say which path bytes would take here, what stands in the way of a better one, and the command against it
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Files, folders, block devices, NVMe namespaces (/dev/ng0n1), DAX devices
    /// [default: every namespace, DAX device and GPU to be seen, and the temp folder]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// The same facts for programs
    #[arg(long)]
    pub json: bool,
    /// Read each device (and copy to each GPU) for 3 seconds as well
    #[arg(long = "quick-bench", alias = "quick_bench")]
    pub quick_bench: bool,
    /// Ask cuFile even where nothing shows that it could be direct (it may leave a cufile.log here)
    #[arg(long = "ask-cufile", alias = "ask_cufile")]
    pub ask_cufile: bool,
}

const AFTER_HELP: &str = "\
It writes to no device, changes no setting and loads no module; of a folder it
makes a file of 1 MiB in it, looks, and removes it. What can be tried is tried.
Without root it sees less, and says what. GPUs are always looked at.
Exit status: 0 the best path is open everywhere, 1 something can be mended,
2 it could not run, 130 Ctrl-C.";

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    stop::install()?;
    let facts = gather::facts(&args)?;
    stop::check()?;
    let findings = judge::judge(&facts);
    let status = u8::from(judge::worst(&findings) != Level::Ok);
    let report = if args.json {
        format!("{:#}\n", json::report(&facts, &findings, status))
    } else {
        text::report(&facts, &findings, text::Paint(colours()))
    };
    match std::io::stdout().write_all(report.as_bytes()).and_then(|()| std::io::stdout().flush()) {
        // `head` has read enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Setup(format!("the report cannot be written: {error}: is the disk full?")))
        }
        _ => Ok(status.into()),
    }
}

/// Colours are for people who look at a terminal, and did not say that they want none (no-color.org).
fn colours() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value: std::ffi::OsString| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stdout().is_terminal() && !set("NO_COLOR") && !dumb
}
