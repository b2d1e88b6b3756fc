//! What a C program cannot provoke: panics inside of exports, and numbers that two lists must agree on.

use super::border::PANIC;
use super::error::{NAMES, details, in_c, last};
use super::types::*;
use super::{client::*, engine::*, log::*, marks::*, region::*, stats::*, target::*, version::*};
use crate::error::{Error, ErrorKind};
use crate::lane::{Path, PathSet};
use std::ffi::CStr;
use std::ptr::{null, null_mut};

const SOURCES: [&str; 8] = [
    include_str!("version.rs"),
    include_str!("engine.rs"),
    include_str!("target.rs"),
    include_str!("region.rs"),
    include_str!("client.rs"),
    include_str!("marks.rs"),
    include_str!("stats.rs"),
    include_str!("log.rs"),
];

/// Calls an export whose work panics, and sees an error of the library come back instead.
macro_rules! panics {
    ($($export:ident($($argument:expr),*);)*) => {{
        $(
            PANIC.set(true);
            #[allow(unused_unsafe)]
            // SAFETY: the work that would look at the arguments does not run.
            let answer = unsafe { $export($($argument),*) };
            assert!(!PANIC.get(), "{} has no border", stringify!($export));
            // SAFETY: never NULL, and this thread's.
            let error = unsafe { &*last() };
            // SAFETY: as above.
            let message = unsafe { CStr::from_ptr(error.message) }.to_str().unwrap();
            assert_eq!(error.kind, fullbore_kind::FULLBORE_KIND_DEFECT as u32, "{}", stringify!($export));
            assert!(message.ends_with("it panicked: a test's panic"), "{message}");
            let _ = answer;
        )*
        [$(stringify!($export)),*]
    }};
}

#[test]
fn no_panic_crosses_any_export() {
    std::panic::set_hook(Box::new(|_| {})); // 40 panics on purpose are not news
    let mut seen = panics! {
        fullbore_version();
        fullbore_version_string();
        fullbore_feature(1);
        fullbore_kind_name(1);
        fullbore_path_name(1);
        fullbore_engine_create(null(), null_mut());
        fullbore_engine_destroy(null_mut());
        fullbore_gpus(null());
        fullbore_target_open(null(), null(), null(), null_mut());
        fullbore_target_open_stripe(null(), null(), 0, 0, null(), null_mut());
        fullbore_target_open_null(null(), 0, null_mut());
        fullbore_target_get_info(null(), null_mut());
        fullbore_target_set_size(null(), 0);
        fullbore_target_close(null());
        fullbore_target_destroy(null_mut());
        fullbore_path_query(null(), null(), null(), null_mut());
        fullbore_region_alloc(null(), 0, null(), null_mut());
        fullbore_region_register_host(null(), null_mut(), 0, null_mut());
        fullbore_region_register_cuda(null(), 0, 0, null_mut());
        fullbore_region_alloc_gpu(null(), 0, 0, null_mut());
        fullbore_region_map_peer(null(), null(), 0, null_mut());
        fullbore_region_get_info(null(), null_mut());
        fullbore_region_ptr(null());
        fullbore_region_copy_out(null(), 0, null_mut(), 0);
        fullbore_region_copy_in(null(), 0, null(), 0);
        fullbore_region_export_dma_buf(null());
        fullbore_region_free(null_mut(), 0);
        fullbore_client_create(null(), null_mut());
        fullbore_client_destroy(null_mut());
        fullbore_submit(null_mut(), null_mut(), 0);
        fullbore_flush(null_mut(), null(), 0, null_mut());
        fullbore_poll(null_mut(), null_mut(), 0);
        fullbore_wait(null_mut(), 0, 0, 0, null_mut());
        fullbore_cancel(null(), 0);
        fullbore_client_fd(null_mut());
        fullbore_marks_create(null(), 0, null_mut());
        fullbore_marks_destroy(null_mut());
        fullbore_marks_landed(null());
        fullbore_marks_ended(null());
        fullbore_marks_wait(null(), 0, 0);
        fullbore_marks_fd(null());
        fullbore_marks_stream_wait(null(), 0, null(), null_mut());
        fullbore_stats_get(null(), null_mut());
        fullbore_stats_json(null(), null_mut(), 0);
        fullbore_log_set(None, 0, null_mut());
    }
    .to_vec();
    let _ = std::panic::take_hook();
    seen.push("fullbore_last_error"); // it only hands out an address
    seen.sort_unstable();
    assert_eq!(seen, exports(), "an export is missing here");
}

/// The names of all exports, as the sources have them.
fn exports() -> Vec<&'static str> {
    let lines = SOURCES.iter().flat_map(|source| source.lines());
    let names = lines.filter_map(|line| {
        let name = line.split_once("extern \"C\" fn ")?.1.split('(').next()?;
        name.starts_with("fullbore_").then_some(name)
    });
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names
}

#[test]
fn each_path_is_called_alike() {
    let all: Vec<_> = PathSet(u32::MAX).iter().collect();
    for path in &all {
        assert_eq!(Path::from_bits(*path as u32), Some(*path));
        // SAFETY: a constant string.
        let name = unsafe { CStr::from_ptr(fullbore_path_name(*path as u32)) };
        assert_eq!(name.to_str().unwrap(), path.name());
    }
    assert_eq!(Path::from_bits(3), None, "two at once are no path");
    let last = all.iter().map(|path| *path as u32).max().unwrap();
    assert_eq!(last, fullbore_path::FULLBORE_PATH_CUFILE_COMPAT as u32, "and none is missing in C");
}

#[test]
fn errors_say_where_they_are_from() {
    use fullbore_domain::*;
    let error = || Error::new(ErrorKind::Io, "it failed").at(4096, 512).extent(3);
    let cases = [
        (error(), FULLBORE_DOMAIN_ENGINE, fullbore_kind::FULLBORE_KIND_IO as i32, libc::EIO),
        (Error::os("it failed", libc::ENOSPC), FULLBORE_DOMAIN_ERRNO, libc::ENOSPC, libc::ENOSPC),
        (error().with_nvme(0x4281), FULLBORE_DOMAIN_NVME, 0x4281, libc::EIO),
        (error().with_cuda(719), FULLBORE_DOMAIN_CUDA, 719, libc::EIO),
        (error().with_cufile(5026), FULLBORE_DOMAIN_CUFILE, 5026, libc::EIO),
        (Error::new(ErrorKind::Busy, "later"), FULLBORE_DOMAIN_ENGINE, 8, libc::EAGAIN),
    ];
    for (error, domain, code, errno) in cases {
        let text = error.to_string();
        let (answer, seen, message) = details(&error.into());
        assert_eq!((seen.domain, seen.code, answer), (domain as u32, code, -errno), "{text}");
        assert_eq!(message.to_str().unwrap(), text);
    }
    let (_, seen, _) = details(&error().into());
    assert_eq!((seen.extent, seen.offset, seen.length), (3, 4096, 512));
    let (_, seen, message) = details(&Error::new(ErrorKind::Io, "a\0b").into());
    assert_eq!((seen.extent, message.to_str().unwrap()), (FULLBORE_NO_EXTENT, "a?b"));
}

#[test]
fn structs_of_other_ages_are_read() {
    let mut newer = [0u8; 64];
    newer[0] = 64;
    newer[4] = fullbore_open_flag::FULLBORE_OPEN_BUFFERED as u8;
    let read = |bytes: &[u8]| {
        // SAFETY: as long as its size says.
        unsafe { super::sized::read(bytes.as_ptr().cast::<fullbore_open_options>()) }
    };
    let seen = read(&newer).expect("what is newer is not used");
    assert_eq!((seen.flags, seen.create_bytes), (4, 0));
    for (at, value) in [(63, 1), (16, 1), (0, 47), (0, 0)] {
        let mut bad = newer;
        bad[at] = value;
        assert!(read(&bad).is_err(), "byte {at} = {value}");
    }
    // SAFETY: NULL is looked at first.
    assert!(unsafe { super::sized::read(null::<fullbore_open_options>()) }.is_err());
    let mut room = [0xffu8; size_of::<fullbore_stats>() + 8];
    room[..4].copy_from_slice(&192u32.to_ne_bytes());
    let made = fullbore_stats { lanes: 7, ..zeroed() };
    // SAFETY: as long as its size says.
    unsafe { super::sized::write(room.as_mut_ptr().cast::<fullbore_stats>(), || Ok(made)) }.expect("written");
    assert_eq!(room[..8], [184, 0, 0, 0, 7, 0, 0, 0], "the size that we know, and what is in it");
    assert_eq!(room[184..], [0xff; 8], "what we do not know is left alone");
    let text: [std::ffi::c_char; 4] = super::sized::text("aé€");
    assert_eq!(text.map(|char| char as u8), [b'a', 0xc3, 0xa9, 0], "cut between characters");
}

fn zeroed() -> fullbore_stats {
    // SAFETY: integers alone.
    unsafe { std::mem::zeroed() }
}

/// A remedy that C programs do not have would be none: each name of Rust's in a message has one of C's.
#[test]
fn remedies_have_names_in_c() {
    let kinds = ["Engine", "EngineBuilder", "OpenOptions", "Region", "Target", "Transfer", "Client", "Marks"];
    let mut found = std::collections::BTreeSet::new();
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the sources").flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("bin") && !path.ends_with("capi") {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs")
                && !path.to_string_lossy().contains("test")
            {
                let text = std::fs::read_to_string(&path).expect("a source");
                let code = text.lines().take_while(|line| !line.contains("#[cfg(test)]"));
                let quoted = code
                    .filter(|line| !line.trim_start().starts_with("//"))
                    .flat_map(|line| line.split('"').skip(1).step_by(2));
                for (text, kind) in quoted.flat_map(|text| kinds.map(|kind| (text, kind))) {
                    for (at, _) in text.match_indices(&format!("{kind}::")) {
                        let name =
                            text[at..].split(|c: char| !c.is_alphanumeric() && !"_:".contains(c)).next();
                        found.extend(name.map(|name| name.trim_end_matches(':').to_owned()));
                    }
                }
            }
        }
    }
    assert!(found.len() > 8, "{found:?}");
    for name in found {
        assert!(!in_c(&name).contains("::"), "{name} has no name in C: add it to NAMES");
    }
    for (at, (rust, _)) in NAMES.iter().enumerate() {
        assert!(
            NAMES[at + 1..].iter().all(|(later, _)| !later.starts_with(rust)),
            "{rust} spoils a later one"
        );
    }
}
