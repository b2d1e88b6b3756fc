//! Job files: sections, [global], comments, `${ENV}`, `include`.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::script::{At, Section, Setting, cut, refuse_line};
use crate::failure::Failure;

/// How deep files may include one another.
const DEEPEST: usize = 16;

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

struct Reader<'a> {
    env: Env<'a>,
    defaults: Vec<Setting>,
    sections: Vec<Section>,
    /// The section that is open is [global].
    in_global: bool,
    /// A section is open.
    open: bool,
}

/// The sections of a job file; all of them have `defaults`.
pub fn read(path: &Path, defaults: &[Setting], env: Env<'_>) -> Result<Vec<Section>, Failure> {
    let mut reader =
        Reader { env, defaults: defaults.to_vec(), sections: Vec::new(), in_global: false, open: false };
    let text = text_of(path).map_err(|why| {
        Failure::Setup(format!("{}: {why}: name a job file, or write options as --key=value", path.display()))
    })?;
    reader.file(path, &text, 0)?;
    Ok(reader.sections)
}

/// Longer ones are no job files but somebody's data.
const LONGEST: u64 = 1 << 20;

/// The text of a job file. A device named by mistake is not read from end to end.
fn text_of(path: &Path) -> Result<String, String> {
    let path = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
    let meta = fs::metadata(path).map_err(|error| error.to_string())?;
    if meta.is_dir() || meta.file_type().is_block_device() || meta.len() > LONGEST {
        return Err("it is no job file (a file or device to measure is named by --filename)".into());
    }
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(LONGEST).read_to_string(&mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

impl Reader<'_> {
    fn file(&mut self, path: &Path, text: &str, depth: usize) -> Result<(), Failure> {
        let file: Arc<str> = path.display().to_string().into();
        // Some editors begin a file with a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (number, line) in text.lines().enumerate() {
            let line_number = number + 1;
            let line = without_comment(line);
            if line.is_empty() {
                continue;
            }
            if let Some(name) = line.strip_prefix('[') {
                let name = name.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty());
                let name = name.ok_or_else(|| {
                    refuse_line(
                        &file,
                        line_number,
                        format!("`{}` begins no section: write [name]", cut(line)),
                    )
                })?;
                self.begin(name);
                continue;
            }
            if let Some(other) = line.strip_prefix("include").filter(|rest| rest.starts_with([' ', '\t'])) {
                self.include(path, other.trim(), (&file, line_number), depth)?;
                continue;
            }
            self.setting(line, &file, line_number)?;
        }
        Ok(())
    }

    fn begin(&mut self, name: &str) {
        self.open = true;
        self.in_global = name == "global";
        if !self.in_global {
            let (name, inherited) = (name.to_owned(), self.defaults.clone());
            self.sections.push(Section { name, inherited, own: Vec::new(), swept: None });
        }
    }

    fn include(
        &mut self,
        from: &Path,
        name: &str,
        (file, line): (&Arc<str>, usize),
        depth: usize,
    ) -> Result<(), Failure> {
        if depth == DEEPEST {
            return Err(refuse_line(file, line, "files include one another without end: break the circle"));
        }
        // As written, or beside the file that includes it.
        let beside = from.parent().map(|folder| folder.join(name));
        let path = Some(PathBuf::from(name)).filter(|path| path.exists()).or(beside).unwrap_or_default();
        let text = text_of(&path)
            .map_err(|why| refuse_line(file, line, format!("include {name}: {why}: check the name")))?;
        self.file(&path, &text, depth + 1)
    }

    fn setting(&mut self, line: &str, file: &Arc<str>, number: usize) -> Result<(), Failure> {
        let at = At::Line(file.clone(), number);
        let (name, value) = line.split_once('=').map_or((line, None), |(name, value)| (name, Some(value)));
        let name = name.trim();
        if !self.open {
            return Err(refuse_line(
                file,
                number,
                format!("{} stands before any section: write [global] or [name] above it", cut(name)),
            ));
        }
        let value = value.map(|value| self.expand(value)).transpose();
        let value = value.map_err(|why| refuse_line(file, number, format!("{name}: {why}")))?;
        let setting = Setting::new(name, value.as_deref(), at)?;
        if setting.key.name == "name" {
            // As in fio: the section has another name. In [global] it names nothing, as each section has one.
            if let Some(section) = self.sections.last_mut().filter(|_| !self.in_global) {
                section.name = setting.text().to_owned();
            }
        } else if self.in_global {
            self.defaults.push(setting);
        } else if let Some(section) = self.sections.last_mut() {
            section.own.push(setting);
        }
        Ok(())
    }

    /// Puts variables in: `${NAME}` of the environment, and fio's `$ncpus`, `$pagesize` and `$mb_memory`.
    fn expand(&self, text: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            out += &rest[..at];
            let (name, after) =
                rest[at + 2..].split_once('}').ok_or("`${` without its `}`: write ${NAME}".to_string())?;
            out += &(self.env)(name)
                .ok_or_else(|| format!("${{{name}}} is not set: export {name}, or write the value"))?;
            rest = after;
        }
        out += rest;
        for (name, value) in machine() {
            if out.contains(name) {
                out = out.replace(name, &value().to_string());
            }
        }
        Ok(out)
    }
}

type Machine = (&'static str, fn() -> u64);

fn machine() -> [Machine; 3] {
    fn pagesize() -> u64 {
        super::run::usage::auxv(6).unwrap_or(4096) // AT_PAGESZ
    }
    fn ncpus() -> u64 {
        std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64)
    }
    fn mb_memory() -> u64 {
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = text
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
        kib.unwrap_or(0u64) >> 10
    }
    [("$pagesize", pagesize), ("$ncpus", ncpus), ("$mb_memory", mb_memory)]
}

/// The line up to a comment, without blanks at its ends.
fn without_comment(line: &str) -> &str {
    line.split([';', '#']).next().unwrap_or_default().trim()
}
