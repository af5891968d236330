"""docs/internals/specification.md: each row names tests, and the tests exist."""

import ast
import functools
import re
from pathlib import Path

from loops import looped

TESTS = Path(__file__).resolve().parent.parent
PAGE = TESTS.parent / "docs" / "internals" / "specification.md"
ROW = re.compile(r"^\| (\d+) \| (.+) \| (.+) \| (.+) \|$", re.M)
NAME = re.compile(r"`([^`]+)`")
NOTED = re.compile(r"\(\*noted:\* (.+?)\)")
NOTHING = "\N{EN DASH}"


def sections():
    """(heading, text below it) of each section."""
    _, *parts = re.split(r"^## (.*)\n", PAGE.read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[::2], parts[1::2], strict=True))


NOTES = sections()["Notes"]
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))


@functools.cache
def names_in(path):
    """The names of the tests of a file: `function`, `Class::function`."""
    text = (TESTS / path).read_text(encoding="utf-8")
    if path.endswith(".c"):
        return {*re.findall(r"\bCHECK_TEST\((\w+)\)", text)}
    found = set()
    for node in ast.parse(text).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {prefix + m.name for m in members if isinstance(m, ast.FunctionDef)}
    return found


def test_rows_are_numbered_without_gaps():
    assert [int(number) for number, *_ in ROWS] == [*range(1, len(ROWS) + 1)]
    n_lines = len(re.findall(r"^\| *\d", PAGE.read_text(encoding="utf-8"), re.M))
    assert len(ROWS) == n_lines >= 106


def test_every_section_has_rows():
    empty = [name for name, text in sections().items() if name != "Notes" and not ROW.search(text)]
    assert not empty


@looped(("number", "statement", "producer", "consumer"), ROWS)
def test_tests_of_a_row_exist(number, statement, producer, consumer):
    for cell in (producer, consumer):
        assert cell == NOTHING or NAME.sub("", cell).strip(", ") == ""
    named = NAME.findall(producer + consumer)
    assert named, f"row {number} has no test: {statement}"
    for name in named:
        path, _, test = name.partition("::")
        assert (TESTS / path).is_file(), name
        assert test in names_in(path), name


def test_every_note_has_a_reason():
    used = {word for _, statement, _, _ in ROWS for word in NOTED.findall(statement)}
    reasons = re.findall(r"^(\S.*)\n: +\S", NOTES, re.M)
    assert used == {reason.lower() for reason in reasons} and len(reasons) == len(used)
