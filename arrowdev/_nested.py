"""How nested columns are read that show no protocol: jagged tensors of torch, arrays of awkward.

csrc/protocol/nested.c calls these functions. The library of the object has been imported already.
"""

from __future__ import annotations

import sys

from arrowdev._core import Array, DeviceType, _schema_of_parts, _schema_parts, array
from arrowdev._errors import exchange_error
from arrowdev._open_targets import is_within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NULLABLE = 2  # ARROW_FLAG_NULLABLE


def of_jagged(x: Any, copy: bool | None) -> Array:
    """Return the lists of a jagged tensor, over its values and offsets."""
    if x.requires_grad:
        raise exchange_error(
            "NestedTensor requires a gradient, which would be lost",
            reason="requires_grad",
            hint="pass x.detach()",
        )
    if isinstance(x.shape[1], int):
        raise exchange_error(
            f"a jagged tensor of shape {tuple(x.shape)} has its lists in another dimension than 1",
            reason="strides",
            hint="make it that one, as x.transpose(1, 2) does",
        )
    if x.lengths() is not None:
        raise exchange_error(
            "the jagged tensor has values between its lists, which offsets cannot express",
            reason="strides",
            hint="pass x.contiguous()",
        )
    values, offsets = array(x.values(), copy=copy), array(x.offsets(), copy=copy)
    kind = b"+L" if offsets.schema.format == "l" else b"+l"
    item = (_schema_parts(values.schema)[0], b"item", *_schema_parts(values.schema)[2:])
    result = Array.from_buffers(
        _schema_of_parts((kind, b"", None, _NULLABLE, (item,), None)),
        len(offsets) - 1,
        [None, offsets],
        children=[values],
    )
    if result.device_type == DeviceType.CPU:
        result.validate("full")  # torch takes any offsets
    return result


def of_awkward(x: Any, copy: bool | None) -> Array:
    """Return an array of awkward as it exports it to pyarrow, where Arrow has its type."""
    awkward = sys.modules["awkward"]
    if awkward.backend(x) != "cpu":
        raise exchange_error(
            f"awkward would copy to the host what is in its backend {awkward.backend(x)}",
            reason="device",
            hint='say so: awkward.to_backend(x, "cpu")',
        )
    lost = _without_equivalent(awkward.type(x).content)
    if lost is not None:
        raise exchange_error(
            f"Arrow has no equivalent of {lost} of awkward",
            reason="dtype",
            hint="awkward.to_arrow(x, extensionarray=False) drops the names and parameters",
        )
    parts = list(map(sys.modules["numpy"].asarray, awkward.to_buffers(x)[2].values()))
    if any(map(_has_other_times, parts)):
        raise exchange_error(
            "awkward would export NaT, dates beyond 32 bits or multiples of a unit as other times",
            reason="dtype",
            hint='take the numbers: awkward.values_astype(x, "int64")',
        )
    result = array(awkward.to_arrow(x, extensionarray=False, categorical_as_dictionary=True))
    regions = [(part.ctypes.data, part.ctypes.data + part.nbytes) for part in parts]
    if copy is False and not is_within(result, regions):
        raise exchange_error(
            f"awkward copied a part of the data to make {result.schema} of them",
            reason="copy",
            hint="leave copy=False out",
        )
    return result


def _without_equivalent(type: Any) -> Any:
    """Return the first part of a type of awkward that Arrow has no equivalent of, or None."""
    parameters = dict(type.parameters)
    parameters.pop("__categorical__", None)
    if parameters.pop("__array__", "char") not in ("string", "bytestring", "char", "byte"):
        return type
    if parameters or getattr(type, "is_tuple", False):
        return type
    if hasattr(type, "contents"):  # a record, whose content() is a method, or a union
        parts = type.contents
    else:
        parts = [type.content] if hasattr(type, "content") else []
    return next(filter(None, map(_without_equivalent, parts)), None)


def _has_other_times(part: Any) -> bool:
    """Whether values of a buffer are no time in Arrow, or another: its dates have 32 bits."""
    if part.dtype.kind not in "mM" or not part.size:
        return False
    unit, count = sys.modules["numpy"].datetime_data(part.dtype)
    limit = 2 ** (31 if unit == "D" else 63) - 1
    numbers = part.view("int64")
    return bool(count != 1 or numbers.min() < -limit or numbers.max() > limit)
