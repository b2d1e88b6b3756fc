#!/usr/bin/env bash
# guest.sh FILE: inside the machine, as root: waits for its devices, sets them up, runs the command of FILE (boot.py
# writes it). FULLBORE_VM_OUT is the one folder of the host's that can be written: "ready" and "status" there are how
# boot.py learns of it.
set -uo pipefail
# shellcheck disable=SC1090,SC2154
. "$1"
export PATH=$PATH:/usr/sbin:/sbin

fail() {
    echo "vm: in the guest: $*" >&2
    exit 125
}

# wait_for COUNT PATTERN: files of that pattern. As long as it takes, on a host that does other work as well: boot.py ends a
# boot that takes too long in all.
wait_for() {
    local until=$((SECONDS + 150))
    while [ "$(compgen -G "$2" | wc -l)" -lt "$1" ]; do
        [ $SECONDS -lt $until ] || fail "$(compgen -G "$2" | wc -l) of $1 $2 after 150 s"
        sleep 0.1
    done
}

# Names in /dev/virtio-ports come by udev, and the modules of what was there at its start do; others are loaded here.
# null_blk without a device of its own: tests make theirs in configfs.
modprobe -a nvme virtio_blk ext4 loop || fail "no module"
modprobe null_blk nr_devices=0 || true
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing || fail "no tracefs"

wait_for "$expect_drives" '/dev/ng*n*'
wait_for "$expect_drives" '/dev/nvme*n*'
# Drives are probed at once, so their numbers vary; their names do not.
mkdir -p /dev/drive
for node in /dev/ng*n*; do
    name=${node#/dev/ng}
    ln -s "$node" "/dev/drive/$(tr -d ' ' <"/sys/class/nvme-generic/ng$name/device/serial")-${name##*n}"
done

if [ "$expect_dax" -gt 0 ]; then
    modprobe -a libnvdimm nd_pmem nfit device_dax dax_pmem || fail "no DAX module"
    wait_for "$expect_dax" '/sys/bus/nd/devices/region*'
    for region in $(seq 0 $((expect_dax - 1))); do
        ndctl create-namespace --force --reconfig="namespace$region.0" --mode=devdax --align=2M >/run/ndctl 2>&1 ||
            fail "ndctl: $(cat /run/ndctl)"
    done
    wait_for "$expect_dax" '/dev/dax*'
fi

# Tests send QMP commands by this port, a line each; its greeting is answered here, once for all.
wait_for 1 /dev/virtio-ports/qmp
exec {qmp}<>/dev/virtio-ports/qmp
echo '{"execute": "qmp_capabilities"}' >&$qmp
for answer in greeting return; do
    read -r -t 60 answer <&$qmp || fail "no QMP: no $answer"
done
exec {qmp}>&-

# A temp folder on a disk, which takes O_DIRECT: the root is 9p and read-only, /tmp an overlay in memory.
wait_for 1 /dev/vda
export TMPDIR=/run/scratch
mkdir -p $TMPDIR
mount -t ext4 /dev/vda $TMPDIR || fail "no scratch disk"

cd "$folder" || fail "no $folder"
touch "$FULLBORE_VM_OUT/ready"
timeout --kill-after=10 "$limit" "${command[@]}"
echo $? >"$FULLBORE_VM_OUT/status"
