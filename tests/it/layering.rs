//! The house keeps its order: dependencies point one way (DESIGN §2), `unsafe` stays where it may be (I10).
//!
//! The rules run over the text of every file under `src/`. Paths are found in `use` trees and inline, through
//! `crate`, `self` and `super`; what a macro builds is not seen.

use std::fs;
use std::path::Path;

mod selftest;
mod source;

use source::Source;

/// The layers and their ranks: a layer may use itself and those of a lower rank, none beside or above it.
/// The leaves have an order too, so that they cannot become a knot. `lib.rs` is no layer: it shows what there is.
const LAYERS: &[(&str, u32)] = &[
    ("error", 0),
    ("plan", 1),
    ("topology", 2),
    ("fullbore_sys", 3),
    ("memory", 4),
    ("target", 5),
    ("queue", 6),
    ("lane", 7),
    ("api", 8),
    ("capi", 9),
    ("bin", 9),
];

/// Where `unsafe` code may be; besides, only `unsafe fn` and the blocks in it may be in `src/api`.
const UNSAFE_FOLDERS: &[&str] = &["src/memory/", "src/queue/", "src/capi/"];
const UNSAFE_FILES: &[&str] = &["slots.rs", "ioctl.rs", "mmap.rs"];

/// A SAFETY comment is at most so many lines above what it speaks of. Lines of comments do not count.
const SAFETY_LINES: usize = 6;

const MAX_FILE: usize = 400;
const MAX_FUNCTION: usize = 70;

#[test]
fn dependencies_point_one_way_and_unsafe_stays_in_its_places() {
    let files = sources();
    assert!(files.iter().any(|(path, _)| path == "src/lib.rs"), "no sources found");
    let mut faults = Vec::new();
    for (path, text) in &files {
        faults.extend(check(path, text));
        report_sizes(path, text);
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Every fault of a file, each as `file:line: what`.
fn check(path: &str, text: &str) -> Vec<String> {
    let source = Source::new(text);
    let mut faults = check_layers(path, &source);
    faults.extend(check_unsafe(path, &source));
    faults
}

fn check_layers(path: &str, source: &Source) -> Vec<String> {
    let module = module_of(path);
    let Some(&layer) = module.first() else {
        return Vec::new(); // lib.rs
    };
    let Some(rank) = rank(layer) else {
        return vec![format!("{path}:1: `{layer}` is no layer: give it a rank in tests/it/layering.rs")];
    };
    let mut faults = Vec::new();
    for used in source.paths(&["crate", "self", "super", "fullbore", "fullbore_sys"]) {
        let Some(target) = layer_used(&module, source, &used) else {
            continue;
        };
        let fault = match self::rank(&target) {
            Some(other) if target == layer || other < rank => continue,
            Some(other) if other == rank => format!("`{layer}` reaches sideways into `{target}`"),
            Some(_) => format!("`{layer}` reaches up into `{target}`"),
            None => format!("`{layer}` reaches `{target}` by way of lib.rs: name the layer it is from"),
        };
        faults.push(format!("{path}:{}: {fault}: {}", used.line, used.segments.join("::")));
    }
    faults
}

/// Which layer a path leads to; None for one that this rule has no say in.
fn layer_used(module: &[&str], source: &Source, used: &source::Path) -> Option<String> {
    let first = used.segments[0].as_str();
    if first == "fullbore_sys" {
        return Some(first.to_owned());
    }
    if module[0] == "bin" {
        // The program is a crate of its own: its `crate` is itself, and it sees the library as any user does.
        let named = used.segments.get(1).filter(|name| first == "fullbore" && rank(name).is_some());
        return named.cloned();
    }
    if first == "fullbore" {
        return None; // Not a path in the library, but a variable or the like.
    }
    let mut within = module.to_vec();
    let inline = source.bodies("mod").filter(|(_, body)| body.contains(&used.at));
    within.extend(inline.map(|(keyword, _)| source.text(keyword + 1)));
    let mut named = used.segments.iter().map(String::as_str).peekable();
    while let Some(&segment) = named.peek() {
        match segment {
            "crate" => within.clear(),
            "super" => drop(within.pop()),
            "self" => {}
            _ => break,
        }
        named.next();
    }
    let first = within.first().copied().or(named.next());
    // `pub(crate)` and the plain `self` of a method are words, not paths.
    let bare = used.segments.len() == 1;
    if bare { None } else { Some(first.unwrap_or("the crate's root").to_owned()) }
}

/// The module path of a file: `src/a/mod.rs` is `[a]`, `src/a/b.rs` is `[a, b]`, and `src/lib.rs` is none.
fn module_of(path: &str) -> Vec<&str> {
    let stem = path.trim_start_matches("src/").trim_end_matches(".rs");
    let mut module: Vec<&str> = stem.split('/').collect();
    if matches!(module.last(), Some(&("mod" | "lib"))) {
        module.pop();
    }
    module
}

fn rank(layer: &str) -> Option<u32> {
    LAYERS.iter().find(|(name, _)| *name == layer).map(|(_, rank)| *rank)
}

fn check_unsafe(path: &str, source: &Source) -> Vec<String> {
    let file = path.rsplit('/').next().unwrap_or(path);
    let free = UNSAFE_FOLDERS.iter().any(|folder| path.starts_with(folder)) || UNSAFE_FILES.contains(&file);
    let mut faults = Vec::new();
    for at in (0..source.tokens.len()).filter(|&at| source.text(at) == "unsafe") {
        let line = source.tokens[at].line;
        let next = source.text(at + 1);
        let permitted = match next {
            _ if free => true,
            "fn" | "extern" => path.starts_with("src/api/"),
            "{" => path.starts_with("src/api/") && in_unsafe_fn(source, at),
            _ => false,
        };
        if !permitted {
            faults.push(format!("{path}:{line}: `unsafe {next}` may not be here (I10)"));
        }
        if matches!(next, "{" | "impl") && !says_why(source, line) {
            faults.push(format!("{path}:{line}: `unsafe {next}` has no SAFETY comment above it"));
        }
    }
    faults
}

fn in_unsafe_fn(source: &Source, at: usize) -> bool {
    source.bodies("fn").any(|(keyword, body)| {
        // `unsafe fn` or `unsafe extern "C" fn`, whose string is no token.
        let before = (source.text(keyword.saturating_sub(2)), source.text(keyword.saturating_sub(1)));
        body.contains(&at) && matches!(before, (_, "unsafe") | ("unsafe", "extern"))
    })
}

fn says_why(source: &Source, line: usize) -> bool {
    let mut code = 0;
    for above in (0..line).rev() {
        if source.comments[above].contains("SAFETY") {
            return true;
        }
        // A comment of many lines counts as none: only what is not a comment puts distance between.
        let counts = source.has_code[above] || source.comments[above].is_empty();
        code += usize::from(counts && above + 1 < line);
        if code >= SAFETY_LINES {
            return false;
        }
    }
    false
}

/// Says which files and functions ask to be two. It is advice, and fails nothing.
fn report_sizes(path: &str, text: &str) {
    let lines = text.lines().count();
    if lines > MAX_FILE {
        eprintln!("{path}: {lines} lines are more than {MAX_FILE}");
    }
    for (name, line, length) in long_functions(&Source::new(text)) {
        eprintln!("{path}:{line}: fn {name} has {length} lines, more than {MAX_FUNCTION}");
    }
}

fn long_functions(source: &Source) -> Vec<(String, usize, usize)> {
    let mut long = Vec::new();
    for (keyword, body) in source.bodies("fn") {
        let first = source.tokens[keyword].line;
        let length = source.tokens[body.end].line - first + 1;
        if length > MAX_FUNCTION {
            long.push((source.text(keyword + 1).to_owned(), first, length));
        }
    }
    long
}

/// All files of Rust under `src/`: path from the package's root, and text.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("src")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}
