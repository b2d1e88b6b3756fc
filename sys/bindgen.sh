#!/usr/bin/env bash
# sys/bindgen.sh >sys/src/nvme.rs: makes the bindings from this machine's <linux/nvme_ioctl.h> (package linux-libc-dev).
#
# Needs libclang and `bindgen` of the version below on the PATH (cargo install bindgen-cli --version ... --locked).
# `.ci/bindings` compares what it makes with what is committed. Only what has not changed since Linux 5.19 is taken,
# so that another version of the header makes the same text, but for the line that names it.
set -euo pipefail
cd "$(dirname "$0")"

version=0.73.2 # of bindgen-cli
[ "${1:-}" != --version ] || { echo "$version"; exit 0; }
found=$(bindgen --version)
[ "$found" = "bindgen $version" ] || { echo "sys/bindgen.sh: $found is not bindgen $version" >&2; exit 1; }

code=$(sed -n 's/^#define LINUX_VERSION_CODE //p' /usr/include/linux/version.h)
kernel=$((code >> 16)).$((code >> 8 & 255)).$((code & 255))

bindgen nvme.h --use-core --no-doc-comments --with-derive-default --rust-target 1.85 --rust-edition 2024 \
    --rustfmt-configuration-file "$PWD/../rustfmt.toml" \
    --allowlist-type 'nvme_(uring|passthru)_cmd' --allowlist-var 'NVME_(IOCTL|URING)_.*' \
    --raw-line "// From <linux/nvme_ioctl.h> of Linux $kernel by sys/bindgen.sh."
