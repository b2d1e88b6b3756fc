#!/usr/bin/env python3
"""Opens a page of charts in headless Chromium and looks at what the browser made of it.

check_page.py FILE ID=CURVES[:CEILINGS]...: each figure of that id has a chart that is drawn, with so many curves (0: cells
instead), and a table with numbers under it; with so many ceilings, measured ones, each with its name, of which one binds (0: the
page says that none was measured). Below them is the report in lines. The page asks for
nothing from elsewhere and runs nothing. A screenshot in light, in dark and of the print is made beside the file, and none of them
is one colour.
"""

import functools
import html.parser
import pathlib
import re
import subprocess
import sys
import zlib

# Elements that have no end.
VOID = {"meta", "link", "br", "hr", "img", "input"}
BROWSER = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,1600"]


class Page(html.parser.HTMLParser):
    """What is in each section."""

    def __init__(self):
        super().__init__()
        self.open, self.sections, self.words, self.found = [], {}, [], set()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.found.add(tag)
        assert not {"src", "href", "onload", "onclick"} & set(attrs), f"<{tag}> asks for {attrs}"
        if tag not in VOID:
            self.open.append((tag, attrs.get("id")))
        section = self.section()
        if section is not None:
            within = [name for name, _ in self.open]
            kind = attrs.get("class", "").split(" ")[0]
            # A sample of a line in the key is no curve.
            place = "key" if "ul" in within else "chart"
            section.setdefault((place, tag, kind), []).append(attrs)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1][0] == tag, f"</{tag}> ends {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        section = self.section()
        if section is not None and any(name in ("td", "th") for name, _ in self.open):
            section.setdefault("cells", []).append(data)
        if section is not None:
            section.setdefault("words", []).append(data)
        self.words.append(data)

    def section(self):
        for tag, name in self.open:
            if tag == "section":
                return self.sections.setdefault(name, {})
        return None


def browser(*options):
    run = functools.partial(subprocess.run, [*BROWSER, *options], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    try:
        done = run(timeout=60)
    except subprocess.TimeoutExpired:
        # It is the page that is looked at here: a browser that hangs gets a second chance.
        done = run(timeout=90)
    assert done.returncode == 0, f"the browser: exit {done.returncode}: {done.stderr[-500:]}"
    return done.stdout


def held(name, section, ceilings):
    """A curve is held against what was measured, and not against its own best."""
    rules = section.get(("chart", "path", "rule"), [])
    assert len(rules) == ceilings, f"{name}: {len(rules)} ceilings, not {ceilings}"
    words = " ".join(section["words"])
    named = re.findall(r"(device, deep reads|link of \d+ GPUs?, pinned copies): \d+\.\d+ GB/s(, which binds)?", words)
    assert len(named) == ceilings, f"{name}: names of ceilings: {named}"
    assert sum(bool(binds) for _, binds in named) == min(ceilings, 1), f"{name}: which binds: {named}"
    assert ("No ceiling was measured: " in words) == (ceilings == 0), f"{name}: {words[:300]}"


def check(file, wanted):
    source = file.read_text(encoding="utf-8")
    assert not re.search(r"https?:|@import|url\(", source), "the page asks for something from elsewhere"
    page = Page()
    page.feed(browser("--dump-dom", file.as_uri()))
    page.close()
    assert not page.found & {"script", "iframe", "img", "link", "b"}, f"the page has {page.found}"
    # What has no chart is there in words: checks of content, comparisons, ceilings.
    report = " ".join(page.sections.get("report", {}).get("words", []))
    assert "GB/s" in report, f"the report in lines: {report[:300]}"
    for word in wanted:
        name, curves = word.split("=")
        curves, _, ceilings = curves.partition(":")
        section = page.sections.get(name)
        assert section, f"no section {name}: there are {list(page.sections)}"
        drawn = section.get(("chart", "path", "curve"), [])
        assert len(drawn) == int(curves), f"{name}: {len(drawn)} curves, not {curves}"
        assert all(path["d"].startswith("M") and "NaN" not in path["d"] for path in drawn), f"{name}: {drawn}"
        if curves == "0":
            assert section.get(("chart", "rect", "cell")), f"{name}: no cells"
        numbers = [cell for cell in section.get("cells", []) if re.match(r"\d", cell)]
        assert len(numbers) >= 4, f"{name}: no numbers under the chart: {section.get('cells')}"
        if ceilings:
            held(f"{file.name}: {name}", section, int(ceilings))
        print(f"{file.name}: {name}: {len(drawn)} curves, {len(numbers)} numbers under it")


def pixels(png):
    """The bytes of a picture, unpacked."""
    at, data = 8, b""
    while at < len(png):
        size, kind = int.from_bytes(png[at : at + 4], "big"), png[at + 4 : at + 8]
        data += png[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += 12 + size
    return zlib.decompress(data)


def pictures(file):
    bytes_of = {}
    for look, scheme in (("light", 1), ("dark", 0)):
        picture = file.with_suffix(f".{look}.png")
        browser(f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={picture}", file.as_uri())
        bytes_of[look] = pixels(picture.read_bytes())
        assert len(set(bytes_of[look])) > 16, f"{picture.name} is of one colour"
    # Of the first row the first pixel, which no filter of the format changes: paper.
    light, dark = (bytes_of[look][1:4] for look in ("light", "dark"))
    assert min(light) > 230 and max(dark) < 60, f"paper is {tuple(light)} in light and {tuple(dark)} in dark"
    printed = file.with_suffix(".pdf")
    browser("--no-pdf-header-footer", f"--print-to-pdf={printed}", file.as_uri())
    assert printed.read_bytes().startswith(b"%PDF-") and printed.stat().st_size > 10_000, "the print is empty"
    print(f"{file.name}: seen in light and in dark, and printed")


def main():
    file = pathlib.Path(sys.argv[1]).resolve()
    try:
        check(file, sys.argv[2:])
        pictures(file)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        sys.exit(f"{file.name}: {error}")


main()
