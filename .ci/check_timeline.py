#!/usr/bin/env python3
"""Checks a trace that `--timeline` wrote, with a reader of its own for the packets of Perfetto's format.

check_timeline.py FILE [SECTION=PEAK...]: besides what holds of every trace, the section of that name has so many requests or
objects in flight at most, and that many at some time. SECTION<=PEAK: at most. (Each request is a thread's: whether two run side
by side is the machine's to say. Objects are one thread's, which submits all that may be in flight before it waits.)

Of every trace: slices of a track lie beside or within each other; each piece of work belongs to a request or an object of its
section and lies inside its time; commands (or units, or copies) add up to the bytes of it; so do the objects inside a request,
each of which lies inside it and around its own work; counters are what the slices make them, never below nothing, and nothing
at the end; arrows lead from objects to their work.
"""

import sys
from collections import defaultdict

# Layers whose slices are work done for an object.
WORK = {"command", "unit", "copy"}
COUNTERS = {"command": "commands in flight", "unit": "units in flight", "copy": "copies in flight"}
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


def fields(data):
    """The fields of a message: number, and an integer or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        number, wire = key >> 3, key & 7
        assert wire in (0, 1, 2), f"a field of wire type {wire}"
        if wire == 0:
            yield number, varint()
        else:
            size = 8 if wire == 1 else varint()
            assert at + size <= len(data), "a field goes on behind its message"
            value = data[at : at + size]
            at += size
            yield number, int.from_bytes(value, "little") if wire == 1 else value


def message(data, once, many=None):
    """A message by the names of its fields, of those in `many` a list. Other fields are none of ours."""
    many = many or {}
    names = {number: name for name, number in [*once.items(), *many.items()]}
    found = {name: [] for name in many}
    for number, value in fields(data):
        name = names.get(number)
        assert name, f"a field of number {number}"
        if name in many:
            found[name].append(value)
        else:
            assert name not in found, f"field {name} twice"
            found[name] = value
    return found


def text(value):
    return value.decode("utf-8")


class Trace:
    """Its tracks, and on each its slices and the values of its counter."""

    def __init__(self, data):
        self.tracks, self.slices, self.counters, self.lost, open_slices = {}, [], defaultdict(list), {}, defaultdict(list)
        for number, packet in fields(data):
            assert number == 1, f"field {number} of a trace"
            packet = message(packet, {"time": 8, "sequence": 10, "event": 11, "track": 60})
            assert packet["sequence"] == 1 and ("event" in packet) != ("track" in packet), f"packet {packet}"
            if "track" in packet:
                self.track(packet["track"])
            else:
                self.event(packet["time"], packet["event"], open_slices)
        assert not any(open_slices.values()), "a slice without an end"

    def track(self, data):
        track = message(data, {"uuid": 1, "name": 2, "parent": 5, "counter": 8, "ordering": 11, "rank": 12})
        assert track["uuid"] not in self.tracks and track["ordering"] == 3 and track["name"], f"track {track}"
        assert track["uuid"] == 1 or track["parent"] in self.tracks, f"a track of none that is there: {track}"
        track["name"] = text(track["name"])
        self.tracks[track["uuid"]] = track

    def event(self, time, data, open_slices):
        once = {"type": 9, "track": 11, "category": 22, "name": 23, "value": 30}
        event = message(data, once, {"notes": 4, "flows": 47})
        track = self.tracks[event["track"]]
        assert event["type"] in (BEGIN, END, INSTANT, COUNTER), f"an event of type {event['type']}"
        assert (event["type"] == COUNTER) == ("counter" in track), f"{event} on track {track}"
        args = dict(self.note(note) for note in event["notes"])
        if event["type"] == COUNTER:
            self.counters[event["track"]].append((time, event["value"]))
        elif event["type"] == INSTANT:
            self.lost = args
        elif event["type"] == BEGIN:
            slice_ = {"track": event["track"], "ts": time, "name": text(event["name"]), "cat": text(event["category"])}
            slice_.update(args=args, flows=event["flows"], depth=len(open_slices[event["track"]]), order=len(self.slices))
            open_slices[event["track"]].append(slice_)
            self.slices.append(slice_)
        else:
            assert open_slices[event["track"]], f"an end of nothing on {track}"
            slice_ = open_slices[event["track"]].pop()
            slice_["end"] = time
            assert time >= slice_["ts"], f"a slice that ends before it begins: {slice_}"

    def note(self, data):
        note = message(data, {"name": 10, "bool": 2, "uint": 3, "double": 5, "string": 6})
        name = text(note.pop("name"))
        ((kind, value),) = note.items()
        return name, text(value) if kind == "string" else value

    def section(self, track):
        """The track just under the root that it is in."""
        while self.tracks[track].get("parent") != 1:
            track = self.tracks[track]["parent"]
        return track


def nest(trace):
    """On a track, a slice begins after the one before it has ended, or ends before that does."""
    last = {}
    for event in trace.slices:
        over = last.setdefault(event["track"], [])
        while over and over[-1]["end"] <= event["ts"]:
            over.pop()
        assert len(over) == event["depth"], f"slices overlap: {over} and {event}"
        if over:
            assert event["end"] <= over[-1]["end"], f"{event} goes on behind {over[-1]}"
            assert (event["cat"], over[-1]["cat"]) == ("landing", "request"), f"{event} lies within {over[-1]}"
        over.append(event)


def inside(one, other):
    return other["ts"] <= one["ts"] and one["end"] <= other["end"]


def belongs(section, wholes, work, lost):
    """All work is for a request or an object, within its time, and adds up to its bytes."""
    by_id = {event["args"]["trace_id"]: event for event in wholes}
    assert len(by_id) == len(wholes), f"{section}: two objects have one id"
    moved = defaultdict(lambda: defaultdict(int))
    for event in work:
        whole = by_id.get(event["args"]["trace_id"])
        assert whole, f"{section}: {event} is for no object"
        assert inside(event, whole), f"{section}: {event} does not lie inside {whole}"
        if not event["args"].get("failed"):
            moved[event["args"]["trace_id"]][event["cat"]] += event["args"]["bytes"]
    for number, event in by_id.items():
        if event["args"].get("failed") or lost:
            continue
        sums, wanted = moved[number], event["args"]["bytes"]
        assert wanted in sums.values(), f"{section}: {event} has {wanted} bytes, and its work {dict(sums)}"
        assert sums["command"] in (0, wanted), f"{section}: commands of {event} moved {sums['command']} bytes"
    return by_id


def within_requests(section, requests, objects, work, lost):
    """The objects of a request lie inside it, are all of it, and lie around their own commands."""
    by_flow, of_request = {}, defaultdict(list)
    for event in objects:
        request = requests[event["args"]["trace_id"]]
        assert inside(event, request), f"{section}: {event} does not lie inside {request}"
        (flow,) = event["flows"]
        assert flow in request["flows"], f"{section}: no arrow from {request} to {event}"
        by_flow[flow] = event
        of_request[event["args"]["trace_id"]].append(event)
    times, moved = defaultdict(lambda: [None, None]), defaultdict(int)
    for event in work:
        for flow in event["flows"]:
            whole = by_flow.get(flow)
            if not whole:
                continue
            assert inside(event, whole), f"{section}: {event} does not lie inside {whole}"
            assert event["args"]["trace_id"] == whole["args"]["trace_id"], f"{section}: {event} is for no part of {whole}"
            begun, ended = times[flow]
            times[flow] = [min(begun or event["ts"], event["ts"]), max(ended or 0, event["end"])]
            if event["cat"] == "command":
                first, behind = whole["args"]["offset"], whole["args"]["offset"] + whole["args"]["bytes"]
                at = event["args"]["offset"]
                assert first <= at and at + event["args"]["bytes"] <= behind, f"{section}: {event} is not of {whole}"
                moved[flow] += event["args"]["bytes"]
    for flow, event in by_flow.items():
        assert times[flow] == [event["ts"], event["end"]], f"{section}: {event} is not as long as its work"
        whole = moved[flow] in (0, event["args"]["bytes"]) or event["args"].get("failed") or lost
        assert whole, f"{section}: commands of {event} moved {moved[flow]} bytes"
    for number, request in requests.items():
        count = request["args"].get("objects")
        if count and not request["args"].get("failed") and not lost:
            numbers = sorted(event["args"]["object"] for event in of_request[number])
            assert numbers == list(range(count)), f"{section}: of {request} there are objects {numbers}"
            assert sum(event["args"]["bytes"] for event in of_request[number]) == request["args"]["bytes"], f"{request}"


def counter(section, name, found, slices):
    """The counter is what the slices make it. Answers its peak."""
    steps = defaultdict(int)
    for event in slices:
        steps[event["ts"]] += 1
        steps[event["end"]] -= 1
    now, wanted = 0, []
    for time in sorted(steps):
        now += steps[time]
        wanted.append((time, now))
    assert found == wanted, f"{section}: {name} is not what the slices make it"
    assert not found or (min(value for _, value in found) >= 0 and found[-1][1] == 0), f"{section}: {name} falls below nothing"
    return max((value for _, value in found), default=0)


def arrows(trace, lost):
    """Each chain leads from a request or an object through its work, in time."""
    chains = defaultdict(list)
    for event in sorted(trace.slices, key=lambda event: (event["ts"], event["order"])):
        for flow in event["flows"]:
            chains[flow].append(event)
    for event in trace.slices:
        assert event["flows"] or event["cat"] == "landing" or event["args"].get("failed") or lost, f"{event} has no arrows"
    for chain in chains.values():
        layers = [event["cat"] for event in chain]
        behind = layers.index("object") + 1 if "object" in layers else 1
        assert layers[:behind] in (["object"], ["request"], ["request", "object"]), f"a chain of {layers}"
        assert set(layers[behind:]) <= WORK, f"a chain of {layers}"
        ids = {(trace.section(event["track"]), event["args"]["trace_id"]) for event in chain}
        assert len(ids) == 1, f"a chain over several objects: {ids}"


def check(name, wanted):
    with open(name, "rb") as file:
        trace = Trace(file.read())
    lost = trace.lost.get("lost_objects", 0) + trace.lost.get("lost_work", 0)
    nest(trace)
    arrows(trace, lost)
    peaks = {}
    sections = [track for track, made in trace.tracks.items() if made.get("parent") == 1]
    assert sections and trace.tracks[1]["name"].startswith("fullbore "), f"{trace.tracks.get(1)} with {len(sections)} sections"
    for number in sections:
        title = trace.tracks[number]["name"]
        own = [event for event in trace.slices if trace.section(event["track"]) == number]
        of_sort = {sort: [event for event in own if event["cat"] == sort] for sort in {"request", "object", *WORK}}
        requests, objects = of_sort["request"], of_sort["object"]
        work = [event for sort in WORK for event in of_sort[sort]]
        assert (requests or objects) and work, f"{title}: {len(objects)} objects and {len(work)} pieces of work"
        wholes = belongs(title, requests or objects, work, lost)
        if requests:
            within_requests(title, wholes, objects, work, lost)
        counters = {}
        for track, values in trace.counters.items():
            if trace.section(track) == number:
                counters[trace.tracks[track]["name"]] = values
        most = {}
        names = {"request": "requests in flight", "object": "objects in flight", **COUNTERS}
        for sort, counted in names.items():
            most[sort] = counter(title, counted, counters.pop(counted, []), of_sort[sort])
        assert not counters, f"{title}: counters {list(counters)} of nothing"
        peaks[title] = most["request" if requests else "object"]
        said = ", ".join(f"{len(of_sort[sort])} of {sort}, {count} at once" for sort, count in most.items() if count)
        print(f"{title}: {said}")
    for word in wanted:
        section, _, peak = word.rpartition("=")
        at_most, section = section.endswith("<"), section.removesuffix("<")
        assert section in peaks, f"no section {section}: there are {sorted(peaks)}"
        good = 0 < peaks[section] <= int(peak) if at_most else peaks[section] == int(peak)
        assert good, f"{section}: {peaks[section]} objects at once, not {peak}"
    if trace.lost:
        print(f"not in it: {trace.lost}")


def main():
    name, *wanted = sys.argv[1:]
    try:
        check(name, wanted)
    except AssertionError as error:
        sys.exit(f"{name}: {error}")
    except (IndexError, KeyError, TypeError, ValueError) as error:
        sys.exit(f"{name}: not as it should be: {error!r}")


if __name__ == "__main__":
    main()
