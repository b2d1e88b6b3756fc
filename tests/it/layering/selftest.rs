//! The checker itself, over made-up sources: it must catch each kind of fault, and raise no false alarm.

use super::source::Source;
use super::{check, long_functions};

/// A file's path and text, and what its faults, in order, must say; none where it is sound.
type Case = (&'static str, &'static str, &'static [&'static str]);

#[track_caller]
fn expect(cases: &[Case]) {
    for (path, text, expected) in cases {
        let faults = check(path, text);
        let all = faults.len() == expected.len() && faults.iter().zip(*expected).all(|(f, e)| f.contains(e));
        assert!(all, "{path}: {text}\nfaults: {faults:#?}\nexpected: {expected:#?}");
    }
}

#[test]
fn upward_and_sideways_imports_are_caught() {
    expect(&[
        (
            "src/queue/uring.rs",
            "\nuse crate::lane::Slot;",
            &["src/queue/uring.rs:2: `queue` reaches up into `lane`"],
        ),
        ("src/memory/lease.rs", "use crate::target::Op;", &["`memory` reaches up into `target`"]),
        ("src/capi/mod.rs", "use crate::bin::x;", &["`capi` reaches sideways into `bin`"]),
        ("src/error.rs", "use crate::plan::Limits;", &["`error` reaches up into `plan`"]),
        ("src/topology/mod.rs", "use fullbore_sys::nvme;", &["`topology` reaches up into `fullbore_sys`"]),
        ("src/plan/mod.rs", "use fullbore_sys as sys;", &["`plan` reaches up into `fullbore_sys`"]),
        ("src/lane/mod.rs", "use crate::Engine;", &["`lane` reaches `Engine` by way of lib.rs"]),
        ("src/lane/mod.rs", "use crate::*;", &["`lane` reaches `*` by way of lib.rs"]),
        ("src/extra.rs", "fn f() {}", &["src/extra.rs:1: `extra` is no layer"]),
    ]);
}

#[test]
fn imports_are_caught_in_every_form() {
    expect(&[
        (
            "src/memory/host.rs",
            "use crate::{\n    error::{Error, Kind},\n    queue::{uring, Queue as Q},\n    plan, api,\n};",
            &[
                "host.rs:3: `memory` reaches up into `queue`",
                "host.rs:3:",
                "host.rs:4: `memory` reaches up into `api`",
            ],
        ),
        ("src/plan/mod.rs", "fn f(x: &crate::lane::Slot<u8>) {}", &["`plan` reaches up into `lane`"]),
        (
            "src/plan/mod.rs",
            "use ::std::io; fn f() { g(crate::api::h::<u8>()) }",
            &["into `api`: crate::api::h"],
        ),
        (
            "src/queue/mod.rs",
            "use super::lane::Slot;",
            &["`queue` reaches up into `lane`: super::lane::Slot"],
        ),
        ("src/queue/sim.rs", "use super::super::lane;", &["`queue` reaches up into `lane`"]),
        ("src/queue/sim.rs", "use super::{super::api::Engine, Queue};", &["`queue` reaches up into `api`"]),
        ("src/queue/sim.rs", "mod t { use super::super::super::api; }", &["`queue` reaches up into `api`"]),
        (
            "src/queue/sim.rs",
            "macro_rules! m { () => { $crate::api::f() } }",
            &["`queue` reaches up into `api`"],
        ),
        (
            "src/bin/fullbore/main.rs",
            "use fullbore::{Engine, capi::f};",
            &["`bin` reaches sideways into `capi`"],
        ),
    ]);
}

#[test]
fn what_is_in_order_raises_no_alarm() {
    expect(&[
        ("src/lib.rs", "pub mod api; pub use crate::api::Engine; pub use crate::lane::Stats;", &[]),
        ("src/api/engine.rs", "use crate::{api::Client, lane::{self, Lane}, error::Error, topology};", &[]),
        ("src/queue/uring.rs", "use crate::memory::X; use crate::target::Y; use fullbore_sys::nvme;", &[]),
        ("src/topology/sysfs.rs", "use super::{CpuSet, Node}; use crate::{error::Error, plan::Unit};", &[]),
        ("src/lane/slots.rs", "pub(crate) fn f(self) { self.g(); super::inbox::h(); self::k() }", &[]),
        ("src/lane/slots.rs", "pub(in crate::lane) fn f() {}\n#[cfg(test)] mod tests { use super::*; }", &[]),
        ("src/queue/sim.rs", "mod t { mod u { use super::super::super::Queue; } }", &[]),
        (
            "src/plan/mod.rs",
            "// use crate::api::A;\n/* crate::api /* nested */ crate::lane::x */\n/// crate::api::B\nfn f() {}",
            &[],
        ),
        (
            "src/plan/mod.rs",
            "fn f<'a>(x: &'a str) { g(\"crate::api::A \\\" unsafe { \", '\"', b'\\'', '\\\\', x) }",
            &[],
        ),
        (
            "src/plan/mod.rs",
            "const A: &str = r#\"crate::api \" unsafe {\"#; const B: &[u8] = br\"\\\"; fn f() {}",
            &[],
        ),
        ("src/plan/mod.rs", "fn f() { other::crate_::x(); let krate = a::b::lane::c; }", &[]),
        (
            "src/bin/fullbore/bench.rs",
            "use crate::args::Args; use super::x; use fullbore::{Engine, Error};",
            &[],
        ),
    ]);
}

#[test]
fn unsafe_out_of_its_places_is_caught() {
    const BLOCK: &str = "fn f() {\n    // SAFETY: x.\n    unsafe { g() }\n}";
    const IMPL: &str = "// SAFETY: x.\nunsafe impl Send for A {}";
    const FUNCTION: &str =
        "/// # Safety\n/// X.\npub unsafe fn f(a: [u8; 4]) {\n    // SAFETY: x.\n    unsafe { g(a) }\n}";
    const GENERIC: &str =
        "unsafe extern \"C\" fn f<A, B>(a: A, b: fn(u8)) where A: C, B: D {\n// SAFETY: x.\nunsafe { g() } }";
    expect(&[
        ("src/plan/mod.rs", BLOCK, &["src/plan/mod.rs:3: `unsafe {` may not be here"]),
        ("src/lib.rs", BLOCK, &["src/lib.rs:3: `unsafe {` may not be here"]),
        ("src/lane/mod.rs", IMPL, &["`unsafe impl` may not be here"]),
        ("src/target/file.rs", FUNCTION, &["`unsafe fn` may not be here", "`unsafe {` may not be here"]),
        ("src/bin/fullbore/main.rs", "unsafe extern \"C\" { fn f(); }", &["`unsafe extern` may not be here"]),
        ("src/api/engine.rs", IMPL, &["`unsafe impl` may not be here"]),
        ("src/api/engine.rs", BLOCK, &["src/api/engine.rs:3: `unsafe {` may not be here"]),
        ("src/api/engine.rs", "unsafe trait T {}", &["`unsafe trait` may not be here"]),
        (
            "src/api/a.rs",
            "trait T { unsafe fn f(); fn g() {\n// SAFETY: x.\nunsafe { h() } } }",
            &["a.rs:3: `unsafe {`"],
        ),
        ("src/api/engine.rs", FUNCTION, &[]),
        ("src/api/engine.rs", GENERIC, &[]),
        ("src/memory/host.rs", IMPL, &[]),
        ("src/queue/uring.rs", BLOCK, &[]),
        ("src/capi/mod.rs", "#[unsafe(no_mangle)]\npub extern \"C\" fn f() {}", &[]),
        ("src/lane/slots.rs", IMPL, &[]),
        ("src/target/ioctl.rs", BLOCK, &[]),
        ("src/target/mmap.rs", FUNCTION, &[]),
        ("src/topology/mod.rs", "#![forbid(unsafe_code)]\n// unsafe { }", &[]),
    ]);
}

#[test]
fn unsafe_without_a_reason_is_caught() {
    let near = format!("// SAFETY: x.\n{}unsafe impl Send for A {{}}", "struct B;\n".repeat(5));
    let far = format!("// SAFETY: x.\n{}unsafe impl Send for A {{}}", "struct B;\n".repeat(6));
    let long = format!("// SAFETY: x,\n{}unsafe impl Send for A {{}}", "// and y\n".repeat(20));
    assert_eq!(check("src/queue/a.rs", &near), [""; 0]);
    assert_eq!(check("src/queue/a.rs", &long), [""; 0]);
    assert_eq!(
        check("src/queue/a.rs", &far),
        ["src/queue/a.rs:8: `unsafe impl` has no SAFETY comment above it"]
    );
    expect(&[
        ("src/queue/a.rs", "fn f() { unsafe { g() } }", &["a.rs:1: `unsafe {` has no SAFETY comment"]),
        ("src/queue/a.rs", "fn f() { h(\"SAFETY\"); unsafe { g() } }", &["`unsafe {` has no SAFETY comment"]),
        ("src/queue/a.rs", "unsafe fn f() {}\nfn g(f: unsafe fn(u8)) {}", &[]),
        ("src/queue/a.rs", "fn f() { unsafe { g() } // SAFETY: x.\n}", &[]),
    ]);
}

#[test]
fn long_functions_are_measured() {
    let text = |lines: usize| {
        format!(
            "fn f();\n\nfn g<A, B>(x: fn(u8)) where A: B, {{\n{}}}\nfn h() {{}}",
            "    {}\n".repeat(lines)
        )
    };
    assert_eq!(long_functions(&Source::new(&text(68))), []);
    assert_eq!(long_functions(&Source::new(&text(69))), [("g".to_owned(), 3, 71)]);
}
