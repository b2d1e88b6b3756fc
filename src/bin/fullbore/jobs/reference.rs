//! The help and the reference page, both from the table of keys.

use std::fmt::Write;

use super::keys::{self, Key, Scope};
#[cfg(test)]
use super::unsupported::UNSUPPORTED;

/// What `--help` says: the keys that are used most.
pub const SHORT: &str = "\
Measures loads and stores of large objects, in fio's language.

Usage: fullbore bench [--key=value ...]             a table: a serial loop beside 1 to 32 objects in flight
       fullbore bench --name=JOB [--key=value ...]  jobs, each of fio's kind; --name starts the next
       fullbore bench [--key=value ...] FILE...     job files of fio's kind

  --filename=PATH     file, block device, NVMe namespace (/dev/ng0n1) or DAX device; A:B with --stripe
  --rw=HOW            read, write, randread, randwrite; of jobs also rw and randrw
  --bs=SIZE           bytes of an object (20m; of jobs 4k)
  --iodepth=N         objects in flight (1 2 4 8 16 32 in turn; of jobs 1)
  --numjobs=N         threads that submit
  --size=SIZE         bytes of the file to use
  --runtime=TIME      end after so long; with --time_based for all of it
  --mem=WHERE         host, or gpu:0
  --cmd_size=SIZE     bytes of a command (128k; 512k to tmpfs); --lane_depth, --lanes: how many are in flight
  --verify            check every byte; on in the table, where --verify=0 leaves it out
  --allow-destructive let writes go to what is there already
  --compare=RIVAL     run fio, or serial, in turns with the engine
  --sweep=KEY=A,B,C   all of it once for each value: a table and a curve against the ceilings
  --output-format=F   normal, json, csv, html; of jobs also json+; --output=FILE
  --showcmd           print job files as command lines

Sizes are 4096, 128k, 20m or 1g (k is 1024), times 10, 10s, 2m or 500ms.
With no option it makes a 1 GiB file, measures it and removes it.
--help-all lists every key. Exit status: 1 a transfer failed or a byte is wrong,
2 it could not start, 130 Ctrl-C.
";

/// What `--help-all` says.
pub fn help_all() -> String {
    let mut out = String::from(SHORT);
    for (title, scope) in SCOPES {
        let _ = write!(out, "\n{title}:\n");
        for key in keys::all().filter(|key| key.scope == *scope) {
            let head = format!("  --{} ({})", names(key).join(", --"), key.kind.name());
            out.push_str(&wrapped(&head, &both(key)));
        }
    }
    out.push_str(REMARKS);
    out
}

/// The text beside its head, in a column of its own.
fn wrapped(head: &str, text: &str) -> String {
    const COLUMN: usize = 34;
    const WIDTH: usize = 110;
    let (mut out, mut at) = (format!("{head:<COLUMN$}"), head.len().max(COLUMN));
    for word in text.split_whitespace() {
        if at + word.len() >= WIDTH || (at > COLUMN && at == head.len()) {
            out = out.trim_end().to_owned() + "\n" + &" ".repeat(COLUMN);
            at = COLUMN;
        }
        out += word;
        out.push(' ');
        at += word.len() + 1;
    }
    out.trim_end().to_owned() + "\n"
}

const SCOPES: &[(&str, Scope)] = &[
    ("Jobs and the table of arms", Scope::Both),
    ("Jobs", Scope::Job),
    ("The table of arms", Scope::Arms),
    ("Runs of either", Scope::All),
    ("Runs of jobs", Scope::Run),
];

const REMARKS: &str = "
The table of arms. Column `commands`: the most in flight, the deepest of each lane added up. Column `CPU s/GiB`: all
threads of the process, kernel workers included. The serial arm is a loop of one command, wait, next: pread or pwrite
with O_DIRECT. Of an NVMe namespace it uses the block device (/dev/nvme0n1), and so does the check of content that is
not ours.
";

fn names(key: &Key) -> Vec<&'static str> {
    [key.name].into_iter().chain(key.aliases.iter().copied()).collect()
}

/// What fio means, and what is to be said of it here.
fn both(key: &Key) -> String {
    match (key.fio, key.ours) {
        ("", ours) => ours.into(),
        (fio, "") => fio.into(),
        (fio, ours) => format!("{fio}. Here: {ours}"),
    }
}

/// `docs/bench-keys.md`, which a test compares and writes.
#[cfg(test)]
pub fn page() -> String {
    let mut out = String::from(HEAD);
    for (title, scope) in SCOPES {
        let _ = write!(out, "\n### {title}\n\n| key | value | in fio | here |\n|---|---|---|---|\n");
        for key in keys::all().filter(|key| key.scope == *scope) {
            let names = names(key).iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let fio = if key.fio.is_empty() { "-" } else { key.fio };
            let ours = if key.ours.is_empty() { "the same" } else { key.ours };
            let _ = writeln!(out, "| {names} | {} | {} | {} |", key.kind.name(), cell(fio), cell(ours));
        }
    }
    out.push_str("\n## Keys of fio that are refused\n\n| keys | why |\n|---|---|\n");
    for (names, why) in UNSUPPORTED {
        let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ");
        let _ = writeln!(out, "| {names} | {} |", cell(why));
    }
    out
}

/// A bar would end the cell.
#[cfg(test)]
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
const HEAD: &str = "\
# The keys of `fullbore bench`

This page is made from the table that the program reads (`src/bin/fullbore/jobs/table.rs`) and compared with it by a test.
What fio means by a key is said of fio 3.33.

`bench` has two forms. With a job (`--name=NAME`, or a job file) it runs jobs as fio does. Without, it makes the *table of
arms*: a serial loop, then the engine with 1 to 32 objects in flight, each byte checked.

## What is different from fio

- **An I/O is an object**: one transfer of `bs` bytes, which the engine cuts into commands of `cmd_size`. IOPS are objects a
  second, `iodepth` is objects in flight. `bs=128k` with the default `cmd_size` is one command an object, fio's own shape.
- **One engine a job.** Its clones (`numjobs`) share the engine's lanes; each has a thread and a client. `direct` is 1 unless
  it is said otherwise.
- **Times**: `slat` is from submission to the first command, `clat` from there to the last result, `lat` the sum; the
  engine's own clocks, so that a caller who looks late adds nothing.
- **CPU** (`usr_cpu`, `sys_cpu`, `ctx`): of the job's threads and of its lanes, so that it may pass 100 %; lanes that clones
  share are counted to each by its bytes.
- **Files that are there are not overwritten** without `allow-destructive`, not lengthened, and not laid out anew. A file that
  is not there is made, filled with content of ours before the clock starts, and stays (`unlink=1` removes it). A file that an
  earlier job of the same run made may be written.
- **What rates are held against**: `compare` and `ceilings` are measured after all jobs, and are in `fullbore.beyond` of the
  JSON (csv has rows alone); ceilings are in the object `fullbore` of each job besides (null: not measured). The device's are
  deep reads by an engine of its own with default lanes and commands, so that no key under test is in them. Of NVMe namespaces
  `fullbore.smart` has what the drive's SMART log counted while the jobs ran (as root; all users of the
  drive, whole units of 512000 bytes; what ran in a `ramp_time` is in it and not in ours) beside our bytes.
- **The first run of a cold device is apart** (`first_run`): a job moves its first objects once before its clock; what that came
  to is in `fullbore.first_run` and in no other number, except the drive's own count. Of `compare` the first pair is apart.
- **What the time of an object went to** (`fullbore.split_mean_ns`, means that add up to that of `lat`): waiting for room
  (nothing of it is under way), the device (some of it is), copies to or from a GPU (they are under way, and nothing is with the
  device: a copy that the device's time hides costs none).
- **Sweeps** (`sweep`) are in `fullbore.sweep` of the JSON, the same for jobs and the table of arms: key, values, a row for
  each point, ceilings with the values that they are of. The table of arms has its whole report for each value in
  `fullbore.runs`.
- **KV caches and loops over requests** (`workload=kv`, `requests`) are of the table of arms. In a job they are refused: a
  request holds all its objects, of sizes that follow from the model, so that `bs`, `iodepth`, `size` and `rate` of a job would
  mean nothing.
- **Content is checked after the clock** (`verify`): no check is in the time that is measured.
- The files of all jobs are looked at before the first of them runs; a job opens its own when its turn comes, after those before
  a `stonewall` have ended.
- **Sizes**: k, m, g, t and p are powers of 1024, with or without i, b or ib behind (fio's 16kib is 16000 bytes, unless
  kb_base=1000), and whole numbers may have them, too; what begins with 0x is hexadecimal. No sums in values.
- **Job files**: `;` and `#` begin comments anywhere in a line, as in fio. `${NAME}` that is not set is an error, where fio puts
  in nothing. A key that stands alone is 1 where it is a bool, too. `$jobname` and its like are not known. `-` is the standard
  input, as in fio.
- **Nothing is passed over in silence**: a key that is not in the tables below, or a value that cannot be had, ends the run
  before it starts, with the place where it stood.
- The JSON has fio's fields, and in each job an object `fullbore`: path and reason, lanes, bytes by path, commands and
  objects in flight, CPU seconds a GiB, what was verified. Of commands in flight the most is each lane's
  own (after an enter), added up: a bound, above what was in flight at once where that was little. The mean is the time of all
  commands by that of the clock.

## Keys
";

#[cfg(test)]
mod tests {
    use super::*;

    /// Run with FULLBORE_WRITE_DOCS=1 to write the page.
    #[test]
    fn the_page_is_made_from_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/bench-keys.md");
        if std::env::var_os("FULLBORE_WRITE_DOCS").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        let there = std::fs::read_to_string(path).unwrap();
        assert!(
            there == page(),
            "docs/bench-keys.md is not of this table: FULLBORE_WRITE_DOCS=1 cargo test writes it"
        );
    }

    #[test]
    fn help_has_every_key_and_the_short_one_fits_a_screen() {
        let help = help_all();
        for key in keys::all() {
            assert!(help.contains(&format!("--{}", key.name)), "{}", key.name);
        }
        assert!(help.lines().all(|line| line.len() <= 120), "{help}");
        assert!(SHORT.lines().count() < 36 && SHORT.lines().all(|line| line.len() <= 110));
    }
}
