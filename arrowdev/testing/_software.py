"""The software device, its queues, events and memory."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import NamedTuple
from weakref import WeakSet

from arrowdev import _core
from arrowdev.testing._engine import (
    KINDS,
    call,
    calls,
    find,
    milliseconds,
    read,
    scaled,
    size,
    whole,
    write,
)
from arrowdev.testing._producers import ArrayProducer, consume, host_array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import Any

    from typing_extensions import Self

    from arrowdev import Array
    from arrowdev.typing import TypeLike

_MAX_DEVICES = 64  # the engine's AD_ENGINE_MAX_DEVICES

EXT_DEV = 12
"""The device type of the software device, ARROW_DEVICE_EXT_DEV."""


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


class Event:
    """A point in a queue's work. Made by ``SoftwareDevice.event`` and ``Queue.record``."""

    _all: WeakSet[Event] = WeakSet()

    def __init__(self, device_id: int = 0) -> None:
        self.handle = call("event_create", device_id)
        Event._all.add(self)

    @property
    def address(self) -> int:
        """What ``sync_event`` of a device array carries: the address of the 8-byte handle."""
        return call("event_address", self.handle)

    def record(self, queue: Queue) -> None:
        """Stand for the work that is on the queue now."""
        call("event_record", self.handle, queue.handle)

    def is_ready(self) -> bool:
        """Whether the work is done; of an armed event, whether it was fired."""
        return bool(call("event_query", self.handle))

    def synchronize(self, timeout: float | None = None) -> None:
        """Let the host wait, at most `timeout` seconds."""
        call("event_synchronize", self.handle, milliseconds(timeout))

    def arm(self) -> None:
        """Be pending until ``fire``, without any queue."""
        call("event_arm", self.handle)

    def fire(self) -> None:
        """Be done, after ``arm``."""
        call("event_fire", self.handle)

    def close(self) -> None:
        """Destroy it; whoever waits for it goes on waiting for what it stood for."""
        if self.handle:
            handle, self.handle = self.handle, 0
            call("event_destroy", handle)

    def __del__(self) -> None:
        # In a forked child, and half made, there is nothing to destroy.
        try:
            self.close()
        except (AttributeError, _core.DeviceError):
            pass

    def __repr__(self) -> str:
        return f"<Event {self.handle:#x}>"


class DeviceMemory:
    """Memory of the software device: ``address`` is a pointer that the host cannot follow.

    Freed by ``free``, or when the object is gone and the queues that it was used on have done what
    is on them then. Arrays over it are made with
    ``arrowdev.Tensor.from_pointer(memory.address, shape, dtype, memory.device, owner=memory)``.
    """

    def __init__(self, nbytes: int, device_id: int = 0, kind: str = "device") -> None:
        if kind not in KINDS[:3]:
            raise ValueError(f"kind must be one of {', '.join(KINDS[:3])}, not {kind!r}")
        self.nbytes = size("nbytes", nbytes)
        self.device_id = device_id
        self.kind = kind
        self._used_on: set[Queue] = set()
        # An address of its own, as memory of no bytes has on real devices.
        self.address = call("allocate", device_id, max(self.nbytes, 1), KINDS.index(kind))

    @property
    def device(self) -> tuple[int, int]:
        """(type, id)"""
        return EXT_DEV, self.device_id

    def free(self, queue: Queue | None = None) -> None:
        """Give it back now, or when the queue has done the work that is on it."""
        if self.address:
            address, self.address = self.address, 0
            if queue is None:
                call("free", address)
            else:
                call("free_ordered", queue.handle, address)

    def _free_behind(self, queues: set[Queue]) -> None:
        """Free it once the work on these queues is done, which is not made to wait for that."""
        last = call("queue_create", self.device_id)
        for queue in queues:
            call("queue_wait_queue", last, queue.handle)
        call("free_ordered", last, self.address)
        call("queue_destroy", last)

    def __del__(self) -> None:
        try:
            queues = {queue for queue in self._used_on if queue._is_busy()}
            if self.address and queues:
                self._free_behind(queues)
            else:
                self.free()
        except (AttributeError, _core.DeviceError):
            pass

    def __repr__(self) -> str:
        return f"<DeviceMemory {self.address:#x}, {self.nbytes} bytes on ext_dev:{self.device_id}>"


def _size_of(memory: DeviceMemory | int, nbytes: int | None) -> int:
    if nbytes is not None:
        return size("nbytes", nbytes)
    if isinstance(memory, int):
        raise TypeError("a bare address needs nbytes=")
    return memory.nbytes


class Queue:
    """An in-order queue of work; takes the place of a stream in ``stream=``.

    Made by ``SoftwareDevice.queue``; closed by ``close``, or with the device.
    """

    def __init__(self, device_id: int = 0) -> None:
        self.device_id = device_id
        self.handle = call("queue_create", device_id)
        self._holds = 0

    @property
    def __arrowdev_queue__(self) -> tuple[int, int]:
        """(device type, handle), by which arrowdev knows a queue."""
        return EXT_DEV, self.handle

    # --- the gate ---------------------------------------------------------------------------

    def hold(self) -> None:
        """Begin no more work until ``release``."""
        call("queue_hold", self.handle)
        self._holds += 1

    def release(self) -> None:
        """Undo one ``hold``."""
        call("queue_release", self.handle)
        self._holds -= 1

    @contextmanager
    def held(self) -> Iterator[Queue]:
        """Hold the queue inside ``with``."""
        self.hold()
        try:
            yield self
        finally:
            self.release()

    @property
    def delay(self) -> float:
        """Seconds by which each piece of work begins late."""
        return call("queue_delay", self.handle) / 1e6

    @delay.setter
    def delay(self, seconds: float) -> None:
        call("queue_set_delay", self.handle, scaled("delay", seconds, 10**6))

    # --- work -------------------------------------------------------------------------------

    def write(self, target: DeviceMemory | int, data: Any) -> None:
        """Write bytes of the host, which are read now."""
        write(self.handle, self._use(target), data)

    def fill(self, target: DeviceMemory | int, value: int, nbytes: int | None = None) -> None:
        """Set all bytes to `value`."""
        byte, n = whole("value", value, 0, 255), _size_of(target, nbytes)
        call("fill", self.handle, self._use(target), byte, 1, n)

    def copy(
        self, target: DeviceMemory | int, source: DeviceMemory | int, nbytes: int | None = None
    ) -> None:
        """Copy from device memory to device memory, of any device."""
        n = _size_of(source, nbytes)
        call("copy", self.handle, self._use(target), self._use(source), n)

    def read(
        self,
        source: DeviceMemory | int,
        nbytes: int | None = None,
        *,
        timeout: float | None = None,
    ) -> bytes:
        """The bytes, once the work that is on the queue now is done. The host waits."""
        return read(self.handle, self._use(source), _size_of(source, nbytes), timeout)

    def _use(self, memory: DeviceMemory | int) -> int:
        """The address; the memory must outlive the work that is going to use it."""
        if isinstance(memory, int):
            return memory
        memory._used_on.add(self)
        return memory.address

    # --- order ------------------------------------------------------------------------------

    def record(self) -> Event:
        """A new event that stands for the work that is on the queue now."""
        event = Event(self.device_id)
        event.record(self)
        return event

    def wait(self, other: Event | Queue) -> None:
        """Let later work wait for an event, or for the work that is on another queue now."""
        name = "queue_wait" if isinstance(other, Event) else "queue_wait_queue"
        call(name, self.handle, other.handle)

    def is_idle(self) -> bool:
        """Is all work done? Raises DeviceError for work that failed."""
        return bool(call("queue_query", self.handle))

    def _is_busy(self) -> bool:
        try:
            return self.handle != 0 and not self.is_idle()
        except _core.DeviceError:
            return False  # what failed is over

    def synchronize(self, timeout: float | None = None) -> None:
        """Let the host wait for the work, at most `timeout` seconds.

        Raises DeviceError for work that failed (memory that was freed too early), then and ever
        after, until ``SoftwareDevice.reset``.
        """
        call("queue_synchronize", self.handle, milliseconds(timeout))

    def close(self) -> None:
        """Destroy the queue; its work is still done, and a hold ends."""
        if self.handle:
            handle, self.handle = self.handle, 0
            call("queue_destroy", handle)

    def _open_gate(self) -> None:
        if self.handle:
            self.delay = 0
            while self._holds:
                self.release()

    def __repr__(self) -> str:
        return f"<Queue {self.handle:#x} of ext_dev:{self.device_id}>"


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
            raise ValueError(f"{memory!r} is no live memory of the software device")
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
