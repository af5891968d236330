"""Text on standard output, with aligned columns and colours, and in files."""

import os
import pathlib
import sys
import textwrap

from arrowdev._core import _shown

WIDTH = 100  # columns of text

_CODES = {"good": "32", "fair": "33", "bad": "31", "wrong": "1;31", "faint": "2", "strong": "1"}


class OutputError(Exception):
    """Standard output or a file cannot be written, or a file cannot be read."""


def put(text):
    """Print `text` and flush it; raise OutputError if that fails."""
    try:
        print(text, flush=True)
    except (OSError, UnicodeEncodeError) as error:
        # The interpreter writes what is left in the buffer at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputError(f"cannot write the output: {error}") from error


def write(name, text):
    """Write a file; raise OutputError if that fails."""
    try:
        pathlib.Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(str(error)) from error


def has_colours(stream):
    """Return whether to colour what is written to `stream`: NO_COLOR, FORCE_COLOR, a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    # A closed stream is None.
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


class Painter:
    """Puts text into colours: ``paint("good", "yes")``."""

    def __init__(self, is_on=False):
        self.is_on = is_on

    def __call__(self, kind, text):
        code = _CODES.get(kind)
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_on and code and text else text


def wrapped(text, first="", rest=""):
    """Return the lines of `text`, which may be of foreign origin, within WIDTH.

    A no-break space stays one.
    """
    return textwrap.wrap(
        "\xa0".join(map(_shown, text.split("\xa0"))),
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def aligned(rows, painted=str):
    """Yield the lines with aligned columns, in blocks of at most WIDTH characters.

    painted: puts a cell into colours.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    blocks, used = [[]], WIDTH
    for i, width in enumerate(widths[1:], 1):
        if used + 1 + width > WIDTH:
            blocks.append([])
            used = widths[0]
        blocks[-1].append(i)
        used += 1 + width
    for block in blocks[1:]:
        for row in rows:
            cells = [row[0].ljust(widths[0])]
            for i in block:
                cells.append(" " * (widths[i] - len(row[i])) + painted(row[i]))
            yield " ".join(cells).rstrip()
        yield ""
