//! Which path cuFile has: direct, by which mechanism, or its compatibility mode, and why. And what P2PDMA asks of a range.

use fullbore_sys::cufile::{
    CU_FILE_NVME_P2P_SUPPORTED, CU_FILE_NVME_SUPPORTED, CU_FILE_P2P_SUPPORTED, CU_FILE_POSIX_IO_MODE,
    CUFILE_P2PDMA, CUFILE_PARAM_FORCE_COMPAT_MODE, CUFILE_PARAM_USE_PCIP2PDMA, CUfileDrvProps_t,
    CUfileError_t, Table,
};

/// The mechanism of a direct path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The kernel module nvidia-fs.
    NvidiaFs,
    /// PCI P2PDMA of the kernel itself.
    P2pDma,
}

/// What cuFile does with a request on this machine. Of one file only its registration can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The device writes to the GPU's memory.
    Direct { by: By },
    /// Through host memory of cuFile's, by POSIX calls: slower than our own bounce buffers, and it has been seen to hang.
    Compat,
}

/// What the library says of itself; `None`: it has no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub properties: Option<CUfileDrvProps_t>,
    pub nvme_p2p: Option<u32>,
    pub force_compat: Option<bool>,
    pub use_p2pdma: Option<bool>,
    /// `cuFileGetVersion`'s number: 1150 is 1.15.
    pub version: Option<i32>,
}

impl Facts {
    /// Asks an open driver.
    pub(super) fn ask(table: &Table) -> Facts {
        let good = |answer: CUfileError_t| answer.err == 0;
        let mut properties = CUfileDrvProps_t::default();
        let (mut flags, mut version) = (0, 0);
        let boolean = |parameter| {
            let mut value = false;
            // SAFETY: the value lives across the call.
            let answer = table.get_parameter_bool.map(|ask| unsafe { ask(parameter, &mut value) });
            answer.is_some_and(good).then_some(value)
        };
        // SAFETY: what is written to lives across the calls; the properties have room to grow.
        let (p, f, v) = unsafe {
            (
                table.driver_get_properties.map(|ask| ask(&mut properties)),
                table.driver_get_p2p_flags.map(|ask| ask(CU_FILE_NVME_SUPPORTED, &mut flags)),
                table.get_version.map(|ask| ask(&mut version)),
            )
        };
        Facts {
            properties: p.is_some_and(good).then_some(properties),
            nvme_p2p: f.is_some_and(good).then_some(flags),
            force_compat: boolean(CUFILE_PARAM_FORCE_COMPAT_MODE),
            use_p2pdma: boolean(CUFILE_PARAM_USE_PCIP2PDMA),
            version: v.is_some_and(good).then_some(version),
        }
    }

    /// The mode, and a sentence for people.
    pub(super) fn judge(&self) -> (Mode, String) {
        let library = match self.version {
            Some(version) => format!("libcufile {}.{}", version / 1000, version % 1000 / 10),
            None => "libcufile".to_owned(),
        };
        match self.direct() {
            Ok((by, how)) => (Mode::Direct { by }, format!("cuFile is direct: {how} ({library})")),
            Err(why) => (Mode::Compat, format!("cuFile is in compatibility mode: {why} ({library})")),
        }
    }

    fn direct(&self) -> Result<(By, String), String> {
        let properties = self.properties.ok_or("its properties cannot be asked; update libcufile")?;
        let nvfs = properties.nvfs;
        let has = |flags: u32, bit: u32| flags >> bit & 1 == 1;
        if self.force_compat == Some(true) || has(nvfs.dcontrolflags, CU_FILE_POSIX_IO_MODE) {
            return Err(
                "the configuration demands it; see properties.force_compat_mode in cufile.json and the \
                        environment's CUFILE_FORCE_COMPAT_MODE"
                    .to_owned(),
            );
        }
        // Every bit but P2PDMA's is a kind of storage that is registered with nvidia-fs, if that is loaded.
        let loaded = (nvfs.major_version, nvfs.minor_version) != (0, 0);
        let kinds = nvfs.dstatusflags & !(1 << CU_FILE_NVME_P2P_SUPPORTED);
        let version = format!("nvidia-fs {}.{}", nvfs.major_version, nvfs.minor_version);
        if loaded && kinds != 0 {
            return Ok((By::NvidiaFs, version));
        }
        let p2p = match self.nvme_p2p {
            Some(flags) => has(flags, CUFILE_P2PDMA),
            None => {
                has(nvfs.dstatusflags, CU_FILE_NVME_P2P_SUPPORTED)
                    || has(properties.fflags, CU_FILE_P2P_SUPPORTED)
            }
        };
        if p2p && self.use_p2pdma != Some(false) {
            return Ok((By::P2pDma, "PCI P2PDMA".to_owned()));
        }
        let nvfs = if loaded { version + " has no storage driver" } else { "nvidia-fs absent".to_owned() };
        let p2p = if self.use_p2pdma == Some(false) {
            "P2PDMA is off (properties.use_pci_p2pdma in cufile.json)"
        } else {
            "P2PDMA unsupported (needs the open kernel driver 565 or later, Linux 6.2 or later and a static BAR1)"
        };
        Err(format!("{nvfs}, {p2p}"))
    }
}

/// Bytes: what P2PDMA moves is aligned to this in the file, in memory and in length.
pub const DIRECT_ALIGN: u64 = 4096;

/// What keeps a range off the direct path, if anything does: the one of offset in the file, offset in the buffer and
/// length (all in bytes) that is not a multiple of [`DIRECT_ALIGN`]. cuFile would bounce such a range by itself and
/// not say so; ours does.
pub fn misaligned(file_offset: u64, offset_in_buffer: u64, len: u64) -> Option<&'static str> {
    let odd = |value: u64| !value.is_multiple_of(DIRECT_ALIGN);
    match (odd(file_offset), odd(offset_in_buffer), odd(len)) {
        (true, ..) => Some("the offset in the file is not a multiple of 4096"),
        (_, true, _) => Some("the offset in GPU memory is not a multiple of 4096"),
        (.., true) => Some("the length is not a multiple of 4096"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// nvfs version, status flags, feature flags.
    fn facts(nvfs: (u32, u32), status: u32, features: u32) -> Facts {
        let mut properties = CUfileDrvProps_t::default();
        properties.fflags = features;
        (properties.nvfs.major_version, properties.nvfs.minor_version) = nvfs;
        properties.nvfs.dstatusflags = status;
        let (off, on) = (Some(false), Some(true));
        let version = Some(1150);
        Facts { properties: Some(properties), nvme_p2p: None, force_compat: off, use_p2pdma: on, version }
    }

    #[test]
    fn a_direct_path_is_believed_only_with_its_evidence() {
        let by = |facts: Facts| match facts.judge().0 {
            Mode::Direct { by } => Some(by),
            Mode::Compat => None,
        };
        let (nvme, p2p) = (1 << CU_FILE_NVME_SUPPORTED, 1 << CU_FILE_NVME_P2P_SUPPORTED);
        assert_eq!(by(facts((2, 27), nvme, 0)), Some(By::NvidiaFs));
        assert_eq!(by(facts((2, 27), 0, 0)), None, "loaded, and no storage driver speaks to it");
        assert_eq!(by(facts((0, 0), nvme, 0)), None, "without nvidia-fs the bit says nothing");
        assert_eq!(by(facts((0, 0), nvme | p2p, 0)), Some(By::P2pDma));
        assert_eq!(
            by(facts((2, 27), p2p, 0)),
            Some(By::P2pDma),
            "P2PDMA's bit is no storage driver of nvidia-fs"
        );
        assert_eq!(
            by(facts((0, 0), 0, 1 << CU_FILE_P2P_SUPPORTED)),
            Some(By::P2pDma),
            "as newer libraries say it"
        );
        let newer = facts((0, 0), nvme | p2p, 0);
        assert_eq!(by(Facts { nvme_p2p: Some(0), ..newer }), None, "the newest say it for each kind");
        assert_eq!(by(Facts { nvme_p2p: Some(1), ..facts((0, 0), 0, 0) }), Some(By::P2pDma));
        assert_eq!(by(Facts { use_p2pdma: Some(false), ..newer }), None, "it is off");
        assert_eq!(by(Facts { force_compat: Some(true), ..newer }), None);
        let mut posix = facts((2, 27), nvme, 0);
        posix.properties.as_mut().unwrap().nvfs.dcontrolflags = 1 << CU_FILE_POSIX_IO_MODE;
        assert_eq!(by(posix), None);
        assert_eq!(by(Facts::default()), None);
    }

    #[test]
    fn the_reason_names_what_is_missing() {
        let said = facts((0, 0), 0, 0).judge().1;
        assert!(
            said.starts_with("cuFile is in compatibility mode: nvidia-fs absent, P2PDMA unsupported"),
            "{said}"
        );
        assert!(said.ends_with("(libcufile 1.15)"), "{said}");
        let said = Facts { use_p2pdma: Some(false), ..facts((2, 27), 0, 0) }.judge().1;
        assert!(said.contains("nvidia-fs 2.27 has no storage driver, P2PDMA is off"), "{said}");
    }

    #[test]
    fn what_p2pdma_asks_of_a_range() {
        assert_eq!(misaligned(4096, 0, 8192), None);
        assert_eq!(misaligned(0, 0, 0), None);
        assert!(misaligned(512, 0, 4096).unwrap().contains("file"));
        assert!(misaligned(0, 4095, 4096).unwrap().contains("GPU memory"));
        assert!(misaligned(0, 0, 4097).unwrap().contains("length"));
    }
}
