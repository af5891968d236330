"""The software device."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from arrowdev import _core
from arrowdev.testing._engine import (
    KINDS,
    call,
    calls,
    find,
    milliseconds,
    scaled,
    size,
    whole,
)
from arrowdev.testing._producers import ArrayProducer, consume, host_array
from arrowdev.testing._queue import DeviceMemory, Event, Queue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Any

    from typing_extensions import Self

    from arrowdev import Array
    from arrowdev.typing import TypeLike

_MAX_DEVICES = 64  # the engine's AD_ENGINE_MAX_DEVICES


class Live(NamedTuple):
    """What is alive, counted by the device itself."""

    queues: int
    events: int
    allocations: int
    bytes: int
    pending: int
    """Pieces of work that are not done."""
    arrowdev_queues: int
    """arrowdev keeps one or a few per device, as long as the process lives."""
    arrowdev_events: int
    """arrowdev keeps a pool of events, as long as the process lives."""


class SoftwareDevice:
    """A few devices made of threads, inside ``with``; see ``software_device``."""

    _current: SoftwareDevice | None = None

    def __init__(self, devices: int, timeout: float) -> None:
        self.n_devices = whole("devices", devices, 1, _MAX_DEVICES)
        self._timeout_ms = scaled("timeout", timeout, 1000)
        self._process = 0
        self._queues: list[Queue] = []
        self._readers: dict[int, Queue] = {}

    # --- begin and end ----------------------------------------------------------------------

    def __enter__(self) -> Self:
        if SoftwareDevice._current is not None:
            raise RuntimeError("there is a software device already; devices=n makes more of them")
        _core._testing_start(self.n_devices, True)
        SoftwareDevice._current = self
        self._process = os.getpid()
        try:
            self.reset()
        except BaseException:
            self._forget()
            raise
        return self

    def _forget(self) -> None:
        _core._testing_hide()
        SoftwareDevice._current = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if os.getpid() != self._process:
            self._forget()  # the threads are the parent's: nothing here to end
            return
        self.fail_at(0)
        for queue in self._queues:
            queue._open_gate()
        for event in list(Event._all):
            try:
                event.fire()
            except _core.DeviceError:
                pass  # it was not armed
        try:
            self.synchronize()
        except _core.DeviceError:
            # What work did wrong must not go unnoticed; but the test's own error comes first.
            if error is None:
                raise
        finally:
            for queue in self._queues:
                queue.close()
            self.reset()
            self._forget()

    def reset(self) -> None:
        """Open all gates, remove delays, limits and planned failures, forget failed work."""
        for queue in self._queues:
            queue._open_gate()
        _core._testing_reset(self._timeout_ms)

    # --- parts ------------------------------------------------------------------------------

    def queue(self, device_id: int = 0) -> Queue:
        """A new queue, closed with the device at the latest."""
        queue = Queue(device_id)
        self._queues.append(queue)
        return queue

    def event(self, device_id: int = 0) -> Event:
        """A new event: not recorded, and so done."""
        return Event(device_id)

    def empty(self, nbytes: int, device_id: int = 0, *, kind: str = "device") -> DeviceMemory:
        """New memory, full of a pattern that nobody takes for data.

        kind: ``"device"``, or, for the host to touch as well, ``"pinned"`` or ``"managed"``.
        """
        return DeviceMemory(nbytes, device_id, kind)

    def from_host(self, data: Any, device_id: int = 0) -> DeviceMemory:
        """New memory with these bytes; they are there when this returns."""
        view = memoryview(data)
        memory = self.empty(view.nbytes, device_id)
        queue = self._reader(device_id)
        queue.write(memory, view)
        queue.synchronize()
        return memory

    def peek(self, memory: DeviceMemory | int, nbytes: int | None = None) -> bytes:
        """The bytes as they are now, whatever is pending on any queue."""
        found = find(memory if isinstance(memory, int) else memory.address)
        if found is None:
            raise ValueError(f"{memory!r} is not live memory of the software device")
        return self._reader(found[2]).read(memory, nbytes)

    def _reader(self, device_id: int) -> Queue:
        """A queue of our own, that nobody holds."""
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
        """An object with ``__arrow_c_device_array__``, as a foreign library would have it.

        values: a list of bools, numbers or strings, or any array on the host. The queue writes
        them when it comes to it: hold it, or give it a delay, and the event is pending.
        ``with_event=False`` promises that nothing has to be waited for, and so waits first.
        """
        return ArrayProducer(host_array(values, type), queue or self._reader(0), with_event)

    def to_host(self, obj: Any, *, queue: Queue | None = None, wait: bool = True) -> Array:
        """Read an object with ``__arrow_c_device_array__`` back, as a careful consumer would.

        The array and all of its buffers are checked (InvalidArrowError): the type and id of the
        device, the event, whose memory it is. Then the queue waits for the event and copies, and
        the array is released. ``wait=False`` forgets to wait, to show what happens then.
        """
        return consume(obj, queue or self._reader(0), wait)

    # --- all of it --------------------------------------------------------------------------

    def synchronize(self, device_id: int = -1, *, timeout: float | None = None) -> None:
        """Let the host wait for all work of a device, or of all of them.

        Memory that arrowdev keeps until somebody's work is done goes back then, too.
        """
        call("synchronize", device_id, milliseconds(timeout))

    def live(self) -> Live:
        """What is alive: compare before and after, to find leaks.

        Memory is freed in the order of a queue, so ``synchronize`` first.
        """
        return Live(*_core._testing_live())

    def set_memory_limit(self, nbytes: int, device_id: int = 0) -> None:
        """Let allocations of device memory fail that together pass the limit; 0: the default."""
        call("set_memory_limit", device_id, size("nbytes", nbytes))

    def memory_left(self, device_id: int = 0) -> int:
        """How many bytes can still be allocated on this device."""
        return call("memory_left", device_id)

    def kind_of(self, address: int) -> str | None:
        """The kind of memory that an address belongs to; None: not of this device."""
        found = find(address)
        return None if found is None else KINDS[found[3]]

    # --- failures ---------------------------------------------------------------------------

    def fail_at(self, n: int, call: str | None = None, *, stay: bool = False) -> None:
        """Let the n-th next call that arrowdev makes to the device fail (0: none).

        call: count only those of this name, as ``calls`` lists them. stay: those after it fail,
        too.
        """
        _core._testing_fail_at(size("n", n), call, stay)

    @property
    def n_calls(self) -> int:
        """How many calls arrowdev has made to the device in this process."""
        return call("n_calls")

    @property
    def calls(self) -> Sequence[str]:
        """The names of the last calls that arrowdev made to the device, oldest first."""
        return calls()


def software_device(devices: int = 2, *, timeout: float = 60.0) -> SoftwareDevice:
    """Software devices for a ``with`` block: ``ext_dev:0``, ``ext_dev:1``, ...

    One block at a time. At its end all gates are opened and all work is done; work that failed
    unseen is raised there. Arrays may outlive the block.

    devices
        How many.
    timeout
        No wait of the host is longer than so many seconds, then it raises DeviceError: a test
        never hangs.

    Raises DeviceError where it cannot be had (other systems than Linux, forked children).
    """
    if not sys.platform.startswith("linux"):
        raise NotImplementedError("the software device needs Linux (memfd_create)")
    return SoftwareDevice(devices, timeout)
