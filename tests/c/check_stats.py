"""Whether what stats.c wrote is the JSON that it should be."""

import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    stats = json.load(file)
assert stats["active"] == 0 and stats["quarantined_bytes"] == 0, stats
lanes = stats["lanes"]
assert len(lanes) == 2, lanes
assert sum(lane["bytes"] for lane in lanes) == 64 << 20, lanes
assert sum(lane["commands"] for lane in lanes) == 512, lanes
assert sum(lane["bytes_by_path"].get("null", 0) for lane in lanes) == 64 << 20, lanes
for lane in lanes:
    assert lane["alive"] and not lane["stalled"] and lane["in_flight"] == 0, lane
    assert lane["command_ns"]["count"] == lane["commands"], lane
