#!/usr/bin/env python3
"""Runs a real fio and fullbore on the same jobs, and demands that every field of fio's JSON is in ours with the same type.

check_fio_fields.py FIO FULLBORE

Both get the same command lines and job files, in a folder of their own. `fio --showcmd` and ours are compared besides, on
those files of tests/jobs that hold keys of fio's alone.
"""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

# Fields of fio's that ours need not have, with the reason.
EXCEPTIONS = {
    "disk_util[]": "the list is empty in ours where the file has no disk of its own, and so are fields of it",
}

# Job files that fio prints otherwise, with the reason.
OTHERWISE = {"many-globals.fio": "fio prints what a later [global] says as if the job before it had said it"}

# Objects whose names are measured values, and not fields.
MEASURED = {"bins"}

JOBS = {
    "one job": "--name=a --filename=data --rw=randread --bs=64k --size=8m --iodepth=4",
    "mixed, two jobs": "--name=a --filename=data --rw=randrw --bs=64k --size=8m --iodepth=4 --name=b --rw=read --filename=data "
    "--bs=1m --size=8m --stonewall",
    "a group": "--group_reporting --numjobs=2 --name=a --filename=data --rw=write --bs=128k --size=8m --description=two",
    "percentiles": "--name=a --filename=data --rw=read --bs=64k --size=8m --lat_percentiles=1 --percentile_list=50:99:99.9",
    "time": "--name=a --filename=data --rw=read --bs=64k --size=8m --time_based --runtime=2 --ramp_time=1 --rate_iops=200",
}
# Both have to go the same way: fio's default is the page cache.
COMMON = "--direct=0 --ioengine=io_uring --thread"


def run(command, folder):
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{shlex.join(map(str, command))}: exit {done.returncode}: {done.stderr or done.stdout}"
    return done.stdout


def report(program, line, folder, form):
    text = run([*program, *shlex.split(f"--output-format={form} --eta=never {COMMON} {line}")], folder)
    return json.loads(text[text.index("{"):])


def kind(value):
    # A float that happens to be whole is a float all the same; true is no number.
    return type(value).__name__


def compare(theirs, ours, path, missing):
    if path in EXCEPTIONS:
        return
    if kind(theirs) != kind(ours):
        missing.append(f"{path} is {kind(theirs)} in fio's and {kind(ours)} in ours")
    elif isinstance(theirs, dict):
        if path.split(".")[-1] in MEASURED:
            assert all(isinstance(n, int) and key.isdigit() for key, n in ours.items()), f"{path}: {ours}"
            return
        for key, value in theirs.items():
            where = f"{path}.{key}".lstrip(".")
            if key not in ours and where not in EXCEPTIONS:
                missing.append(f"{where} is not in ours")
            elif key in ours:
                compare(value, ours[key], where, missing)
    elif isinstance(theirs, list):
        if path + "[]" in EXCEPTIONS and not ours:
            return
        if len(theirs) != len(ours):
            missing.append(f"{path} has {len(theirs)} in fio's and {len(ours)} in ours")
        for their, our in zip(theirs, ours):
            compare(their, our, path + "[]", missing)


def sane(name, theirs, ours):
    """What both were asked for is what both did."""
    for their, our in zip(theirs["jobs"], ours["jobs"]):
        for key in ("jobname", "groupid", "error"):
            assert their[key] == our[key], f"{name}: {key} is {their[key]!r} in fio's and {our[key]!r} in ours"
        for way in ("read", "write"):
            if name == "time":
                ms, ios = our[way]["runtime"], our[way]["total_ios"]
                assert ms == 0 or 2000 <= ms < 4000, f"{name}: {ms} ms"
                # What a machine that stood still in the ramp, of a second, is behind, it makes up for after it.
                assert ios <= 200 * (ms / 1000 + 1) + 1, f"{name}: {ios} in {ms} ms, and 200 a second were asked for"
            elif name != "mixed, two jobs":
                assert their[way]["io_bytes"] == our[way]["io_bytes"], f"{name}: {way} moved {our[way]['io_bytes']} bytes"
        moved = our["read"]["io_bytes"] + our["write"]["io_bytes"]
        # Where a ramp ends, lanes are looked at a moment after the clones.
        assert name == "time" or sum(our["fullbore"]["paths"].values()) >= moved > 0, f"{name}: {our['fullbore']}"
        for part in (our["read"], our["write"]):
            assert sum(part["clat_ns"].get("bins", {}).values()) in (0, part["total_ios"]), f"{name}: bins"


def parts(line):
    """The words of each job, in no order and without backslashes: fio puts some of them last, and loses these."""
    all_parts = [[]]
    for word in shlex.split(line):
        if word.startswith("--name="):
            all_parts.append([word])
        elif word.startswith("--"):
            all_parts[-1].append(word.replace(" ", "").replace("\\", ""))
    return [sorted(part) for part in all_parts]


def command_lines(fio, fullbore):
    """Job files with keys of fio's alone are the same command line in both."""
    files = sorted(pathlib.Path(__file__).resolve().parent.parent.glob("tests/jobs/*.fio"))
    same = 0
    for file in files:
        if file.name in OTHERWISE:
            print(f"{file.name}: {OTHERWISE[file.name]}")
            continue
        env = dict(os.environ, FILE="/data/x", SIZE="2g")
        one = lambda program: subprocess.run([*program, "--showcmd", file], stdin=subprocess.DEVNULL, env=env,
                                             cwd=file.parent, capture_output=True, text=True, timeout=60)
        theirs = one([fio])
        if theirs.returncode or "Bad option" in theirs.stderr + theirs.stdout:
            print(f"{file.name}: fio does not take it: {(theirs.stderr or theirs.stdout).splitlines()[0]}")
            continue
        ours = one([*fullbore])
        assert ours.returncode == 0, f"{file.name}: {ours.stderr}"
        left, right = parts(theirs.stdout), parts(ours.stdout)
        assert left == right, f"{file.name}:\n  fio      {left}\n  fullbore {right}"
        same += 1
    assert same >= 8, f"fio takes {same} of {len(files)} job files"
    print(f"{same} job files are the same command line in both")


def main():
    fio, binary = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    fullbore = [binary, "bench"]
    failed = False
    command_lines(fio, fullbore)
    with tempfile.TemporaryDirectory() as theirs_folder, tempfile.TemporaryDirectory() as ours_folder:
        for name, line in JOBS.items():
            for form in ("json", "json+"):
                theirs = report([fio], line, theirs_folder, form)
                # What an earlier job left is ours to overwrite.
                ours = report([*fullbore, "--allow-destructive"], line, ours_folder, form)
                missing = []
                compare(theirs, ours, "", missing)
                sane(name, theirs, ours)
                print(f"{name}, {form}: {'ok' if not missing else '; '.join(missing)}")
                failed |= bool(missing)
    if failed:
        sys.exit("fields are missing or of another type")


try:
    main()
except AssertionError as error:
    sys.exit(f"check_fio_fields: {error}")
