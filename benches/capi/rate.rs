//! The same loop as rate.c, in Rust: loads objects of a file (or of the null queue) one behind another, some in
//! flight, for a while; then loads each place's last object again into poisoned memory and checks every word.
//! rate.py runs the two in turns.
//!
//!     rate FILE|null OBJECT_BYTES IN_FLIGHT SECONDS

use fullbore::{Client, Completion, Engine, Op, OpenOptions, RawExtent, RawOutcome, Target};
use std::error::Error;
use std::time::{Duration, Instant};

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    arguments.retain(|argument| argument != "--bench"); // cargo bench adds it
    if arguments.len() != 4 {
        println!(
            "rate: nothing measured: give FILE|null OBJECT_BYTES IN_FLIGHT SECONDS (see benches/capi/rate.py)"
        );
        return;
    }
    if let Err(error) = run(&arguments) {
        eprintln!("rate: {error}");
        std::process::exit(1);
    }
}

fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let (null, bytes) = (arguments[0] == "null", arguments[1].parse::<usize>()?);
    let (depth, seconds) = (arguments[2].parse::<usize>()?, arguments[3].parse::<f64>()?);
    let builder = Engine::builder();
    let engine = if null { builder.null() } else { builder }.build()?;
    let target = match null {
        true => engine.open_null(1 << 40)?,
        false => engine.open(&arguments[0], OpenOptions::read())?,
    };
    let (region, client) = (engine.alloc_host(depth * bytes)?, engine.client()?);
    region.lease(0..depth * bytes)?.fill(1);
    let (objects, mut next, mut loaded) = (target.size() / bytes as u64, 0, 0);
    let mut offset = || {
        next += 1;
        (next - 1) % objects * bytes as u64
    };
    let place = |i: usize| region.as_ptr().wrapping_add(i * bytes);
    let (len, outcome) = (bytes as u64, RawOutcome::default());
    let mut extents: Vec<_> =
        (0..depth).map(|i| RawExtent { offset: offset(), ptr: place(i), len, outcome }).collect();

    let (begun, mut done) = (Instant::now(), Vec::with_capacity(depth));
    let until = begun + Duration::from_secs_f64(seconds);
    for (tag, extent) in extents.iter_mut().enumerate() {
        submit(&client, &target, extent, tag)?;
    }
    let mut out = depth;
    while out > 0 {
        fetch(&client, bytes, &mut done)?;
        (loaded, out) = (loaded + done.len(), out - done.len());
        if Instant::now() >= until {
            continue;
        }
        for completion in &done {
            let tag = completion.tag as usize;
            extents[tag].offset = offset();
            submit(&client, &target, &mut extents[tag], tag)?;
        }
        out += done.len();
    }
    let took = begun.elapsed().as_secs_f64();

    if !null {
        region.lease(0..depth * bytes)?.fill(0xa5);
        for (tag, extent) in extents.iter_mut().enumerate() {
            submit(&client, &target, extent, tag)?;
        }
        let mut got = 0;
        while got < depth {
            fetch(&client, bytes, &mut done)?;
            got += done.len();
        }
        let memory = region.lease(0..depth * bytes)?;
        for (object, extent) in memory.chunks(bytes).zip(&extents) {
            check(object, extent.offset)?;
        }
    }
    println!("{{\"loads\": {loaded}, \"seconds\": {took:.6}}}");
    Ok(())
}

fn submit(
    client: &Client,
    target: &Target,
    extent: &mut RawExtent,
    tag: usize,
) -> Result<(), fullbore::Error> {
    // SAFETY: `extents` and the region outlive their transfers: `run` fetches every completion before it returns, or
    // ends the process.
    unsafe { client.submit_raw(target, Op::Read, std::slice::from_mut(extent), tag as u64) }.map(drop)
}

/// Waits for completions and sees that each moved all of its bytes.
fn fetch(client: &Client, bytes: usize, done: &mut Vec<Completion>) -> Result<(), Box<dyn Error>> {
    done.clear();
    client.wait(1, done, None)?;
    for completion in done.iter_mut() {
        std::mem::replace(&mut completion.result, Ok(()))?;
        assert_eq!(completion.bytes, bytes as u64);
    }
    Ok(())
}

/// What rate.py wrote: each word of 8 bytes is its number times an odd constant.
fn check(object: &[u8], offset: u64) -> Result<(), String> {
    for (word, number) in object.chunks_exact(8).zip(offset / 8..) {
        if word != number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes() {
            return Err(format!("wrong word at byte {}", number * 8));
        }
    }
    Ok(())
}
