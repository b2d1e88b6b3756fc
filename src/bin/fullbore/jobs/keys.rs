//! A key of fio's language as this program knows it, and how one is found by name.

use super::table::{OURS, THEIRS};
use super::unsupported::UNSUPPORTED;

/// What a value looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `4096`, `128k`.
    Size,
    /// A size, or `20%`.
    Amount,
    /// One for reads, or one for reads and one for writes: `1m`, `1m,500k`.
    Sizes,
    /// A time in seconds unless it says otherwise: `10`, `500ms`.
    Time,
    Int,
    /// `0` or `1`; the key alone is 1.
    Bool,
    /// The key alone, or with `0` or `1`. On the command line the value comes behind `=` only.
    Flag,
    /// Several, with commas or colons between.
    List,
    /// One of a few words.
    Word,
    Text,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Amount => "size or %",
            Self::Sizes => "sizes",
            Self::Time => "time",
            Self::Int => "number",
            Self::Bool => "bool",
            Self::Flag => "flag",
            Self::List => "list",
            Self::Word => "word",
            Self::Text => "text",
        }
    }

    /// Whether the key may stand without a value.
    pub fn may_be_bare(self) -> bool {
        matches!(self, Self::Bool | Self::Flag)
    }
}

/// Where a key belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// To a job.
    Job,
    /// To the whole run: on the command line only.
    Run,
    /// To the table of arms, which runs when no job is named.
    Arms,
    /// To jobs and to the table of arms.
    Both,
    /// To the whole run of either.
    All,
}

/// A key, what fio means by it, and what this program does.
#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub kind: Kind,
    pub scope: Scope,
    /// What fio means by it; empty if fio does not have it.
    pub fio: &'static str,
    /// What it does here, if that is not the same, or what else is to be said.
    pub ours: &'static str,
}

impl Key {
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    /// Whether a job may have it.
    pub fn is_of_jobs(&self) -> bool {
        matches!(self.scope, Scope::Job | Scope::Both)
    }

    /// Whether it is about the whole run of jobs.
    pub fn is_of_the_run(&self) -> bool {
        matches!(self.scope, Scope::Run | Scope::All)
    }

    /// Whether the table of arms has it.
    pub fn is_of_arms(&self) -> bool {
        matches!(self.scope, Scope::Arms | Scope::Both | Scope::All)
    }
}

/// All keys, fio's first.
pub fn all() -> impl Iterator<Item = &'static Key> {
    THEIRS.iter().chain(OURS)
}

/// The key of that name, or why there is none: a sentence with a remedy.
pub fn find(name: &str) -> Result<&'static Key, String> {
    // fio's options of the command line have hyphens, its keys have underscores; both are taken for either.
    let swapped = [name.to_owned(), name.replace('-', "_"), name.replace('_', "-")];
    if let Some(key) = all().find(|key| swapped.iter().any(|name| key.is_called(name))) {
        return Ok(key);
    }
    let theirs =
        UNSUPPORTED.iter().find(|(names, _)| names.iter().any(|known| swapped.iter().any(|s| s == known)));
    if let Some((_, why)) = theirs {
        return Err(format!("fio has this key and fullbore does not: {why}; leave it out"));
    }
    Err(match nearest(name) {
        Some(near) => format!("there is no such key: did you mean {near}?"),
        None => "there is no such key: `fullbore bench --help-all` lists all".into(),
    })
}

/// The known name that takes the fewest edits, if they are few.
fn nearest(name: &str) -> Option<&'static str> {
    // Longer ones are no slip of the pen, but data: a device that was taken for a job file.
    if name.len() > 64 {
        return None;
    }
    let names = all().flat_map(|key| key.aliases.iter().copied().chain([key.name]));
    let least = names.map(|known| (edits(name, known), known)).min_by_key(|(edits, _)| *edits)?;
    (least.0 <= name.len().div_ceil(3).max(1)).then_some(least.1)
}

/// The edits from one word to another: letters put in, left out, replaced, or swapped with the next.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            if i == 0 || j == 0 {
                rows[i][j] = i + j;
                continue;
            }
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            rows[i][j] = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                rows[i][j] = rows[i][j].min(rows[i - 2][j - 2] + 1);
            }
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_name_is_there_once() {
        let mut seen = HashSet::new();
        let known = all().flat_map(|key| key.aliases.iter().chain([&key.name]));
        for name in known.chain(UNSUPPORTED.iter().flat_map(|(names, _)| names.iter())) {
            assert!(seen.insert(name.replace('-', "_")), "{name} is there twice");
        }
        assert!(seen.len() > 200, "{}", seen.len());
    }

    #[test]
    fn keys_are_found_by_either_name_and_spelling() {
        for (name, key) in [
            ("bs", "bs"),
            ("blocksize", "bs"),
            ("readwrite", "rw"),
            ("output-format", "output-format"),
            ("output_format", "output-format"),
            ("lane-depth", "lane_depth"),
        ] {
            assert_eq!(find(name).unwrap().name, key, "{name}");
        }
    }

    #[test]
    fn what_is_unknown_is_told_from_what_fio_has() {
        for (name, part) in [
            ("iodeth", "did you mean iodepth?"),
            ("oidepth", "did you mean iodepth?"),
            ("runtme", "did you mean runtime?"),
            ("numjob", "did you mean numjobs?"),
            ("bssplit", "fio has this key and fullbore does not: "),
            ("zonesize", "fio has this key and fullbore does not: "),
            ("thp", "fio has this key and fullbore does not: "),
            ("minimal", "output-format=csv"),
            ("qqqqqqqqq", "--help-all"),
        ] {
            let why = find(name).unwrap_err();
            assert!(why.contains(part) && !why.contains('\n'), "{name}: {why}");
        }
    }

    #[test]
    fn edits_are_counted() {
        for (a, b, n) in
            [("bs", "bs", 0), ("bs", "b", 1), ("sb", "bs", 1), ("", "abc", 3), ("size", "sise", 1)]
        {
            assert_eq!(edits(a, b), n, "{a} {b}");
        }
    }
}
