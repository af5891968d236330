"""Files and functions stay short enough to be read."""

import pytest

import compiler

MAX_FILE = 800
MAX_FUNCTION = 100

C_FILES = sorted(compiler.CSRC.rglob("*.[ch]"))
ALL_FILES = C_FILES + sorted((compiler.ROOT / "arrowdev").rglob("*.py"))


def functions_of(lines):
    """(line number, length) of each function, signature included.

    The format that clang-format keeps makes this simple: the braces of a
    function, and nothing else, stand alone in the first column.
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


@pytest.mark.parametrize("path", ALL_FILES, ids=name)
def test_file_is_short(path):
    text = path.read_text(encoding="utf-8")
    is_made = text.startswith("/* Made by tools/")
    assert is_made or len(text.splitlines()) <= MAX_FILE


def test_functions_are_found():
    text = "static int x;\n\nint\nf(int a,\n  int b)\n{\n    return 0;\n}\n\nint\ng(void)\n{\n}\n"
    assert list(functions_of(text.splitlines())) == [(3, 6), (10, 4)]


@pytest.mark.parametrize("path", C_FILES, ids=name)
def test_functions_are_short(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    too_long = [
        f"{name(path)}:{number}: {length} lines"
        for number, length in functions_of(lines)
        if length > MAX_FUNCTION
    ]
    assert too_long == []
