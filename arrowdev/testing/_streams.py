"""The scripted ends of a pull stream."""

from __future__ import annotations

import ctypes
import errno
import threading

import arrowdev
from arrowdev.testing._abi import (
    ArrowArray,
    ArrowArrayStream,
    ArrowDeviceArray,
    ArrowDeviceArrayStream,
    ArrowSchema,
    call,
    inside,
    new_capsule,
    take,
)
from arrowdev.testing._producers import host_array, refuse_unknown
from arrowdev.testing._recording import TIMEOUT, CallbackStruct, Output, Recorder
from arrowdev.testing._rules import Broken
from arrowdev.testing.step import Step, batch, get_schema, read_to_end, release

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from ctypes import Structure
    from typing import Any

    from typing_extensions import CapsuleType, Self

    from arrowdev import Array, Schema
    from arrowdev.typing import TypeLike

_CPU = 1
_UNTOUCHED = 0xA5  # fills a consumer's memory; a producer is unlikely to write it


# --- import and export of batches ----------------------------------------------------------------


def as_batches(steps: Iterable[Any]) -> list[Step | Callable[[Any], object]]:
    """Return the steps, with each bare array as a batch and the values of each batch an Array."""
    found = [one if isinstance(one, Step) or callable(one) else batch(one) for one in steps]
    for one in found:
        if isinstance(one, Step) and one.name == "batch" and not callable(one.options["values"]):
            one.options["values"] = host_array(one.options["values"])
    return found


def array_of_batch(values: Any) -> Array:
    """Return the array of a batch; a function of the script is called for it."""
    return host_array(values()) if callable(values) else values


class Announced:
    """The schema and device type of a script: as given, or those of its first batch."""

    def __init__(
        self,
        steps: list[Step | Callable[[Any], object]],
        type: TypeLike | None,
        device_type: int | None,
    ) -> None:
        batches = [one for one in steps if isinstance(one, Step) and one.name == "batch"]
        values = [one.options["values"] for one in batches]
        if type is None and not values:
            raise ValueError("a script without a batch has no schema; pass type=")
        if values and (type is None or device_type is None):
            values[0] = array_of_batch(values[0])
        # The functions of the script are not called for this.
        self.arrays: list[Array] = [one for one in values if not callable(one)]
        self.schema: Schema = self.arrays[0].schema if type is None else arrowdev.schema(type)
        if device_type is None:
            device_type = self.arrays[0].device_type if values else _CPU
        self.device_type = int(device_type)


def schema_output(recorder: Recorder, schema: Schema) -> Output:
    return Output(recorder, take(schema.__arrow_c_schema__(), "arrow_schema"), "the schema")


def array_output(
    recorder: Recorder, array: Array, about: str, *, host: bool = False, type: int | None = None
) -> Output:
    """Return the Output of an array, as a device array or (`host`) as an ArrowArray."""
    if host:
        return Output(recorder, take(array.__arrow_c_array__()[1], "arrow_array"), about)
    struct = take(array.__arrow_c_device_array__()[1], "arrow_device_array")
    if type is not None:
        struct.device_type = type
    return Output(recorder, struct, about)


def untouched(struct_type: type[Structure]) -> Any:
    """Return uninitialized memory for a struct, as a consumer may pass it."""
    struct = struct_type()
    ctypes.memset(ctypes.addressof(struct), _UNTOUCHED, ctypes.sizeof(struct))
    return struct


def is_untouched(struct: Structure) -> bool:
    return bytes(struct) == bytes([_UNTOUCHED]) * ctypes.sizeof(struct)


def import_batch(struct: ArrowArray | ArrowDeviceArray, schema: Schema) -> Array:
    """Return the Array over a struct; the struct is released if its import fails."""
    kind = b"arrow_device_array" if isinstance(struct, ArrowDeviceArray) else b"arrow_array"
    capsule = new_capsule(ctypes.addressof(struct), kind, None)
    base = struct.array if isinstance(struct, ArrowDeviceArray) else struct
    try:
        return arrowdev.array((schema.__arrow_c_schema__(), capsule))
    finally:
        if base.release:
            call(base, "release")


def import_schema(struct: ArrowSchema) -> Schema:
    capsule = new_capsule(ctypes.addressof(struct), b"arrow_schema", None)
    try:
        return arrowdev.schema(capsule)
    finally:
        if struct.release:
            call(struct, "release")


# --- the producer --------------------------------------------------------------------------------


class _Export(CallbackStruct):
    """One exported struct of a ScriptedStream: one run of its script."""

    recorder: ScriptedStream

    def __init__(self, stream: ScriptedStream, host: bool) -> None:
        super().__init__(
            stream,
            ArrowArrayStream if host else ArrowDeviceArrayStream,
            f"stream {stream.n_exports}",
        )
        self.host = host
        self.rest = iter(stream.steps)
        self.n_batches = 0
        self.n_released = 0
        self.has_failed = False
        self.has_text = False
        self.is_over = False
        self.n_after_end = 0
        self.texts: list[ctypes.Array[ctypes.c_char]] = []

    def _begin(self, name: str, out: int | None = 1) -> bool:
        """Begin a call; return False if the consumer must not make it."""
        if self.n_released:
            self.recorder._violated("consumer.stream_released", f"{name} was called after release")
        elif name == "get_last_error" and not self.has_failed:
            self.recorder._violated(
                "consumer.stream_last_error", "get_last_error was called, but nothing had failed"
            )
        elif not out:
            self.recorder._violated(
                "consumer.stream_out", f"{name} was called with NULL to write to"
            )
        if name != "get_last_error":
            self.has_failed = False
            for text in self.texts[-1:]:  # overwritten, since it is no longer valid
                ctypes.memset(text, ord("?"), len(text) - 1)
        return not self.n_released and bool(out)

    def _fail(self, code: int, text: str | None) -> int:
        self.has_failed = code != 0
        self.has_text = text is not None
        if text is not None:
            self.texts.append(ctypes.create_string_buffer(text.encode()))
        return code

    def get_schema(self, _: int, out: int | None) -> int:
        one = self.recorder._record("get_schema")
        with self.recorder._without_overlap("get_schema", "consumer.stream_threads"):
            if not self._begin("get_schema", out):
                return errno.EINVAL
            assert out is not None
            failure = self.recorder.schema_error
            if failure is None:
                schema_output(self.recorder, self.recorder.schema).give(out)
                one.result = 0
            else:
                one.result = self._fail(failure.options["code"], failure.options["text"])
            return one.result

    def get_next(self, _: int, out: int | None) -> int:
        one = self.recorder._record("get_next")
        with self.recorder._without_overlap("get_next", "consumer.stream_threads"):
            if not self._begin("get_next", out):
                return errno.EINVAL
            assert out is not None
            self.n_after_end += self.is_over
            result = next(self._results(), Step("end", {}))
            self.is_over = result.name != "batch"
            one.about, one.result = self._give(result, out)
            return one.result

    def _results(self) -> Iterator[Step]:
        """Yield the steps that are a result of get_next, and do the others on the way."""
        for one in self.rest:
            if isinstance(one, Step) and one.name in ("batch", "error", "end"):
                yield one
            else:
                self.recorder._perform(one)

    def _give(self, result: Step, out: int) -> tuple[str, int]:
        options = result.options
        if result.name == "error":
            return "error", self._fail(options["code"], options["text"])
        if result.name == "end":
            ctypes.memset(out, 0, ctypes.sizeof(ArrowArray if self.host else ArrowDeviceArray))
            return "end", 0
        about = f"batch {self.n_batches}"
        output = array_output(
            self.recorder,
            array_of_batch(options["values"]),
            f"{about} of {self.about}",
            host=self.host,
            type=options["device_type"],
        )
        output.give(out)
        self.n_batches += 1
        return about, 0

    def get_last_error(self, _: int) -> int | None:
        self.recorder._record("get_last_error")
        with self.recorder._without_overlap("get_last_error", "consumer.stream_threads"):
            if not self._begin("get_last_error") or not self.has_text:
                return None
            return ctypes.addressof(self.texts[-1])

    def release(self, address: int) -> None:
        self.recorder._record("release", self.about)
        with self.recorder._without_overlap("release", "consumer.stream_threads"):
            with self.recorder._changed:
                self.n_released += 1
                self.recorder._changed.notify_all()
            if self.n_released > 1:
                self.recorder._violated("consumer.stream", f"{self.about} was released again")
        self.struct_type.from_address(address).release = None
        self.close()


class ScriptedStream(Recorder):
    """A producer of a pull stream that follows a script, for tests of a consumer.

    Pass it to the code under test as an object with ``__arrow_c_device_stream__`` and
    ``__arrow_c_stream__``, and call ``check`` at the end. Each call of one of the two methods
    starts the script from its beginning.

    steps
        The results of ``get_next``, call by call: ``step.batch``, or just an array;
        ``step.error``; ``step.end``, which also follows the last step. A function among them is
        called in its turn on the consumer's thread, for example to block.
    type
        The schema, if it differs from the first batch's.
    device_type
        The device type in the struct, if it differs from the first batch's.
    schema_error
        ``step.error``: the failure of ``get_schema``.
    device, host
        Which methods the object has. The host method is absent if a batch is on a device; batches
        of functions are not considered.
    """

    def __init__(
        self,
        steps: Iterable[Any],
        *,
        type: TypeLike | None = None,
        device_type: int | None = None,
        schema_error: Step | None = None,
        device: bool = True,
        host: bool = True,
    ) -> None:
        super().__init__()
        self.steps = as_batches(steps)
        for one in self.steps:
            if isinstance(one, Step) and one.name not in ("batch", "error", "end"):
                raise ValueError(f"a stream cannot {one}: its steps are batch, error and end")
        announced = Announced(self.steps, type, device_type)
        self.schema = announced.schema
        self.device_type = announced.device_type
        self.schema_error = schema_error
        self._exports: list[_Export] = []
        self._shows_device = device
        # The missing method shows that the host cannot read these batches.
        self._shows_host = host and all(hasattr(a, "__arrow_c_array__") for a in announced.arrays)

    def __repr__(self) -> str:
        return f"<ScriptedStream of {self.schema}, {len(self.steps)} steps>"

    @property
    def __arrow_c_device_stream__(self) -> Callable[..., CapsuleType]:
        if not self._shows_device:
            raise AttributeError("this ScriptedStream was made without the device protocol")
        return self._export_device

    @property
    def __arrow_c_stream__(self) -> Callable[..., CapsuleType]:
        if not self._shows_host:
            raise AttributeError("this ScriptedStream was made without the host protocol")
        return self._export_host

    @property
    def n_exports(self) -> int:
        """The number of exports."""
        return len(self._exports)

    @property
    def n_after_end(self) -> int:
        """The number of reads after the end or an error."""
        return sum(export.n_after_end for export in self._exports)

    @property
    def is_all_released(self) -> bool:
        """Whether every exported stream, schema and batch was released."""
        return super().is_all_released and all(export.n_released for export in self._exports)

    def _export_device(
        self, requested_schema: CapsuleType | None = None, **kwargs: object
    ) -> CapsuleType:
        refuse_unknown(kwargs)
        empty = arrowdev.array_stream([], schema="null", device_type=_CPU)
        capsule = empty.__arrow_c_device_stream__()
        self._put(inside(capsule, "arrow_device_array_stream"), host=False)
        return capsule

    def _export_host(self, requested_schema: CapsuleType | None = None) -> CapsuleType:
        empty = arrowdev.array_stream([], schema="null", device_type=_CPU)
        capsule = empty.__arrow_c_stream__()
        self._put(inside(capsule, "arrow_array_stream"), host=True)
        return capsule

    def _put(self, struct: Any, *, host: bool) -> None:
        """Put the scripted stream in a capsule of arrowdev, whose destructor is in C: a Python
        destructor could run while an exception propagates."""
        call(struct, "release")
        export = _Export(self, host)
        export.write(ctypes.addressof(struct))
        if not host:
            struct.device_type = self.device_type
        self._exports.append(export)

    def _leaks(self) -> Iterator[Broken]:
        for export in self._exports:
            if not export.n_released:
                yield Broken("consumer.stream", f"{export.about} was never released")
        yield from super()._leaks()


# --- the consumer --------------------------------------------------------------------------------


class ScriptedReader(Recorder):
    """A consumer of a pull stream that follows a script, for tests of a producer.

    ``read`` takes any object with ``__arrow_c_device_stream__`` or ``__arrow_c_stream__``, or the
    capsule, and does the steps; ``run`` does further ones. ``check`` reports the mistakes of the
    producer.

    steps
        ``step.get_schema``, ``get_next``, ``read_to_end``, ``on_thread`` and ``release``. By
        default: the schema, all batches, and the release.
    host
        Read by ``__arrow_c_stream__`` if the object has both methods.
    """

    def __init__(
        self, steps: Iterable[Any] | None = None, *, host: bool = False, timeout: float = TIMEOUT
    ) -> None:
        super().__init__(timeout)
        default = [get_schema(), read_to_end(), release()]
        self.steps = default if steps is None else list(steps)
        self.host = host
        self.schema: Schema | None = None
        """The stream's schema, after ``get_schema``."""
        self.batches: list[Array] = []
        """The batches that were read."""
        self.errors: list[tuple[int, str | None]] = []
        """(code, text of get_last_error) of each call that failed."""
        self.is_at_end = False
        self._struct: Any = None
        self._released: int | None = None

    def read(self, source: Any) -> Self:
        """Take a stream and do the steps of the script."""
        if self._struct is not None:
            raise RuntimeError("this reader has read a stream already; make another one")
        self._struct = self._taken(source)
        for member, _ in self._struct._fields_:
            if member not in ("device_type", "private_data") and not getattr(self._struct, member):
                self._violated("stream.callbacks", f"{member} of the stream is NULL")
        if not self._broken:
            self.run(*self.steps)
        return self

    def run(self, *steps: Step | Callable[[Any], object]) -> None:
        """Do further steps."""
        if self._struct is None:
            raise RuntimeError("there is no stream yet; call read() first")
        for one in steps:
            self._perform(one)

    def _taken(self, source: Any) -> Any:
        names = ["__arrow_c_device_stream__", "__arrow_c_stream__"]
        for name in reversed(names) if self.host else names:
            if hasattr(source, name):
                source = getattr(source, name)()
                break
        for name in ("arrow_device_array_stream", "arrow_array_stream"):
            try:
                inside(source, name)
            except ValueError:
                continue
            return take(source, name)
        raise TypeError(f"{source!r} is no stream: it has neither {names[0]} nor {names[1]}")

    def _before_check(self) -> None:
        if self._struct is not None and self._struct.release:
            self._do_release()
        super()._before_check()

    def _call(self, name: str, out: Any) -> int:
        """Make a call that may fail, and fetch its error."""
        if not self._struct.release:
            raise ValueError(f"the script calls {name} after release")
        one = self._record(name)
        one.result = call(self._struct, name, ctypes.addressof(out))
        if one.result:
            self._record("get_last_error")
            self.errors.append((one.result, self._text(call(self._struct, "get_last_error"))))
        return one.result

    def _text(self, address: int | None) -> str | None:
        if not address:
            return None
        text = ctypes.string_at(address)
        try:
            return text.decode()
        except UnicodeDecodeError:
            self._violated("stream.error", f"get_last_error gave {text!r}, which is not UTF-8")
            return text.decode(errors="replace")

    def _do_get_schema(self) -> None:
        out = untouched(ArrowSchema)
        if self._call("get_schema", out):
            return
        if is_untouched(out) or not out.release:
            self._violated("stream.schema", "get_schema returned 0 and gave no schema")
            return
        schema = import_schema(out)
        if self.schema is not None and schema != self.schema:
            self._violated("stream.schema", f"get_schema gave {self.schema}, and then {schema}")
        self.schema = self.schema or schema

    def _do_get_next(self, n: int = 1) -> None:
        for _ in range(n):
            self._next()

    def _do_read_to_end(self) -> None:
        while self._next():
            pass

    def _next(self) -> bool:
        """Call get_next once; return whether there was a batch."""
        if self.schema is None:
            self._do_get_schema()
            if self.schema is None:
                return False
        is_device = isinstance(self._struct, ArrowDeviceArrayStream)
        out = untouched(ArrowDeviceArray if is_device else ArrowArray)
        if self._call("get_next", out):
            return False
        about = f"batch {len(self.batches)}"
        if is_untouched(out):
            self._violated("stream.next", f"get_next returned 0 for {about} and wrote nothing")
            return False
        self.calls[-1].about = about if (out.array if is_device else out).release else "end"
        if self.calls[-1].about == "end":
            self.is_at_end = True
            return False
        if self.is_at_end:
            self._violated("stream.end", f"get_next gave {about} after the end")
        return self._keep(out, about, self._struct.device_type if is_device else _CPU)

    def _keep(self, out: Any, about: str, device_type: int) -> bool:
        if isinstance(out, ArrowDeviceArray) and out.device_type != device_type:
            self._violated(
                "stream.device_type",
                f"{about} has device type {out.device_type}, not {device_type}",
            )
        assert self.schema is not None
        try:
            self.batches.append(import_batch(out, self.schema))
        except (ValueError, BufferError) as error:
            self._violated("stream.same_schema", f"{about}: {error}")
            return False
        return True

    def _do_release(self, anyway: bool = False) -> None:
        if self._struct.release:
            self._released = self._struct.release
        elif not anyway:
            raise ValueError("the script releases twice; say anyway=True where that is meant")
        else:
            self._struct.release = self._released
        self._record("release")
        call(self._struct, "release")
        if self._struct.release:
            self._violated("release.marked", "release did not set the stream's release to NULL")
            self._struct.release = None

    def _do_on_thread(self, steps: tuple[Any, ...]) -> None:
        failures: list[BaseException] = []

        def work() -> None:
            try:
                self.run(*steps)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(self.timeout)
        if thread.is_alive():
            raise TimeoutError(f"{steps} took longer than {self.timeout} seconds")
        if failures:
            raise failures[0]
