"""Limits on the length of files and functions."""

import compiler

MAX_FILE = 1500  # of one unit; one concept is in one file
MAX_FUNCTION = 59

C_FILES = sorted(compiler.CSRC.rglob("*.[ch]"))
ALL_FILES = C_FILES + sorted((compiler.ROOT / "arrowdev").rglob("*.py"))


def functions_of(lines):
    """(line number, length) of each function, including its signature.

    In the format that clang-format enforces, only the braces of a
    function stand alone in the first column.
    """
    head = 0
    inside = False
    for number, line in enumerate(lines):
        if line == "{":
            inside = True
        elif line == "}" and inside:
            inside = False
            yield head + 1, number - head + 1
            head = number + 1
        elif not inside and (
            line == "" or line.startswith(("#", "}")) or line.endswith(("*/", ";"))
        ):
            head = number + 1


def name(path):
    return str(path.relative_to(compiler.ROOT))


def is_made(text):
    return text.startswith("/* Made by tools/")


def test_files_are_short():
    texts = {name(path): path.read_text(encoding="utf-8") for path in ALL_FILES}
    lengths = {path: len(text.splitlines()) for path, text in texts.items() if not is_made(text)}
    assert len(lengths) > 200
    assert {path: length for path, length in lengths.items() if length > MAX_FILE} == {}


def test_functions_are_found():
    text = "static int x;\n\nint\nf(int a,\n  int b)\n{\n    return 0;\n}\n\nint\ng(void)\n{\n}\n"
    assert list(functions_of(text.splitlines())) == [(3, 6), (10, 4)]


def test_functions_are_short():
    too_long = [
        f"{name(path)}:{number}: {length} lines"
        for path in C_FILES
        for number, length in functions_of(path.read_text(encoding="utf-8").splitlines())
        if length > MAX_FUNCTION
    ]
    assert too_long == []


def test_waits_follow_the_monotonic_clock():
    """The wall clock may be set back during a wait."""
    found = [name(path) for path in C_FILES if "CLOCK_REALTIME" in path.read_text("utf-8")]
    assert found == []
