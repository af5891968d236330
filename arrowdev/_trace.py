"""A trace of every exchange: `ad.trace`, and what other modules record in it.

The core writes its events to rings (csrc/base/trace.h). `_trace_events` makes a file of them, and
`_trace_summary` the text for a terminal; both are imported when a trace ends. What both call a
class, a line and a library is here.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import warnings
from collections import deque

from arrowdev import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from types import CodeType, FrameType, TracebackType
    from typing import Any, TypeAlias

    # ("host", thread id), or (name of a device, name of a stream or queue)
    Row: TypeAlias = tuple[str, int | str]

MOST_EVENTS = 1 << 24  # of a thread: 8 GB
INSTALLED = ("site-packages", "dist-packages")  # folders of libraries

_lock = threading.Lock()
_current: trace | None = None


def current() -> Recorder | None:
    """The recorder of the trace that is on."""
    running = _current
    return None if running is None else running.recorder


class Recorder:
    """What Python code adds to a trace. Times are those of time.monotonic_ns()."""

    def __init__(self, capacity: int) -> None:
        self.entries: deque[tuple[Any, ...]] = deque(maxlen=capacity)
        self.n_added = 0
        self.row_names: dict[Row, dict[str, None]] = {}  # beside that of the row itself
        # "complete", "incomplete", "off"; None: no device could have searched
        self.race_search: str | None = None

    def _add(self, *entry: Any) -> None:
        self.n_added += 1
        self.entries.append(entry)

    def slice(
        self,
        row: Row,
        name: str,
        category: str,
        start_ns: int,
        end_ns: int,
        args: Mapping[str, Any] | None = None,
    ) -> None:
        self._add("slice", row, name, category, start_ns, end_ns, dict(args or {}))

    def instant(
        self,
        row: Row,
        name: str,
        category: str,
        args: Mapping[str, Any] | None = None,
        time_ns: int | None = None,
    ) -> None:
        now = time.monotonic_ns() if time_ns is None else time_ns
        self._add("instant", row, name, category, now, dict(args or {}))

    def exchange(self, name: str, category: str, start_ns: int, args: Mapping[str, Any]) -> None:
        """A slice of this thread that ends now, with the user's line; `args` may have classes."""
        shown = {k: class_name(v) if isinstance(v, type) else v for k, v in args.items()}
        row = ("host", threading.get_ident())
        shown["line"] = user_line()
        self.slice(row, name, category, start_ns, time.monotonic_ns(), shown)

    def work(
        self,
        row: Row,
        name: str,
        enqueued_ns: int,
        start_ns: int,
        end_ns: int,
        args: dict[str, Any],
    ) -> None:
        """What a queue has run, and when it was enqueued."""
        self._add("work", row, name, enqueued_ns, start_ns, end_ns, args)

    def race(
        self,
        kind: str,
        accesses: Sequence[tuple[Row, int]],
        args: dict[str, Any],
        waiter: str,
        recorded_ns: int,
        recorded_by: int,
    ) -> None:
        """A race of one or two accesses: their rows, and when they were enqueued.

        waiter: the queue whose access has to wait; "" where a wait does not help. recorded_ns,
        recorded_by: when, and by which thread, an event was recorded behind the first access.
        """
        self._add("race", kind, accesses, args, waiter, recorded_ns, recorded_by)

    def name_row(self, row: Row, name: str) -> None:
        self.row_names.setdefault(row, {})[name] = None

    def has_searched_races(self, is_complete: bool) -> None:
        is_all = is_complete and self.race_search in (None, "complete")
        self.race_search = "complete" if is_all else "incomplete"

    def has_not_searched_races(self) -> None:
        self.race_search = "off" if self.race_search in (None, "off") else "incomplete"


def user_line() -> str:
    """The line of the user's code that makes this call, or ""."""
    frame = user_frame(sys._getframe())
    if frame is None:
        return ""
    return line_text(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def line_text(file: str, line: int, function: str) -> str:
    """ "app.py:12 in main"."""
    return _core._shown(f"{os.path.basename(file)}:{line} in {function}")


def class_name(cls: type) -> str:
    """The class with the package that it is of: "torch.Tensor"."""
    try:
        package = str(cls.__module__).partition(".")[0]
        name = str(cls.__qualname__)
    except Exception:  # of a metaclass
        package, name = "", type.__repr__(cls)
    return _core._shown(name if package in ("", "builtins") else f"{package}.{name}")


def line_of(event: dict[str, Any]) -> str | None:
    code: CodeType | None = event["code"]
    if code is None:
        return None
    return line_text(code.co_filename, event["line"], code.co_name)


def library_of(code: CodeType | None) -> str | None:
    """The package in site-packages that the code is of."""
    if code is None:
        return None
    for mark in INSTALLED:
        _, found, rest = code.co_filename.rpartition(f"{os.sep}{mark}{os.sep}")
        if found:
            return _core._shown(rest.partition(os.sep)[0].partition(".")[0])
    return None


def ends_of(event: dict[str, Any]) -> tuple[str | None, str | None]:
    """What an exchange leads from and to; where no class is known, a library takes it."""
    source, target = (cls and class_name(cls) for cls in (event["from"], event["to"]))
    return source, target or library_of(event["consumer"])


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The first frame outside of arrowdev and of libraries, from this one on to its callers."""
    while frame is not None and not _is_of_user(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


@functools.lru_cache(4096)
def _is_of_user(file: str) -> bool:
    return not file.startswith(_folders())


@functools.cache
def _folders() -> tuple[str, ...]:
    """arrowdev's folder, then those of other code that is not the user's."""
    import sysconfig

    paths = sysconfig.get_paths()
    found = [paths[name] for name in ("purelib", "platlib", "stdlib", "platstdlib")]
    # Those of .pth files are in sys.path alone.
    found += [path for path in map(str, sys.path) if path.endswith(INSTALLED)]
    own = os.path.dirname(os.path.abspath(__file__))
    return own + os.sep, *dict.fromkeys(path + os.sep for path in found), "<frozen "


class trace:
    """Record every exchange, copy, wait and refusal inside `with`, in Chrome's trace format.

    Perfetto (https://ui.perfetto.dev) and chrome://tracing show the file. It is written when the
    block ends, also by an exception.

    Parameters
    ----------
    file : str or path, optional
        Where the trace is written. None: nowhere; `data` and `summary()` have it.
    html : str or path, optional
        Where the timeline is written as one HTML page that needs no network.
    events : int
        How many events each thread keeps. The oldest ones are dropped.

    Attributes
    ----------
    data : dict
        What was written, or would be, once the block has ended; empty before.

    Raises
    ------
    RuntimeError
        A trace is on already: there is one at a time in a process.
    TypeError
        `events` is no int, or `file` or `html` is no path.
    ValueError
        `events` is not positive, or more than 16,777,216. `file` and `html` are one file.

    Examples
    --------
    >>> with ad.trace() as t:
    ...     x = ad.array(b"abc")
    >>> t.data["otherData"]["dropped"]
    0
    """

    def __init__(
        self,
        file: str | PathLike[str] | None = None,
        *,
        html: str | PathLike[str] | None = None,
        events: int = 1 << 16,
    ) -> None:
        if not isinstance(events, int):
            raise TypeError(f"events must be an int, not {type(events).__name__}")
        if not 0 < events <= MOST_EVENTS:
            raise ValueError(f"a trace keeps from 1 to {MOST_EVENTS:,} events, not {events:,}")
        self.file = None if file is None else os.path.abspath(file)
        self.html = None if html is None else os.path.abspath(html)
        if file is not None and html is not None and is_same_file(file, html):
            raise ValueError(
                f"the trace and its page are one file, {_core._shown(os.fsdecode(file))}; "
                "name another one for the page"
            )
        self.data: dict[str, Any] = {}
        self.recorder = Recorder(events)
        self._events = events
        self._has_begun = False
        self._start = 0

    def __enter__(self) -> trace:
        global _current
        with _lock:
            if _current is not None:
                raise RuntimeError(
                    "a trace is on already, and a process has one at a time; "
                    "it ends with its `with` block, or at exit if ARROWDEV_TRACE began it"
                )
            if self._has_begun:
                raise RuntimeError("this trace has ended; make another one with arrowdev.trace()")
            folders = _folders()
            self._start = time.monotonic_ns()
            _core._trace_start(self._events, folders)
            self._has_begun = True
            _current = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.end()
        except OSError as failed:
            if error is None:
                raise
            warnings.warn(f"the trace is lost: {failed}", RuntimeWarning, 2)

    def end(self) -> None:
        """End the trace and write its file. In a forked child, the file is its parent's."""
        global _current
        with _lock:
            if _current is not self:
                return
            try:
                stopped = _core._trace_stop()
            finally:
                _current = None
        end = time.monotonic_ns()
        from arrowdev import _trace_events

        self.data = _trace_events.chrome(stopped, self.recorder, self._start, end)
        if self.file is not None:
            _trace_events.write(self.data, self.file)
        if self.html is not None:
            _trace_events.write_page(self.data, self.html)

    def summary(self) -> str:
        """What was exchanged, copied and waited for, and what would help."""
        from arrowdev import _trace_summary

        if not self.data:
            raise RuntimeError("the summary of a trace exists once its block has ended")
        return _trace_summary.text(self.data["otherData"]["summary"])


def is_same_file(one: str | PathLike[str], other: str | PathLike[str]) -> bool:
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)


def _after_fork() -> None:
    """The core's trace is off in the child. What was recorded is the parent's."""
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _current = None
        _core._trace_stop()


os.register_at_fork(after_in_child=_after_fork)


def read_environment() -> None:
    """ARROWDEV_TRACE=file: the trace of the whole process, written at exit.

    {pid} in the name becomes the number of the process.
    """
    import atexit

    running = trace(os.environ["ARROWDEV_TRACE"].replace("{pid}", str(os.getpid())))
    try:
        running.__enter__()
    except RuntimeError as error:  # of another interpreter of this process
        warnings.warn(f"ARROWDEV_TRACE: {error}", RuntimeWarning, stacklevel=3)
    else:
        atexit.register(_finish, running)


def _finish(running: trace) -> None:
    told = []
    try:
        running.end()
    except OSError as error:
        told = [f"arrowdev: ARROWDEV_TRACE: the trace was not written: {error}"]
    if running.data:
        told.append(running.summary())
    if told and sys.stderr is not None:
        print(*told, sep="\n", file=sys.stderr)
