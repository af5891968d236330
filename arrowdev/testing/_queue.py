"""Queues of the software device, their events, and memory."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from weakref import WeakSet

from arrowdev import _core
from arrowdev.testing import _device
from arrowdev.testing._engine import (
    EXT_DEV,
    KINDS,
    call,
    milliseconds,
    read,
    scaled,
    size,
    whole,
    write,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

# A handle that is forgotten is destroyed by a call of C, _device.call, since a signal handler may
# raise when `call` begins.


class Event:
    """A point in a queue's work, created by ``SoftwareDevice.event`` and ``Queue.record``."""

    _armed: set[int] = set()  # handles, some of which were fired or destroyed since

    def __init__(self, device_id: int = 0) -> None:
        self.handle = call("event_create", device_id)

    @property
    def address(self) -> int:
        """The address of the 8-byte handle, as in ``sync_event`` of a device array."""
        return call("event_address", self.handle)

    def record(self, queue: Queue) -> None:
        """Record the event behind the current work of the queue."""
        call("event_record", self.handle, queue.handle)

    def is_ready(self) -> bool:
        """Return whether the work is done; of an armed event, whether it was fired."""
        return bool(call("event_query", self.handle))

    def synchronize(self, timeout: float | None = None) -> None:
        """Let the host wait, at most `timeout` seconds."""
        call("event_synchronize", self.handle, milliseconds(timeout))

    def arm(self) -> None:
        """Make the event pending until ``fire``, without a queue."""
        self._armed.add(self.handle)
        call("event_arm", self.handle)

    def fire(self) -> None:
        """Complete the event after ``arm``."""
        call("event_fire", self.handle)

    @classmethod
    def _fire_all(cls) -> None:
        """Fire the events that are armed, also while other threads arm some."""
        while cls._armed:
            with suppress(_core.DeviceError, KeyError):  # it was fired or destroyed
                call("event_fire", cls._armed.pop())

    def close(self) -> None:
        """Destroy the event; existing waits continue until the recorded work is done."""
        if self.handle:
            self._armed.discard(self.handle)
            handle, self.handle = self.handle, 0
            _device.call("event_destroy", handle)

    def __del__(self) -> None:
        # A forked child, or a failed __init__, has nothing to destroy.
        try:
            self.close()
        except (AttributeError, _core.DeviceError):
            pass

    def __repr__(self) -> str:
        return f"<Event {self.handle:#x}>"


class DeviceMemory:
    """Memory of the software device: ``address`` is a pointer that the host cannot dereference.

    The memory is freed by ``free``, or after the object is destroyed and the queues that used it
    have done their current work. For arrays over it use
    ``arrowdev.Tensor.from_pointer(memory.address, shape, dtype, memory.device, owner=memory)``.
    """

    def __init__(self, nbytes: int, device_id: int = 0, kind: str = "device") -> None:
        if kind not in KINDS[:3]:
            raise ValueError(f"kind must be one of {', '.join(KINDS[:3])}, not {kind!r}")
        self.nbytes = size("nbytes", nbytes)
        self.device_id = device_id
        self.kind = kind
        self._used_on: set[int] = set()  # handles of queues, which may be closed since
        # Memory of 0 bytes has a unique address, as on real devices.
        self.address = call("allocate", device_id, max(self.nbytes, 1), KINDS.index(kind))

    @property
    def device(self) -> tuple[int, int]:
        """The device as (type, id)."""
        return EXT_DEV, self.device_id

    def free(self, queue: Queue | None = None) -> None:
        """Free the memory now, or when the queue has done its current work."""
        handle = None if queue is None else queue.handle
        if self.address:
            address, self.address = self.address, 0
            try:
                if handle is None:
                    _device.call("free", address)
                else:
                    _device.call("free_ordered", handle, address)
            except (_core.DeviceError, MemoryError):
                self.address = address  # only these say that it is not free
                raise

    def _free_behind(self, queues: Sequence[int]) -> None:
        """Free the memory after the current work of these queues, without delaying them."""
        last = call("queue_create", self.device_id)
        try:
            for queue in queues:
                call("queue_wait_queue", last, queue)
            call("free_ordered", last, self.address)
        finally:
            _device.call("queue_destroy", last)

    def __del__(self) -> None:
        try:
            # The speed of a queue must not hide a race.
            is_all = Queue._is_searched
            used_on = tuple(self._used_on)
            queues = [queue for queue in used_on if is_all or call("queue_is_busy", queue)]
            if self.address and queues:
                self._free_behind(queues)
            else:
                self.free()
        except (AttributeError, _core.DeviceError):
            pass

    def __repr__(self) -> str:
        return f"<DeviceMemory {self.address:#x}, {self.nbytes} bytes on ext_dev:{self.device_id}>"


def size_of(memory: DeviceMemory | int, nbytes: int | None) -> int:
    """The number of bytes that are meant: `nbytes`, or all of the memory."""
    if nbytes is not None:
        return size("nbytes", nbytes)
    if isinstance(memory, int):
        raise TypeError("a bare address needs nbytes=")
    return memory.nbytes


class Queue:
    """An in-order queue of work, which can be passed as ``stream=``.

    It is created by ``SoftwareDevice.queue``, and closed by ``close`` or with the device.
    """

    _all: WeakSet[Queue] = WeakSet()
    _is_searched = False  # for races
    _gate: Any = None  # that takes new queues, too

    def __init__(self, device_id: int = 0) -> None:
        self.device_id = device_id
        self.handle = call("queue_create", device_id)
        self._holds = 0  # of this object; the engine's own number decides
        self._n_openings = 0
        Queue._all.add(self)
        if Queue._gate is not None:
            Queue._gate.hold(self)

    @classmethod
    def _every(cls) -> list[Queue]:
        """The queues that are not closed, in the order of their handles."""
        return sorted((queue for queue in cls._all if queue.handle), key=lambda one: one.handle)

    @property
    def __arrowdev_queue__(self) -> tuple[int, int]:
        """Return (device type, handle), by which arrowdev recognizes a queue."""
        return EXT_DEV, self.handle

    # --- the gate ---------------------------------------------------------------------------

    def hold(self) -> None:
        """Start no further work until ``release``."""
        call("queue_hold", self.handle)
        self._holds += 1

    def release(self) -> None:
        """Undo one ``hold``."""
        call("queue_release", self.handle)
        self._holds -= 1

    def step(self) -> bool:
        """Let one operation of a held queue go on, and return when it is done.

        False: there is none, or it waits for another queue.
        """
        return bool(call("queue_step", self.handle))

    @contextmanager
    def held(self) -> Iterator[Queue]:
        """Hold the queue inside ``with``, or until ``SoftwareDevice.reset``."""
        n_openings = self._n_openings
        self.hold()
        try:
            yield self
        finally:
            try:
                self.release()
            except _core.DeviceError:
                if self._n_openings == n_openings:
                    raise

    @property
    def delay(self) -> float:
        """The delay before each operation starts, in seconds."""
        return call("queue_delay", self.handle) / 1e6

    @delay.setter
    def delay(self, seconds: float) -> None:
        call("queue_set_delay", self.handle, scaled("delay", seconds, 10**6))

    # --- work -------------------------------------------------------------------------------

    def write(self, target: DeviceMemory | int, data: Any) -> None:
        """Write bytes of the host, which are read during this call."""
        write(self.handle, self._use(target), data)

    def fill(self, target: DeviceMemory | int, value: int, nbytes: int | None = None) -> None:
        """Set all bytes to `value`."""
        byte, n = whole("value", value, 0, 255), size_of(target, nbytes)
        call("fill", self.handle, self._use(target), byte, 1, n)

    def copy(
        self, target: DeviceMemory | int, source: DeviceMemory | int, nbytes: int | None = None
    ) -> None:
        """Copy between device memory, of the same or another device."""
        n = size_of(source, nbytes)
        call("copy", self.handle, self._use(target), self._use(source), n)

    def read(
        self,
        source: DeviceMemory | int,
        nbytes: int | None = None,
        *,
        timeout: float | None = None,
    ) -> bytes:
        """Wait on the host for the current work of the queue, and return the bytes."""
        return read(self.handle, self._use(source), size_of(source, nbytes), timeout)

    def _use(self, memory: DeviceMemory | int) -> int:
        """Return the address, and record the use, so that the memory outlives the work."""
        if isinstance(memory, int):
            return memory
        if self.handle:
            memory._used_on.add(self.handle)
        return memory.address

    # --- order ------------------------------------------------------------------------------

    def record(self) -> Event:
        """Return a new event, recorded behind the current work of the queue."""
        event = Event(self.device_id)
        event.record(self)
        return event

    def wait(self, other: Event | Queue) -> None:
        """Let later work wait for an event, or for the current work of another queue."""
        name = "queue_wait" if isinstance(other, Event) else "queue_wait_queue"
        call(name, self.handle, other.handle)

    def is_idle(self) -> bool:
        """Return whether all work is done; raise DeviceError for work that failed."""
        return bool(call("queue_query", self.handle))

    def synchronize(self, timeout: float | None = None) -> None:
        """Let the host wait for the work, at most `timeout` seconds.

        Raises DeviceError for work that failed (memory that was freed too early), also on later
        calls, until ``SoftwareDevice.reset``.
        """
        call("queue_synchronize", self.handle, milliseconds(timeout))

    def close(self) -> None:
        """Destroy the queue: a hold ends, and the pending work is still done."""
        if self.handle:
            handle, self.handle = self.handle, 0
            _device.call("queue_destroy", handle)

    def _forget_holds(self) -> None:
        """All holds are about to end."""
        self._n_openings += 1
        self._holds = 0

    def _open_gate(self) -> None:
        """End the delay and all holds, also those of other threads, which may close the queue."""
        self._forget_holds()
        with suppress(_core.DeviceError):
            self.delay = 0
            while True:
                call("queue_release", self.handle)

    def __repr__(self) -> str:
        return f"<Queue {self.handle:#x} of ext_dev:{self.device_id}>"
