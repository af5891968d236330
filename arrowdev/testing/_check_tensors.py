"""Checks the rules for DLPack."""

from __future__ import annotations

import ctypes
import gc
from ctypes import PYFUNCTYPE, c_int, c_int32, c_void_p, py_object
from functools import partial

from arrowdev._errors import described
from arrowdev.testing import _dlpack, _memory
from arrowdev.testing._abi import decref, new_capsule
from arrowdev.testing._check_arrays import dirty_the_heap
from arrowdev.testing._dlpack import DELETER, DLManagedTensorVersioned
from arrowdev.testing._host_read import Malformed
from arrowdev.testing._leaks import Trace, happens, is_leaked, settle
from arrowdev.testing._memory import Untold

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from arrowdev.testing._report import Report

VERSION = (1, 3)
_kept: list[Any] = []


def export(obj: Any, **keywords: Any) -> Any:
    return obj.__dlpack__(**keywords)


# --- structs -----------------------------------------------------------------------------------


def n_elements(tensor: Any) -> int:
    n = 1
    for extent in _dlpack.extents(tensor, "shape") or ():
        n *= extent
    return n


def nbytes_compact(tensor: Any) -> int | None:
    """Return the bytes of a tensor that is contiguous in C order, else None."""
    expected: list[int] = []
    step = 1
    shape = _dlpack.extents(tensor, "shape") or ()
    for extent in reversed(shape):
        expected.insert(0, step)
        step *= extent
    strides = _dlpack.extents(tensor, "strides")
    is_compact = strides is None or all(
        n <= 1 or a == b for n, a, b in zip(shape, strides, expected, strict=True)
    )
    bits = tensor.dtype.bits * tensor.dtype.lanes
    return (step * bits + 7) // 8 if is_compact else None


def device_of(struct: Any) -> tuple[int, int]:
    device = struct.tensor.device
    return device.type, device.id


def contents(struct: Any) -> bytes | str | None:
    """Return the bytes of a contiguous tensor; a text for memory that is gone.

    None for a tensor with gaps. Untold where nothing tells what the memory is.
    """
    tensor = struct.tensor
    size = nbytes_compact(tensor)
    if not size or not tensor.data:
        return None
    try:
        return _memory.bytes_at(device_of(struct), tensor.data + tensor.byte_offset, size)
    except Malformed as error:
        return str(error)


def check_struct(report: Report, struct: Any) -> bool:
    tensor = struct.tensor
    if isinstance(struct, DLManagedTensorVersioned):
        version = (struct.version.major, struct.version.minor)
        if not report.hold("dlpack.version", version[0] == 1, f"the version is {version}"):
            return False
        report.hold("dlpack.flags", struct.flags < 8, f"flags are {struct.flags:#x}")
    is_there = tensor.ndim == 0 or (tensor.ndim > 0 and tensor.shape)
    if not report.hold("dlpack.shape", is_there, f"ndim is {tensor.ndim}, shape NULL"):
        return False
    try:
        shape = _dlpack.extents(tensor, "shape") or ()
        _dlpack.extents(tensor, "strides")
    except Malformed as error:
        return report.hold("dlpack.shape", False, str(error))
    sound = report.hold("dlpack.shape", all(n >= 0 for n in shape), f"the shape is {shape}")
    has_strides = tensor.ndim == 0 or tensor.strides
    report.hold("dlpack.strides", has_strides, f"strides are NULL, ndim is {tensor.ndim}")
    n = n_elements(tensor)
    report.hold("dlpack.data", tensor.data or n == 0, f"data is NULL, the shape {shape}")
    dtype = tensor.dtype
    is_type = dtype.bits > 0 and dtype.lanes > 0 and (dtype.code != 6 or dtype.bits == 8)
    what = f"code {dtype.code}, bits {dtype.bits}, lanes {dtype.lanes}"
    report.hold("dlpack.dtype", is_type, what)
    if sound and tensor.data and n > 0:
        sound = _check_data(report, struct)
    return sound


def _check_data(report: Report, struct: Any) -> bool:
    """Check that the memory from the first to the last element is that of the device."""
    tensor = struct.tensor
    size = (tensor.dtype.bits * tensor.dtype.lanes + 7) // 8
    shape = _dlpack.extents(tensor, "shape") or ()
    strides = _dlpack.extents(tensor, "strides")
    first, last = 0, size
    if strides is None:
        last = n_elements(tensor) * tensor.dtype.bits * tensor.dtype.lanes // 8
    else:
        ways = [(n - 1) * step * size for n, step in zip(shape, strides, strict=True)]
        first, last = sum(w for w in ways if w < 0), size + sum(w for w in ways if w > 0)
    try:
        at = tensor.data + tensor.byte_offset + first
        _memory.check_range(device_of(struct), at, last - first)
    except Untold:
        return True
    except Malformed as error:
        return report.hold("dlpack.data", False, str(error))
    return True


# --- capsules ----------------------------------------------------------------------------------


class Watched:
    """Replaces the deleter, and counts its calls."""

    def __init__(self, struct: Any) -> None:
        self.calls = 0
        self.struct = struct
        self.original = struct.deleter
        self.callback = DELETER(self._called)
        struct.deleter = ctypes.cast(self.callback, ctypes.c_void_p)
        _kept.append(self)

    def _called(self, pointer: int) -> None:
        self.calls += 1
        type(self.struct).from_address(pointer).deleter = self.original
        if self.original:
            DELETER(self.original)(pointer)


def opened(report: Report, capsule: Any) -> Any:
    """Return the struct in a capsule, in place; None, with a finding, for anything else."""
    return report.attempt("dlpack.name", _dlpack.inside, capsule)


def check_life(report: Report, make: Callable[[], Any], keywords: dict[str, Any]) -> None:
    for consume in (False, True):
        capsule = export(make(), **keywords)
        struct = opened(report, capsule)
        if struct is None:
            return
        watched = Watched(struct)
        trace = Trace(struct)
        device = device_of(struct)
        if consume:
            _dlpack.take(capsule)
        del capsule
        gc.collect()
        if consume:
            report.hold("dlpack.consumed", watched.calls == 0, f"{watched.calls} times")
            if watched.calls == 0:
                _dlpack.delete(struct)
        else:
            _hold_unconsumed(report, watched, trace, lambda: _again(make(), keywords), device)


def _again(obj: Any, keywords: dict[str, Any]) -> Callable[[], object]:
    return partial(export, obj, **keywords)


def _hold_unconsumed(
    report: Report,
    watched: Watched,
    trace: Trace,
    exporter: Callable[[], Callable[[], object]],
    device: tuple[int, int],
) -> None:
    """Check the end of a tensor whose capsule is gone."""
    # A producer may identify its own deleter and call it without reading the struct.
    try:
        happens(lambda: watched.calls > 0 or trace.is_changed(), device)
        is_over = watched.calls == 1 or (
            watched.calls == 0 and not is_leaked(trace, exporter, device)
        )
    except Untold as error:
        report.untry("dlpack.unconsumed", str(error))
    else:
        report.hold("dlpack.unconsumed", is_over, f"{watched.calls} times")


def check_lifetime(report: Report, make: Callable[[], Any], keywords: dict[str, Any]) -> None:
    obj = make()
    capsule = obj.__dlpack__(**keywords)
    struct = _dlpack.take(capsule)
    try:
        settle(device_of(struct))  # so that the data are written
        before = contents(struct)
    except Untold:
        where = _memory.name_of(device_of(struct))
        report.untry("dlpack.lifetime", f"nothing tells here whether memory of {where} was freed")
        _dlpack.delete(struct)
        return
    del obj, capsule
    gc.collect()
    dirty_the_heap()
    try:
        same = contents(struct) == before
    except Untold:
        same = False
    report.hold("dlpack.lifetime", same, "other data after the object was gone")
    _dlpack.delete(struct)


# --- arguments ---------------------------------------------------------------------------------


def pair_of(value: Any) -> tuple[int, int] | None:
    try:
        type_, id_ = value
        return int(type_), int(id_)
    except (TypeError, ValueError):
        return None


def advertised_by(report: Report, obj: Any) -> tuple[int, int] | None:
    """Return the result of __dlpack_device__; None, with a finding, if it is invalid."""
    value = report.attempt("dlpack.device", lambda: obj.__dlpack_device__())
    pair = pair_of(value)
    report.hold("dlpack.device", pair is not None, f"{value!r} is no pair of ints")
    return pair


def check_device(report: Report, obj: Any, tensor: Any) -> None:
    advertised = advertised_by(report, obj)
    found = (tensor.device.type, tensor.device.id)
    what = f"{advertised}, but the tensor has {found}"
    report.hold("dlpack.device", advertised == found, what)


def check_device_alone(report: Report, obj: Any) -> None:
    """Check __dlpack_device__ of an object without a tensor, which may also refuse this."""
    try:
        obj.__dlpack_device__()
    except Exception:
        return
    advertised_by(report, obj)


def try_keywords(
    report: Report,
    rule: str,
    obj: Any,
    refusals: tuple[type[Exception], ...] = (BufferError,),
    **keywords: Any,
) -> Any:
    """Return a capsule; None, with a finding, if the keywords are not accepted.

    The caller handles ``refusals``.
    """
    try:
        capsule = export(obj, **keywords)
    except refusals:
        raise
    except Exception as error:
        shown = ", ".join(f"{name}={value!r}" for name, value in keywords.items())
        report.hold(rule, False, f"{shown}: {described(error)}")
        return None
    report.hold(rule, True, "")
    return capsule


def check_legacy(report: Report, obj: Any) -> bool:
    """Check the capsule without keywords; return False if the object refuses."""
    try:
        capsule = export(obj)
    except BufferError:
        report.hold("dlpack.refusal", True, "")  # read-only memory, say
        return False
    except Exception as error:
        report.hold("dlpack.refusal", False, described(error))
        return False
    struct = opened(report, capsule)
    if struct is not None:
        is_legacy = not isinstance(struct, DLManagedTensorVersioned)
        report.hold("dlpack.legacy", is_legacy, "the capsule is versioned")
        check_struct(report, struct)
        check_device(report, obj, struct.tensor)
    return True


def check_versions(report: Report, make: Callable[[], Any]) -> dict[str, Any] | None:
    """Check both kinds of capsule; return the keywords for the best one, None if there is none."""
    has_legacy = check_legacy(report, make())
    obj = make()
    try:
        capsule = export(obj, max_version=VERSION)
    except Exception as error:
        # Another exception is not due to the keyword if the call without it raises the same.
        if not isinstance(error, BufferError) and "dlpack.refusal" not in report.findings:
            what = f"max_version={VERSION}: {described(error)}"
            report.hold("dlpack.max_version", False, what)
        if has_legacy:
            return {}
        check_device_alone(report, obj)
        return None
    report.hold("dlpack.max_version", True, "")
    struct = opened(report, capsule)
    if struct is not None:
        is_versioned = isinstance(struct, DLManagedTensorVersioned)
        report.hold("dlpack.versioned", is_versioned, "the capsule is unversioned")
        check_struct(report, struct)
        check_device(report, obj, struct.tensor)
    return {"max_version": VERSION}


def check_copies(report: Report, make: Callable[[], Any], keywords: dict[str, Any]) -> None:
    obj = make()
    plain = export(obj, **keywords)
    own = _dlpack.inside(plain).tensor
    has_elements = n_elements(own) > 0
    try:
        refusals = (BufferError, MemoryError)
        copied = try_keywords(report, "dlpack.copy_true", obj, refusals, copy=True, **keywords)
        if copied is not None and has_elements:
            struct = _dlpack.inside(copied)
            apart = struct.tensor.data != own.data
            report.hold("dlpack.copy_true", apart, "the memory is the object's own")
            if isinstance(struct, DLManagedTensorVersioned):
                flagged = struct.flags & _dlpack.IS_COPIED
                report.hold("dlpack.copy_true", flagged, f"flags are {struct.flags:#x}")
    except BufferError:
        pass  # "cannot" is an answer
    except MemoryError as error:  # a broadcast array may be larger than the machine's memory
        report.untry("dlpack.copy_true", described(error))
    try:
        shared = try_keywords(report, "dlpack.copy_false", obj, copy=False, **keywords)
        if shared is not None and has_elements:
            struct = _dlpack.inside(shared)
            same = struct.tensor.data == own.data
            report.hold("dlpack.copy_false", same, "the memory is another")
    except BufferError:
        report.hold("dlpack.copy_false", True, "")


def is_readonly(obj: Any) -> bool:
    """Whether the memory is read-only according to another protocol."""
    interface = getattr(obj, "__array_interface__", None)
    if isinstance(interface, dict) and isinstance(interface.get("data"), tuple):
        return bool(interface["data"][1])
    return is_buffer_readonly(obj)


def is_buffer_readonly(obj: Any) -> bool:
    try:
        with memoryview(obj) as view:
            return view.readonly
    except (TypeError, BufferError, ValueError):
        return False


def check_readonly(report: Report, make: Callable[[], Any], keywords: dict[str, Any]) -> None:
    obj = make()
    if not is_readonly(obj):
        return
    struct_capsule = export(obj, **keywords)
    struct = _dlpack.inside(struct_capsule)
    if isinstance(struct, DLManagedTensorVersioned):
        flagged = struct.flags & _dlpack.READ_ONLY
        report.hold("dlpack.read_only", flagged, f"flags are {struct.flags:#x}")
    try:
        export(obj)
        report.hold("dlpack.read_only_legacy", False, "a legacy capsule is given")
    except Exception:  # of which type is dlpack.refusal's matter
        report.hold("dlpack.read_only_legacy", True, "")


def check_devices(report: Report, make: Callable[[], Any], keywords: dict[str, Any]) -> None:
    obj = make()
    device = advertised_by(report, obj)
    try:
        if device is not None:
            try_keywords(report, "dlpack.dl_device", obj, dl_device=device, **keywords)
    except BufferError as error:
        report.hold("dlpack.dl_device", False, f"BufferError: {error}")
    try_keywords(report, "dlpack.stream", obj, stream=None, **keywords)


# --- exchange API ------------------------------------------------------------------------------

# A Python exception that a function sets is raised by ctypes.
_FROM_OBJECT = PYFUNCTYPE(c_int, py_object, c_void_p)
_TO_OBJECT = PYFUNCTYPE(c_int, c_void_p, c_void_p)
_STREAM = PYFUNCTYPE(c_int, c_int32, c_int32, c_void_p)


def exchange_table(kind: type) -> Any:
    """Return the table of functions of a type; None without one."""
    try:
        table = _dlpack.inside(getattr(kind, "__dlpack_c_exchange_api__"))  # noqa: B009
    except (AttributeError, TypeError, ValueError):
        return None
    return table if table.version.major == 1 else None


class Exchanged:
    """Shows the tensor of an object's exchange API as DLPack. Memory of devices is not read."""

    def __init__(self, obj: Any) -> None:
        self.obj = obj
        table = exchange_table(type(obj))
        self.function = _FROM_OBJECT(table.managed_tensor_from_py_object_no_sync)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **keywords: object) -> Any:
        out = c_void_p()
        if self.function(self.obj, ctypes.addressof(out)) != 0 or not out.value:
            raise BufferError("there is no tensor")
        struct = DLManagedTensorVersioned.from_address(out.value)
        if struct.tensor.device.type != 1:
            _dlpack.delete(struct)
            raise BufferError("the memory is not the host's")
        return new_capsule(out.value, b"dltensor_versioned", None)


def _attempt_exchange(report: Report, name: str, function: Any, *arguments: Any) -> bool:
    """Call a function whose last argument is an output; return whether it succeeded."""
    out = arguments[-1]
    try:
        code = function(*arguments[:-1], ctypes.addressof(out))
    except Exception as error:
        what = f"{name} gave a result and set {error!r}"
        report.hold("dlpack.exchange_error", not getattr(out, "value", None), what)
        return False
    what = f"{name} returned {code} and set no exception"
    return report.hold("dlpack.exchange_error", code == 0, what)


def check_exchange_functions(report: Report, table: Any, make: Callable[[], Any]) -> None:
    """Export, import what was exported, and ask for the stream."""
    obj, out, made = make(), c_void_p(), c_void_p()
    export = _FROM_OBJECT(table.managed_tensor_from_py_object_no_sync)
    if not _attempt_exchange(report, "managed_tensor_from_py_object_no_sync", export, obj, out):
        return
    if not report.hold("dlpack.exchange", out.value, "a tensor is exported as NULL"):
        return
    assert out.value is not None
    struct = DLManagedTensorVersioned.from_address(out.value)
    if not check_struct(report, struct):
        return
    device = struct.tensor.device
    stream = (device.type, device.id, c_void_p())
    _attempt_exchange(report, "current_work_stream", _STREAM(table.current_work_stream), *stream)
    if table.dltensor_from_py_object_no_sync:
        function = _FROM_OBJECT(table.dltensor_from_py_object_no_sync)
        tensor = _dlpack.DLTensor()
        name = "dltensor_from_py_object_no_sync"
        if _attempt_exchange(report, name, function, obj, tensor):
            shapes = [_dlpack.extents(each, "shape") for each in (tensor, struct.tensor)]
            what = f"{name} has the shape {shapes[0]}, the managed tensor {shapes[1]}"
            report.hold("exports.same", shapes[0] == shapes[1], what)
    function = _TO_OBJECT(table.managed_tensor_to_py_object_no_sync)
    name = "managed_tensor_to_py_object_no_sync"
    if _attempt_exchange(report, name, function, out.value, made):
        report.hold("dlpack.exchange", made.value, "a tensor is imported as NULL")
        if made.value:
            decref(made.value)


def check_exchange(report: Report, make: Callable[[], Any]) -> None:
    kind = type(make())
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return
    table = report.attempt("dlpack.exchange", _dlpack.inside, capsule)
    if table is None:
        return
    version = (table.version.major, table.version.minor)
    mandatory = (
        "managed_tensor_allocator",
        "managed_tensor_from_py_object_no_sync",
        "managed_tensor_to_py_object_no_sync",
        "current_work_stream",
    )
    missing = [name for name in mandatory if not getattr(table, name)]
    is_sound = version[0] == 1 and not missing
    report.hold("dlpack.exchange", is_sound, f"version {version}, NULL: {missing}")
    if is_sound:
        check_exchange_functions(report, table, make)


def check_dlpack(report: Report, make: Callable[[], Any]) -> None:
    """Check everything. Malformed structs are not used further."""
    try:
        is_sound = _check_method(report, make)
    except BufferError:  # the standard exception for data that DLPack cannot express
        is_sound = True
    if is_sound:
        check_exchange(report, make)


def _check_method(report: Report, make: Callable[[], Any]) -> bool:
    """Check ``__dlpack__``; return False if its structs are malformed."""
    keywords = check_versions(report, make)
    if {"dlpack.name", "dlpack.shape", "dlpack.version", "dlpack.data"} & set(report.findings):
        return False
    if keywords is not None:
        check_life(report, make, keywords)
        check_lifetime(report, make, keywords)
        check_copies(report, make, keywords)
        check_readonly(report, make, keywords)
        check_devices(report, make, keywords)
    return True
