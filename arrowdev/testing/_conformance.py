"""Checks the conformance of a library: ``check_producer`` and ``check_consumer``."""

from __future__ import annotations

import gc
import inspect
from contextlib import contextmanager
from functools import partial

from arrowdev._core import _shown
from arrowdev._errors import described
from arrowdev.testing._check_arrays import check_export, check_schema_method
from arrowdev.testing._check_async import METHOD as ASYNC
from arrowdev.testing._check_async import (
    NOTHING,
    NoProducerError,
    check_async,
    check_async_failing,
)
from arrowdev.testing._check_consumers import check_taken, check_tensors_taken
from arrowdev.testing._check_elements import check_agreement, check_cast
from arrowdev.testing._check_interfaces import CUDA, HOST, SYCL, check_interface, is_shown
from arrowdev.testing._check_streams import check_failing, check_stream
from arrowdev.testing._check_tensors import check_dlpack
from arrowdev.testing._report import Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from typing import Any

INTERFACES = (HOST, CUDA, SYCL)
ARRAYS = ("__arrow_c_array__", "__arrow_c_device_array__")
STREAMS = ("__arrow_c_stream__", "__arrow_c_device_stream__")

# Rules that an object without exportable data can hold.
WITHOUT_DATA = {
    "dlpack.device", "dlpack.refusal", "dlpack.exchange", "dlpack.exchange_error",
    "exports.usable",
}  # fmt: skip


@contextmanager
def _quick_collection() -> Iterator[None]:
    """Freeze the existing objects, unless they are frozen: many collections follow."""
    is_ours = gc.get_freeze_count() == 0
    if is_ours:
        gc.collect()
        gc.freeze()
    try:
        yield
    finally:
        if is_ours:
            gc.unfreeze()


def _offers(obj: object, name: str) -> bool:
    """Whether the object offers the protocol in its present state. The check shows a failure."""
    try:
        return callable(getattr(obj, name, None))
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException:
        return True


def _name(obj: object) -> str:
    """Return the full name of a class or function, or of the class of another object."""
    named: Any = obj if isinstance(obj, type) or inspect.isroutine(obj) else type(obj)
    module = getattr(named, "__module__", None)  # None for a method of a built-in type
    return _shown(f"{module}.{named.__qualname__}" if module else named.__qualname__)


class _Factory:
    """The caller's function, whose own error is no fault of the object."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self.error: BaseException | None = None

    def __call__(self) -> Any:
        try:
            return self._make()
        except BaseException as error:
            self.error = error
            raise


def _guarded(report: Report, what: str, make: _Factory, check: Callable[[], object]) -> None:
    """Run a check; what it raises is a finding, unless the factory has raised it."""
    report.begin(what)
    try:
        check()
    except (KeyboardInterrupt, NoProducerError):
        raise
    except BaseException as error:  # a panic of Rust is not an Exception
        if error is make.error:
            raise
        report.hold("exports.usable", False, f"{what}: {described(error)}")
    else:
        report.hold("exports.usable", True, "")


def producer_report(
    factory: Callable[[], Any],
    *,
    failing: Callable[[], Any] | None = None,
    observer: Callable[..., None] | None = None,
) -> Report:
    """Return the report of ``check_producer`` without raising."""
    make = _Factory(factory)
    obj = make()
    report = Report(_name(obj), observer=observer)
    spoken = [name for name in (*ARRAYS, *STREAMS, ASYNC, "__dlpack__") if _offers(obj, name)]
    spoken += [name for name in INTERFACES if is_shown(obj, name)]
    if _offers(obj, "__arrow_c_schema__"):
        spoken.insert(0, "__arrow_c_schema__")
    if not spoken and callable(obj):
        spoken = [ASYNC]  # a function that takes a handler
    if not spoken:
        raise TypeError(f"{report.subject} {NOTHING}")
    del obj
    with _quick_collection():
        for method in spoken:
            _guarded(report, method, make, partial(_check_method, report, method, make))
            what = f"{method} with a requested type"
            _guarded(report, what, make, partial(check_cast, report, method, make))
        what = "the comparison of the protocols"
        _guarded(report, what, make, partial(check_agreement, report, spoken, make))
        if failing is not None:
            fail = _Factory(failing)
            what = "the failing object"
            _guarded(report, what, fail, partial(_check_failing, report, spoken, fail))
    if report.held <= WITHOUT_DATA and not report.broken:
        raise _refuses_all(report, spoken, make)
    return report


def _refuses_all(report: Report, spoken: list[str], make: _Factory) -> TypeError:
    """Return an error that names what each protocol raises."""
    obj = make()
    reasons = []
    for name in spoken:
        error = None if name == ASYNC else _error_of(obj, name)
        reasons.append(f"{name} ({described(error)})" if error else name)
    return TypeError(_shown(f"{report.subject} refuses all that it offers: {'; '.join(reasons)}"))


def _error_of(obj: object, name: str) -> Exception | None:
    try:
        offered = getattr(obj, name)
        if callable(offered):
            offered()
    except Exception as error:
        return error
    return None


def _check_failing(report: Report, spoken: list[str], make: _Factory) -> None:
    for method in STREAMS:
        if _offers(make(), method):
            check_failing(report, method, make)
    if ASYNC in spoken:
        check_async_failing(report, make)


def _check_method(report: Report, method: str, factory: Callable[[], Any]) -> None:
    if method in ARRAYS:
        check_export(report, method, factory)
    elif method in STREAMS:
        check_stream(report, method, factory)
    elif method in INTERFACES:
        check_interface(report, method, factory)
    elif method == ASYNC:
        check_async(report, factory)
    elif method == "__dlpack__":
        check_dlpack(report, factory)
    else:
        check_schema_method(report, factory)


def check_producer(
    factory: Callable[[], Any],
    *,
    failing: Callable[[], Any] | None = None,
    ignore: Collection[str] = (),
    recommended: bool = False,
) -> Report:
    """Try every rule that an object with Arrow or DLPack methods, or an interface dict, can break.

    Every protocol of the object is used in every way that the rules cover: consumed and
    unconsumed, released early and late, with each keyword. An object may also be a schema alone.
    Order and lifetime of device memory are tried inside the block of a ``software_device()``.

    An async stream is an object with ``__arrowdev_async_device_stream__``, or a function that
    takes the capsule of a handler; either may return a coroutine. If it makes no call, each wait
    ends after 20 seconds. A function is not an async stream, which is a TypeError, if it raises
    at once, or if it returns without renaming the capsule and makes no call for a second.

    Parameters
    ----------
    factory : callable
        Returns a new object (or function) at each call, always with the same data.
    failing : callable, optional
        Returns a stream whose reading fails, for the rules about errors.
    ignore : collection of str
        Ids of rules that are known to be broken.
    recommended : bool
        Include rules that the specification only recommends.

    Returns
    -------
    Report
        ``held``: ids of the rules that were checked and held; ``findings``: the others;
        ``untried``: those that cannot be checked here, and why.

    Raises
    ------
    ConformanceError
        An AssertionError that names each broken rule and its paragraph.
    TypeError
        The object offers none of the protocols, or refuses each; or the function is not an async
        stream.
    """
    report = producer_report(factory, failing=failing)
    report.require(ignore, recommended)
    return report


def consumer_report(
    consume: Callable[[Any], Any],
    *,
    read: Callable[[Any], Any] | None = None,
    observer: Callable[..., None] | None = None,
) -> Report:
    """Return the report of ``check_consumer`` without raising."""
    report = Report(_shown(getattr(consume, "__qualname__", repr(consume))), observer=observer)
    report.begin("the consumer")
    with _quick_collection():
        taken = False
        for check in (check_taken, check_tensors_taken):
            taken |= report.guard("consumer.exception", check, report, consume, read) or False
    if not taken and not report.broken:
        raise TypeError(
            f"{report.subject} takes neither Arrow arrays, nor streams, nor async streams, "
            "nor DLPack"
        )
    return report


def check_consumer(
    consume: Callable[[Any], Any],
    *,
    read: Callable[[Any], Any] | None = None,
    ignore: Collection[str] = (),
    recommended: bool = False,
) -> Report:
    """Try every rule that a consumer function can break.

    It is called with scripted producers of int64: arrays, streams and tensors, both valid and
    malformed. If it raises for all producers of one kind, or does not call their method, it does
    not support this kind.

    Parameters
    ----------
    consume : callable
        Takes an object with Arrow or DLPack methods, or a ScriptedAsyncProducer; its result is
        dropped. It may be a coroutine function, as `read` may: it runs in a new event loop, on
        another thread if the caller is in a loop, which is blocked meanwhile.
    read : callable, optional
        Converts the result of ``consume`` to a list, with None for nulls. Without it the values
        are not checked.
    ignore, recommended
        As in ``check_producer``.

    Raises
    ------
    ConformanceError
        An AssertionError that names each broken rule and its paragraph.
    TypeError
        The function supports none of the kinds.
    """
    report = consumer_report(consume, read=read)
    report.require(ignore, recommended)
    return report
