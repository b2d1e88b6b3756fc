//! PCI peer memory: the drives' controller memory buffers, the stand-in for what a GPU's BAR offers.

use super::drives::{Drive, drives};
use crate::support::{check, within};
use fullbore::{Engine, ErrorKind, Extent, OpenOptions, Path, Region, Target, Transfer};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;
/// Status code type 0, status code 0x12: Invalid Use of Controller Memory Buffer.
const INVALID_USE: u16 = 0x12;

/// The PCI address of a drive.
fn address(drive: &Drive) -> String {
    let controller = drive.path_entry().join("device").canonicalize().expect("its controller in sysfs");
    let pci = controller.ancestors().nth(2).and_then(|p| p.file_name()?.to_str());
    let pci = pci.expect("…/ADDRESS/nvme/nvme0").to_string();
    let engine = Engine::builder().build().expect("an engine");
    let told = engine.open(&drive.node, OpenOptions::read()).expect("the drive").drive().expect("NVMe");
    assert_eq!(told.address.as_ref(), Some(&pci), "{told:?}");
    pci
}

/// An engine with `bytes` of the drive's own memory; `None`, having said why, where this kernel publishes none.
fn with_peer(drive: &Drive, bytes: u64) -> Option<(Engine, Region)> {
    let engine = Engine::builder().build().expect("an engine");
    match engine.map_peer(&address(drive), bytes as usize) {
        Ok(region) => Some((engine, region)),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert_eq!(
                std::env::var("FULLBORE_VM").as_deref(),
                Ok("6.1"),
                "the newest kernel has it: {error}"
            );
            println!("skipped: {error}");
            None
        }
    }
}

/// What peer memory holds, as the CPU sees it through the mapping.
fn seen(region: &Region, len: u64) -> Vec<u8> {
    assert!(len as usize <= region.len());
    // SAFETY: the region is mapped while it is borrowed, and no transfer over it is under way.
    unsafe { std::slice::from_raw_parts(region.as_ptr(), len as usize) }.to_vec()
}

fn moved(engine: &Engine, transfer: Transfer, paths: &str) {
    let done = engine.client().unwrap().submit(transfer).unwrap().wait().unwrap();
    done.result.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(done.paths.to_string(), paths);
}

fn block_target(engine: &Engine, drive: &Drive) -> Target {
    engine.open(drive.block(), OpenOptions::write().force()).expect("the block device")
}

#[test]
fn block_reads_and_writes_move_straight_to_and_from_peer_memory() {
    let Some([drive]) = drives(["d0"]) else { return };
    within(LIMIT, "peer memory", || {
        drive.filled(8 * MIB);
        let Some((engine, region)) = with_peer(&drive, 4 * MIB) else { return };
        let target = block_target(&engine, &drive);
        let report = engine.path(&target, &region);
        assert_eq!(report.path, Path::Plain);
        assert!(report.reason.contains("peer memory"), "{}", report.reason);
        let read = |from: usize, to: usize, at: u64| {
            Transfer::read(&target).extent(at, region.range(from..to).unwrap())
        };
        moved(&engine, read(0, 4 << 20, 2 * MIB).require(Path::Plain), "uring");
        check(&seen(&region, 4 * MIB), 2 * MIB, drive.seed(), "peer memory");

        // And out of it, to where other content was: read back into host memory.
        let far = drive.size - 16 * MIB;
        moved(&engine, Transfer::write(&target).extent(far, region.range(0..4 << 20).unwrap()), "uring");
        let host = engine.alloc_host(4 << 20).unwrap();
        let back = Transfer::read(&target).extent(far, host.lease(0..4 << 20).unwrap());
        let done = engine.client().unwrap().submit(back).unwrap().wait().unwrap();
        check(&done.into_leases().expect("it is read")[0], 2 * MIB, drive.seed(), "peer memory");
        region.release(Duration::from_secs(5)).expect("nothing is in flight");
    });
}

#[test]
fn passthrough_reaches_peer_memory_as_far_as_the_drive_takes_it() {
    let Some([drive]) = drives(["d0"]) else { return };
    within(LIMIT, "peer memory by passthrough", || {
        drive.filled(8 * MIB);
        let Some((engine, region)) = with_peer(&drive, MIB) else { return };
        let target = engine.open(&drive.node, OpenOptions::read()).expect("the drive");
        let read = |len: usize| Transfer::read(&target).extent(4 * MIB, region.range(0..len).unwrap());
        moved(&engine, read(4096), "uring-cmd");
        check(&seen(&region, 4096), 4 * MIB, drive.seed(), "peer memory");

        // The emulated controller wants a long command's list of pages where its data is.
        let done = engine.client().unwrap().submit(read(128 << 10)).unwrap().wait().unwrap();
        let error = done.result.expect_err("the emulated controller refuses it");
        assert_eq!(error.nvme_status().map(|status| status & 0x7ff), Some(INVALID_USE), "{error}");
        for word in ["Invalid Use of Controller Memory Buffer", "PCI peer memory", "block device"] {
            assert!(error.message().contains(word), "{word:?} is not in: {error}");
        }
        let extents = done.transfer.expect("it has drained").into_extents();
        assert_eq!(extents.iter().map(Extent::bytes).sum::<u64>(), 0);
    });
}

#[test]
fn what_gives_no_peer_memory_is_refused_with_the_cause() {
    let Some([drive]) = drives(["d0"]) else { return };
    let Some((engine, _region)) = with_peer(&drive, MIB) else { return };
    let too_much = engine.map_peer(&address(&drive), 1 << 30).expect_err("more than it has");
    assert_eq!(too_much.kind(), ErrorKind::Resource, "{too_much}");
    assert!(too_much.message().contains("free"), "{too_much}");
    let unknown = engine.map_peer("ffff:00:00.0", 4096).expect_err("no such device");
    assert_eq!(unknown.kind(), ErrorKind::NotFound, "{unknown}");
}
