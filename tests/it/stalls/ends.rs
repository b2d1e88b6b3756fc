//! Files that end before they should, disks that are full, devices that fail or go away.

use crate::support::load::lease_of;
use crate::support::{
    Folder, Loop, build, check, child, does, eventually, fill, first_mismatch, folders, poison,
    private_mounts, root, untouched, uring, within,
};
use fullbore::{Client, Completion, Engine, Error, ErrorKind, OpenOptions, Region, Target, Transfer};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const SEED: u64 = 0xe0f;
const MIB: usize = 1 << 20;
/// A command, as the engine cuts them by default.
const COMMAND: usize = 128 * 1024;
/// Bytes of a sparse file that is larger than the file system it is on.
const SPARSE: usize = 24 * MIB;
const LIMIT: Duration = Duration::from_secs(20);

/// Reads `len` bytes at 0 into poisoned memory.
fn read(client: &Client, target: &Target, region: &Region, len: usize) -> Completion {
    let mut lease = region.lease(0..len).unwrap();
    poison(&mut lease);
    let transfer = Transfer::read(target).extent(0, lease);
    within(LIMIT, "a read", || client.submit(transfer).unwrap().wait().unwrap())
}

/// FACTS §6.3: a read of 0 bytes was asked again for ever, or a short one counted as success.
#[test]
fn a_file_cut_short_is_an_error_at_the_byte_where_it_ends() {
    if !uring() {
        return;
    }
    for folder in folders() {
        for buffered in [false, true] {
            for end in [5 * MIB as u64, 5 * MIB as u64 + 4096, 5 * MIB as u64 + 1000, 1, 0] {
                cut_short(&folder, buffered, end);
            }
        }
    }
}

fn cut_short(folder: &Folder, buffered: bool, end: u64) {
    let path = folder.file("data", 8 * MIB as u64, SEED);
    let engine = build(Engine::builder().lanes(2));
    let options = if buffered { OpenOptions::read().buffered() } else { OpenOptions::read() };
    let target = engine.open(&path, options).unwrap();
    let (client, region) = (engine.client().unwrap(), engine.alloc_host(8 * MIB).unwrap());
    File::options().write(true).open(&path).unwrap().set_len(end).unwrap();

    let done = read(&client, &target, &region, 8 * MIB);
    let what = format!("{}, buffered: {buffered}, ends at {end}", folder.name);
    let error = done.result.clone().expect_err(&what);
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{what}: {error}");
    // Direct commands move whole blocks: the first range that failed begins with the block in which the file ends.
    let block = target.block_size() as u64;
    assert_eq!(error.offset(), Some(end / block * block), "{what}: {error}");
    assert!(error.target().is_some_and(|name| name.ends_with("data")), "{error}");
    let whole = end as usize / COMMAND * COMMAND;
    assert_eq!(done.bytes, whole as u64, "{what}: only whole commands succeeded");
    let extent = &done.transfer.as_ref().unwrap().extents()[0];
    assert_eq!((extent.bytes(), extent.succeeded()), (whole as u64, false), "{what}");
    assert!(extent.error().is_some(), "{what}");
    let lease = lease_of(done);
    check(&lease[..whole], 0, SEED, &what);
    let past = (end as usize).next_multiple_of(COMMAND);
    assert!(untouched(&lease[past..]), "{what}: nothing is past the end");
    drop(lease);

    // What is there can still be read.
    let rest = read(&client, &target, &region, whole.max(1).min(end as usize).max(1));
    assert_eq!(rest.result.is_ok(), end > 0, "{what}");
}

/// The same while reads are under way: whatever they meet, each ends once, and the truth is told.
#[test]
fn a_file_cut_short_during_reads_hangs_nobody() {
    if !uring() {
        return;
    }
    for folder in folders() {
        let path = folder.file("data", 8 * MIB as u64, SEED);
        let engine = build(Engine::builder().lanes(2).lane_depth(4));
        let target = engine.open(&path, OpenOptions::read()).unwrap();
        let (client, region) = (engine.client().unwrap(), engine.alloc_host(72 * MIB).unwrap());
        let submit = |i: usize| {
            let mut lease = region.lease(i * 8 * MIB..(i + 1) * 8 * MIB).unwrap();
            poison(&mut lease);
            client.submit(Transfer::read(&target).extent(0, lease)).unwrap()
        };
        let mut tickets: Vec<_> = (0..8).map(submit).collect();
        File::options().write(true).open(&path).unwrap().set_len(3 * MIB as u64).unwrap();
        tickets.push(submit(8));
        let mut ended = 0;
        for ticket in tickets {
            let done = within(LIMIT, "a read", || ticket.wait().unwrap());
            match &done.result {
                Ok(()) => check(&lease_of(done), 0, SEED, "a read that was whole before the cut"),
                Err(error) => {
                    ended += 1;
                    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
                    assert!(error.offset() >= Some(3 * MIB as u64), "what is there is read: {error}");
                    check(&lease_of(done)[..3 * MIB], 0, SEED, "what is there");
                }
            }
        }
        assert!(ended > 0, "one was submitted after the cut");
        assert!(engine.stats().lanes.iter().all(|lane| lane.stale == 0));
        // A lane counts what is left in flight after it has published what is not.
        let drained = || engine.stats().lanes.iter().all(|lane| lane.in_flight == 0);
        assert!(eventually(LIMIT, drained), "a command is left in flight");
    }
}

/// FACTS §6.11 and invariant I12: a failed store stayed visible, and later loads returned garbage.
#[test]
fn a_full_disk_is_an_error_and_only_what_was_written_is_reported() {
    if !root() {
        return eprintln!("skipped: a small file system needs root");
    }
    if !uring() {
        return;
    }
    let test = "stalls::ends::a_full_disk_is_an_error_and_only_what_was_written_is_reported";
    child(test, &[]).keep_capabilities().run(|| {
        let Some(folder) = folders().pop() else { return };
        private_mounts();
        let at = |name: &str| {
            let path = folder.path.join(name);
            std::fs::create_dir(&path).map(|()| path).expect("a folder in a folder of ours")
        };
        let (tmpfs, ext4, image) = (at("tmpfs"), at("ext4"), folder.path.join("image"));
        File::create(&image).unwrap().set_len(16 * MIB as u64).unwrap();
        let [tmpfs_at, ext4_at, image] = [&tmpfs, &ext4, &image].map(|path| path.to_str().unwrap());
        if let Some(_mounted) = Mounted::at(&["-t", "tmpfs", "-o", "size=4m", "none", tmpfs_at]) {
            fill_up(&tmpfs);
        }
        if !does("mkfs.ext4", &["-q", "-F", image]) {
            return eprintln!("skipped: no mkfs.ext4");
        }
        if let Some(_mounted) = Mounted::at(&["-o", "loop", image, ext4_at]) {
            fill_up(&ext4);
        }
    });
}

/// A mount, taken away when dropped, so that the folder it is on can be removed.
struct Mounted(String);

impl Mounted {
    /// The last argument says where. `None`, and printed: this machine cannot.
    fn at(args: &[&str]) -> Option<Mounted> {
        if !does("mount", args) {
            eprintln!("skipped: mount {args:?}");
            return None;
        }
        Some(Mounted(args.last()?.to_string()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        does("umount", &["-l", &self.0]);
    }
}

/// Writes more than there is room for.
fn fill_up(folder: &Path) {
    let path = folder.join("sparse");
    File::create(&path).unwrap().set_len(SPARSE as u64).unwrap();
    let engine = build(Engine::builder().lanes(2));
    let too_large = engine.open(folder.join("new"), OpenOptions::write().create(64 * MIB as u64));
    assert_full(&too_large.expect_err("64 MiB do not fit"));
    std::fs::remove_file(folder.join("new")).unwrap();

    let target = engine.open(&path, OpenOptions::write()).expect("a sparse file opens");
    let (client, region) = (engine.client().unwrap(), engine.alloc_host(SPARSE).unwrap());
    let mut transfer = Transfer::write(&target).durable();
    for from in (0..SPARSE).step_by(MIB) {
        let mut lease = region.lease(from..from + MIB).unwrap();
        fill(&mut lease, from as u64, SEED);
        transfer.push(from as u64, lease);
    }
    let done = within(LIMIT, "a write", || client.submit(transfer).unwrap().wait().unwrap());
    assert_full(&done.result.clone().expect_err("24 MiB do not fit"));
    let transfer = done.transfer.unwrap();
    assert_eq!(done.bytes, transfer.extents().iter().map(|e| e.bytes()).sum::<u64>());
    assert!(done.bytes < 16 * MIB as u64, "no more than there is room for: {}", done.bytes);
    let written = File::open(&path).unwrap();
    for extent in transfer.extents() {
        let (found, right) = right_commands(&written, extent.offset());
        assert!(extent.bytes() <= right, "{} bytes reported, {right} are there", extent.bytes());
        assert_eq!(extent.succeeded(), extent.error().is_none(), "each extent tells its own end");
        if extent.succeeded() {
            check(&found, extent.offset(), SEED, "an extent reported as written");
        }
    }

    // Room again: a transfer to the same target succeeds.
    drop(transfer);
    let mut lease = region.lease(0..MIB).unwrap();
    fill(&mut lease, 0, SEED + 1);
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    target.set_size(MIB as u64).expect("there is room for 1 MiB");
    let done = client.submit(Transfer::write(&target).extent(0, lease)).unwrap().wait().unwrap();
    done.result.expect("there is room");
    check(&right_commands(&written, 0).0, 0, SEED + 1, "written after the disk was full");
}

#[track_caller]
fn assert_full(error: &Error) {
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Resource, Some(libc::ENOSPC)), "{error}");
    assert!(error.message().contains("full"), "{error}");
}

/// The MiB at `offset`, and the bytes of those of its commands that are in the file whole.
fn right_commands(file: &File, offset: u64) -> (Vec<u8>, u64) {
    let mut bytes = vec![0; MIB];
    file.read_exact_at(&mut bytes, offset).unwrap();
    let right = bytes
        .chunks(COMMAND)
        .enumerate()
        .filter(|(i, chunk)| first_mismatch(chunk, offset + (i * COMMAND) as u64, SEED).is_none());
    (bytes.clone(), (right.count() * COMMAND) as u64)
}

/// FACTS §6.18, a drive that goes away. A loop device whose file was cut short fails as a device does: with EIO.
#[test]
fn a_device_that_fails_is_an_error_at_the_first_byte_that_failed() {
    if !uring() {
        return;
    }
    let Some(folder) = folders().into_iter().next() else { return };
    let path = folder.file("disk", 8 * MIB as u64, SEED);
    let device = match Loop::over(&path, 512) {
        Ok(device) => device,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let engine = build(Engine::builder().lanes(2));
    let target = engine.open(&device.path, OpenOptions::read()).unwrap();
    let (client, region) = (engine.client().unwrap(), engine.alloc_host(8 * MIB).unwrap());
    let done = read(&client, &target, &region, 8 * MIB);
    done.result.as_ref().expect("the device works");
    check(&lease_of(done), 0, SEED, "from the device");

    File::options().write(true).open(&path).unwrap().set_len(4 * MIB as u64).unwrap();
    let done = read(&client, &target, &region, 8 * MIB);
    let error = done.result.clone().expect_err("half of the device is gone");
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Io, Some(libc::EIO)), "{error}");
    assert_eq!(error.offset(), Some(4 * MIB as u64), "{error}");
    assert_eq!(done.bytes, 4 * MIB as u64);
    check(&lease_of(done)[..4 * MIB], 0, SEED, "the half that is there");

    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    let done = read(&client, &target, &region, 8 * MIB);
    assert_eq!((done.result.unwrap_err().offset(), done.bytes), (Some(0), 0), "nothing is left");
}

/// Deadlines of transfers that no lane has begun: they fire without being issued, and their memory is not touched.
#[test]
fn a_transfer_that_waits_too_long_for_its_turn_times_out_untouched() {
    if !uring() {
        return;
    }
    for folder in folders() {
        let path = folder.file("data", 8 * MIB as u64, SEED);
        let engine = build(Engine::builder().lanes(1).lane_depth(1));
        let target = engine.open(&path, OpenOptions::read()).unwrap();
        let (client, region) = (engine.client().unwrap(), engine.alloc_host(72 * MIB).unwrap());
        let begin = std::time::Instant::now();
        let before: Vec<_> = (0..8)
            .map(|i| {
                let lease = region.lease(i * 8 * MIB..(i + 1) * 8 * MIB).unwrap();
                client.submit(Transfer::read(&target).extent(0, lease)).unwrap()
            })
            .collect();
        let mut lease = region.lease(64 * MIB..72 * MIB).unwrap();
        poison(&mut lease);
        let late = Transfer::read(&target).extent(0, lease).deadline(Duration::from_micros(1));
        let done = client.submit(late).unwrap().wait().unwrap();
        let error = done.result.clone().expect_err("64 MiB are read before it");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(begin.elapsed() < Duration::from_secs(3), "in time: {:?}", begin.elapsed());
        assert_eq!(done.bytes, 0);
        let lease = lease_of(done);
        for ticket in before {
            ticket.wait().unwrap().result.expect("those before it are not harmed");
        }
        assert!(untouched(&lease), "nothing of it was issued, then or later");
    }
}
