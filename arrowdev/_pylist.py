"""What Array.to_pylist() and indexing call for: values of times and decimals, and iterators.

The rows are read in csrc/python/functions/pylist.c. This module is imported on
first use.
"""

from __future__ import annotations

import datetime
import decimal
import sys

from arrowdev._core import _require_host, _shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from arrowdev._core import Array, Tensor

    # Makes a value of the number that is stored. OverflowError is for the caller to explain.
    _Converter = Callable[[int], Any]

_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_DATE = _EPOCH.date()
# The end of a hint: in nested data another array has the attribute that helps.
_WHERE = ", or that of the .children or the .dictionary which holds the values"
# No number of digits and no exponent is rounded.
_EXACT = decimal.Context(
    prec=decimal.MAX_PREC,
    Emin=decimal.MIN_EMIN,
    Emax=decimal.MAX_EMAX,
    traps=[decimal.Inexact, decimal.InvalidOperation, decimal.Overflow],
)

_AT_ONCE = 1024  # rows that an iteration reads


def iterate(array: Array) -> Iterator[Any]:
    """Return an iterator over the rows."""
    _require_host(array, "an iteration over an Array")
    return _iterate(array)


def _iterate(array: Array) -> Iterator[Any]:
    for start in range(0, len(array), _AT_ONCE):
        yield from array[start : start + _AT_ONCE].to_pylist()


def contains(array: Array, item: object) -> bool:
    """Return what ``item in array`` is: a field of a struct, a row of any other array."""
    if array.schema.format != "+s":
        return item in iterate(array)
    if not isinstance(item, str):
        raise TypeError(
            f'"in" looks for the name of a field, a str, not for {type(item).__name__}; '
            "row in array.to_pylist() looks for a row"
        )
    return item in array.column_names


def to_pydict(batch: Array) -> dict[str, list[Any]]:
    """Return the columns of a struct as lists, by their names."""
    names = batch.column_names
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"{names.count(name)} columns are named {_shown(name)!r}, and a dict keeps one of "
            "them; take each by its index: .field(i).to_pylist()"
        )
    return {name: column.to_pylist() for name, column in zip(names, batch.columns, strict=True)}


def iterate_tensor(tensor: Tensor) -> Iterator[Tensor]:
    """Return an iterator over the first dimension of a Tensor: views."""
    return map(tensor.__getitem__, range(len(tensor)))


# --- values of numbers -----------------------------------------------------------


def signed_integer(data: bytes) -> int:
    """Return the integer that `data` store, of any size."""
    return int.from_bytes(data, "little", signed=True)


def converter(kind: str) -> _Converter:
    """Return the function for a column of the Arrow format `kind`."""
    if kind.startswith("d:"):
        return _decimal(int(kind[2:].split(",")[1]))
    if kind.startswith("ts"):
        unit, _, zone = kind[2:].partition(":")
        return _timestamp(unit, _zone(zone) if zone else None)
    if kind.startswith("tt"):
        return _time(kind[2:])
    if kind.startswith("td"):
        delta = _delta("d" if kind == "tdD" else "m")
        return lambda number: _EPOCH_DATE + delta(number)
    return _or_nanoseconds("Timedelta") if kind == "tDn" else _delta(kind[2:])


def _decimal(scale: int) -> _Converter:
    return lambda number: decimal.Decimal(number).scaleb(-scale, _EXACT)


def _delta(unit: str) -> Callable[[int], datetime.timedelta]:
    """Return what makes a timedelta of a number in days or in units above nanoseconds."""
    delta = datetime.timedelta
    return {
        "d": delta,
        "s": lambda number: delta(0, number),
        "m": lambda number: delta(0, 0, 0, number),
        "u": lambda number: delta(0, 0, number),
    }[unit]


def _or_nanoseconds(
    name: str | None, convert: Callable[[datetime.timedelta], Any] | None = None
) -> _Converter:
    """Return what makes a value of nanoseconds: pandas' `name` if no timedelta holds it."""

    def converted(number: int) -> Any:
        microseconds, rest = divmod(number, 1000)
        if rest:
            return _nanoseconds(name, number)
        delta = datetime.timedelta(0, 0, microseconds)
        return convert(delta) if convert else delta

    return converted


def _nanoseconds(name: str | None, number: int) -> Any:
    """Return pandas' `name` of `number` ns where the program uses pandas, which has such types.

    No type of the standard library has nanoseconds. Nothing is rounded.
    """
    pandas: Any = sys.modules.get("pandas")
    found = getattr(pandas, name)(number, unit="ns") if pandas and name else None
    if found is None or found is pandas.NaT:  # the smallest int64
        types = "; pandas, once imported, has types for it" if name and not pandas else ""
        raise ValueError(
            f"{number} ns is no whole number of microseconds; use .view('int64'){_WHERE}{types}"
        )
    return found


def _time(unit: str) -> _Converter:
    if unit == "n":
        return _or_nanoseconds(None, lambda delta: (_EPOCH + delta).time())
    delta = _delta(unit)
    return lambda number: (_EPOCH + delta(number)).time()


def _zone(name: str) -> datetime.tzinfo:
    if name in ("UTC", "Etc/UTC"):  # without the files of tzdata
        return datetime.timezone.utc
    import zoneinfo

    try:
        if name[0] in "+-":
            hours, minutes = name[1:].split(":")
            delta = datetime.timedelta(hours=int(hours), minutes=int(minutes))
            return datetime.timezone(-delta if name[0] == "-" else delta)
        return zoneinfo.ZoneInfo(name)
    # A name may be that of a folder, or none of a file, or no offset.
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError) as error:
        raise ValueError(
            f"the time zone {name!r} is not known here; install tzdata, or use "
            f".view('int64'){_WHERE}"
        ) from error


def _timestamp(unit: str, zone: datetime.tzinfo | None) -> _Converter:
    convert = _or_nanoseconds("Timestamp", _EPOCH.__add__)
    if unit != "n":
        delta = _delta(unit)
        convert = lambda number: _EPOCH + delta(number)  # noqa: E731
    if zone is None:
        return convert
    utc = datetime.timezone.utc
    return lambda number: convert(number).replace(tzinfo=utc).astimezone(zone)
