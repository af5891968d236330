"""The steps of scripts, for ``ScriptedStream`` and its kin.

The producers' are ``schema``, ``batch``, ``error``, ``end``, ``wait_for_request``,
``wait_for_cancel``, ``free_producer`` and ``release``; the pull consumers' ``get_schema``,
``get_next``, ``read_to_end``, ``on_thread`` and ``release``; the async consumers' ``request``,
``cancel``, ``extract``, ``discard``, ``refuse`` and ``at``. In place of a step there may also be a
function: it is called with the scripted end.
"""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    _Metadata = Mapping[bytes | str, bytes | str]

__all__ = [
    "Step",
    "at",
    "batch",
    "cancel",
    "discard",
    "end",
    "error",
    "extract",
    "free_producer",
    "get_next",
    "get_schema",
    "on_thread",
    "read_to_end",
    "refuse",
    "release",
    "request",
    "schema",
    "wait_for_cancel",
    "wait_for_request",
]


class Step(NamedTuple):
    """One step: made by the functions of this module."""

    name: str
    options: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.options.items())})"


# --- what producers do ---------------------------------------------------------------------------


def schema(type: Any = None, *, populate: bool = True) -> Step:
    """Async: call ``on_schema``.

    type
        Another type than the stream's.
    populate
        False: leave ``handler->producer`` NULL, against the specification.
    """
    return Step("schema", {"type": type, "populate": populate})


def batch(
    values: Any,
    *,
    metadata: _Metadata | None = None,
    device_type: int | None = None,
    code: int = 0,
    empty: bool = False,
) -> Step:
    """Give a batch: at the next ``get_next``, or by ``on_next_task``.

    values
        Anything that ``arrowdev.array`` takes, a list of plain values, or a dict of such columns;
        or a function that makes one of these anew for each time that the batch is given out. That
        of the first batch is called once more when the script is made, unless this is told both
        type= and device_type=.
    metadata
        Async: of the task.
    device_type
        What the struct says, whatever is true.
    code
        Async: what ``extract_data`` returns, with nothing given where it is not 0.
    empty
        Async: ``extract_data`` returns 0 and gives a released array, against the specification.
    """
    options = {"metadata": metadata, "device_type": device_type, "code": code, "empty": empty}
    return Step("batch", {"values": values, **options})


def error(code: int, text: str | None = None, metadata: _Metadata | None = None) -> Step:
    """Let ``get_next`` return `code`, with `text` for ``get_last_error``; or call ``on_error``."""
    return Step("error", {"code": code, "text": text, "metadata": metadata})


def end() -> Step:
    """Say that there is no further batch: by a released array, or by a task that is NULL."""
    return Step("end", {})


def wait_for_request(n: int = 1) -> Step:
    """Async: go on when `n` batches more are requested than were sent.

    Where the consumer cancels, a script that obeys goes on with ``release``; where it asks for 0
    batches or less, with ``on_error`` and ``release``.
    """
    return Step("wait_for_request", {"n": n})


def wait_for_cancel() -> Step:
    """Async: go on when the consumer has cancelled."""
    return Step("wait_for_cancel", {})


def free_producer() -> Step:
    """Async: give the producer's struct up before ``release``, as Arrow C++ does.

    Calls of it are recorded as broken rules from here on.
    """
    return Step("free_producer", {})


# --- what consumers do ---------------------------------------------------------------------------


def get_schema() -> Step:
    """Pull: call ``get_schema``."""
    return Step("get_schema", {})


def get_next(n: int = 1) -> Step:
    """Pull: call ``get_next`` `n` times, past the end if need be."""
    return Step("get_next", {"n": n})


def read_to_end() -> Step:
    """Pull: call ``get_next`` until it fails, or the end is there."""
    return Step("read_to_end", {})


def on_thread(*steps: Step | Callable[[Any], object]) -> Step:
    """Pull: do these steps on a thread of their own, and wait for it."""
    return Step("on_thread", {"steps": steps})


def request(n: int) -> Step:
    """Async: ask for `n` more batches; 0 and less are against the specification."""
    return Step("request", {"n": n})


def cancel() -> Step:
    """Async: ask the producer to stop."""
    return Step("cancel", {})


def extract() -> Step:
    """Async: take the oldest task's batch."""
    return Step("extract", {})


def discard() -> Step:
    """Async: extract the oldest task with NULL."""
    return Step("discard", {})


def refuse(code: int) -> Step:
    """Async: let ``on_schema`` or ``on_next_task`` return `code`."""
    return Step("refuse", {"code": code})


def at(task: int, *steps: Step | Callable[[Any], object]) -> Step:
    """Async: do these steps for this task only, counted from 0."""
    return Step("at", {"task": task, "steps": steps})


# --- either --------------------------------------------------------------------------------------


def release(*, anyway: bool = False) -> Step:
    """Release the stream, or the handler.

    anyway
        Call the function once more on a struct that was released before, against the
        specification: whoever is tested has to survive it.
    """
    return Step("release", {"anyway": anyway})
