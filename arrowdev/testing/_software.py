"""The software device."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NamedTuple

from arrowdev import DeviceError, DeviceType, _trace
from arrowdev._core import _offer_backend
from arrowdev.testing import _device
from arrowdev.testing._engine import (
    KINDS,
    call,
    calls,
    find,
    milliseconds,
    peek,
    scaled,
    size,
    whole,
)
from arrowdev.testing._producers import ArrayProducer, consume, host_array
from arrowdev.testing._queue import DeviceMemory, Event, Queue, size_of
from arrowdev.testing._races import Finder, RaceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Any

    from typing_extensions import Self

    from arrowdev import Array
    from arrowdev.testing._races import Race
    from arrowdev.typing import TypeLike

_MAX_DEVICES = 64  # the engine's AD_ENGINE_MAX_DEVICES


class Live(NamedTuple):
    """The numbers of live objects, counted by the device itself."""

    queues: int
    events: int
    allocations: int
    bytes: int
    pending: int
    """The number of operations that are not done."""
    arrowdev_queues: int
    """arrowdev keeps one or a few per device for the life of the process."""
    arrowdev_events: int
    """arrowdev keeps a pool of events for the life of the process."""


class SoftwareDevice:
    """One or more devices made of threads, for a ``with`` block; see ``software_device``."""

    _current: SoftwareDevice | None = None

    def __init__(self, devices: int, timeout: float, races: bool) -> None:
        self.n_devices = whole("devices", devices, 1, _MAX_DEVICES)
        self._timeout_ms = scaled("timeout", timeout, 1000)
        self._process = 0
        self._queues: list[Queue] = []
        self._readers: dict[int, Queue] = {}
        self._searches = races
        self._finder: Finder | None = None

    # --- start and end ----------------------------------------------------------------------

    def __enter__(self) -> Self:
        if SoftwareDevice._current is not None:
            raise RuntimeError("there is a software device already; devices=n makes more of them")
        _device.start(self.n_devices)
        _offer_backend(_device.backend(), DeviceType.EXT_DEV)
        SoftwareDevice._current = self
        try:
            self._process = os.getpid()
            self.reset()
            if self._searches or _trace.current() is not None:
                self._finder = Finder(self._searches)
                Queue._is_searched = self._searches
        except BaseException:
            SoftwareDevice._current = None
            Queue._is_searched = False
            _device.end(self._timeout_ms)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        is_forked = False
        try:
            is_forked = os.getpid() != self._process  # the threads belong to the parent process
            if not is_forked:
                self._complete(error)
        finally:
            # A signal handler may raise when a function of Python begins, and after each call, so
            # closing is tried once more.
            try:
                self._close_queues()
            except BaseException:
                self._close_queues()
                raise
            finally:
                try:
                    if self._finder is not None and not is_forked:
                        self._finder.stop()
                finally:
                    SoftwareDevice._current = None
                    Queue._is_searched = False
                    _device.end(self._timeout_ms)
        if is_forked:
            return
        if error is None:
            self._raise_races()
        elif sys.version_info >= (3, 11) and (races := self._new_races()):
            error.add_note(str(RaceError(races)))

    def _complete(self, error: BaseException | None) -> None:
        """Let all work be done. Its failure is raised, unless `error` of the test is."""
        self.fail_at(0)
        if self._finder is not None:
            self._finder.look_for_unawaited()  # before this waits
        for queue in self._queues:
            queue._open_gate()
        Event._fire_all()
        try:
            self.synchronize()
        except DeviceError as failure:
            if error is None:
                self._raise_races(failure)
                raise

    def _close_queues(self) -> None:
        for queue in self._queues:
            with suppress(DeviceError):  # another thread has closed it, or the process is a fork
                queue.close()

    def _new_races(self) -> list[Race]:
        return self._finder.take() if self._finder is not None else []

    def _raise_races(self, failure: DeviceError | None = None) -> None:
        """Raise the races that nobody has asked for; `failure` is what came of them."""
        if races := self._new_races():
            raise RaceError(races) from failure

    def reset(self) -> None:
        """Open all gates; remove delays, limits and planned failures; forget failed work."""
        for queue in self._queues:
            queue._forget_holds()
        call("reset", self._timeout_ms)

    # --- queues, events, memory -------------------------------------------------------------

    def queue(self, device_id: int = 0) -> Queue:
        """Return a new queue, which is closed with the device at the latest."""
        queue = Queue(device_id)
        self._queues.append(queue)
        return queue

    def event(self, device_id: int = 0) -> Event:
        """Return a new event, which is not recorded and therefore done."""
        return Event(device_id)

    def empty(self, nbytes: int, device_id: int = 0, *, kind: str = "device") -> DeviceMemory:
        """Return new memory, filled with a pattern that is unlikely as data.

        kind: ``"device"``, or ``"pinned"`` or ``"managed"``, which the host can access too.
        """
        return DeviceMemory(nbytes, device_id, kind)

    def from_host(self, data: Any, device_id: int = 0) -> DeviceMemory:
        """Return new memory with these bytes. The copy is complete when this returns."""
        view = memoryview(data)
        memory = self.empty(view.nbytes, device_id)
        queue = self._reader(device_id)
        queue.write(memory, view)
        queue.synchronize()
        return memory

    def peek(self, memory: DeviceMemory | int, nbytes: int | None = None) -> bytes:
        """Return the current bytes without waiting for pending work of any queue."""
        address = memory if isinstance(memory, int) else memory.address
        if find(address) is None:
            raise ValueError(f"{memory!r} is not live memory of the software device")
        return peek(address, size_of(memory, nbytes))

    def _reader(self, device_id: int) -> Queue:
        """Return an internal queue, which no test can hold."""
        if device_id not in self._readers:
            self._readers[device_id] = self.queue(device_id)
        return self._readers[device_id]

    # --- arrays -----------------------------------------------------------------------------

    def array(
        self,
        values: Any,
        type: TypeLike | None = None,
        *,
        queue: Queue | None = None,
        with_event: bool = True,
    ) -> ArrayProducer:
        """Return an object with ``__arrow_c_device_array__``, like that of a foreign library.

        values: a list of bools, numbers or strings, or any array on the host. The queue writes
        them: while it is held or delayed, the event is pending. An array with
        ``with_event=False`` is ready, so its export waits first.
        """
        return ArrayProducer(host_array(values, type), queue or self._reader(0), with_event)

    def to_host(self, obj: Any, *, queue: Queue | None = None, wait: bool = True) -> Array:
        """Read an object with ``__arrow_c_device_array__`` back, as a careful consumer would.

        The array and all of its buffers are checked (InvalidArrowError): the type and id of the
        device, the event, and the device of the memory. Then the queue waits for the event and
        copies, and the array is released. ``wait=False`` omits the wait, to show the effect.
        """
        return consume(obj, queue or self._reader(0), wait)

    # --- races ------------------------------------------------------------------------------

    def races(self) -> list[Race]:
        """Return the races that were found since the last call; needs ``races=True``.

        What this returns is not raised at the end of the block.
        """
        if self._finder is None or not self._finder.searches:
            raise RuntimeError("no races are searched for; use software_device(races=True)")
        return self._finder.take()

    # --- the whole device -------------------------------------------------------------------

    def synchronize(self, device_id: int = -1, *, timeout: float | None = None) -> None:
        """Let the host wait for all work of a device, or of all devices.

        The deferred releases of arrowdev that depend on this work are done, too.
        """
        call("synchronize", device_id, milliseconds(timeout))

    def live(self) -> Live:
        """Return the numbers of live objects; compare before and after, to find leaks.

        Memory is freed in the order of a queue, so ``synchronize`` first.
        """
        return Live(*_device.live())

    def set_memory_limit(self, nbytes: int, device_id: int = 0) -> None:
        """Let allocations of device memory fail beyond this total; 0: the default limit."""
        call("set_memory_limit", device_id, size("nbytes", nbytes))

    def memory_left(self, device_id: int = 0) -> int:
        """Return how many bytes can still be allocated on this device."""
        return call("memory_left", device_id)

    def kind_of(self, address: int) -> str | None:
        """Return the kind of the memory at an address; None: not memory of this device."""
        found = find(address)
        return None if found is None else KINDS[found[3]]

    # --- failures ---------------------------------------------------------------------------

    def fail_at(self, n: int, call: str | None = None, *, stay: bool = False) -> None:
        """Let the n-th next call of arrowdev to the device fail (0: none).

        call: count only calls of this name, as in ``calls``. stay: all later calls fail, too.
        """
        _device.fail_at(size("n", n), call, stay)

    @property
    def n_calls(self) -> int:
        """The number of calls of arrowdev to the device in this process."""
        return call("n_calls")

    @property
    def calls(self) -> Sequence[str]:
        """The names of the last calls of arrowdev to the device, oldest first.

        They are those of the functions in ``arrowdev_backend.h``; ``"copy"`` is each kind of copy.
        """
        return calls()


def software_device(
    devices: int = 2, *, timeout: float = 60.0, races: bool | None = None
) -> SoftwareDevice:
    """Return software devices for a ``with`` block: ``ext_dev:0``, ``ext_dev:1``, ...

    One block at a time. At its end all gates are opened and all work is done; a failure of the
    work that was not reported before is raised there. Arrays may outlive the block.

    devices
        The number of devices.
    timeout
        A wait of the host that takes longer, in seconds, raises DeviceError, so that a test never
        hangs.
    races
        Find accesses to the same memory that nothing orders, whenever they really run: of two
        queues, one of which writes or releases the memory, and of a queue whose work the host
        should have waited for. They are raised as RaceError at the end of the block, unless
        ``races()`` has returned them or another error is on its way. None: what the environment
        variable ARROWDEV_RACES says (1: yes).

    Raises NotImplementedError on systems other than Linux, and DeviceError in forked children.
    """
    if not sys.platform.startswith("linux"):
        raise NotImplementedError("the software device needs Linux (memfd_create)")
    if races is None:
        races = os.environ.get("ARROWDEV_RACES", "0") not in ("", "0")
    return SoftwareDevice(devices, timeout, races)
