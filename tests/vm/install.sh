#!/usr/bin/env bash
# install.sh DIR: all that tests/vm/run needs: programs installed, virtme-ng and two kernels under DIR. Done once; a
# second call finds everything and takes a second. Says what each step took; its last line of error says why it gave up.
#
# No registry's host is written here: Debian's mirror is the one this machine is set to, PyPI the one pip is set to.
set -euo pipefail

dir=$(realpath -m "$1")
virtme='virtme-ng==1.42'
# Two, because of what differs: in 6.1 fixed passthrough over big registrations is broken and must step down.
declare -A kernels=([newest]=trixie-backports [6.1]=bookworm)
# Programs the boot or the guest calls, with the package each comes in. udev: it makes /dev/virtio-ports/*, by which the
# guest's output comes out. busybox-static: virtme-ng's initramfs is made of it.
declare -A programs=(
    [python3]=python3 [depmod]=kmod [udevadm]=udev [busybox]=busybox-static [file]=file [flock]=util-linux
    [mkfs.ext4]=e2fsprogs [ip]=iproute2 [ndctl]=ndctl [nvme]=nvme-cli [fio]=fio [setpriv]=util-linux
)
export DEBIAN_FRONTEND=noninteractive PATH=$PATH:/usr/sbin:/sbin

die() { echo "vm: install: $*" >&2; exit 1; }
trap 'echo "vm: install: line $LINENO failed" >&2' ERR

# step HEADING LIMIT COMMAND...: a program, or a function that is exported.
step() {
    local heading=$1 limit=$2 start=$SECONDS log=$dir/install.log status=0
    shift 2
    timeout --kill-after=10 "$limit" bash -euo pipefail -c '"$@"' - "$@" >"$log" 2>&1 </dev/null || status=$?
    if [ $status != 0 ]; then
        tail -n 20 "$log" >&2
        die "$heading failed (exit $status) after $((SECONDS - start)) s: $(grep -v '^W:' "$log" | tail -n 1)"
    fi
    echo "vm: $heading: $((SECONDS - start)) s"
}

mkdir -p "$dir"
exec 9>"$dir/install.lock" # two at once would unpack over each other
flock -w 1200 9 || die "another install in $dir does not end"

missing=()
for program in "${!programs[@]}"; do
    command -v "$program" >/dev/null || missing+=("${programs[$program]}")
done
# The package brings ensurepip, without which `python3 -m venv` makes a folder without pip.
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
# 7.2, bookworm's own, booted, but most of what is used here was only ever run on 10.
major() { "$1" --version 2>/dev/null | sed -n '1s/.*version \([0-9]*\).*/\1/p'; }
qemu=$(major qemu-system-x86_64 || true)

need_kernels=()
for kernel in "${!kernels[@]}"; do
    [ -e "$dir/kernels/$kernel" ] || need_kernels+=("$kernel")
done

# An apt of our own: its lists and downloads lie in DIR, the machine's sources are not touched. The rest of the machine's
# settings (proxy, keyrings, which packages are installed) stays in force.
own_apt_get() { apt-get -c "$dir/apt/apt.conf" --yes --no-install-recommends "$@"; }
export -f own_apt_get
export dir

set_up_apt() {
    [ -z "${apt_ready:-}" ] || return 0
    apt_ready=1
    command -v apt-get >/dev/null || die "no apt-get: this works on Debian only"
    # Errors of third parties' sources are none of ours: what is missing shows below.
    echo "vm: apt-get update"
    timeout 300 apt-get -o DPkg::Lock::Timeout=120 update >"$dir/install.log" 2>&1 </dev/null || true
    local codename mirror security keyring=/usr/share/keyrings/debian-archive-keyring.gpg signed='' suite
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    site() { # SUITE: the address this machine has it from
        apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
            awk -v suite="$1" '$1 == suite && $2 == "main" { print $3; exit }'
    }
    mirror=$(site "$codename")
    security=$(site "$codename-security")
    [ -n "$mirror" ] || die "apt has no mirror for $codename main (apt-get update: $(tail -n 1 "$dir/install.log"))"
    if [ -e $keyring ]; then
        signed="[signed-by=$keyring]"
    else
        echo "vm: no $keyring: signatures are checked against all of apt's trusted keys"
    fi
    mkdir -p "$dir"/apt/{state/lists/partial,cache/archives/partial} "$dir/debs"
    for suite in "$codename" bookworm "$codename-backports" trixie-backports; do
        echo "deb $signed $mirror $suite main"
    done | sort -u >"$dir/apt/sources.list"
    # bookworm's newest 6.1 comes by way of security.
    [ -z "$security" ] || echo "deb $signed $security $codename-security main" >>"$dir/apt/sources.list"
    cat >"$dir/apt/apt.conf" <<END
Dir::State "$dir/apt/state";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "$dir/apt/cache";
Dir::Etc::sourcelist "$dir/apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::preferencesparts "/dev/null";
DPkg::Lock::Timeout "300";
APT::Sandbox::User "root";
END
    # The keys of trixie came to bookworm's keyring late. A newer keyring, itself checked by bookworm's keys, is the way
    # to them; what no key vouches for is refused by apt, and the whole step ends here.
    if [ -e $keyring ] && [ ! -e /usr/share/keyrings/debian-archive-trixie-automatic.gpg ]; then
        step "newer keyring" 300 apt-get --yes install debian-archive-keyring
    fi
    step "package lists" 300 own_apt_get update -o APT::Update::Error-Mode=any
}

if [ ${#missing[@]} -gt 0 ]; then
    set_up_apt
    step "installed ${missing[*]}" 600 own_apt_get install "${missing[@]}"
fi
if [ "${qemu:-0}" -lt 9 ]; then
    set_up_apt
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    [ "$release" != bookworm ] || release=bookworm-backports
    step "installed QEMU of $release" 600 own_apt_get install -t "$release" qemu-system-x86
fi

virtme_venv() {
    rm -rf "$dir/venv"
    python3 -m venv "$dir/venv"
    "$dir/venv/bin/pip" install --quiet "$virtme"
    # Its mount of the guest's root keeps nothing: each page of each program comes by 9p again and again. Kept, a boot costs
    # 28 s of CPU and not 48. Nothing of the root that the guest reads changes meanwhile. (If a version of it words the line
    # otherwise, the boot is slower, no more.)
    sed -i 's/access=any,msize=524288/&,cache=loose/' "$dir"/venv/lib/python3*/site-packages/virtme/mkinitramfs.py
}
export -f virtme_venv
export virtme
if ! compgen -G "$dir/venv/lib/python3*/site-packages/virtme_ng-${virtme#*==}.dist-info/RECORD" >/dev/null; then
    step "$virtme in a virtual environment" 300 virtme_venv
fi

# unpack SUITE LINK: the kernel that linux-image-amd64 of SUITE stands for, unpacked (nothing of it is installed) to
# kernels/VERSION, LINK pointing there. linux-image-* needs the packages with its files, or is them.
unpack() {
    local suite=$1 link=$2 package version wanted=(linux-image-amd64) done=" " tree=$dir/kernels/.$2 deb
    rm -rf "$tree" "$dir/debs/$link" && mkdir -p "$tree" "$dir/debs/$link" && cd "$dir/debs/$link"
    while [ ${#wanted[@]} -gt 0 ]; do
        package=${wanted[0]} wanted=("${wanted[@]:1}")
        case $done in *" $package "*) continue ;; esac
        done+="$package "
        own_apt_get download "$package/$suite"
        # Only what has a version in its name belongs to the kernel; linux-base does not.
        for deb in "${package}"_*.deb; do
            mapfile -t more < <(dpkg-deb -f "$deb" Depends | tr ',' '\n' | awk '$1 ~ /^linux-.*[0-9]/ { print $1 }')
            wanted+=("${more[@]}")
            dpkg-deb -x "$deb" "$tree"
        done
    done
    # Packages of merged-/usr times have usr/lib/modules, older ones lib/modules; the boot wants lib/modules.
    [ -e "$tree/lib" ] || ln -s usr/lib "$tree/lib"
    version=$(ls "$tree/lib/modules")
    [ -e "$tree/lib/modules/$version/vmlinuz" ] || cp "$tree/boot/vmlinuz-$version" "$tree/lib/modules/$version/vmlinuz"
    depmod -b "$tree" "$version"
    rm -rf "$dir/kernels/$version" "$dir/debs/$link"
    mv "$tree" "$dir/kernels/$version"
    ln -sfn "$version" "$dir/kernels/$link"
}
export -f unpack
for kernel in "${need_kernels[@]}"; do
    set_up_apt
    step "kernel $kernel unpacked" 600 unpack "${kernels[$kernel]}" "$kernel"
done

# The guest mounts its modules over this folder, and its root (ours, read-only) must have it. Empty, it harms nothing.
[ -d /lib/modules ] || mkdir /lib/modules
for kernel in "${!kernels[@]}"; do
    echo "vm: kernel $kernel is $(readlink "$dir/kernels/$kernel")"
done
