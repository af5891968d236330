"""Takes the pictures of docs/trace.md anew: python tools/make_trace_pictures.py [NAME...]

Each one is the page of a trace (python -m arrowdev trace --html) of a program in docs/traces, in
headless Chromium, light and dark: docs/traces/NAME-light.webp and NAME-dark.webp.
tests/docs/test_trace_pictures.py looks for what the pictures show in traces of the same programs.
"""

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

import chromium  # noqa: E402
import trace_programs  # noqa: E402

from arrowdev._pages import trace_page  # noqa: E402

WIDTH = 1000
SCALE = 1.5  # pixels of the picture for one of the page


def take(tab, name, page):
    for scheme in ("light", "dark"):
        tab.size(WIDTH, 700, scheme, SCALE)
        tab.open(page)
        tab.run(f"shown.timeline.select({trace_programs.SELECTED[name]})")
        tab.drawn()
        height = tab.run("document.documentElement.scrollHeight")
        file = trace_programs.FOLDER / f"{name}-{scheme}.webp"
        tab.picture(file, "webp", x=0, y=0, width=WIDTH, height=height)
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=trace_programs.NAMES)
    arguments = parser.parse_args()
    if chromium.program() is None:
        sys.exit(f"no browser was found, looked for {', '.join(chromium.NAMES)}")
    with tempfile.TemporaryDirectory() as temporary, chromium.tab() as tab:
        for name in arguments.names:
            folder = Path(temporary) / name
            folder.mkdir()
            trace = trace_programs.trace_of(name, folder)
            page = folder / "page.html"
            page.write_text(trace_page.page(trace), encoding="utf-8")
            take(tab, name, page)


if __name__ == "__main__":
    main()
