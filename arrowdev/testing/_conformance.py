"""Checks the conformance of a library: ``check_producer`` and ``check_consumer``."""

from __future__ import annotations

import gc
import inspect
from contextlib import contextmanager

from arrowdev._core import _shown
from arrowdev.testing._check_arrays import check_export, check_schema_method
from arrowdev.testing._check_async import METHOD as ASYNC
from arrowdev.testing._check_async import NOTHING, check_async, check_async_failing
from arrowdev.testing._check_consumers import check_taken, check_tensors_taken
from arrowdev.testing._check_elements import check_agreement, check_cast
from arrowdev.testing._check_interfaces import CUDA, HOST, SYCL, check_interface, is_shown
from arrowdev.testing._check_streams import check_failing, check_stream
from arrowdev.testing._check_tensors import check_dlpack
from arrowdev.testing._report import FactoryError, Report

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
    "exports.exception",
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


def _marked(factory: Callable[[], Any]) -> Callable[[], Any]:
    """Return the factory, with its exceptions told from those of the objects."""

    def make() -> Any:
        try:
            return factory()
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise FactoryError(error) from error

    return make


def _name(obj: object) -> str:
    """Return the full name of a class or function, or of the class of another object."""
    named: Any = obj if isinstance(obj, type) or inspect.isroutine(obj) else type(obj)
    module = getattr(named, "__module__", None)  # None for a method of a built-in type
    return _shown(f"{module}.{named.__qualname__}" if module else named.__qualname__)


def producer_report(
    factory: Callable[[], Any], *, failing: Callable[[], Any] | None = None
) -> Report:
    """Return the report of ``check_producer`` without raising."""
    try:
        return _producer_report(_marked(factory), failing and _marked(failing))
    except FactoryError as error:
        raise error.raised from error.raised.__cause__


def _producer_report(factory: Callable[[], Any], failing: Callable[[], Any] | None) -> Report:
    obj = factory()
    report = Report(_name(obj))
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
        report.guard("exports.exception", _check_methods, report, spoken, factory, failing)
    if report.held <= WITHOUT_DATA and not report.broken:
        raise TypeError(f"{report.subject} refuses all that it offers: {', '.join(spoken)}")
    return report


def _check_methods(
    report: Report,
    spoken: list[str],
    factory: Callable[[], Any],
    failing: Callable[[], Any] | None,
) -> None:
    for method in spoken:
        _check_method(report, method, factory)
        check_cast(report, method, factory)
    check_agreement(report, spoken, factory)
    for method in STREAMS:
        if failing is not None and _offers(failing(), method):
            check_failing(report, method, failing)
    if failing is not None and ASYNC in spoken:
        check_async_failing(report, failing)


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
    unconsumed, released early and late, with each keyword. Host memory is read directly, device
    memory only by ``validate(level="full")``. An object may also be a schema alone.

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
        ``untried``: those that this machine cannot check.

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
    consume: Callable[[Any], Any], *, read: Callable[[Any], Any] | None = None
) -> Report:
    """Return the report of ``check_consumer`` without raising."""
    report = Report(_shown(getattr(consume, "__qualname__", repr(consume))))
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
