#!/bin/bash
# A rival: fio with the same footprint as an engine that loads objects, or with one hot buffer.
#
#   benches/compare_fio.sh FILE [key=value ...]
#
#   jobs=1        rings, one thread each
#   pool=160m     bytes of buffers, all jobs together: iodepth is pool / jobs / bs (640 here with 2 jobs)
#   bs=128k       bytes per command
#   total=        bytes to read, all jobs together (the file once)
#   depth=        commands in flight per job, instead of pool / jobs / bs; depth=1 is the hot buffer of the serial arm
#   engine=io_uring
#   batch=1       fio's iodepth_batch_submit and iodepth_batch_complete_min
#   huge=0        1: transparent huge pages for the buffers (glibc 2.35 and newer)
#   rw=read
#
# Each job reads its own part of the file in order. One line of JSON; `gbps` is in units of 10^9 bytes a second.
set -euo pipefail

bytes() {
    local n=${1%[kKmMgG]}
    case $1 in
    *[kK]) echo $((n << 10)) ;;
    *[mM]) echo $((n << 20)) ;;
    *[gG]) echo $((n << 30)) ;;
    *) echo "$1" ;;
    esac
}

[[ $# -ge 1 && $1 != -* ]] || { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; exit 2; }
command -v fio >/dev/null || { echo "compare_fio.sh: fio is not on the PATH" >&2; exit 2; }
file=$1
shift
jobs=1 pool=160m bs=128k total='' depth='' engine=io_uring batch=1 huge=0 rw=read
for arg in "$@"; do
    case $arg in
    jobs=* | pool=* | bs=* | total=* | depth=* | engine=* | batch=* | huge=* | rw=*) declare "$arg" ;;
    *) echo "compare_fio.sh: unknown argument $arg" >&2; exit 2 ;;
    esac
done
case $rw in
read | randread) ;;
*) echo "compare_fio.sh: rw=$rw: this script only reads" >&2; exit 2 ;;
esac

bs=$(bytes "$bs")
pool=$(bytes "$pool")
if [[ -b $file ]]; then length=$(blockdev --getsize64 "$file"); else length=$(stat -Lc %s "$file"); fi
total=$(bytes "${total:-$length}")
depth=${depth:-$((pool / jobs / bs))}
part=$((length / jobs / bs * bs))
share=$((total / jobs / bs * bs))
((depth >= 1 && part >= bs && share >= bs)) || { echo "compare_fio.sh: nothing to read" >&2; exit 2; }

args=(--name=rival --filename="$file" --readonly --direct=1 --thread --rw="$rw" --bs="$bs" --numjobs="$jobs"
    --offset_increment="$part" --size="$part" --io_size="$share" --ioengine="$engine" --iodepth="$depth"
    --group_reporting --output-format=json)
if [[ $engine == io_uring ]]; then args+=(--fixedbufs --registerfiles); fi
if ((batch > 1)); then args+=(--iodepth_batch_submit="$batch" --iodepth_batch_complete_min="$batch"); fi
if ((huge)); then export GLIBC_TUNABLES=glibc.malloc.hugetlb=1; fi

fio "${args[@]}" | python3 -c '
import json, sys
text = sys.stdin.read()
out = json.loads(text[text.index("{"):])
job, names = out["jobs"][0], ("jobs", "depth", "bs", "huge", "batch")
if job["error"]:
    sys.exit("compare_fio.sh: fio reports error %d" % job["error"])
print(json.dumps({
    "gbps": job["read"]["bw_bytes"] / 1e9,
    "seconds": job["read"]["runtime"] / 1000,
    "bytes": job["read"]["io_bytes"],
    "engine": sys.argv[1],
    "fio": out["fio version"],
    **{name: int(value) for name, value in zip(names, sys.argv[2:])},
}))' "$engine" "$jobs" "$depth" "$bs" "$huge" "$batch"
