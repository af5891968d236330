"""The races that the software device has found, as text for people and for a trace."""

from __future__ import annotations

import sys
import threading
import warnings
from typing import NamedTuple

from arrowdev import _trace
from arrowdev._trace_events import name_of_stream
from arrowdev.testing import _device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from arrowdev.testing._device import _RaceTuple


class _Party(NamedTuple):
    """An access as the engine tells it: ad_engine_party."""

    access: int
    queue: int
    is_own: bool
    device: int
    handle: int
    line: int  # a number of Lines, like the next one
    made_at: int
    enqueued: int
    recorded: int
    recorded_by: int


class _Found(NamedTuple):
    """A race as the engine tells it: ad_engine_race."""

    first: _Party
    second: _Party
    allocation: int
    made_at: int
    nbytes: int
    begin: int
    n_common: int
    is_after_release: bool
    waits_too_early: bool


def _all(races_after: Callable[[int], list[_RaceTuple]], n_seen: int) -> Iterator[_Found]:
    """What the engine has found after the first races, of which it tells some at a time."""
    while more := races_after(n_seen):
        n_seen += len(more)
        for one in more:
            yield _Found(_Party(*one[0]), _Party(*one[1]), *one[2:])


_NOUNS = ("read", "write", "release")  # by ad_engine_access
_VERBS = ("reads", "writes", "releases")
_RELEASE = 2


class Access(NamedTuple):
    """One of the two accesses of a Race."""

    queue: str
    """``"queue 1"`` (counted as they are created), ``"arrowdev's queue 1"``, ``"the host"``."""
    access: str
    """``"read"``, ``"write"`` or ``"release"``."""
    line: str
    """``"app.py:12 in main"``, outside of arrowdev and installed libraries; ``""``: unknown."""


class Race(NamedTuple):
    """Two accesses to the same bytes that nothing orders."""

    kind: str
    """``"read not ordered after write"``, ``"write after release"``, ..."""
    message: str
    """What happened where, and what would order the two."""
    first: Access
    second: Access
    allocation: int
    """The number of the memory, counted from 1; 0: memory of the host."""

    def __str__(self) -> str:
        return self.message


class RaceError(AssertionError):
    """Accesses to memory of the software device that nothing orders; ``races`` has them."""

    def __init__(self, races: Sequence[Race]) -> None:
        self.races = list(races)
        n = len(self.races)
        count = "a race was" if n == 1 else f"{n} races were"
        super().__init__(
            f"{count} found on the software device\n" + "\n".join(map(str, self.races))
        )

    def __reduce__(self) -> tuple[type[RaceError], tuple[list[Race]]]:
        return type(self), (self.races,)


class Lines:
    """The lines of the user's code that have called the device, by a number for each."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int, str], int] = {}
        self._places: list[tuple[str, int, str]] = []

    def here(self) -> int:
        """The number of the line that makes this call; 0: there is none."""
        frame = _trace.user_frame(sys._getframe().f_back)
        if frame is None:
            return 0
        place = (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        if place not in self._numbers:
            self._places.append(place)
            self._numbers[place] = len(self._places)
        return self._numbers[place]

    def text(self, number: int) -> str:
        if number == 0:
            return ""
        return _trace.line_text(*self._places[number - 1])


class Finder:
    """The search of one ``with`` block, and what a trace that is on gets of it."""

    def __init__(self, searches: bool) -> None:
        self.searches = searches
        self._recorder = _trace.current()
        self._lines = Lines()
        self._n_seen = 0
        self._unawaited: list[_Found] = []
        self._untaken: list[Race] = []
        _device.watch(self._lines.here, searches, self._recorder is not None)

    def take(self) -> list[Race]:
        """The races that were found since the last call."""
        self._look()
        races, self._untaken = self._untaken, []
        return races

    def _look(self) -> None:
        """Add what the engine has found to what is not taken, and to the trace."""
        found, self._unawaited = self._unawaited, []
        races = [self._never_awaited(one) for one in found]
        if self.searches:
            new = list(_all(_device.races, self._n_seen))
            self._n_seen += len(new)
            races += map(self._race, new)
            found += new
        if self._recorder is not None:
            for race, one in zip(races, found, strict=True):
                self._record_race(self._recorder, race, one)
        self._untaken += races

    def look_for_unawaited(self) -> None:
        """Find copies to the host that nobody has waited for, once for each line."""
        if self.searches:
            found = _all(_device.races_unawaited, 0)
            self._unawaited = [*{one.first.line: one for one in found}.values()]

    def stop(self) -> None:
        """End the search, and say whether it was complete."""
        self._look()
        n_dropped = _device.races_dropped() if self.searches else 0
        if self._recorder is not None:
            self._record_runs(self._recorder)
            if self.searches:
                self._name_rows(self._recorder)
                self._recorder.has_searched_races(n_dropped == 0)
            else:
                self._recorder.has_not_searched_races()
        _device.unwatch()
        if n_dropped != 0:
            why = f"{n_dropped} accesses were forgotten" if n_dropped > 0 else "no memory was left"
            warnings.warn(
                f"races on the software device may have been missed: {why}", RuntimeWarning, 4
            )

    # --- a trace ----------------------------------------------------------------------------

    def _record_race(self, recorder: _trace.Recorder, race: Race, found: _Found) -> None:
        parties = {"first": race.first._asdict(), "second": race.second._asdict()}
        known = [party for party in (found.first, found.second) if party.enqueued]
        accesses = [(_row(party), party.enqueued) for party in known]
        second = found.second
        can_wait = second.queue > 0 and not second.is_own and second.access != _RELEASE
        recorder.race(
            race.kind,
            accesses,
            {"message": race.message, **parties},
            race.second.queue if can_wait and not found.is_after_release else "",
            found.first.recorded,
            found.first.recorded_by,
        )

    def _name_rows(self, recorder: _trace.Recorder) -> None:
        n_seen = 0
        while numbers := _device.queue_numbers(n_seen):
            n_seen += len(numbers)
            for device, handle, number, is_own in numbers:
                recorder.name_row(_row_of(device, handle), _name_of_queue(number, is_own))

    def _record_runs(self, recorder: _trace.Recorder) -> None:
        n_seen, runs = _device.runs(0)
        while runs:
            for name, queue, device, line, nbytes, enqueued, start, end in runs:
                row = _row_of(device, queue)
                args: dict[str, object] = {"device": row[0], "stream": row[1]}
                if nbytes:
                    args["bytes"] = nbytes
                if line:
                    args["line"] = self._lines.text(line)
                what = f"{name} {nbytes:,} bytes" if nbytes else name
                recorder.work(row, what, enqueued, start, end, args)
            n_seen, runs = _device.runs(n_seen)

    # --- texts ------------------------------------------------------------------------------

    def _access(self, party: _Party) -> Access:
        who = _name_of_queue(party.queue, party.is_own) if party.queue else "the host"
        return Access(who, _NOUNS[party.access], self._lines.text(party.line))

    def _memory(self, found: _Found) -> str:
        begin, n_common = found.begin, found.n_common
        if found.allocation == 0:
            return f"{n_common} bytes of the host at {begin:#x}"
        is_all = n_common == found.nbytes or found.second.access == _RELEASE
        part = "the" if is_all else f"bytes {begin} to {begin + n_common} of the"
        return f"{part} memory made at {self._lines.text(found.made_at) or 'an unknown line'}"

    def _race(self, found: _Found) -> Race:
        first, second = self._access(found.first), self._access(found.second)
        what = f"{second.queue} {_VERBS[found.second.access]} {self._memory(found)}"
        if found.is_after_release:
            kind = f"{second.access} after release"
            message = f"{what}, which {first.queue} has released{_at(first)}"
        else:
            kind = f"{second.access} not ordered after {first.access}"
            message = (
                f"{what} while the {first.access} of {first.queue}{_at(first)} "
                f"is not ordered before it: {_why(first, second, found.waits_too_early)}"
            )
        message = _after(second, message) + _advice(found, first, second)
        return Race(kind, message, first, second, found.allocation)

    def _never_awaited(self, found: _Found) -> Race:
        first, end = self._access(found.first), Access("the host", "read", "")
        message = f"{first.queue} writes {self._memory(found)}, and the host never waits for it"
        kind = "copy to the host that is not waited for"
        message = _after(first, message) + f"; synchronize {first.queue} first"
        return Race(kind, message, first, end, 0)


def _name_of_queue(number: int, is_own: bool) -> str:
    return f"arrowdev's queue {number}" if is_own else f"queue {number}"


def _row_of(device: int, queue: int) -> _trace.Row:
    return f"ext_dev:{device}", name_of_stream(queue)


def _row(party: _Party) -> _trace.Row:
    """The row of a trace: a queue, or the host, of which one thread stands for all."""
    if party.queue == 0:
        return "host", threading.get_ident()
    return _row_of(party.device, party.handle)


def _at(access: Access) -> str:
    return f" ({access.line})" if access.line else ""


def _after(access: Access, message: str) -> str:
    """The message behind its line, as in a traceback."""
    return f"{access.line}: {message}" if access.line else message


def _why(first: Access, second: Access, waits_too_early: bool) -> str:
    if waits_too_early:
        return f"{second.queue} waits for an event of {first.queue} that is recorded earlier"
    return f"{second.queue} waits for no event that is recorded after it"


def _advice(found: _Found, first: Access, second: Access) -> str:
    """What orders the accesses; nothing where that is not the user's to do."""
    if found.is_after_release:
        return f"; keep the memory until this {second.access} is done"
    if found.second.access == _RELEASE:
        return f"; keep the memory until the {first.access} is done"
    if found.first.is_own or found.second.is_own:
        return ""
    if found.waits_too_early:
        return f"; record that event after the {first.access}"
    before = f", before {second.line}," if second.line else ""
    after = first.line or f"the {first.access}"
    return f"; let it wait{before} for one that {first.queue} records after {after}"
