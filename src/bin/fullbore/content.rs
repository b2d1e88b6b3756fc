//! Content that tells where it belongs: every 512 bytes hold their own file offset, the seed, and a
//! fill made from both, so that a misplaced, stale or torn byte is caught wherever it lands.

/// The bytes that carry one offset and one fill.
pub const SECTOR: usize = 512;
const WORDS: usize = SECTOR / 8;

/// Added to a sector's key word by word: words of a sector differ, and so do equal places in two sectors.
const STEPS: [u64; WORDS] = steps();

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const fn steps() -> [u64; WORDS] {
    let mut steps = [0; WORDS];
    let mut i = 0;
    while i < WORDS {
        steps[i] = mix(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(i as u64 + 1));
        i += 1;
    }
    steps
}

/// What makes up the fill of one sector. Multiplies happen here, once a sector, so that the loops over
/// its words are adds and xors, which every CPU does on vectors.
#[derive(Clone, Copy)]
struct Key {
    add: u64,
    xor: u64,
}

impl Key {
    fn of(sector: u64, seed: u64) -> Self {
        let add = mix(sector ^ mix(seed));
        Self { add, xor: mix(add ^ 0x5851_f42d_4c95_7f2d) }
    }

    #[inline]
    fn word(self, index: usize) -> u64 {
        self.add.wrapping_add(STEPS[index]) ^ self.xor
    }
}

#[inline]
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn fill_sector(out: &mut [u8; SECTOR], sector: u64, seed: u64) {
    let key = Key::of(sector, seed);
    for (index, bytes) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *bytes = key.word(index).to_le_bytes();
    }
    out[..8].copy_from_slice(&sector.to_le_bytes());
    out[8..16].copy_from_slice(&seed.to_le_bytes());
}

#[inline]
fn sector_is_right(bytes: &[u8; SECTOR], sector: u64, seed: u64) -> bool {
    let key = Key::of(sector, seed);
    let words = bytes.as_chunks::<8>().0;
    let head = (word(&words[0]) ^ sector) | (word(&words[1]) ^ seed);
    let fill = words.iter().enumerate().skip(2).fold(0, |bad, (i, bytes)| bad | (word(bytes) ^ key.word(i)));
    head | fill == 0
}

/// Writes what belongs at `offset` of a file with this seed.
pub fn fill(buf: &mut [u8], offset: u64, seed: u64) {
    let (head, first) = head_of(buf.len(), offset);
    let (before, rest) = buf.split_at_mut(head);
    if !before.is_empty() {
        before.copy_from_slice(&rest_of_sector(offset, seed)[..head]);
    }
    let (whole, after) = rest.as_chunks_mut::<SECTOR>();
    for (sector, bytes) in (first..).step_by(SECTOR).zip(whole.iter_mut()) {
        fill_sector(bytes, sector, seed);
    }
    if !after.is_empty() {
        let end = first + (whole.len() * SECTOR) as u64;
        after.copy_from_slice(&rest_of_sector(end, seed)[..after.len()]);
    }
}

/// Bytes that are not what belongs there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wrong {
    pub bytes: u64,
    /// File offset of the first wrong byte.
    pub first: Option<u64>,
}

impl Wrong {
    fn compare(&mut self, got: &[u8], want: &[u8], offset: u64) {
        for (at, _) in got.iter().zip(want).enumerate().filter(|(_, (got, want))| got != want) {
            self.bytes += 1;
            self.first.get_or_insert(offset + at as u64);
        }
    }
}

/// Compares `buf` with what belongs at `offset` of a file with this seed.
pub fn check(buf: &[u8], offset: u64, seed: u64) -> Wrong {
    let mut wrong = Wrong::default();
    let (head, first) = head_of(buf.len(), offset);
    let (before, rest) = buf.split_at(head);
    if !before.is_empty() {
        wrong.compare(before, &rest_of_sector(offset, seed)[..head], offset);
    }
    let (whole, after) = rest.as_chunks::<SECTOR>();
    for (sector, bytes) in (first..).step_by(SECTOR).zip(whole) {
        if !sector_is_right(bytes, sector, seed) {
            wrong.compare(bytes, &rest_of_sector(sector, seed), sector);
        }
    }
    if !after.is_empty() {
        let end = first + (whole.len() * SECTOR) as u64;
        wrong.compare(after, &rest_of_sector(end, seed)[..after.len()], end);
    }
    wrong
}

/// Compares `buf`, read at `offset`, with what another way of reading gave.
pub fn compare(buf: &[u8], want: &[u8], offset: u64) -> Wrong {
    let mut wrong = Wrong::default();
    let step = 64 << 10;
    for (at, (got, want)) in buf.chunks(step).zip(want.chunks(step)).enumerate() {
        if got != want {
            wrong.compare(got, want, offset + (at * step) as u64);
        }
    }
    wrong
}

/// Bytes up to the first whole sector, and the offset of that sector.
fn head_of(len: usize, offset: u64) -> (usize, u64) {
    let head = (offset.next_multiple_of(SECTOR as u64) - offset).min(len as u64);
    (head as usize, offset + head)
}

/// The bytes from `offset` up to the end of its sector, at the front of the answer.
fn rest_of_sector(offset: u64, seed: u64) -> [u8; SECTOR] {
    let within = (offset % SECTOR as u64) as usize;
    let mut sector = [0; SECTOR];
    fill_sector(&mut sector, offset - within as u64, seed);
    sector.copy_within(within.., 0);
    sector
}

/// The offset and seed that a sector claims, if it is whole and belongs to some file of ours.
pub fn claim(bytes: &[u8; SECTOR]) -> Option<(u64, u64)> {
    let (sector, seed) = (word(&bytes[..8]), word(&bytes[8..16]));
    sector_is_right(bytes, sector, seed).then_some((sector, seed))
}

/// What lies at the first wrong byte, in words, to tell a misplaced piece from a stale or a torn one.
pub fn describe(buf: &[u8], offset: u64, wrong: &Wrong, seed: u64, poison: u8) -> String {
    let Some(first) = wrong.first else { return "every byte is right".into() };
    let at = (first - offset) as usize;
    let sector = (first - first % SECTOR as u64).checked_sub(offset).map(|at| at as usize);
    let found = sector.and_then(|at| buf.get(at..at + SECTOR)).and_then(|s| s.first_chunk()).and_then(claim);
    let what = match found {
        Some((there, found)) if found == seed => format!("holds what belongs at offset {there}"),
        Some((there, found)) => format!("holds offset {there} of another file of ours (seed {found:#x})"),
        None if buf[at..].iter().take(16).all(|&b| b == poison) => "was never written (still poison)".into(),
        None => format!("holds {:02x?}", &buf[at..buf.len().min(at + 8)]),
    };
    format!("{} bytes wrong; the first, at offset {first}, {what}", wrong.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 0x1234_5678_9abc_def0;

    fn made(offset: u64, len: usize) -> Vec<u8> {
        let mut buf = vec![0; len];
        fill(&mut buf, offset, SEED);
        buf
    }

    #[test]
    fn any_range_is_a_window_on_the_same_content() {
        let whole = made(0, 8192);
        for (from, to) in
            [(0, 8192), (1, 2), (511, 513), (512, 1024), (100, 5000), (1023, 1025), (7, 7), (4000, 8191)]
        {
            let piece = made(from as u64, to - from);
            assert_eq!(piece, whole[from..to], "{from}..{to}");
            assert_eq!(check(&piece, from as u64, SEED), Wrong::default(), "{from}..{to}");
        }
    }

    #[test]
    fn every_single_wrong_byte_is_found_where_it_is() {
        let offset = 4096 - 100;
        let mut buf = made(offset, 1300);
        for at in 0..buf.len() {
            buf[at] ^= 0x40;
            let wrong = check(&buf, offset, SEED);
            assert_eq!(wrong, Wrong { bytes: 1, first: Some(offset + at as u64) });
            buf[at] ^= 0x40;
        }
    }

    #[test]
    fn misplaced_and_stale_bytes_are_wrong_almost_everywhere() {
        let len = 128 << 10;
        let enough = len as u64 * 99 / 100;
        assert!(check(&made(0, len), 128 << 10, SEED).bytes >= len as u64 * 95 / 100);
        assert!(check(&made(4096, len), 4608, SEED).bytes >= len as u64 * 95 / 100);
        let mut stale = vec![0; len];
        fill(&mut stale, 0, SEED + 1);
        assert!(check(&stale, 0, SEED).bytes >= enough - 4096);
        assert!(check(&vec![0; len], 0, SEED).bytes >= enough - 4096);
    }

    #[test]
    fn a_torn_sector_is_found() {
        let mut buf = made(0, 512);
        let other = made(512, 512);
        buf[256..].copy_from_slice(&other[256..]);
        let wrong = check(&buf, 0, SEED);
        assert!(wrong.bytes > 240 && wrong.first.is_some_and(|first| (256..260).contains(&first)));
    }

    #[test]
    fn words_within_a_sector_differ() {
        let buf = made(1 << 40, 512);
        let mut words: Vec<u64> = buf.chunks(8).map(word).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), WORDS);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |buf: &[u8]| describe(buf, 0, &check(buf, 0, SEED), SEED, 0xa5);
        let moved = made(8192, 4096);
        assert!(wrong(&moved).contains("belongs at offset 8192"), "{}", wrong(&moved));
        assert!(wrong(&[0xa5; 4096]).contains("never written"));
        let mut stale = vec![0; 4096];
        fill(&mut stale, 0, 7);
        assert!(wrong(&stale).contains("another file of ours"));
        let mut bad = made(0, 4096);
        bad[4095] ^= 1;
        assert!(wrong(&bad).starts_with("1 bytes wrong; the first, at offset 4095, holds ["));
        assert!(wrong(&made(0, 4096)).contains("right"));
    }

    #[test]
    fn another_reading_is_compared_byte_by_byte() {
        let want = made(0, 200_000);
        let mut got = want.clone();
        got[150_000] ^= 1;
        got[199_999] ^= 1;
        assert_eq!(compare(&got, &want, 1000), Wrong { bytes: 2, first: Some(151_000) });
    }

    #[test]
    fn sectors_claim_their_place() {
        let buf = made(1024, 512);
        assert_eq!(claim(buf.first_chunk().unwrap()), Some((1024, SEED)));
        assert_eq!(claim(&[0; SECTOR]), None);
    }
}
