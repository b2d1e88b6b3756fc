//! Raw FFI of fullbore, no policy.
//!
//! `nvme` is bindgen's output, committed; `sys/bindgen.sh` makes it, `.ci/bindings` compares. The types and request
//! numbers are those of Linux's `<linux/nvme_ioctl.h>` on x86-64, AArch64 and most others.

#[allow(missing_docs, non_camel_case_types, non_upper_case_globals)]
mod nvme;

pub mod cufile;

pub use nvme::{
    NVME_IOCTL_ADMIN_CMD, NVME_IOCTL_ID, NVME_IOCTL_IO_CMD, NVME_URING_CMD_IO, nvme_passthru_cmd,
    nvme_uring_cmd,
};

#[cfg(any(target_arch = "powerpc", target_arch = "powerpc64", target_arch = "mips", target_arch = "mips64"))]
compile_error!("request numbers have other direction bits here; run sys/bindgen.sh on such a machine");
#[cfg(any(target_arch = "sparc", target_arch = "sparc64"))]
compile_error!("request numbers have other direction bits here; run sys/bindgen.sh on such a machine");

// What the kernel copies out of an SQE's 80 bytes, and the two ioctls' argument. Offsets are bindgen's to check.
const _: () = assert!(size_of::<nvme_uring_cmd>() == 72 && align_of::<nvme_uring_cmd>() == 8);
const _: () = assert!(size_of::<nvme_passthru_cmd>() == 72 && align_of::<nvme_passthru_cmd>() == 8);

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers as strace and other programs know them.
    #[test]
    fn request_numbers() {
        assert_eq!(NVME_IOCTL_ID, 0x4e40);
        assert_eq!(NVME_IOCTL_ADMIN_CMD, 0xc048_4e41);
        assert_eq!(NVME_IOCTL_IO_CMD, 0xc048_4e43);
        assert_eq!(NVME_URING_CMD_IO, 0xc048_4e80);
    }
}
