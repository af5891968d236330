"""Producers of the three dict protocols, and the ways in which they can be wrong.

The pointers for devices are never dereferenced.
"""

import re

import pytest

import arrowdev as ad

HUGE = 1 << 70


class Showing:
    """An object with one attribute, whose value it is given."""

    def __init__(self, name, value, **attributes):
        self.__dict__.update(attributes)
        self.__dict__[name] = value


class OnlyInterface:
    """Shows nothing of an ndarray but its dict."""

    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


class HasIndex:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


class Raising(HasIndex):
    def __index__(self):
        raise RuntimeError("no index today")


# (id, changes to a good dict of shape (4,) and typestr <i4, error class, text);
# a value of ... removes the field.
WRONG_FIELDS = [
    ("no shape", {"shape": ...}, ad.ExchangeError, "shape is missing"),
    ("shape None", {"shape": None}, ad.ExchangeError, "shape is None"),
    ("shape list", {"shape": [4]}, ad.ExchangeError, "shape is of type list"),
    ("shape int", {"shape": 4}, ad.ExchangeError, "shape is 4"),
    ("shape float", {"shape": (4.0,)}, ad.ExchangeError, "extent in shape is 4.0"),
    ("shape negative", {"shape": (-4,)}, ad.ExchangeError, "extent in shape is -4"),
    ("shape huge", {"shape": (HUGE,)}, ad.ExchangeError, "extent in shape"),
    ("shape product", {"shape": (1 << 40, 1 << 40)}, ad.ExchangeError, "overflow"),
    ("shape hidden", {"shape": (0, 1 << 40, 1 << 40)}, ad.ExchangeError, "overflow"),
    ("shape deep", {"shape": (1,) * 65}, ad.ExchangeError, "no more than 64 dimensions"),
    ("shape raises", {"shape": (Raising(4),)}, ad.ExchangeError, "extent in shape"),
    ("no typestr", {"typestr": ...}, ad.ExchangeError, "typestr is missing"),
    ("typestr bytes", {"typestr": b"<i4"}, ad.ExchangeError, "typestr is of type bytes"),
    ("typestr NUL", {"typestr": "<i4\0x"}, ad.ExchangeError, "typestr is '<i4"),
    ("typestr surrogate", {"typestr": "\ud800"}, ad.ExchangeError, "typestr is"),
    ("typestr of hip-python", {"typestr": "B"}, ValueError, 'typestr: "B" is no typestr'),
    ("typestr empty", {"typestr": ""}, ValueError, "is no typestr"),
    ("typestr no size", {"typestr": "<i"}, ValueError, "is no typestr"),
    ("typestr odd size", {"typestr": "<i3"}, ValueError, "is no typestr"),
    ("typestr days", {"typestr": "<M8[D]"}, ad.ExchangeError, "unit of time.*datetime64"),
    ("typestr steps", {"typestr": "<m8[25us]"}, ad.ExchangeError, "unit of time.*timedelta64"),
    ("typestr no unit", {"typestr": "<M8"}, ad.ExchangeError, "unit of time"),
    ("typestr object", {"typestr": "|O8"}, ad.ExchangeError, "Python objects"),
    ("typestr text", {"typestr": "<U3"}, ad.ExchangeError, "text"),
    ("typestr struct", {"typestr": "|V8"}, ad.ExchangeError, "structured"),
    ("typestr bit field", {"typestr": "|t8"}, ad.ExchangeError, "bit field"),
    (
        "descr struct",
        {"descr": [("x", "<i2"), ("y", "<i2")]},
        ad.ExchangeError,
        "descr describes structured",
    ),
    ("descr named", {"descr": [("x", "<i4")]}, ad.ExchangeError, "descr describes structured"),
    ("descr tuple", {"descr": (("", "<i4"),)}, ad.ExchangeError, "descr"),
    ("descr subarray", {"descr": [("", "<i2", (2,))]}, ad.ExchangeError, "descr"),
    ("descr other", {"descr": [("", "<f4")]}, ad.ExchangeError, "type in descr is '<f4'"),
    ("descr wider", {"descr": [("", "<i8")]}, ad.ExchangeError, "type in descr is '<i8'"),
    ("descr order", {"descr": [("", ">i4")]}, ad.ExchangeError, "type in descr is '>i4'"),
    ("descr times", {"descr": [("", "<M8[s]")]}, ad.ExchangeError, "type in descr is '<M8"),
    ("descr nonsense", {"descr": [("", "hm")]}, ValueError, "is no typestr"),
    ("no data", {"data": ...}, ad.ExchangeError, "no pointer but a buffer"),
    ("data None", {"data": None}, ad.ExchangeError, "no pointer but a buffer"),
    ("data bytes", {"data": b"0123456789abcdef"}, ad.ExchangeError, "no pointer but a buffer"),
    ("data int", {"data": 64}, ad.ExchangeError, "data is 64, expected \\(int, bool\\)"),
    ("data list", {"data": [64, False]}, ad.ExchangeError, "data is of type list"),
    ("data short", {"data": (64,)}, ad.ExchangeError, "data is a tuple of 1 items"),
    ("data long", {"data": (64, False, 0)}, ad.ExchangeError, "data is a tuple of 3 items"),
    ("pointer str", {"data": ("64", False)}, ad.ExchangeError, "pointer in data is '64'"),
    ("pointer None", {"data": (None, False)}, ad.ExchangeError, "pointer in data is None"),
    ("pointer negative", {"data": (-64, False)}, ad.ExchangeError, "pointer in data is -64"),
    ("pointer huge", {"data": (HUGE, False)}, ad.ExchangeError, "pointer in data"),
    ("pointer NULL", {"data": (0, False)}, ad.ExchangeError, "no data"),
    ("pointer at the end", {"data": ((1 << 64) - 8, False)}, ad.ExchangeError, "address space"),
    ("flag str", {"data": (64, "no")}, ad.ExchangeError, "read-only flag in data is 'no'"),
    ("flag None", {"data": (64, None)}, ad.ExchangeError, "read-only flag in data is None"),
    ("strides list", {"strides": [4]}, ad.ExchangeError, "strides is of type list"),
    ("strides int", {"strides": 4}, ad.ExchangeError, "strides is 4"),
    ("strides short", {"strides": ()}, ad.ExchangeError, "strides is a tuple of 0 items"),
    ("strides long", {"strides": (4, 4)}, ad.ExchangeError, "strides is a tuple of 2 items"),
    ("stride float", {"strides": (4.0,)}, ad.ExchangeError, "item of strides is 4.0"),
    ("stride huge", {"strides": (HUGE,)}, ad.ExchangeError, "item of strides"),
    ("stride overflow", {"strides": (1 << 62,)}, ad.ExchangeError, "strides"),
    (
        "stride backwards",
        {"data": (64, False), "strides": (-64,)},
        ad.ExchangeError,
        "address space",
    ),
    ("no version", {"version": ...}, ad.ExchangeError, "version is missing"),
    ("version str", {"version": "3"}, ad.ExchangeError, "version is '3'"),
    ("version negative", {"version": -1}, ad.ExchangeError, "version is -1"),
    ("version huge", {"version": HUGE}, ad.ExchangeError, "version is"),
    ("version 4", {"version": 4}, ad.ExchangeError, "version is 4"),
    ("mask", {"mask": object()}, ad.ExchangeError, "mask is .*validity="),
    ("mask False", {"mask": False}, ad.ExchangeError, "mask is "),
]

wrong_fields = pytest.mark.parametrize(
    ("changes", "error", "text"),
    [pytest.param(*row[1:], id=row[0]) for row in WRONG_FIELDS],
)

# What only host memory is looked through for.
wrong_on_devices = pytest.mark.parametrize(
    ("typestr", "reason", "text"),
    [
        (">i4", "byteorder", "may lie on a device"),
        ("<M8[ns]", "dtype", r"NaT, as they may lie on a device.*\.view\(\"int64\"\)"),
        ("<m8[s]", "dtype", "NaT, as they may lie on a device"),
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
    """Refused with this error, whose text names the attribute."""
    raised = refusal(ad.tensor, source)
    assert isinstance(raised, error)
    assert re.search(text, all_texts(raised), re.S)
    assert f"{name} of Showing" in all_texts(raised)


def check_not_a_dict(name, value):
    with pytest.raises(ad.ExchangeError, match=r"the value is .*expected a dict"):
        ad.tensor(Showing(name, value))


def check_elements(source, reason, text):
    """Elements that Arrow has in another form, on a device where none is looked at."""
    raised = refusal(ad.array, source)
    assert raised.reason == reason and raised.hint
    assert re.search(text, all_texts(raised))
