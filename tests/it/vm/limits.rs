//! Commands within the drive's limits: bytes, and segments of the memory's real pages.

use super::drives::{Drive, drives};
use super::rig::{KIB, MIB, Object, Rig, best_path, on};
use super::seen::extents;
use super::trace::Tracer;
use crate::support::kernel::Pages;
use crate::support::load::{load_raw, raw};
use crate::support::{check, poison, within};
use fullbore::Engine;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(90);

/// mdts=3 is 32 KiB, and 9 segments.
#[test]
fn commands_are_cut_to_what_the_drive_takes() {
    let Some([drive]) = drives(["small"]) else { return };
    within(LIMIT, "mdts=3", || {
        let most = drive.queue_limit("max_hw_sectors_kb");
        assert_eq!(most, 32, "the machine's drive is as it should be");
        let rig = Rig::new(drive.filled(4 * MIB), Engine::builder().lanes(2), 4 * MIB);
        let (loaded, commands) = rig.traced(&[Object { trace: 9, offset: 4096, len: 3 * MIB + 4096 }]);
        assert_eq!(loaded[0].paths, best_path());
        let largest = commands.iter().map(|c| u64::from(c.blocks) * drive.lba).max();
        assert_eq!(largest, Some(most * KIB), "as large as they may be, not larger");
        assert!(commands.iter().all(|c| c.status == Some(0)));
        let first = 4096 / drive.lba;
        assert_eq!(
            extents(&commands, 9),
            std::slice::from_ref(&(first..first + (3 * MIB + 4096) / drive.lba))
        );
    });
}

/// Pages of 4 KiB whose frames lie in no order: each is a segment of its own.
fn shuffled(len: usize) -> Pages {
    let mut pages = Pages::new(len);
    // SAFETY: advice about our own mapping; nothing of it was touched.
    let rc = unsafe { libc::madvise(pages.ptr().as_ptr().cast(), len, libc::MADV_NOHUGEPAGE) };
    assert_eq!(rc, 0, "madvise: {}", std::io::Error::last_os_error());
    let count = len / 4096;
    // A step that shares no factor with the count visits each page once.
    let step = (0..).map(|i| count / 3 + i).find(|step| gcd(*step, count) == 1).expect("some step");
    for i in 0..count {
        pages.bytes_mut()[i * step % count * 4096] = 1;
    }
    pages
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// mdts=9 is 2 MiB: the segments bind before the bytes do.
#[test]
fn segments_of_scattered_memory_bind() {
    let Some([drive]) = drives(["large"]) else { return };
    within(LIMIT, "scattered memory", || {
        let len = 8 * MIB;
        let builder = Engine::builder().lanes(2).command_size(2 << 20).unit_size(4 << 20);
        let rig = Rig::new(drive.filled(len), builder, 4096);
        let mut pages = shuffled(len as usize);
        // SAFETY: the pages stay mapped until the region was released, below.
        let region =
            unsafe { rig.engine.register_host(pages.ptr(), pages.len()) }.expect("it can be registered");
        for (what, fixed) in [("registered", true), ("unregistered", false)] {
            let offset = 4096;
            let mut other = (!fixed).then(|| shuffled(len as usize));
            let memory = other.as_mut().unwrap_or(&mut pages);
            poison(memory.bytes_mut());
            let tracer = Tracer::start();
            let to = memory.addr() as *mut u8;
            let done = load_raw(&rig.client, &rig.target, &mut [raw(offset, to, len as usize - 8192)]);
            let commands = on(tracer.stop().commands, &drive);
            done.result.as_ref().unwrap_or_else(|e| panic!("{what}: {e}"));
            check(&memory.bytes()[..len as usize - 8192], offset, drive.seed(), what);
            within_segments(&drive, &commands);
            println!("measured: {what}: {} by {} commands", done.paths, commands.len());
        }
        assert!(region.release(Duration::from_secs(5)).is_ok(), "nothing is under way");
    });
}

/// Pages that no two are neighbours: as many segments as pages.
fn within_segments(drive: &Drive, commands: &[super::seen::Seen]) {
    let segments = drive.queue_limit("max_segments");
    let largest = commands.iter().map(|c| u64::from(c.blocks) * drive.lba).max().expect("commands");
    println!("measured: largest command {} KiB, limit of {segments} segments", largest / KIB);
    assert!(largest <= segments * 4096, "{largest} bytes in {segments} segments");
    assert!(largest > 64 * KIB, "not cut to dust");
    assert!(commands.iter().all(|c| c.status == Some(0)));
}

/// A page is at worst a segment of its own, and the planner reckons with the worst, whatever pages memory has now: huge
/// pages may be split at any time. So the segments bind here too, at the least of all commands.
#[test]
fn commands_into_huge_pages_are_cut_for_the_worst_all_the_same() {
    let Some([drive]) = drives(["large"]) else { return };
    within(LIMIT, "huge pages", || {
        let builder = Engine::builder().lanes(1).command_size(2 << 20).unit_size(4 << 20);
        let rig = Rig::new(drive.filled(8 * MIB), builder, 8 * MIB);
        let (_, commands) = rig.traced(&[Object { trace: 1, offset: 0, len: 8 * MIB }]);
        let largest = commands.iter().map(|c| u64::from(c.blocks) * drive.lba).max().expect("commands");
        println!("measured: {} commands, the largest of {} KiB", commands.len(), largest / KIB);
        let most = drive.queue_limit("max_segments") * 4096;
        assert!(largest <= most && largest > most / 2, "{largest} of at most {most}");
    });
}
