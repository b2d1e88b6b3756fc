//! Parses what Identify answers. The bytes come from a device: nothing in them is trusted.

use crate::error::{Error, ErrorKind};

/// Bytes of an Identify data structure.
pub const BYTES: usize = 4096;

/// What Identify is asked for (CNS): one namespace, or the controller.
pub const CNS_NAMESPACE: u32 = 0;
/// See [`CNS_NAMESPACE`].
pub const CNS_CONTROLLER: u32 = 1;

/// Of Identify Namespace (NVM Command Set Specification, figure 97), what is used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentifyNamespace {
    /// Size in blocks.
    pub blocks: u64,
    /// A block has `1 << lba_shift` bytes: 9 to 16.
    pub lba_shift: u8,
    /// The number of its LBA format.
    pub format: u8,
    /// Bytes of metadata a block.
    pub metadata: u16,
    /// The namespace is write protected just now.
    pub write_protected: bool,
}

/// Of Identify Controller (NVM Express Base Specification, figure 275), what is used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentifyController {
    pub serial: String,
    pub model: String,
    /// Most bytes of one command, if there is a limit. Counted in the controller's smallest pages, here taken for
    /// 4 KiB: Identify does not say, and none is smaller.
    pub max_bytes: Option<u64>,
    /// There is a volatile write cache: what is written is durable only after a flush.
    pub write_cache: bool,
}

impl IdentifyNamespace {
    pub fn parse(bytes: &[u8; BYTES]) -> Result<IdentifyNamespace, Error> {
        let blocks = number(bytes, 0, 8);
        if blocks == 0 {
            return Err(broken(
                "the namespace has no blocks: it is not active, or not attached to this controller",
            ));
        }
        let formats = bytes[25] as usize + 1;
        let low = bytes[26] as usize & 0xf;
        // The two high bits mean something only where more than 16 formats can be.
        let high = if formats > 16 { bytes[26] as usize >> 5 & 3 } else { 0 };
        let format = high << 4 | low;
        if format >= formats {
            return Err(broken(format!("it says it has LBA format {format} of {formats}")));
        }
        let at = 128 + 4 * format;
        let lba_shift = bytes[at + 2];
        if !(9..=16).contains(&lba_shift) {
            return Err(broken(format!("blocks of 2^{lba_shift} bytes; 512 bytes to 64 KiB are known")));
        }
        if blocks > i64::MAX as u64 >> lba_shift {
            return Err(broken(format!("{blocks} blocks of 2^{lba_shift} bytes are more than 8 EiB")));
        }
        let metadata = number(bytes, at, 2) as u16;
        let write_protected = bytes[99] & 1 != 0;
        Ok(IdentifyNamespace { blocks, lba_shift, format: format as u8, metadata, write_protected })
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.blocks << self.lba_shift
    }
}

impl IdentifyController {
    pub fn parse(bytes: &[u8; BYTES]) -> IdentifyController {
        let max_bytes = match bytes[77] {
            0 => None,
            mdts => 1_u64.checked_shl(12 + mdts as u32),
        };
        let (serial, model) = (text(&bytes[4..24]), text(&bytes[24..64]));
        IdentifyController { serial, model, max_bytes, write_cache: bytes[525] & 1 != 0 }
    }
}

fn broken(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("Identify Namespace makes no sense here: {what}; please report the drive"),
    )
}

fn number(bytes: &[u8; BYTES], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// ASCII, padded with spaces; what else a device puts there is replaced.
fn text(bytes: &[u8]) -> String {
    let shown = |byte: &u8| if (0x20..0x7f).contains(byte) { *byte as char } else { ' ' };
    bytes.iter().map(shown).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Identify Namespace: `formats` are (metadata, lbads); `flbas` chooses.
    fn namespace(blocks: u64, flbas: u8, formats: &[(u16, u8)]) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&blocks.to_le_bytes());
        bytes[25] = formats.len() as u8 - 1;
        bytes[26] = flbas;
        for (index, (metadata, lbads)) in formats.iter().enumerate() {
            let at = 128 + 4 * index;
            bytes[at..at + 2].copy_from_slice(&metadata.to_le_bytes());
            bytes[at + 2] = *lbads;
        }
        bytes
    }

    #[test]
    fn size_and_format_of_ordinary_ones() {
        let bytes = namespace(262_144, 1, &[(0, 9), (0, 12), (8, 12)]);
        let found = IdentifyNamespace::parse(&bytes).unwrap();
        let expected = IdentifyNamespace {
            blocks: 262_144,
            lba_shift: 12,
            format: 1,
            metadata: 0,
            write_protected: false,
        };
        assert_eq!((found, found.size()), (expected, 1 << 30));
        let bytes = namespace(1 << 33, 0, &[(0, 9)]);
        assert_eq!(IdentifyNamespace::parse(&bytes).unwrap().size(), 1 << 42);
    }

    #[test]
    fn the_format_index_has_six_bits_where_there_are_more_than_16() {
        let mut formats = [(0, 9); 64];
        (formats[2], formats[0x12], formats[0x32]) = ((2, 10), (8, 12), (64, 16));
        for (count, flbas, expected) in [
            (64, 0b000_0010, (2, 10)),
            (64, 0b010_0010, (8, 12)),
            (64, 0b110_0010, (64, 16)),
            // Bit 4 says how metadata travels, and is no part of the index.
            (64, 0b111_0010, (64, 16)),
            (17, 0b001_0010, (2, 10)),
            // Sixteen formats: bits 5 and 6 are noise.
            (16, 0b110_0010, (2, 10)),
        ] {
            let found = IdentifyNamespace::parse(&namespace(8, flbas, &formats[..count])).unwrap();
            assert_eq!((found.metadata, found.lba_shift), expected, "{count} formats, flbas {flbas:#b}");
        }
    }

    #[test]
    fn nonsense_is_an_error_that_says_what() {
        for (bytes, what) in [
            (namespace(0, 0, &[(0, 12)]), "no blocks"),
            (namespace(8, 3, &[(0, 12)]), "format 3 of 1"),
            (namespace(8, 0b100_0000, &[(0, 12); 17]), "format 32 of 17"),
            (namespace(8, 0, &[(0, 0)]), "2^0 bytes"),
            (namespace(8, 0, &[(0, 8)]), "2^8 bytes"),
            (namespace(8, 0, &[(0, 17)]), "2^17 bytes"),
            (namespace(8, 0, &[(0, 255)]), "2^255 bytes"),
            (namespace(u64::MAX, 0, &[(0, 12)]), "8 EiB"),
            (namespace(1 << 51, 0, &[(0, 12)]), "8 EiB"),
            ([0xff; BYTES], "2^255"),
        ] {
            let error = IdentifyNamespace::parse(&bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.message().contains(what), "{error} does not say {what}");
        }
    }

    #[test]
    fn write_protection_is_seen() {
        let mut bytes = namespace(8, 0, &[(0, 12)]);
        bytes[99] = 1;
        assert!(IdentifyNamespace::parse(&bytes).unwrap().write_protected);
    }

    #[test]
    fn a_controllers_limit_and_names() {
        let mut bytes = [0; BYTES];
        bytes[4..24].copy_from_slice(b"abc                 ");
        bytes[24..64].copy_from_slice(b"QEMU NVMe Ctrl\0\xff                        ");
        let parsed = IdentifyController::parse(&bytes);
        assert_eq!((parsed.serial.as_str(), parsed.model.as_str()), ("abc", "QEMU NVMe Ctrl"));
        assert_eq!((parsed.max_bytes, parsed.write_cache), (None, false));
        for (mdts, limit) in [(1, Some(8 << 10)), (3, Some(32 << 10)), (7, Some(512 << 10)), (255, None)] {
            bytes[77] = mdts;
            assert_eq!(IdentifyController::parse(&bytes).max_bytes, limit, "mdts {mdts}");
        }
        bytes[525] = 7;
        assert!(IdentifyController::parse(&bytes).write_cache);
    }
}
