"""How ``convert()`` and ``.into()`` find what makes instances of a class.

Classes with an exchange API need none of it. The library of the class has been imported
already. _libraries.py has the classes that arrowdev knows, _targets.py those that were
registered; _open_targets.py makes all others.
"""

from __future__ import annotations

import functools
import sys

from arrowdev import _targets
from arrowdev._core import (
    Array,
    ArrayStream,
    DeviceError,
    DeviceType,
    ExchangeError,
    InvalidArrowError,
    Tensor,
    array,
    tensor,
)
from arrowdev._errors import exchange_error
from arrowdev._given import take_stream
from arrowdev._libraries import COLUMNS, CONVERT_FIRST, FUNCTIONS, STREAMS, TENSORS
from arrowdev._targets import class_name, library_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from arrowdev._given import Kind, Make, Source

# Errors that are passed on as they are: those that no library causes, and arrowdev's own.
PASSED_ON = DeviceError, MemoryError, RecursionError, Warning
OWN_ERRORS = (ExchangeError, InvalidArrowError, *PASSED_ON)


class Target:
    """How instances of a class are made.

    `make(obj, copy, stream)` takes an Array, a Tensor or a Buffer. `whole(obj, copy, stream)`
    takes an ArrayStream; it is None for a class that takes the batches of a stream one by one.
    `kind` is what `make` wants. `is_open`: other code than _libraries.py makes the instances.
    `is_tried`: whether a call without rows, which shows what is refused, does no harm.
    """

    __slots__ = ("is_open", "is_tried", "kind", "make", "whole")

    def __init__(
        self,
        kind: Kind,
        make: Make,
        whole: Make | None = None,
        *,
        is_open: bool = False,
        is_tried: bool = True,
    ) -> None:
        self.kind = kind
        self.make = make
        self.whole = whole
        self.is_open = is_open
        self.is_tried = is_tried


def convert(obj: Source, cls: type, stream: object, copy: bool | None) -> Any:
    """Return an instance of `cls` over the memory of `obj`."""
    if cls is Tensor:
        return tensor(obj, stream=stream, copy=copy)
    if cls is Array:
        return array(obj, stream=stream, copy=copy)
    target = _targets.found.get(cls) or find_target(cls)
    try:
        result = target.make(obj, copy, stream)
    except OWN_ERRORS:
        raise
    except Exception as error:
        if target.is_open:
            raise
        raise refused_by_library(cls, obj, error) from error
    if not isinstance(result, cls):
        raise other_class(cls, result)
    return result


def other_class(cls: type, result: object) -> TypeError:
    """Return the error for a subclass of which the library makes no instance."""
    return TypeError(
        f"the data make an instance of {class_name(type(result))}, not of {class_name(cls)}"
    )


def refused_by_library(cls: type, obj: Source | ArrayStream, error: Exception) -> ExchangeError:
    """Return the error for data of which a known library makes no instance of its class."""
    what = f"({type(error).__name__}: {str(error).partition(chr(10))[0]})"
    if obj.device_type != DeviceType.CPU:
        place = obj.device_type if isinstance(obj, ArrayStream) else obj.device
        return exchange_error(
            f"{library_name(cls)} takes no memory of {place} {what}",
            reason="device",
            hint='bring the data to the host with .to("cpu")',
            device=getattr(obj, "device", None),
        )
    type_ = obj.dtype if isinstance(obj, Tensor) else getattr(obj, "schema", "bytes")
    return exchange_error(
        f"{class_name(cls)} cannot be made of {type_} {what}", reason="target", hint=CONVERT_FIRST
    )


def unknown_class(cls: type, found: str = "") -> TypeError:
    """Return the error for a class of which nothing makes an instance."""
    return TypeError(
        f"arrowdev does not know how to make an instance of {class_name(cls)}{found}; "
        + (
            "numpy.asarray(x).tolist() gives Python values, .to_pylist() those of a column"
            if cls.__module__ == "builtins"
            else "hand the arrowdev object to a function of the library that makes one (its "
            "constructor, from...()), or register a function with arrowdev.register_target()"
        )
    )


# --- search --------------------------------------------------------------------


def _key(cls: type) -> tuple[str, str]:
    # jax.Array calls itself "jaxlib._jax.Array" in module "jax".
    return library_name(cls), cls.__name__.rpartition(".")[2]


def is_known(cls: type) -> bool:
    """Whether arrowdev itself makes instances of this very class."""
    return (
        cls in (Tensor, Array)
        or any(_key(cls) in table for table in (TENSORS, COLUMNS, STREAMS, FUNCTIONS))
        or "__dlpack_c_exchange_api__" in vars(cls)
    )


def find_target(cls: type) -> Target:
    """Return how instances of a class are made, or raise TypeError."""
    cache = _targets.found
    target = cache.get(cls)
    if target is None:
        target = _search(cls)
        if len(cache) >= 64:
            cache.clear()
        cache[cls] = target
    return target


def _search(cls: type) -> Target:
    """The nearest base has it that is in the table or registered.

    Entry points are asked before a base of another library is taken.
    """
    target, base = _find_base(cls)
    library = str(cls.__module__).partition(".")[0]
    is_foreign = base is None or library_name(base) != library_name(cls)
    if is_foreign and _targets.ask_entry_points(library):
        target, _ = _find_base(cls)
    if target is None:
        from arrowdev import _open_targets

        target = _open_targets.by_convention(cls)
    return target


def _find_known(cls: type) -> Target | None:
    """How instances of this very class are made, if it is in the tables."""
    library = sys.modules.get(library_name(cls))
    if library is None:
        return None
    key = _key(cls)
    if key in FUNCTIONS:
        from arrowdev import _open_targets

        return _open_targets.by_known_function(cls, library, *FUNCTIONS[key])
    constructor, read = TENSORS.get(key) or COLUMNS.get(key), STREAMS.get(key)
    if constructor is None and read is None:
        return None
    whole = read and functools.partial(read, library)
    if constructor is not None:
        kind: Kind = "tensor" if key in TENSORS else "array"
        return Target(kind, functools.partial(constructor, library), whole)
    assert read is not None

    def make(obj: Source, copy: bool | None, stream: object) -> Any:
        return read(library, take_stream(obj, copy, stream), copy, stream)

    return Target("stream", make, whole)


def _find_base(cls: type) -> tuple[Target | None, type | None]:
    for base in cls.__mro__:
        target = _find_known(base)
        if target is not None:
            return target, base
        registered = _targets.find_registered(base)
        if registered is not None:
            from arrowdev import _open_targets

            return _open_targets.by_function(cls, *registered), base
        if "__arrowdev_from__" in vars(base):
            from arrowdev import _open_targets

            return _open_targets.by_itself(cls), base
    return None, None


def kind_of(cls: type) -> Kind:
    """Return what a class wants: "array", "tensor" or "stream"; or raise TypeError."""
    return "array" if cls is Array else find_target(cls).kind
