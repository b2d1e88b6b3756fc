//! fio as a child: found on the PATH, given a job, read back, and never left behind.

use std::env;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::failure::Failure;
use crate::progress::Progress;
use crate::stop;
use crate::threads::refused;
use crate::units::{count, short};
use crate::work::Spent;

/// Buffers that a ring can register.
pub const MOST_BUFFERS: u64 = 16 << 10;

/// A fio that runs.
#[derive(Debug, Clone)]
pub struct Fio {
    program: PathBuf,
    pub version: String,
}

/// How fio reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FioEngine {
    /// Plain preads.
    Psync,
    /// A ring with registered buffers.
    Ring,
    /// The same, of NVMe passthrough commands.
    Passthrough,
}

/// What a job measured.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Run {
    /// 10^9 bytes a second.
    pub gbps: f64,
    pub cpu_s_per_gib: f64,
}

impl Run {
    pub fn of(spent: Spent, bytes: u64) -> Self {
        Self { gbps: spent.gbps(bytes), cpu_s_per_gib: spent.cpu_s_per_gib(bytes) }
    }
}

/// Reads of one file, in the words of fio. Each job has its own part of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FioJob {
    pub file: PathBuf,
    pub engine: FioEngine,
    pub bs: u64,
    pub depth: u64,
    pub jobs: u64,
    /// Commands of an object, where these come at random; each begins at a multiple of its size.
    pub random: Option<u64>,
    /// Where the bytes of the file begin that are read, again and again, by all jobs together; and how many they are.
    pub start: u64,
    pub region: u64,
    /// Bytes that are moved, by all jobs together.
    pub total: u64,
}

impl FioJob {
    /// Bytes of memory that it lands in: a buffer for each command in flight, used in no order but that of their ends.
    pub fn footprint(&self) -> u64 {
        self.jobs * self.depth * self.bs
    }

    /// How the commands of objects of `bs` come at random, if they do, or why fio cannot do that.
    pub fn random(is_random: bool, bs: u64, command: u64) -> Result<Option<u64>, &'static str> {
        match bs.is_multiple_of(command) {
            _ if !is_random => Ok(None),
            true => Ok(Some(bs / command)),
            false => Err("at random reads whole commands: make bs a multiple of cmd_size"),
        }
    }

    /// How many commands of which size, for people.
    pub fn words(&self) -> String {
        format!("{} of {} x {}", count(self.jobs, "job"), self.depth, short(self.bs))
    }

    fn arguments(&self) -> Vec<String> {
        let object = self.bs * self.random.unwrap_or(1);
        let share = |bytes: u64| (bytes / self.jobs / object * object).max(object);
        let part = share(self.region);
        let mut line = vec![
            "--name=fullbore".into(),
            format!("--filename={}", escape(&self.file)),
            match self.random {
                None => "--rw=read".into(),
                Some(1) => "--rw=randread".into(),
                Some(commands) => format!("--rw=randread:{commands}"),
            },
            "--readonly".into(),
            "--allow_file_create=0".into(),
            format!("--bs={}", self.bs),
            format!("--iodepth={}", self.depth),
            format!("--numjobs={}", self.jobs),
            "--thread".into(),
            "--group_reporting".into(),
            format!("--offset={}", self.start),
            format!("--size={part}"),
            format!("--offset_increment={part}"),
            format!("--io_size={}", share(self.total)),
            // It is asked for a rate only: its clocks per command would cost it.
            "--gtod_reduce=1".into(),
            "--eta=never".into(),
            "--output-format=json".into(),
        ];
        // Not of single commands: it would hit some twice, and others not.
        line.extend((object > self.bs).then(|| format!("--blockalign={object}")));
        line.extend(match self.engine {
            FioEngine::Psync => vec!["--ioengine=psync".into(), "--direct=1".into()],
            FioEngine::Ring => ring(&["--ioengine=io_uring", "--direct=1"]),
            // A character device is always direct, and fio refuses to ask for it.
            FioEngine::Passthrough => {
                ring(&["--ioengine=io_uring_cmd", "--cmd_type=nvme", "--nonvectored=1"])
            }
        });
        line
    }
}

/// What a ring is given besides.
fn ring(options: &[&str]) -> Vec<String> {
    let both = options.iter().chain(&["--fixedbufs", "--registerfiles"]);
    both.map(|&option| option.to_owned()).collect()
}

/// fio takes a colon for the start of another file name.
fn escape(path: &Path) -> String {
    path.to_string_lossy().replace('\\', "\\\\").replace(':', "\\:")
}

impl Fio {
    pub fn find() -> Result<Self, Failure> {
        let missing =
            || Failure::setup("--compare=fio finds no fio on the PATH: install it, or leave out --compare");
        let folders = env::var_os("PATH").unwrap_or_default();
        let program = env::split_paths(&folders)
            .map(|dir| dir.join("fio"))
            .find(|file| file.is_file())
            .ok_or_else(missing)?;
        let answer = Command::new(&program).arg("--version").output();
        let answer = answer.map_err(|error| {
            Failure::Setup(format!(
                "{} does not run: {error}: install it anew, or leave out --compare",
                program.display()
            ))
        })?;
        Ok(Self { program, version: String::from_utf8_lossy(&answer.stdout).trim().to_owned() })
    }

    /// Runs a job and answers what it measured.
    fn run(&self, job: &FioJob) -> Result<Run, Failure> {
        let mut command = Command::new(&self.program);
        command.args(job.arguments()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            Killed(command.spawn().map_err(|error| Failure::Setup(format!("starting fio: {error}")))?);
        let (out, err) = (child.0.stdout.take(), child.0.stderr.take());
        // A full pipe would stop it: both are emptied while it runs.
        thread::scope(|scope| {
            let readers = thread::Builder::new()
                .spawn_scoped(scope, || read_all(out))
                .and_then(|out| Ok((out, thread::Builder::new().spawn_scoped(scope, || read_all(err))?)));
            let (out, err) = readers.map_err(|error| {
                child.end();
                refused(error)
            })?;
            let status = loop {
                match child.0.try_wait().map_err(Failure::setup)? {
                    Some(status) => break status,
                    None if stop::requested() => return Err(child.end()),
                    None => thread::sleep(Duration::from_millis(20)),
                }
            };
            stop::check()?;
            let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
            match measured(&out) {
                Ok(run) if status.success() => Ok(run),
                result => {
                    let said = err.lines().chain(out.lines()).find(|line| line.starts_with("fio: "));
                    let found = || result.err().map_or(status.to_string(), |why| format!("{why} ({status})"));
                    let cause = said.map_or_else(found, str::to_owned);
                    let line = [vec![self.program.display().to_string()], job.arguments()].concat().join(" ");
                    Err(Failure::Setup(format!("fio failed: {cause}: run it by hand: {line}")))
                }
            }
        })
    }

    /// The same, with a sign of life.
    pub fn watched(&self, job: &FioJob, phase: &str) -> Result<Run, Failure> {
        let _progress = Progress::new(phase, None);
        self.run(job)
    }
}

fn read_all(pipe: Option<impl Read>) -> String {
    let mut text = Vec::new();
    if let Some(mut pipe) = pipe {
        // A pipe that breaks ends the text; the exit status tells why.
        let _ = pipe.read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// A child that does not outlive its holder.
struct Killed(Child);

impl Killed {
    fn end(&mut self) -> Failure {
        let _ = self.0.kill();
        let _ = self.0.wait();
        Failure::Stopped
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.end();
    }
}

/// The rate in fio's JSON, which words of it may precede, and the CPU time of its jobs' threads.
fn measured(text: &str) -> Result<Run, String> {
    let start = text.find('{').ok_or("it printed no JSON")?;
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
    let answer = values.next().and_then(Result::ok).ok_or("its JSON is cut short")?;
    let job = &answer["jobs"][0];
    match job["error"].as_i64() {
        Some(0) => {}
        Some(error) => return Err(format!("its jobs ended with error {error}")),
        None => return Err("its JSON has no jobs".into()),
    }
    let number = |key: &str| job["read"][key].as_f64().filter(|&value| value > 0.0);
    let (bytes, millis) =
        (number("io_bytes").ok_or("it read nothing")?, number("runtime").ok_or("it took no time")?);
    // Shares of the time of all jobs together.
    let percent = |key: &str| job[key].as_f64().unwrap_or(0.0);
    let cpu = (percent("usr_cpu") + percent("sys_cpu")) / 100.0 * percent("job_runtime") / 1000.0;
    Ok(Run { gbps: bytes / millis / 1e6, cpu_s_per_gib: cpu / (bytes / (1u64 << 30) as f64) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> FioJob {
        let file = PathBuf::from("/tmp/a:b");
        FioJob {
            file,
            engine: FioEngine::Ring,
            bs: 128 << 10,
            depth: 640,
            jobs: 2,
            random: None,
            start: 0,
            region: 1020 << 20,
            total: 5120 << 20,
        }
    }

    #[test]
    fn a_job_in_the_words_of_fio() {
        let line = job().arguments().join(" ");
        for part in [
            "--filename=/tmp/a\\:b",
            "--ioengine=io_uring",
            "--direct=1",
            "--fixedbufs",
            "--registerfiles",
            "--readonly",
            "--bs=131072",
            "--iodepth=640",
            "--numjobs=2",
            &format!("--size={0} --offset_increment={0}", 510 << 20),
            &format!("--io_size={}", 2560u64 << 20),
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        let command = FioJob { engine: FioEngine::Passthrough, ..job() }.arguments().join(" ");
        for part in ["--ioengine=io_uring_cmd", "--cmd_type=nvme", "--fixedbufs", "--readonly"] {
            assert!(command.contains(part), "{part} is not in {command}");
        }
        assert!(!command.contains("--direct"), "{command}");
        assert!(
            line.contains("--rw=read --") && line.contains("--offset=0 ") && !line.contains("blockalign")
        );
        let random = |commands| FioJob { random: Some(commands), start: 4096, ..job() }.arguments().join(" ");
        for (commands, part) in
            [(1, "--rw=randread --"), (160, "--rw=randread:160 "), (160, "--offset=4096 ")]
        {
            assert!(random(commands).contains(part), "{part} is not in {}", random(commands));
        }
        // Whole objects, of which 510 MiB hold 25.
        let (line, object) = (random(160), 20 << 20);
        assert!(line.contains(&format!("--size={} ", 25 * object)), "{line}");
        assert!(
            line.contains(&format!("--blockalign={object}")) && !random(1).contains("blockalign"),
            "{line}"
        );
        let plain = FioJob { engine: FioEngine::Psync, depth: 1, jobs: 1, ..job() }.arguments().join(" ");
        assert!(plain.contains("--ioengine=psync") && !plain.contains("fixedbufs"));
    }

    #[test]
    fn the_rate_is_bytes_over_time() {
        let good = r#"note {"jobs": [{"error": 0, "usr_cpu": 20.0, "sys_cpu": 30.0, "job_runtime": 4,
            "read": {"io_bytes": 4194304, "runtime": 2}}]} end"#;
        let run = measured(good).unwrap();
        assert!((run.gbps - 2.097152).abs() < 1e-9);
        assert!((run.cpu_s_per_gib - 0.002 * 256.0).abs() < 1e-9, "{run:?}");
        for bad in ["", "{", "{}", r#"{"jobs": [{"error": 5, "read": {}}]}"#, r#"{"jobs": [{"error": 0}]}"#] {
            assert!(measured(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn fio_runs_where_there_is_one() {
        let Ok(fio) = Fio::find() else { return println!("skipped: no fio on the PATH") };
        assert!(fio.version.starts_with("fio"));
        let error = fio
            .run(&FioJob { file: "/nonexistent/file".into(), engine: FioEngine::Psync, ..job() })
            .unwrap_err();
        assert!(error.to_string().contains("fio"), "{error}");
        assert_eq!(error.status(), 2);
    }
}
