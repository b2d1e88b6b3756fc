"""Ours: every command line of fullbore that rows.py runs, where its report holds what, and one run of it."""

import random

GIB = 1 << 30

# Every command line of ours, in one place. {fb} the program, {f} the file, {v} 1 to verify, {n} in flight.
BENCH = "{fb} bench --output-format=json --filename={f} --size={size} --verify={v} "
TIMED = "--seconds=1 "
OURS = {
    "fill": "{fb} bench --output-format=json --filename={f} --size={size} --bs=4m --arm=8 --rw=write --allow-destructive",
    "dax": BENCH + TIMED + "--target=dax --mem=gpu:0 --bs=20m --arm={n}",
    "dax_polled": BENCH + TIMED + "--target=dax --mem=gpu:0 --bs=20m --arm={n} --polling",
    "requests": BENCH + "--target=dax --mem=gpu:0 --request_size=4g --inflight={n} --requests={requests}",
    "tmpfs": BENCH + TIMED + "--mem=gpu:0 --bs=20m --arm={n} --lanes={lanes}",
    "disk": BENCH + "--mem=gpu:0 --bs=20m --arm={n} --lanes={lanes}",
    "contiguous": BENCH + TIMED + "--mem=gpu:0 --target=dax --bs=20m --arm={n}",
    "scattered": BENCH + TIMED + "--mem=gpu:0 --target=dax --bs=20m --arm={n} --scatter=32k",
    # 32 GiB of others are queued for all of the time.
    "urgent": BENCH + TIMED + "--mem=gpu:0 --target=dax --request_size=4g --requests=8 --priority-probe",
}
# Where in its report things are, below {"fullbore": ...}. `arm` is the last arm that is named "engine".
KEYS = {
    "gbps": "arm.gbps", "seconds": "arm.seconds", "bytes": "arm.bytes", "cpu": "arm.cpu_s_per_gib", "path": "arm.path",
    "verified_bytes": "arm.verified_bytes", "mismatches": "arm.mismatches", "content": "content", "error": "error",
    "completed": "arm.completed_s",  # seconds from the start to each request's completion, in order of completion
    "urgent": "arm.urgent.ms",  # of each urgent load
}

# Bytes of all bounce buffers (what fio and the ring loop get to read into), and the files and loads of every side.
BOUNCE = 8 * (8 << 20)
OBJECT = 20 << 20
TMPFS_BYTES, DISK_BYTES = 8 * GIB, 4 * GIB
REQUEST = 4 * GIB


class Failed(Exception):
    """Of one side; its row says so."""


def made_up(around):
    """Numbers of a dry run."""
    return around * random.uniform(0.97, 1.03)


def pick(report, key):
    value = report
    for step in KEYS[key].split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def ours(run, name, verify=False, **more):
    """One run of the engine."""
    fields = {**run.names, "size": TMPFS_BYTES, "f": run.a.tmpfs, "n": 8, "lanes": 8, "requests": 8, "v": int(verify), **more}
    rate = made_up(54)
    arm = {"arm": "engine", "gbps": rate, "seconds": 2, "bytes": 2 * rate * 1e9, "cpu_s_per_gib": 0.002, "path": "made up",
           "verified_bytes": 1, "mismatches": 0, "urgent": {"ms": [1.1, 1.3]},
           "completed_s": [(k + 1) * REQUEST / (rate * 1e9) for k in range(int(fields["requests"]))]}
    report = run.shell(OURS[name].format(**fields), answer={"fullbore": {"arms": [arm], "content": "own", "error": None}})
    report = report.get("fullbore", report)
    arms = [arm for arm in report.get("arms", []) if arm.get("arm") == "engine"]
    report["arm"] = arms[-1] if arms else {}
    found = {key: pick(report, key) for key in KEYS}
    if found["error"] or found["mismatches"]:
        raise Failed(f"{name}: {found['error'] or str(found['mismatches']) + ' bytes are wrong'}")
    if not found["gbps"]:
        raise Failed(f"{name}: no {KEYS['gbps']} in its report: mend KEYS")
    found["verified"] = bool(found["verified_bytes"]) and found["content"] in ("own", None) if verify else None
    return found
