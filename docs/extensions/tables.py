"""Tables: headers without text go, names of tests may break, wide tables stack on a phone.

A table that is too wide for a phone gets the class ``stacked``. There, the first cell of a row is
then a line of its own, above the others.
"""

import re

from docutils import nodes

PHONE = 374  # pixels
CHARACTER, PADDING = 6.5, 11
PROSE = 22  # characters that a column of text needs to be read with ease
MOST_COLUMNS = 8


def width_of(entries):
    """The pixels that a column needs at least, in the type of a phone."""
    words = [word for entry in entries for word in entry.astext().split()]
    longest = max(map(len, words), default=0)
    if any("text-right" in entry["classes"] for entry in entries):  # numbers do not wrap
        longest = max(len(entry.astext()) for entry in entries[1:])
    elif any(len(entry.astext()) > PROSE for entry in entries):
        longest = max(longest, PROSE)
    return longest * CHARACTER + PADDING


def let_break(code):
    """Names of tests, such as file.py::Class::test_of_something, break after :: and _."""
    first, *parts = re.split(r"(?<=::)|(?<=_)", code.astext())
    code.children = [nodes.Text(first)]
    for part in parts:
        code += [nodes.raw("", "<wbr>", format="html"), nodes.Text(part)]


def stack(table):
    rows = [row.children for row in table.findall(nodes.row)]
    if not 2 <= len(rows[0]) <= MOST_COLUMNS:
        return
    width = sum(map(width_of, zip(*rows, strict=True)))
    if width > PHONE or "summary" in table["classes"]:
        table["classes"].append("stacked")


def mend_tables(app, doctree):
    for table in list(doctree.findall(nodes.table)):
        for head in list(table.findall(nodes.thead)):
            if not head.astext().strip():
                head.parent.remove(head)
        stack(table)
        for code in list(table.findall(nodes.literal)):
            if "::" in code.astext():
                let_break(code)
                table["classes"] += [] if "tests" in table["classes"] else ["tests"]


def setup(app):
    app.connect("doctree-read", mend_tables)
    return {"parallel_read_safe": True}
