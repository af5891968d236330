"""What was registered for convert() and .into(); and the names of classes and libraries."""

from __future__ import annotations

from arrowdev._errors import described, exchange_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from arrowdev._convert import Target
    from arrowdev._given import Kind

    _Function = Callable[[Any], Any]


def class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def library_name(cls: type) -> str:
    """Return the name of the module that a program imports: jax for classes of jaxlib."""
    name = str(cls.__module__).partition(".")[0]
    return "jax" if name == "jaxlib" else name


GROUP = "arrowdev.targets"

# Class: function, what it takes.
_registered: dict[type, tuple[_Function, Kind]] = {}
_offered: dict[type, tuple[_Function, Kind]] = {}  # by entry points
_asked: set[str] = set()  # modules whose entry points have been called

# The targets that were found, by class. Each registration puts a new dict here after its class
# is in place: a search that is still running fills the old one.
found: dict[type, Target] = {}


def register_target(cls: type, function: _Function, *, takes: Kind = "array") -> None:
    """Tell ``convert()`` and ``.into()`` how an instance of a class is made.

    Subclasses are made by the same function. A second registration of a class replaces the
    first.

    Parameters
    ----------
    cls : type
        A class that arrowdev does not know itself.
    function : callable
        ``function(exporter)`` returns an instance of `cls` over the memory of `exporter`. What
        ``stream=`` and ``copy=`` ask for has been done to `exporter`.
    takes : {"array", "tensor", "stream"}
        What `exporter` is: an Array; a Tensor, which has no nulls; or an ArrayStream.

    Returns
    -------
    None

    Raises
    ------
    TypeError
        `cls` is no class, or `function` cannot be called.
    ValueError
        `takes` is another word, or arrowdev knows the class itself.

    Examples
    --------
    >>> class Column:
    ...     def __init__(self, values):
    ...         self.values = values
    >>> ad.register_target(Column, lambda array: Column(array.to_pylist()))
    >>> ad.convert(b"abc", Column).values
    [97, 98, 99]
    """
    _register(_registered, cls, function, takes)


def _offer_target(cls: type, function: _Function, *, takes: Kind = "array") -> None:
    """register_target() for entry points: what is registered by the program is preferred."""
    _register(_offered, cls, function, takes)


def _register(
    registry: dict[type, tuple[_Function, Kind]], cls: type, function: _Function, takes: Kind
) -> None:
    global found
    if not isinstance(cls, type):
        raise TypeError(f"cls must be a class, not {type(cls).__name__}")
    if not callable(function):
        raise TypeError(f"function must be callable, not {type(function).__name__}")
    if takes not in ("array", "tensor", "stream"):
        raise ValueError(f'takes must be "array", "tensor" or "stream", not {takes!r}')
    from arrowdev._convert import is_known

    if is_known(cls):
        raise ValueError(
            f"arrowdev makes instances of {class_name(cls)} itself; "
            "register a subclass, or call the function"
        )
    registry[cls] = function, takes
    found = {}


def find_registered(cls: type) -> tuple[_Function, Kind] | None:
    """Return the function of this very class and what it takes, or None."""
    return _registered.get(cls) or _offered.get(cls)


def ask_entry_points(module: str) -> bool:
    """Call the entry points of a top-level module, once. Whether there were any.

    Two threads may call them at once: a lock would be held during imports.
    """
    if module in _asked:
        return False
    from importlib import metadata

    points = metadata.entry_points(group=GROUP, name=module)
    for point in points:
        try:
            point.load()(_offer_target)
        except Exception as error:
            raise exchange_error(
                f"the entry point {point.name} = {point.value} of {GROUP} failed "
                f"({described(error)})",
                reason="target",
                hint="repair the package that has it, or uninstall it",
            ) from error
    _asked.add(module)
    return bool(points)
