"""Checks that the event of an exported array says when its data are written.

All queues of the software device are held while the array is made and exported. Then they do one
operation at a time, so that a race is lost each time: as soon as the event is done, or at once if
there is none, the bytes must be those that are there in the end.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager

import arrowdev
from arrowdev.testing import _engine, _memory
from arrowdev.testing._host_read import Malformed
from arrowdev.testing._queue import Queue
from arrowdev.testing._software import SoftwareDevice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from typing_extensions import Self

    from arrowdev.testing._abi import ArrowSchema
    from arrowdev.testing._report import Report

    # Returns a schema, a device array, and what keeps both alive.
    _Give = Callable[[], tuple[ArrowSchema, Any, Any] | None]

RULE = "device.order"

# A producer that waits for its own work on the host gets this many seconds before the work is
# done for it. Others have returned by then.
GRACE = 0.25

MAX_BYTES = 1 << 20  # of a buffer that are compared
_TIMEOUT_MS = 20_000


class Gate:
    """Holds all queues, also those that are made inside; `backwards`: the last one steps first.

    A queue steps until it has nothing to do. So of any two queues each is the first once.
    """

    def __init__(self, backwards: bool) -> None:
        self._backwards = backwards
        self._queues: list[Queue] = []

    def __enter__(self) -> Self:
        for queue in Queue._every():
            self.hold(queue)
        Queue._gate = self
        return self

    def __exit__(self, *_: object) -> None:
        Queue._gate = None
        for queue in self._queues:
            if queue.handle:
                queue.release()

    def hold(self, queue: Queue) -> None:
        queue.hold()
        self._queues.append(queue)

    def step(self) -> bool:
        """Do one operation; return whether there was one."""
        queues = [queue for queue in self._queues if queue.handle]
        return any(queue.step() for queue in (reversed(queues) if self._backwards else queues))

    @contextmanager
    def stepped_if_blocked(self) -> Iterator[None]:
        """Let the work go on if the body waits for it."""
        is_over = threading.Event()

        def step() -> None:
            pause = GRACE
            while not is_over.wait(pause):
                self.step()
                pause = 0.002

        thread = threading.Thread(target=step, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()


def _event_at(address: int) -> int:
    handle = _engine.call("event_at", address)
    if not handle:
        raise _memory.Untold(f"sync_event {address:#x} is no event of the software device")
    return handle


def _is_done(address: int | None) -> bool:
    return not address or bool(_engine.call("event_query", _event_at(address)))


def _contents(schema: ArrowSchema, array: Any) -> dict[str, bytes]:
    device = (array.device_type, array.device_id)
    return {
        where: _memory.bytes_at(device, address, min(nbytes, MAX_BYTES))
        for where, address, nbytes in _memory.extents(device, schema, array.array)
    }


def _try_once(give: _Give, backwards: bool) -> tuple[dict[str, bytes], dict[str, bytes], Any]:
    """Return the bytes when the event was done, those in the end, and the array."""
    found = None
    with Gate(backwards) as gate:
        with gate.stepped_if_blocked():
            given = give()
        if given is None:
            raise _memory.Untold("nothing was exported while the queues were held")
        schema, array, _ = given
        while found is None:
            if _is_done(array.sync_event):
                found = _contents(schema, array)
            elif not gate.step():  # the queue is one of arrowdev's own, which are not held
                _engine.call("event_synchronize", _event_at(array.sync_event), _TIMEOUT_MS)
    _engine.call("synchronize", -1, _TIMEOUT_MS)
    return found, _contents(schema, array), given


def _cannot_be_tried(report: Report, array: Any) -> bool:
    device = (array.device_type, array.device_id)
    if device[0] == _engine.EXT_DEV and SoftwareDevice._current is not None:
        return False
    if device[0] == arrowdev.DeviceType.CPU:
        why = "nothing tells when host memory is written"
    else:
        why = f"nothing tells here when memory of {_memory.name_of(device)} is written"
    report.untry(RULE, f"{why}; an object on the software device can be tried")
    return True


def check_order(report: Report, array: Any, give: _Give) -> None:
    """Check what `give` returns, which is like `array`; it is called twice."""
    if _cannot_be_tried(report, array):
        return
    if any(queue._holds for queue in Queue._every()):
        report.untry(RULE, "a queue is held")
        return
    for backwards in (False, True):
        try:
            found, last, given = _try_once(give, backwards)
        except (_memory.Untold, Malformed, arrowdev.DeviceError) as error:
            report.untry(RULE, str(error))
            return
        early = [where for where, data in last.items() if found.get(where) != data]
        how = "is done" if given[1].sync_event else "is NULL"
        what = f"sync_event {how}, and {', '.join(early)} is written later"
        report.hold(RULE, not early, what)
        del given
