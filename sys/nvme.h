/*
 * What bindgen reads: the kernel's own header, and its request numbers as constants of the same names, as bindgen
 * does not see numbers that a macro with arguments makes.
 */
#include <linux/ioctl.h>
#include <linux/nvme_ioctl.h>

enum numbers {
	id = NVME_IOCTL_ID,
	admin_cmd = NVME_IOCTL_ADMIN_CMD,
	io_cmd = NVME_IOCTL_IO_CMD,
	uring_cmd_io = NVME_URING_CMD_IO,
};

#undef NVME_IOCTL_ID
#undef NVME_IOCTL_ADMIN_CMD
#undef NVME_IOCTL_IO_CMD
#undef NVME_URING_CMD_IO

static const __u32 NVME_IOCTL_ID = id;
static const __u32 NVME_IOCTL_ADMIN_CMD = admin_cmd;
static const __u32 NVME_IOCTL_IO_CMD = io_cmd;
static const __u32 NVME_URING_CMD_IO = uring_cmd_io;
