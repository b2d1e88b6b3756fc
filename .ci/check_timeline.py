#!/usr/bin/env python3
"""Checks a trace that `--timeline` wrote, as a viewer of trace events reads it.

check_timeline.py FILE [SECTION=PEAK...]: besides what holds of every trace, the section of that name has so many objects in
flight at most, and that many at some time.

Of every trace: slices of a track lie beside or within each other; each piece of work belongs to an object of its section and
lies inside its time; commands (or units, or copies) add up to the bytes of their object; counters are what the slices make
them, never below nothing, and nothing at the end; arrows lead from objects to their work.
"""

import json
import sys
from collections import defaultdict
from decimal import Decimal

# Layers whose slices are work done for an object.
WORK = {"command", "unit", "copy"}
COUNTERS = {"command": "commands in flight", "unit": "units in flight", "copy": "copies in flight"}


def read(name):
    with open(name, encoding="utf-8") as file:
        trace = json.load(file, parse_float=Decimal)
    events, other = trace["traceEvents"], trace["otherData"]
    names, sections = {}, {}
    for event in events:
        if event["ph"] == "M" and event["name"] == "process_name":
            names[event["pid"]] = event["args"]["name"]
        if event["ph"] == "M" and event["name"] == "process_labels":
            sections[event["pid"]] = (event["args"]["section"], event["args"]["labels"])
    assert names and set(names) == set(sections), "processes without a name"
    for event in events:
        assert event["ph"] in "MXCstf", f"an event of phase {event['ph']}"
        assert event["ph"] == "M" or event["pid"] in names, f"an event of no process: {event}"
        assert event["ph"] == "M" or event["ts"] >= 0, f"a time before the trace: {event}"
    return events, other, names, sections


def end(event):
    return event["ts"] + event["dur"]


def nest(slices):
    """On a track, a slice begins after the one before it has ended, or ends before that does."""
    tracks = defaultdict(list)
    for event in slices:
        assert event["dur"] >= 0, f"a slice of no length: {event}"
        tracks[event["tid"]].append(event)
    for track in tracks.values():
        assert len({event["pid"] for event in track}) == 1, "a track of two processes"
        track.sort(key=lambda event: (event["ts"], -end(event)))
        within = []
        for event in track:
            while within and end(within[-1]) <= event["ts"]:
                within.pop()
            if within:
                assert end(event) <= end(within[-1]), f"slices overlap: {within[-1]} and {event}"
                assert event["cat"] == "landing" and within[-1]["cat"] == "object", f"{event} lies within {within[-1]}"
            within.append(event)


def belongs(section, objects, work, lost):
    """All work is for an object, within its time, and adds up to its bytes."""
    by_id = {event["args"]["trace_id"]: event for event in objects}
    assert len(by_id) == len(objects), f"{section}: two objects have one id"
    moved = defaultdict(lambda: defaultdict(int))
    for event in work:
        whole = by_id.get(event["args"]["trace_id"])
        assert whole, f"{section}: {event} is for no object"
        inside = whole["ts"] <= event["ts"] and end(event) <= end(whole)
        assert inside, f"{section}: {event} does not lie inside {whole}"
        if not event["args"]["failed"]:
            moved[event["args"]["trace_id"]][event["cat"]] += event["args"]["bytes"]
    for number, event in by_id.items():
        if event["args"]["failed"] or lost:
            continue
        sums, wanted = moved[number], event["args"]["bytes"]
        assert wanted in sums.values(), f"{section}: {event} has {wanted} bytes, and its work {dict(sums)}"
        assert sums["command"] in (0, wanted), f"{section}: commands of {event} moved {sums['command']} bytes"
    return by_id


def counter(section, name, events, slices):
    """The counter is what the slices make it. Answers its peak."""
    steps = defaultdict(int)
    for event in slices:
        steps[event["ts"]] += 1
        steps[end(event)] -= 1
    now, wanted = 0, []
    for time in sorted(steps):
        now += steps[time]
        wanted.append((time, now))
    found = [(event["ts"], event["args"]["in flight"]) for event in events]
    assert found == wanted, f"{section}: {name} is not what the slices make it"
    assert not found or (min(value for _, value in found) >= 0 and found[-1][1] == 0), f"{section}: {name} falls below nothing"
    return max((value for _, value in found), default=0)


def arrows(events, slices, sections):
    """Each chain leads from an object through its work."""
    at = defaultdict(list)
    for event in slices:
        at[event["tid"], event["ts"]].append(event)
    chains = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            chains[event["id"]].append(event)
    for chain in chains.values():
        assert [event["ph"] for event in chain] == ["s"] + ["t"] * (len(chain) - 2) + ["f"], f"a chain of {chain}"
        assert all(a["ts"] <= b["ts"] for a, b in zip(chain, chain[1:])), f"a chain that goes back: {chain}"
        ids = set()
        for event in chain:
            touched = at[event["tid"], event["ts"]]
            assert touched, f"an arrow to nothing: {event}"
            ids |= {(sections[event["pid"]], one["args"].get("trace_id")) for one in touched if one["cat"] != "landing"}
        assert len(ids) == 1, f"a chain over several objects: {ids}"


def check(name, wanted):
    events, other, names, sections = read(name)
    slices = [event for event in events if event["ph"] == "X"]
    nest(slices)
    arrows(events, slices, sections)
    lost = other["lost_objects"] + other["lost_work"]
    peaks = {}
    for section in sorted(set(sections.values())):
        title = section[1]
        own = [event for event in slices if sections[event["pid"]] == section]
        objects = [event for event in own if event["cat"] == "object"]
        work = [event for event in own if event["cat"] in WORK]
        assert objects and work, f"{section}: {len(objects)} objects and {len(work)} pieces of work"
        belongs(section, objects, work, lost)
        counters = defaultdict(list)
        for event in events:
            if event["ph"] == "C" and sections[event["pid"]] == section:
                counters[event["name"]].append(event)
        of_objects = [key for key in counters if key in ("objects in flight", "requests in flight")]
        assert len(of_objects) == 1, f"{section}: counters {list(counters)}"
        peaks[title] = counter(section, of_objects[0], counters[of_objects[0]], objects)
        most = {}
        for sort in sorted(WORK):
            of_sort = [event for event in work if event["cat"] == sort]
            most[sort] = counter(section, COUNTERS[sort], counters.get(COUNTERS[sort], []), of_sort)
        text = ", ".join(f"{count} {sort} at once" for sort, count in most.items() if count)
        print(f"{title}: {len(objects)} {of_objects[0].split()[0]}, {peaks[title]} at once; {len(work)} pieces of work, {text}")
    for word in wanted:
        section, _, peak = word.rpartition("=")
        assert section in peaks, f"no section {section}: there are {sorted(peaks)}"
        assert peaks[section] == int(peak), f"{section}: {peaks[section]} objects at once, not {peak}"
    if lost:
        print(f"not in it: {other}")


def main():
    name, *wanted = sys.argv[1:]
    try:
        check(name, wanted)
    except AssertionError as error:
        sys.exit(f"{name}: {error}")
    except (KeyError, TypeError, ValueError) as error:
        sys.exit(f"{name}: not as it should be: {error!r}")


main()
