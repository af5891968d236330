"""Where lines break, and tables: what a style sheet cannot see for itself.

Code whose words are short gets the class ``whole``: it breaks between words alone, not after a
hyphen. In tables, longer words may break where a call or a name of a test has a joint.

A table that is too wide for a phone gets the class ``stacked``. There, the first cell of a row is
then a line of its own, above the others. A header without text goes.
"""

import re

from docutils import nodes

PHONE = 374  # pixels
CHARACTER, PADDING = 6.5, 11
PROSE = 22  # characters that a column of text needs to be read with ease
MOST_COLUMNS = 8
WORD = 28  # characters that may stay in one line
JOINTS = re.compile(r"(?<=[(,=/])(?!\))")
JOINTS_OF_NAMES = re.compile(r"(?<=[A-Za-z]{2}[._])(?=\w)")
JOINTS_OF_TESTS = re.compile(r"(?<=_)|(?<=::)")


def width_of(entries):
    """The pixels that a column needs at least, in the type of a phone."""
    words = [word for entry in entries for word in entry.astext().split()]
    longest = max(map(len, words), default=0)
    if any("text-right" in entry["classes"] for entry in entries):  # numbers do not wrap
        longest = max(len(entry.astext()) for entry in entries[1:])
    elif any(len(entry.astext()) > PROSE for entry in entries):
        longest = max(longest, PROSE)
    return longest * CHARACTER + PADDING


def is_long(text):
    return any(len(word) > WORD for word in text.astext().split())


def let_break(text):
    """Calls may break before an argument, names in prose and file.py::test_of_it after a _."""
    joints = JOINTS if isinstance(text.parent, nodes.literal) else JOINTS_OF_NAMES
    if "::" in text or text.startswith("test_"):
        joints = JOINTS_OF_TESTS
    first, *parts = joints.split(text)
    pieces = [nodes.Text(first)]
    for part in parts:
        pieces += [nodes.raw("", "<wbr>", format="html"), nodes.Text(part)]
    text.parent.replace(text, pieces)


def stack(table):
    rows = [row.children for row in table.findall(nodes.row)]
    if not 2 <= len(rows[0]) <= MOST_COLUMNS:
        return
    width = sum(map(width_of, zip(*rows, strict=True)))
    if width > PHONE or "summary" in table["classes"]:
        table["classes"].append("stacked")


def lay_out(app, doctree):
    for code in doctree.findall(nodes.literal):
        if not is_long(code):
            code["classes"].append("whole")
    for table in list(doctree.findall(nodes.table)):
        for head in list(table.findall(nodes.thead)):
            if not head.astext().strip():
                head.parent.remove(head)
        stack(table)
        if "::" in table.astext():
            table["classes"].append("tests")
        for text in filter(is_long, list(table.findall(nodes.Text))):
            let_break(text)


def setup(app):
    app.connect("doctree-read", lay_out)
    return {"parallel_read_safe": True}
