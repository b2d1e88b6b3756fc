#!/usr/bin/env python3
"""Opens traces that `--timeline` wrote in Perfetto's own viewer, in headless Chromium, and asks its trace processor for them.

check_perfetto.py VIEWER FILE...: VIEWER is a folder with the viewer's files. Of each trace: it is imported without an error and
with nothing dropped; slices, values of counters and arrows are those that our own parser reads; the layers are shown in their
order. A screenshot is made beside each file.
"""

import base64
import functools
import http.server
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter

from check_timeline import Trace

BROWSER = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--window-size=1600,1200"]
# Nothing from elsewhere: the viewer would ask for it.
ALONE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
PATIENCE = 90
LAYERS = ["requests", "objects", "commands", "units", "copies"]

QUERY = """(async () => {
    const found = await app.trace.engine.query(%s), names = found.columns(), rows = [];
    for (const row = found.iter({}); row.valid(); row.next())
        rows.push(names.map(name => { const value = row.get(name); return typeof value === 'bigint' ? Number(value) : value; }));
    return rows;
})()"""
EXPAND = "app.commands.commands.filter(one => /ExpandAll/.test(one.id)).forEach(one => app.commands.runCommand(one.id))"
SHOWN = "(function of(node) { return node.children.map(child => [child.name ?? child.title, of(child)]); })(app.trace.workspace)"


class Files(http.server.SimpleHTTPRequestHandler):
    """The viewer's files, and the traces."""

    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".wasm": "application/wasm"}
    traces = {}

    def translate_path(self, path):
        return self.traces.get(path.partition("?")[0]) or super().translate_path(path)

    def log_message(self, *_):
        pass


class Browser:
    """A page of Chromium, driven over a pair of pipes."""

    def __init__(self, profile):
        (from_us, self.out), (self.into, to_us) = os.pipe(), os.pipe()

        def pipes():
            # The browser's are 3 and 4, and either may be one of these.
            held = os.dup(from_us), os.dup(to_us)
            moved = [os.dup2(held[0], 103), os.dup2(held[1], 104)]
            for number, pipe in zip((3, 4), moved):
                os.dup2(pipe, number)

        options = [ALONE, f"--user-data-dir={profile}", "about:blank"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([*BROWSER, *options], preexec_fn=pipes, close_fds=False, **quiet)
        os.close(from_us)
        os.close(to_us)
        self.said, self.number, self.session = b"", 0, {}
        page = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]}

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params, **self.session}
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.answer(method)
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def answer(self, method):
        until = time.monotonic() + PATIENCE
        while b"\0" not in self.said:
            ready, _, _ = select.select([self.into], [], [], max(0, until - time.monotonic()))
            more = os.read(self.into, 1 << 20) if ready else b""
            assert more, f"the browser does not answer to {method}"
            self.said += more
        answer, _, self.said = self.said.partition(b"\0")
        return json.loads(answer)

    def run(self, script):
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, f"{script[:200]}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def query(self, sql):
        return self.run(QUERY % json.dumps(sql))

    def open(self, url):
        # First another page: a change behind the # alone loads nothing. An answer to `navigate` comes before the page does: what
        # is asked then may be answered by the page before.
        self.call("Page.navigate", url="about:blank")
        self.until("location.href === 'about:blank'")
        self.call("Page.navigate", url=url)
        self.until("!!(window.app && app.trace && window.waitForPerfettoIdle)")
        self.run("waitForPerfettoIdle(500)")

    def until(self, script):
        until = time.monotonic() + PATIENCE
        while not self.run(script):
            assert time.monotonic() < until, f"not {script}: {self.run('document.body.innerText')[:1000]}"
            time.sleep(0.2)

    def end(self):
        # It ends with its pipes, and its children with it.
        os.close(self.out)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def paths(parents):
    """Of each track the names from the top down to it. `parents` has the name of each, and the one that it is in."""

    def path(track):
        name, parent = parents[track]
        return (*path(parent), name) if parent is not None else (name,)

    return {track: path(track) for track in parents}


def look(browser, trace):
    """What the trace processor has is what our parser has read."""
    wrong = browser.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
    assert not wrong, f"its import found {wrong}"
    theirs = paths({track: (name, parent) for track, name, parent in browser.query("select id, name, parent_id from track")})
    ours = paths({number: (track["name"], track.get("parent")) for number, track in trace.tracks.items()})
    found = browser.query("select track_id, name, category, ts, dur, depth from slice where category is not null")
    found = Counter((theirs[track], *rest) for track, *rest in found)
    wanted = ((ours[one["track"]], one["name"], one["cat"], one["ts"], one["end"] - one["ts"], one["depth"]) for one in trace.slices)
    same(found, Counter(wanted), "slices")
    found = browser.query("select track_id, ts, value from counter")
    counters = Counter((theirs[track], *rest) for track, *rest in found)
    wanted = ((ours[track], *value) for track, values in trace.counters.items() for value in values)
    same(counters, Counter(wanted), "values of counters")
    chains = Counter(flow for one in trace.slices for flow in one["flows"])
    ((arrows,),) = browser.query("select count(*) from flow")
    assert arrows == sum(chains.values()) - len(chains), f"{arrows} arrows in {len(chains)} chains of {sum(chains.values())}"
    ((back,),) = browser.query("select count(*) from flow join slice a on slice_out = a.id join slice b on slice_in = b.id where a.ts > b.ts")
    assert back == 0, f"{back} arrows go back"
    return f"{len(trace.slices)} slices, {sum(counters.values())} values of counters and {arrows} arrows"


def same(found, wanted, what):
    more, less = found - wanted, wanted - found
    assert not more and not less, f"{what}: it has {list(more.items())[:3]}, and ours {list(less.items())[:3]}"


def shown(browser, trace):
    """The viewer shows the sections in the order in which they ran, and their layers from the requests down."""
    ((root, sections),) = browser.run(SHOWN)
    wanted = [track["name"] for track in trace.tracks.values() if track.get("parent") == 1]
    assert root == trace.tracks[1]["name"] and [name for name, _ in sections] == wanted, f"sections {sections}, not {wanted}"
    for section, layers in sections:
        names = [name for name, _ in layers]
        counters = [name for name in names if name.endswith(" in flight")]
        assert names[: len(counters)] == counters and len(counters) >= 2, f"{section}: {names}"
        order = [LAYERS.index(name.partition(" ")[0]) for name in counters]
        assert order == sorted(order), f"{section}: {counters}"
        what, *lanes = layers[len(counters) :]
        assert what[0] == counters[0].partition(" ")[0] and what[1], f"{section}: {what}"
        assert lanes and all({name for name, _ in within} <= set(LAYERS[2:]) for _, within in lanes), f"{section}: {lanes}"
        if what[0] == "requests":
            inside = [name for _, within in what[1] for name, _ in within]
            assert inside and set(inside) == {"objects"}, f"{section}: under the requests are {inside}"


def main():
    viewer, files = pathlib.Path(sys.argv[1]).resolve(), [pathlib.Path(name).resolve() for name in sys.argv[2:]]
    Files.traces = {f"/trace/{number}": str(file) for number, file in enumerate(files)}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=viewer))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here = f"http://127.0.0.1:{server.server_port}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        try:
            for number, file in enumerate(files):
                trace = Trace(file.read_bytes())
                browser.open(f"{here}/#!/?url={here}/trace/{number}")
                said = look(browser, trace)
                shown(browser, trace)
                browser.run(EXPAND)
                browser.run("waitForPerfettoIdle(500)")
                picture = browser.call("Page.captureScreenshot")["data"]
                file.with_suffix(".png").write_bytes(base64.b64decode(picture))
                print(f"{file.name}: Perfetto has the same {said}")
        except AssertionError as error:
            sys.exit(f"{file.name}: {error}")
        finally:
            browser.end()


main()
