"""Puts the pictures of the folders diagrams/ into the page, whose colours they take.

An <img> sees the colours of the system, not the choice of the reader on the page.
"""

import re
from html import escape
from pathlib import Path

from docutils import nodes

UNWANTED = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<title>.*?</title>|\n", re.S)
ROOT = re.compile(r"<svg\b[^>]*?viewBox=\"([\d. -]+)\"[^>]*>", re.S)


def inlined(svg, alt):
    """The picture as an element of HTML that is as wide as drawn, or narrower."""
    box = ROOT.search(svg)[1]
    root = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="diagram" role="img" viewBox="{box}" '
        f'aria-label="{escape(alt)}" style="--width: {box.split()[2]}" font-family="sans-serif">'
    )
    size = re.search(r'<svg\b[^>]* (font-size="\d+")', svg)
    root = root.replace(">", f" {size[1]}>") if size else root
    return f'<div class="scroll">{UNWANTED.sub("", ROOT.sub(lambda _: root, svg))}</div>'


def put_diagrams_in(app, doctree):
    folder = Path(app.env.doc2path(app.env.docname)).parent
    for image in list(doctree.findall(nodes.image)):
        if "diagrams/" in image["uri"] and image["uri"].endswith(".svg"):
            path = folder / image["uri"]
            app.env.note_dependency(path)
            svg = path.read_text(encoding="utf-8")
            text = inlined(svg, image.get("alt", ""))
            image.replace_self(nodes.raw("", text, format="html"))


def setup(app):
    app.connect("doctree-read", put_diagrams_in, priority=100)  # before images are collected
    return {"parallel_read_safe": True}
