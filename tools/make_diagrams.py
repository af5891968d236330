"""Render docs/internals/diagrams/*.dot as SVG with Graphviz.

    python tools/make_diagrams.py           writes the SVG files
    python tools/make_diagrams.py --check   fails where one does not show what its text says

Versions of Graphviz place the same boxes differently, so the check compares the words and the
arrows, not the coordinates.
"""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "internals" / "diagrams"
SVG = "{http://www.w3.org/2000/svg}"


def render(source):
    done = subprocess.run(["dot", "-Tsvg", source], capture_output=True, text=True, check=True)
    # The comments name the version of Graphviz.
    return re.sub(r"<!--.*?-->\n?", "", done.stdout, flags=re.S)


def shown(svg):
    """The words, and the names of boxes and arrows."""
    root = ET.fromstring(svg)
    return sorted(
        element.text or "" for tag in ("title", "text") for element in root.iter(f"{SVG}{tag}")
    )


def main():
    stale = []
    for source in sorted(FOLDER.glob("*.dot")):
        target = source.with_suffix(".svg")
        fresh = render(source)
        if "--check" not in sys.argv[1:]:
            target.write_text(fresh, encoding="utf-8")
        elif not target.exists() or shown(target.read_text(encoding="utf-8")) != shown(fresh):
            stale.append(target.name)
    if stale:
        sys.exit(f"run tools/make_diagrams.py: {', '.join(stale)} differ from their .dot files")


if __name__ == "__main__":
    main()
