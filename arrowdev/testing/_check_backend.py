"""Checks the backend of a device type from outside: ``check_backend``."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass, field
from functools import partial

import arrowdev as ad
from arrowdev._errors import described
from arrowdev.testing._engine import whole
from arrowdev.testing._report import Report
from arrowdev.testing._rules import BACKEND_RULES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from contextlib import AbstractContextManager
    from typing import IO, Any

SECONDS = 20.0  # that a call may take before it counts as one that never returns
MANY = 4 << 20  # bytes whose copy takes a while
SIZES = (1, 3, 63, 64, 65, 4096, 100_003)


class _StuckError(Exception):
    """A call does not return. One that waits with the GIL cannot be noticed here."""


def _pattern(n: int, seed: int = 0) -> bytes:
    """Return n bytes that are of no use at another offset."""
    unit = bytes((i * 7 + (i >> 8) * 13 + seed * 31) % 251 for i in range(min(n, 4099)))
    return (unit * (n // max(len(unit), 1) + 1))[:n]


def _within(call: Callable[[], Any]) -> Any:
    """Return the result of a call on another thread; _StuckError if it does not return."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    if thread.is_alive():
        raise _StuckError(f"a call has not returned after {SECONDS:.0f} seconds")
    if errors:
        raise errors[0]
    return results[0]


@dataclass
class _World:
    """A runtime that is checked."""

    devices: list[ad.Device]
    stream: Callable[[ad.Device], Any] | None
    hold: Callable[[Any], AbstractContextManager[object]] | None
    setup: str
    streams: list[Any] = field(default_factory=list)  # of the user, which outlive the memory

    @property
    def here(self) -> ad.Device:
        return self.devices[0]

    @property
    def is_host(self) -> bool:
        return self.here.type == ad.DeviceType.CPU

    def put(
        self, data: bytes | memoryview, device: ad.Device | None = None, stream: Any = None
    ) -> ad.Tensor:
        """Return the bytes on a device, where they may be pending."""
        copied = ad.tensor(data).to(device or self.here, stream=stream)
        return ad.tensor(copied, copy=True) if self.is_host else copied

    def look(self, tensor: ad.Tensor) -> bytes:
        """Return what another stream finds that does not wait for pending work."""
        view = ad.Tensor.from_pointer(
            tensor.data_ptr, tensor.shape, "uint8", tensor.device, byte_offset=tensor.byte_offset
        )
        return _read(view)


def _read(tensor: ad.Tensor) -> bytes:
    return bytes(memoryview(ad.tensor(tensor.to("cpu"), copy=True)).cast("B"))


# --- what can be seen without a stream of a user ------------------------------------------------


def _check_devices(report: Report, world: _World) -> None:
    rule = "backend.devices"
    for device in world.devices:
        report.hold(rule, bool(device.name.strip()), f"{device} has no name")
        device.synchronize()
    beyond = ad.device((int(world.here.type), len(world.devices)))
    error = _error_of(lambda: beyond.empty(8))
    is_right = isinstance(error, ad.ExchangeError) and error.reason == "device"
    report.hold(rule, is_right, f"memory of {beyond}, which is not there: {error!r}")


def _error_of(call: Callable[[], Any]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def _check_memory(report: Report, world: _World) -> None:
    rule = "backend.memory"
    for device in world.devices:
        blocks = [device.empty(n) for n in SIZES]
        spans = sorted((b.data_ptr, n) for b, n in zip(blocks, SIZES, strict=True))
        if _has_handles(device):
            report.hold(rule, len(dict(spans)) == len(spans), "two allocations have one handle")
            continue
        bad = [hex(start) for start, _ in spans if start % 64]
        report.hold(rule, not bad, f"not aligned to 64 bytes: {', '.join(bad)}")
        for (start, n), (next_start, _) in zip(spans, spans[1:], strict=False):
            report.hold(
                rule, start + n <= next_start, f"{n} bytes at {start:#x} reach {next_start:#x}"
            )


def _has_handles(device: ad.Device) -> bool:
    return device.type in (
        *(ad.DeviceType.OPENCL, ad.DeviceType.VULKAN),
        *(ad.DeviceType.METAL, ad.DeviceType.WEBGPU),
    )


def _check_no_memory(report: Report, world: _World) -> None:
    rule = "backend.no_memory"
    error = _error_of(lambda: world.here.empty(1 << 60))
    is_right = isinstance(error, (MemoryError, ad.DeviceError))
    report.hold(rule, is_right, f"2**60 bytes: {error!r}")
    data = _pattern(1000)
    report.hold(rule, _read(world.put(data)) == data, "other bytes after an allocation failed")


def _check_copies(report: Report, world: _World) -> None:
    rule = "backend.copies"
    for n in SIZES:
        data = _pattern(n)
        there = world.put(data)
        report.hold(rule, _read(there) == data, f"{n} bytes changed on the way in or out")
        report.hold(
            rule, _read(ad.tensor(there, copy=True)) == data, f"{n} bytes changed in a copy"
        )
        part = there[n // 3 : n - n // 5]
        expected = data[n // 3 : n - n // 5]
        report.hold(rule, _read(part) == expected, f"a part of {n} bytes changed on its way out")
        for other in world.devices[1:]:
            moved = part.to(other)
            report.hold(
                rule,
                _read(moved) == expected,
                f"{len(expected)} bytes changed on the way to {other}",
            )
    _check_rows(report, world)


def _check_rows(report: Report, world: _World) -> None:
    n_rows, pitch, width = 37, 640, 40
    data = _pattern(n_rows * pitch)
    rows_of_data = memoryview(data).cast("B", (n_rows, pitch))
    matrix = world.put(rows_of_data)[:, 100 : 100 + width]
    rows = [data[i * pitch + 100 : i * pitch + 100 + width] for i in range(n_rows)]
    report.hold("backend.copies", _read(matrix) == b"".join(rows), "rows changed on the way out")
    copied = ad.tensor(matrix, copy=True)
    report.hold("backend.copies", _read(copied) == b"".join(rows), "rows changed in a copy")


def _check_kernels(report: Report, world: _World) -> None:
    rule = "backend.kernels"
    bits = _pattern(100)
    flags = [bool(bits[i // 8] >> i % 8 & 1) for i in range(777)]
    made = ad.Array.from_buffers("bool", 777, [None, bits]).to(world.here)
    error = _error_of(lambda: ad.tensor(made))
    if isinstance(error, ad.ExchangeError) and error.reason == "kernel":
        report.untry(rule, "the backend has no kernels")
        return
    found = list(_read(ad.tensor(made[5:])))
    report.hold(rule, found == [int(flag) for flag in flags[5:]], "bits became other bytes")
    masked = ad.Array.from_buffers("uint8", 100, [bits[:13], bits]).to(world.here)
    expected = sum(not (bits[i // 8] >> i % 8 & 1) for i in range(100))
    report.hold(rule, masked.count_nulls() == expected, "other bits were counted")


def _check_event(report: Report, world: _World) -> None:
    rule = "backend.event"
    for seed in range(4):
        data = _pattern(MANY, seed)
        pending = world.put(data)
        is_done_at_once = pending.is_ready()
        if is_done_at_once:
            report.hold(rule, world.look(pending) == data, "done before its work")
            pending = world.put(data)
        pending.synchronize()
        report.hold(rule, pending.is_ready(), "not done after a wait")
        report.hold(rule, world.look(pending) == data, "the wait ended before the work")


def _check_wait(report: Report, world: _World) -> None:
    for seed in range(4):
        data = _pattern(MANY, seed)
        for target in world.devices:
            found = _read(world.put(data).to(target))
            report.hold("backend.wait", found == data, f"a copy to {target} began too early")
            found = _read(ad.tensor(world.put(data), copy=True).to(target))
            report.hold("backend.wait", found == data, f"a copy to {target} began too early")


def _check_synchronize(report: Report, world: _World) -> None:
    for seed in range(4):
        data = _pattern(MANY, seed)
        pending = world.put(data)
        world.here.synchronize()
        report.hold(
            "backend.synchronize",
            world.look(pending) == data,
            "it returned before the work was done",
        )


def _check_release(report: Report, world: _World) -> None:
    """Memory whose copy is pending is let go, and as much is allocated and written."""
    for seed in range(8):
        data = _pattern(MANY // 4, seed)
        copied = ad.tensor(world.put(data), copy=True)
        others = [world.put(bytes(MANY // 4)) for _ in range(2)]
        is_right = _read(copied) == data
        report.hold("backend.release", is_right, "memory was used again before its copy was done")
        del copied, others
    for _ in range(50):
        world.put(bytes(MANY // 8))
    gc.collect()
    world.here.synchronize()


def _check_threads(report: Report, world: _World) -> None:
    rule = "backend.threads"
    faults: list[str] = []

    def use(number: int) -> None:
        try:
            for turn in range(12):
                data = _pattern(1000 * (turn + 1) + number, number)
                there = world.put(data, world.devices[number % len(world.devices)])
                copied = ad.tensor(there, copy=True)
                del there
                if _read(copied) != data:
                    faults.append("a thread found the bytes of another one")
        except Exception as error:
            faults.append(described(error))

    def run() -> None:
        threads = [threading.Thread(target=use, args=[i], daemon=True) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    _within(run)
    report.hold(rule, not faults, "; ".join(sorted(set(faults))[:3]))


def _in_child(world: _World, there: ad.Tensor, data: bytes) -> int:
    """Return 0 if a forked child may behave as this one does."""
    try:
        found = _read(there)
    except ad.ExchangeError as error:
        return 0 if error.reason == "runtime" else 3
    except Exception:
        return 4
    return 0 if found == data else 5


WHY = {
    3: "an error for another reason than that of the runtime",
    4: "an error that is no ExchangeError",
    5: "other bytes",
}


def _check_fork(report: Report, world: _World) -> None:
    rule = "backend.fork"
    data = _pattern(10_000)
    there = world.put(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 6
        try:
            code = _in_child(world, there, data)
            del there
            gc.collect()
        finally:
            os._exit(code)
    status = _wait_for(child)
    if status is None:
        report.hold(rule, False, "the child hangs")
    elif os.WIFSIGNALED(status):
        report.hold(rule, False, f"a signal ended the child: {os.WTERMSIG(status)}")
    else:
        code = os.WEXITSTATUS(status)
        report.hold(rule, code == 0, f"the child found {WHY.get(code, f'exit code {code}')}")
    report.hold(rule, _read(there) == data, "the parent found other bytes afterwards")


def _wait_for(child: int) -> int | None:
    """Return the status of the child, or None for one that had to be killed."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


# --- another process ----------------------------------------------------------------------------

NO_RUNTIME = 77  # exit code of the reader
# It writes a line break once it has attached, then the bytes, and nothing that the setup prints.
READER = f"""
import json, os, sys
out = os.dup(1)
os.dup2(2, 1)
sys.path, setup, text = json.loads(sys.stdin.readline())
kept = {{}}
exec(setup, kept)
import arrowdev as ad
try:
    there = ad.attach(text)
except ad.ExchangeError as error:
    if error.reason == "runtime":
        os._exit({NO_RUNTIME})
    sys.exit(f"ExchangeError: {{error}}")
os.write(out, b"\\n")
os.write(out, memoryview(ad.tensor(there.to("cpu"))).cast("B"))
"""


class _Reader:
    """A process that attaches to shared memory, and reads it."""

    def __init__(self, child: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        assert child.stdout is not None
        self._child, self._out, self._errors = child, child.stdout, errors

    def attach(self) -> None:
        """Wait until it has attached, or has failed to."""
        try:
            _within(self._out.readline)
        except _StuckError:
            raise _StuckError(
                f"another process has not attached after {SECONDS:.0f} seconds; does setup= end?"
            ) from None

    def may_read(self, seconds: float) -> None:
        """Wait until it has read, or for so long."""
        select.select([self._out], [], [], seconds)

    def result(self, n: int) -> tuple[bytes, str | None]:
        """Return n bytes, and what went wrong; None: there is no runtime."""
        found = b""
        while len(found) < n and (more := _within(partial(self._out.read, n - len(found)))):
            found += more
        if len(found) == n:
            return found, ""
        code = self._child.wait(SECONDS)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        said = [line for line in lines if line.strip()]
        if code == NO_RUNTIME:
            return found, None
        return found, said[-1] if said and code else f"it ended with exit code {code}"


@contextlib.contextmanager
def _reader(shared: ad.Shared, setup: str) -> Iterator[_Reader]:
    """Give a process that has attached, or has failed to."""
    pipe = subprocess.PIPE
    # What the environment says of Python is left out: the child gets this process's sys.path.
    command = [sys.executable, "-I", "-c", READER]
    path = [entry for entry in sys.path if isinstance(entry, str)]
    with (
        tempfile.TemporaryFile() as errors,
        # Unbuffered, since select() does not see what is in a buffer.
        subprocess.Popen(command, 0, stdin=pipe, stdout=pipe, stderr=errors) as child,
    ):
        assert child.stdin is not None
        try:
            with child.stdin as stdin:
                stdin.write(json.dumps([path, setup, str(shared)]).encode() + b"\n")
            reader = _Reader(child, errors)
            reader.attach()
            yield reader
        finally:
            child.kill()


def _check_share(report: Report, world: _World) -> None:
    rule = "backend.share"
    data = _pattern(5000)
    there = ad.tensor(world.put(data), copy=True)
    if not sys.executable:
        report.untry(rule, "sys.executable is not known")
        return
    try:
        shared = ad.share(there[1000:])
    except ad.ExchangeError as refusal:
        if refusal.reason != "share":
            raise
        report.untry(rule, str(refusal))
        return
    expected = data[1000:]
    with shared, _reader(shared, world.setup) as reader:
        found, error = reader.result(len(expected))
    if error is None:
        report.untry(rule, "another process has no runtime for the type; pass setup=")
        return
    what = f"another process: {error}" if error else "another process found other bytes"
    report.hold(rule, found == expected, what)


def _check_share_while_held(report: Report, world: _World) -> None:
    if "backend.share" not in report.held:
        return
    data = _pattern(5000)
    there = world.put(data)
    there.synchronize()
    with contextlib.ExitStack() as stack:
        with _held(world) as stream:
            pending = _within(lambda: ad.tensor(there, copy=True, stream=stream))
            shared = stack.enter_context(_within(lambda: ad.share(pending)))
            reader = stack.enter_context(_reader(shared, world.setup))
            reader.may_read(1.0)  # one that waits for nothing does
        found, error = reader.result(len(data))
    what = f"another process: {error}" if error else "another process did not wait for an event"
    report.hold("backend.share", found == data, what)


# --- with streams that can be held --------------------------------------------------------------


@contextlib.contextmanager
def _held(world: _World) -> Iterator[Any]:
    assert world.stream is not None and world.hold is not None
    stream = world.stream(world.here)
    world.streams.append(stream)
    with world.hold(stream):
        yield stream


def _copy_while_held(report: Report, world: _World, data: bytes, stream: Any) -> ad.Tensor:
    pending = _within(lambda: world.put(data, stream=stream))
    report.hold("backend.event", not pending.is_ready(), "done before its work")
    copied: ad.Tensor = _within(lambda: ad.tensor(pending, copy=True).to(world.devices[-1]))
    report.hold("backend.event", not copied.is_ready(), "done before the work it waits for")
    return copied


def _let_go(world: _World, data: bytes, stream: Any) -> tuple[ad.Tensor, int]:
    """Return the pending copy of memory that nobody else has any more, and its address."""
    there = world.put(data)
    there.synchronize()
    return ad.tensor(there, copy=True, stream=stream), there.data_ptr


def _check_held(report: Report, world: _World) -> None:
    """Nothing is left to chance: the work waits until it is let go."""
    data = _pattern(5000)
    with _held(world) as stream:
        copied = _copy_while_held(report, world, data, stream)
        late, address = _within(lambda: _let_go(world, data, stream))
        gc.collect()
        # Nobody gets memory that the copy has yet to read.
        taken = [_within(lambda: world.here.empty(5000)) for _ in range(4)]
        is_kept = _has_handles(world.here) or address not in [b.data_ptr for b in taken]
        report.hold("backend.release", is_kept, "memory was given away while a copy was pending")
    report.hold("backend.wait", _read(copied) == data, "a stream did not wait for an event")
    report.hold("backend.release", _read(late) == data, "a copy found other bytes")
    if len(world.devices) > 1:
        _check_other_device(report, world)
    else:
        report.untry("backend.stream", "needs a second device")


def _check_held_device(report: Report, world: _World) -> None:
    waiting = threading.Thread(target=world.here.synchronize, daemon=True)
    there = world.put(b"abc")
    there.synchronize()
    world.here.synchronize()
    with _held(world) as stream:
        # No memory waits for it, whose release synchronize() would wait for.
        pending = _within(lambda: ad.tensor(there, copy=True, stream=stream))
        waiting.start()
        waiting.join(0.2)  # one that waits does so for longer
        is_right = waiting.is_alive() and not pending.is_ready()
        report.hold("backend.synchronize", is_right, "it returned before the work was done")
    _within(waiting.join)


def _check_other_device(report: Report, world: _World) -> None:
    assert world.stream is not None
    stream = world.stream(world.here)
    world.streams.append(stream)
    error = _error_of(lambda: world.put(b"abc", world.devices[1], stream))
    is_right = isinstance(error, ad.ExchangeError) and error.reason == "stream"
    report.hold(
        "backend.stream", is_right, f"a stream of {world.here} for {world.devices[1]}: {error!r}"
    )


def _let_streams_go(report: Report, world: _World) -> None:
    """Memory that was used on a stream may be given back until its device is idle."""
    gc.collect()
    _within(world.here.synchronize)
    world.streams.clear()


# --- the check ----------------------------------------------------------------------------------

CHECKS: dict[str, Callable[[Report, _World], None]] = {
    "backend.devices": _check_devices,
    "backend.memory": _check_memory,
    "backend.no_memory": _check_no_memory,
    "backend.copies": _check_copies,
    "backend.kernels": _check_kernels,
    "backend.event": _check_event,
    "backend.wait": _check_wait,
    "backend.synchronize": _check_synchronize,
    "backend.release": _check_release,
    "backend.threads": _check_threads,
    "backend.fork": _check_fork,
    "backend.share": _check_share,
}


def _require_callable(name: str, value: Any) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be callable, not {type(value).__name__}")


def _devices_of(device_type: int) -> list[ad.Device]:
    found = [device for device in ad.devices() if device.type == device_type]
    if not found:
        ad.device((device_type, 0)).synchronize()  # says why
        raise TypeError(
            f"devices() lists no device of the type {device_type}; pass a type that it lists"
        )
    return found


def _run(
    report: Report, rule: str, check: Callable[[Report, _World], None], world: _World
) -> None:
    report.begin(rule)
    try:
        check(report, world)
    except Exception as error:
        report.hold(rule, False, described(error))


def check_backend(
    device_type: int,
    *,
    stream: Callable[[ad.Device], Any] | None = None,
    hold: Callable[[Any], AbstractContextManager[object]] | None = None,
    setup: str = "",
    ignore: Collection[str] = (),
) -> Report:
    """Try the contract of a backend on the devices of a type, from outside.

    It copies, waits, allocates, forks and shares by arrowdev's public functions, and looks at what
    comes back. Without `hold` a missing wait is found only if the device is slow enough for it:
    the copies are large, and each is tried several times. A fault may end the process, and a
    function that waits for work while its caller holds the GIL hangs, since nobody can let the
    work go on.

    Parameters
    ----------
    device_type : DeviceType or int
        The type, whose runtime is available.
    stream : callable, optional
        Returns a stream of a user on a device, as ``stream=`` takes it. The stream is kept until
        the device has done its work.
    hold : callable, optional
        ``with hold(stream):`` no work begins on such a stream inside the block.
    setup : str
        Python statements that make the backend known in another process, such as ``import mylib``.
        A backend with an entry point needs none.
    ignore : collection of str
        Ids of rules that are known to be broken.

    Returns
    -------
    Report
        As that of ``check_producer``.

    Raises
    ------
    ConformanceError
        An AssertionError that names each broken rule.
    ExchangeError
        The type has no runtime.
    TypeError
        ``devices()`` lists no device of the type, as with ``CUDA_HOST``; or an argument is of
        another type.
    ValueError
        `device_type` is less than 1, or `ignore` has an id that no rule has.
    """
    _require_callable("stream", stream)
    _require_callable("hold", hold)
    if not isinstance(setup, str):
        raise TypeError(f"setup must be a str, not {type(setup).__name__}")
    number = whole("device_type", device_type, 1, 2**31 - 1)
    world = _World(_devices_of(number), stream, hold, setup)
    report = Report(f"the backend of {world.here}", rules=BACKEND_RULES)
    checks = dict(CHECKS)
    if world.is_host:
        why = "work of the host is done when a call returns"
        for rule in ("backend.event", "backend.wait", "backend.stream"):
            checks.pop(rule, None)
            report.untry(rule, why)
    for rule, check in checks.items():
        _run(report, rule, check, world)
    if not world.is_host and stream is not None and hold is not None:
        _run(report, "backend.wait", _check_held, world)
        _run(report, "backend.synchronize", _check_held_device, world)
        _run(report, "backend.share", _check_share_while_held, world)
        _run(report, "backend.synchronize", _let_streams_go, world)
    elif not world.is_host:
        report.untry("backend.stream", "needs stream= and hold=")
    report.require(ignore)
    return report
