"""The timeline of a trace as an HTML page.

Its style and scripts are the files of timeline/, which the page holds: trace.js reads the trace,
canvas.js draws it, input.js moves it, and panels.js is what stands around it.
"""

import functools
import json
import math
import pathlib

from arrowdev._core import _shown
from arrowdev._pages import page as pages

_FILES = pathlib.Path(__file__).with_name("timeline")
_SCRIPTS = ("trace.js", "canvas.js", "input.js", "panels.js")


def _file(name):
    return (_FILES / name).read_text(encoding="utf-8")


@functools.lru_cache(4096)  # a trace says the same again and again
def _shown_text(text):
    return _shown(text, True)


def _clean(value):
    """Return what JSON can hold, with foreign text made visible: NaN and infinity are null."""
    if isinstance(value, str):
        return _shown_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_shown_text(str(key)): _clean(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(one) for one in value]
    if value is None or isinstance(value, int):
        return value
    return _shown_text(str(value))


def _data(trace):
    """Return the trace as JSON that ends no script element."""
    text = json.dumps(_clean(trace), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _title(trace):
    other = trace.get("otherData")
    command = other.get("command") if isinstance(other, dict) else None
    words = [str(word) for word in command] if isinstance(command, list) else []
    return " ".join(["Trace of", *words]) if words else "Trace of exchanges"


def page(trace: dict) -> str:
    """Return the HTML page of a trace: a dictionary in Chrome's trace event format."""
    scripts = "\n".join(f"<script>\n{_file(name)}</script>" for name in _SCRIPTS)
    data = f'<script id="trace" type="application/json">{_data(trace)}</script>'
    return pages.skeleton(
        _title(trace),
        pages.STYLE + _file("timeline.css"),
        f"{_file('body.html')}{data}\n{scripts}",
    )
