"""Producers of the three dict protocols, and their possible faults.

The device pointers are never dereferenced.
"""

import re

import pytest
from loops import looped

import arrowdev as ad

HUGE = 1 << 70


class Showing:
    """An object with one attribute that has the given value."""

    def __init__(self, name, value, **attributes):
        self.__dict__.update(attributes)
        self.__dict__[name] = value


class OnlyInterface:
    """Exposes only the dict of an ndarray."""

    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


class HasIndex:
    def __init__(self, value):
        self.value = value

    def __repr__(self):  # without an address, for the names of tests
        return type(self).__name__

    def __index__(self):
        return self.value


class Raising(HasIndex):
    def __index__(self):
        raise RuntimeError("no index today")


# (changes to a valid dict of shape (4,) and typestr <i4, error class, text);
# a value of ... removes the field.
WRONG_FIELDS = [
    ({"shape": ...}, ad.ExchangeError, "shape is missing"),
    ({"shape": None}, ad.ExchangeError, "shape is None"),
    ({"shape": [4]}, ad.ExchangeError, "shape is of type list"),
    ({"shape": 4}, ad.ExchangeError, "shape is 4"),
    ({"shape": (4.0,)}, ad.ExchangeError, "extent in shape is 4.0"),
    ({"shape": (-4,)}, ad.ExchangeError, "extent in shape is -4"),
    ({"shape": (HUGE,)}, ad.ExchangeError, "extent in shape"),
    ({"shape": (1 << 40, 1 << 40)}, ad.ExchangeError, "overflow"),
    ({"shape": (0, 1 << 40, 1 << 40)}, ad.ExchangeError, "overflow"),
    ({"shape": (1,) * 65}, ad.ExchangeError, "no more than 64 dimensions"),
    ({"shape": (Raising(4),)}, ad.ExchangeError, "extent in shape"),
    ({"typestr": ...}, ad.ExchangeError, "typestr is missing"),
    ({"typestr": b"<i4"}, ad.ExchangeError, "typestr is of type bytes"),
    ({"typestr": "<i4\0x"}, ad.ExchangeError, "typestr is '<i4"),
    ({"typestr": "\ud800"}, ad.ExchangeError, "typestr is"),
    ({"typestr": "B"}, ValueError, 'typestr: "B" is not a typestr'),
    ({"typestr": ""}, ValueError, "is not a typestr"),
    ({"typestr": "<i"}, ValueError, "is not a typestr"),
    ({"typestr": "<i3"}, ValueError, "is not a typestr"),
    ({"typestr": "<M8[D]"}, ad.ExchangeError, "unit of time.*datetime64"),
    ({"typestr": "<m8[25us]"}, ad.ExchangeError, "unit of time.*timedelta64"),
    ({"typestr": "<M8"}, ad.ExchangeError, "unit of time"),
    ({"typestr": "|O8"}, ad.ExchangeError, "Python objects"),
    ({"typestr": "<U3"}, ad.ExchangeError, "text"),
    ({"typestr": "|V8"}, ad.ExchangeError, "structured"),
    ({"typestr": "|t8"}, ad.ExchangeError, "bit field"),
    (
        {"descr": [("x", "<i2"), ("y", "<i2")]},
        ad.ExchangeError,
        "descr describes structured",
    ),
    ({"descr": [("x", "<i4")]}, ad.ExchangeError, "descr describes structured"),
    ({"descr": (("", "<i4"),)}, ad.ExchangeError, "descr"),
    ({"descr": [("", "<i2", (2,))]}, ad.ExchangeError, "descr"),
    ({"descr": [("", "<f4")]}, ad.ExchangeError, "type in descr is '<f4'"),
    ({"descr": [("", "<i8")]}, ad.ExchangeError, "type in descr is '<i8'"),
    ({"descr": [("", ">i4")]}, ad.ExchangeError, "type in descr is '>i4'"),
    ({"descr": [("", "<M8[s]")]}, ad.ExchangeError, "type in descr is '<M8"),
    ({"descr": [("", "hm")]}, ValueError, "is not a typestr"),
    ({"data": ...}, ad.ExchangeError, "no pointer but a buffer"),
    ({"data": None}, ad.ExchangeError, "no pointer but a buffer"),
    ({"data": b"0123456789abcde"}, ad.ExchangeError, "pointer but a buffer|0 to 16 of .* 15$"),
    ({"data": 64}, ad.ExchangeError, "data is 64, expected \\(int, bool\\)"),
    ({"data": [64, False]}, ad.ExchangeError, "data is of type list"),
    ({"data": (64,)}, ad.ExchangeError, "data is a tuple of 1 items"),
    ({"data": (64, False, 0)}, ad.ExchangeError, "data is a tuple of 3 items"),
    ({"data": ("64", False)}, ad.ExchangeError, "pointer in data is '64'"),
    ({"data": (None, False)}, ad.ExchangeError, "pointer in data is None"),
    ({"data": (-64, False)}, ad.ExchangeError, "pointer in data is -64"),
    ({"data": (HUGE, False)}, ad.ExchangeError, "pointer in data"),
    ({"data": (0, False)}, ad.ExchangeError, "no data"),
    ({"data": ((1 << 64) - 8, False)}, ad.ExchangeError, "address space"),
    ({"data": (64, "no")}, ad.ExchangeError, "read-only flag in data is 'no'"),
    ({"data": (64, None)}, ad.ExchangeError, "read-only flag in data is None"),
    ({"strides": [4]}, ad.ExchangeError, "strides is of type list"),
    ({"strides": 4}, ad.ExchangeError, "strides is 4"),
    ({"strides": ()}, ad.ExchangeError, "strides is a tuple of 0 items"),
    ({"strides": (4, 4)}, ad.ExchangeError, "strides is a tuple of 2 items"),
    ({"strides": (4.0,)}, ad.ExchangeError, "item of strides is 4.0"),
    ({"strides": (HUGE,)}, ad.ExchangeError, "item of strides"),
    ({"strides": (1 << 62,)}, ad.ExchangeError, "strides"),
    (
        {"data": (64, False), "strides": (-64,)},
        ad.ExchangeError,
        "address space",
    ),
    ({"version": ...}, ad.ExchangeError, "version is missing"),
    ({"version": "3"}, ad.ExchangeError, "version is '3'"),
    ({"version": -1}, ad.ExchangeError, "version is -1"),
    ({"version": HUGE}, ad.ExchangeError, "version is"),
    ({"version": 4}, ad.ExchangeError, "version is 4"),
    ({"mask": object()}, ad.ExchangeError, "mask is .*validity="),
    ({"mask": False}, ad.ExchangeError, "mask is "),
]

wrong_fields = looped(("changes", "error", "text"), WRONG_FIELDS)

# Elements that are searched or swapped in host memory only.
wrong_on_devices = pytest.mark.parametrize(
    ("typestr", "reason", "text"),
    [
        (">i4", "byteorder", "may lie on a device"),
        ("<M8[ns]", "dtype", r"NaT, because they may lie on a device.*\.view\(\"int64\"\)"),
        ("<m8[s]", "dtype", "NaT, because they may lie on a device"),
    ],
)

NOT_DICTS = pytest.mark.parametrize("value", [None, 5, "dict", [("shape", (4,))], object()])


def changed(good, changes):
    merged = {**good, **changes}
    return {key: value for key, value in merged.items() if value is not ...}


def all_texts(error):
    """The message of an exception and of all its causes."""
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__
    return "\n".join(texts)


def refusal(get, *args, **kwargs):
    """The exception that `get` raises."""
    with pytest.raises(Exception) as info:
        get(*args, **kwargs)
    return info.value


def check_wrong_field(source, name, error, text):
    """Checks for this error, whose text names the attribute."""
    raised = refusal(ad.tensor, source)
    assert isinstance(raised, error)
    assert re.search(text, all_texts(raised), re.S)
    assert f"{name} of Showing" in all_texts(raised)


def check_not_a_dict(name, value):
    with pytest.raises(ad.ExchangeError, match=r"the value is .*expected a dict"):
        ad.tensor(Showing(name, value))


def check_elements(source, reason, text):
    """Types that Arrow represents differently, on a device whose memory is not read."""
    raised = refusal(ad.array, source)
    assert raised.reason == reason and raised.hint
    assert re.search(text, all_texts(raised))
