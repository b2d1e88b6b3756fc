//! Content that says where it belongs: every 512 bytes carry their own offset and the file's seed.

/// Bytes that carry one offset.
const CELL: usize = 512;
/// What destinations are filled with before a load.
pub const POISON: u8 = 0xA7;

/// The 512 bytes at `offset` (a multiple of 512) of a file with `seed`.
fn cell(offset: u64, seed: u64) -> [u8; CELL] {
    let mut out = [0; CELL];
    // splitmix64 of both, once: cells of other offsets or seeds share no words.
    let mut word = (offset ^ seed.rotate_left(32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^= word >> 31;
    for to in out.chunks_exact_mut(8) {
        to.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    out[..8].copy_from_slice(&offset.to_le_bytes());
    out[8..16].copy_from_slice(&seed.to_le_bytes());
    out
}

/// Calls `visit` with each piece of `len` bytes at `offset`: where it begins in the range, and what it holds.
fn each(len: usize, offset: u64, seed: u64, mut visit: impl FnMut(usize, &[u8]) -> bool) {
    let mut pos = 0;
    while pos < len {
        let at = offset + pos as u64;
        let skip = (at % CELL as u64) as usize;
        let take = (CELL - skip).min(len - pos);
        if !visit(pos, &cell(at - skip as u64, seed)[skip..skip + take]) {
            return;
        }
        pos += take;
    }
}

/// Fills `bytes` with what belongs at `offset` of a file with `seed`; any offset, any length.
pub fn fill(bytes: &mut [u8], offset: u64, seed: u64) {
    each(bytes.len(), offset, seed, |pos, piece| {
        bytes[pos..pos + piece.len()].copy_from_slice(piece);
        true
    });
}

/// The first byte of `bytes` that is not what belongs at `offset` of a file with `seed`.
pub fn first_mismatch(bytes: &[u8], offset: u64, seed: u64) -> Option<usize> {
    let mut wrong = None;
    each(bytes.len(), offset, seed, |pos, piece| {
        let found = &bytes[pos..pos + piece.len()];
        if found != piece {
            wrong = (0..piece.len()).find(|i| found[*i] != piece[*i]).map(|i| pos + i);
        }
        wrong.is_none()
    });
    wrong
}

/// Fails the test unless `bytes` are what belongs at `offset` of a file with `seed`.
#[track_caller]
pub fn check(bytes: &[u8], offset: u64, seed: u64, what: &str) {
    if let Some(at) = first_mismatch(bytes, offset, seed) {
        let found = &bytes[at..bytes.len().min(at + 16)];
        let state = if untouched(found) { "poison: never written" } else { "wrong" };
        panic!(
            "{what}: byte {at} of {} (file offset {}) is {state}: {found:02x?}",
            bytes.len(),
            offset + at as u64
        );
    }
}

/// Fills a destination with what no load may leave there.
pub fn poison(bytes: &mut [u8]) {
    bytes.fill(POISON);
}

/// Whether `bytes` are as [`poison`] left them.
pub fn untouched(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == POISON)
}

#[test]
fn content_tells_offset_and_seed_apart() {
    let mut bytes = vec![0; 5000];
    fill(&mut bytes, 777, 3);
    assert_eq!(first_mismatch(&bytes, 777, 3), None);
    assert_eq!(first_mismatch(&bytes, 777, 4), Some(0), "another seed differs at once");
    assert!(first_mismatch(&bytes, 777 + 512, 3).is_some(), "another offset differs");
    bytes[4999] ^= 1;
    assert_eq!(first_mismatch(&bytes, 777, 3), Some(4999), "the last byte counts");
    let mut whole = vec![0; 8192];
    fill(&mut whole, 0, 3);
    assert_eq!(whole[777..777 + 4999], bytes[..4999], "a part is what the whole has there");
}
