"""The steps of scripts, for ``ScriptedStream`` and the other scripted ends.

Producers have ``schema``, ``batch``, ``error``, ``end``, ``wait_for_request``,
``wait_for_cancel``, ``free_producer`` and ``release``; pull consumers ``get_schema``,
``get_next``, ``read_to_end``, ``on_thread`` and ``release``; async consumers ``request``,
``cancel``, ``extract``, ``discard``, ``refuse`` and ``at``. A function can replace a step: it is
called with the scripted end.
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
    """One step, created by the functions of this module."""

    name: str
    options: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.options.items())})"


# --- producers -----------------------------------------------------------------------------------


def schema(type: Any = None, *, populate: bool = True) -> Step:
    """Async: call ``on_schema``.

    type
        A type that differs from the stream's.
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
    """Return a batch from the next ``get_next``, or send it by ``on_next_task``.

    values
        Anything that ``arrowdev.array`` takes, a list of plain values, or a dict of such columns;
        or a function that returns a new one each time the batch is exported. The function of the
        first batch is called once more when the script is created, unless the script has both
        type= and device_type=.
    metadata
        Async: the metadata of the task.
    device_type
        The device type in the struct, which may differ from that of the values.
    code
        Async: the result of ``extract_data``, which returns no array unless it is 0.
    empty
        Async: ``extract_data`` returns 0 and a released array, against the specification.
    """
    options = {"metadata": metadata, "device_type": device_type, "code": code, "empty": empty}
    return Step("batch", {"values": values, **options})


def error(code: int, text: str | None = None, metadata: _Metadata | None = None) -> Step:
    """Let ``get_next`` return `code`, with `text` for ``get_last_error``; or call ``on_error``."""
    return Step("error", {"code": code, "text": text, "metadata": metadata})


def end() -> Step:
    """End the stream: by a released array, or by a task that is NULL."""
    return Step("end", {})


def wait_for_request(n: int = 1) -> Step:
    """Async: continue when `n` more batches are requested than were sent.

    If the consumer cancels, a script with ``obey`` continues with ``release``; if it requests 0
    batches or less, with ``on_error`` and ``release``.
    """
    return Step("wait_for_request", {"n": n})


def wait_for_cancel() -> Step:
    """Async: continue when the consumer has cancelled."""
    return Step("wait_for_cancel", {})


def free_producer() -> Step:
    """Async: end the life of the producer's struct before ``release``, as Arrow C++ does.

    Later calls of it are recorded as broken rules.
    """
    return Step("free_producer", {})


# --- consumers -----------------------------------------------------------------------------------


def get_schema() -> Step:
    """Pull: call ``get_schema``."""
    return Step("get_schema", {})


def get_next(n: int = 1) -> Step:
    """Pull: call ``get_next`` `n` times, even after the end."""
    return Step("get_next", {"n": n})


def read_to_end() -> Step:
    """Pull: call ``get_next`` until the end or an error."""
    return Step("read_to_end", {})


def on_thread(*steps: Step | Callable[[Any], object]) -> Step:
    """Pull: do these steps on a new thread, and wait for it."""
    return Step("on_thread", {"steps": steps})


def request(n: int) -> Step:
    """Async: request `n` more batches; 0 and less are against the specification."""
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


# --- both ----------------------------------------------------------------------------------------


def release(*, anyway: bool = False) -> Step:
    """Release the stream, or the handler.

    anyway
        Call the function once more on a released struct, against the specification. The code
        under test has to survive it.
    """
    return Step("release", {"anyway": anyway})
