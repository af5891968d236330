"""What other libraries are given: an Array, a Tensor or a stream that they can read."""

from __future__ import annotations

from arrowdev._core import (
    Array,
    ArrayStream,
    Tensor,
    _copied,
    _has_bool8,
    _require_host,
    _schema_of_parts,
    _schema_parts,
    array,
    array_stream,
    tensor,
)
from arrowdev._errors import exchange_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, TypeAlias

    from arrowdev._core import Buffer, ExchangeError, Schema

    Source: TypeAlias = Array | Tensor | Buffer
    Take: TypeAlias = Callable[[Source, bool | None, object], Array]
    Make: TypeAlias = Callable[[Any, bool | None, object], Any]
    Kind: TypeAlias = Literal["array", "tensor", "stream"]


UNFLAGGED = "the library knows no read-only memory"


def cannot_promise(name: str) -> ExchangeError:
    """Return the error for copy=False if a library or function decides itself whether to copy."""
    return exchange_error(
        f"{name} decides by itself whether to copy, so copy=False cannot be promised",
        reason="copy",
        hint="leave it out",
    )


def require_copy(copy: bool | None, why: str, data: Source) -> None:
    """Raise if the copy that `data` needs was ruled out. `why` says what takes it."""
    if copy is False:
        raise exchange_error(why, reason="copy", hint="leave copy=False out", device=data.device)


# --- tensors -----------------------------------------------------------------


def take_without_negative_strides(obj: Source, copy: bool | None, stream: object) -> Tensor:
    """Return a Tensor for a library that may end the process at a negative stride."""
    values = tensor(obj, copy=copy, stream=stream)
    if any(stride < 0 for stride in values.strides):
        values = tensor(values, order="C", copy=copy, stream=stream)
    return values


def _is_row_major(values: Tensor) -> bool:
    expected = 1
    for extent, stride in zip(reversed(values.shape), reversed(values.strides), strict=True):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def take_row_major(obj: Source, copy: bool | None, stream: object) -> Tensor:
    """Return a Tensor for a library that takes only compact memory."""
    values = tensor(obj, copy=copy, stream=stream)
    if _is_row_major(values):
        return values
    if copy is False:
        raise exchange_error(
            "the library takes no strided memory without a copy",
            reason="strides",
            hint="leave copy=False out",
            device=values.device,
        )
    return tensor(values, order="C", stream=stream)


def take_for_old_capsules(obj: Source, copy: bool | None, stream: object) -> Tensor:
    """The same, for a library whose capsules have no read-only flag."""
    values = take_row_major(obj, copy, stream)
    if values.readonly and copy is not False:
        values = _copied(values, UNFLAGGED, stream)
    return values


# --- columns -----------------------------------------------------------------


def take_array(obj: Source, copy: bool | None, stream: object) -> Array:
    return array(obj, copy=copy, stream=stream)


_BOOL8 = (b"ARROW:extension:name", b"arrow.bool8")


def _bits_in(parts: Any) -> Any:
    """Return the parts of a schema with bools of one bit where they have one byte."""
    kind, name, metadata, flags, children, dictionary = parts
    if _BOOL8 in (metadata or ()):
        kind = b"b"
        kept = [pair for pair in metadata if not pair[0].startswith(b"ARROW:extension:")]
        metadata = kept or None
    children = tuple(map(_bits_in, children))
    return kind, name, metadata, flags, children, dictionary and _bits_in(dictionary)


def schema_with_bits(type: Schema) -> Schema:
    result: Schema = _schema_of_parts(_bits_in(_schema_parts(type)))
    return result


def _cast_bools(data: Array, wanted: Any) -> Array:
    """Return `data` as `wanted`, which differs in the bools only. What else there is is shared."""
    if data.schema == wanted:
        return data
    if wanted.format == "b":
        return array(data, wanted)
    offset, children, dictionary = data.offset, data.children, data.dictionary
    if wanted.format == "+s" and data.validity is None:  # no more than the rows of the slice
        children = tuple(child[offset : offset + len(data)] for child in children)
        offset = 0
    return Array.from_buffers(
        wanted,
        len(data),
        data.buffers,
        null_count=-1 if data.null_count is None else data.null_count,
        offset=offset,
        children=list(map(_cast_bools, children, wanted.children)),
        dictionary=None if dictionary is None else _cast_bools(dictionary, wanted.dictionary),
    )


def with_bits(take: Take) -> Take:
    """Return `take` for a library that shows numbers of arrow.bool8: with bools of one bit."""

    def taken(obj: Source, copy: bool | None, stream: object) -> Array:
        data = take(obj, copy, stream)
        if not _has_bool8(data):
            return data
        require_copy(
            copy,
            f"the library does not know the bools in {data.schema}, which have a byte each, and "
            "bits are a copy",
            data,
        )
        return _cast_bools(data, schema_with_bits(data.schema))

    return taken


def require_columns(type: Schema) -> None:
    if type.format != "+s":
        raise exchange_error(
            f"a table or batch is made of columns, and the data are one column of {type}",
            reason="dtype",
            hint='name the column: arrowdev.record_batch({"name": x})',
        )


def take_batch(obj: Source, copy: bool | None, stream: object) -> Array:
    batch = array(obj, copy=copy, stream=stream)
    require_columns(batch.schema)
    if batch.null_count:
        raise exchange_error(
            f"a table or batch has no place for null rows, and the data have {batch.null_count}",
            reason="nulls",
            hint='keep them in one column: arrowdev.record_batch({"name": x})',
            device=batch.device,
        )
    return batch


def take_without_null_rows(obj: Source, copy: bool | None, stream: object) -> Array:
    data = array(obj, copy=copy, stream=stream)
    return take_batch(data, None, None) if data.schema.format == "+s" else data


def take_with_bits(obj: Source, copy: bool | None, stream: object) -> Array:
    """Return an Array whose bools are bits: the library may not know arrow.bool8."""
    return with_bits(take_array)(obj, copy, stream)


def take_stream(obj: Source | ArrayStream, copy: bool | None, stream: object) -> ArrayStream:
    if isinstance(obj, ArrayStream):
        return obj
    return array_stream(array(obj, copy=copy, stream=stream))


def take_each(
    take: Take, obj: Source | ArrayStream, copy: bool | None, stream: object
) -> Array | ArrayStream:
    """Return what `take`, which makes bits of bools, makes of the data or of each batch."""
    if not isinstance(obj, ArrayStream):
        return take(obj, copy, stream)
    return obj.map(lambda batch: take(batch, None, None), schema=schema_with_bits(obj.schema))


def take_stream_with_bits(
    obj: Source | ArrayStream, copy: bool | None, stream: object
) -> Array | ArrayStream:
    """The same for a class that takes a stream, and null rows are refused.

    An Array is a stream as well.
    """
    return take_each(with_bits(take_without_null_rows), obj, copy, stream)


def take_stream_of_columns(
    obj: Source | ArrayStream, copy: bool | None, stream: object
) -> Array | ArrayStream:
    """The same for a table, which a single column is not."""
    data = obj if isinstance(obj, ArrayStream) else array(obj, copy=copy, stream=stream)
    require_columns(data.schema)
    return take_stream_with_bits(data, None, None)


def on_host(data: Any, what: str) -> Any:
    """Return an Array or an ArrayStream that the host can read."""
    if not isinstance(data, ArrayStream):
        _require_host(data, what)
    elif not hasattr(data, "__arrow_c_stream__"):
        raise exchange_error(
            f"{what} needs host memory, found batches of device type {data.device_type}",
            reason="device",
            hint='bring them to the host with .to("cpu")',
        )
    return data


def find_part(type: Schema, is_wanted: Callable[[str], bool]) -> Schema | None:
    """Return the first part of a type whose format `is_wanted`, or None."""
    if is_wanted(type.format):
        return type
    parts = type.children if type.dictionary is None else (type.dictionary,)
    return next(filter(None, (find_part(part, is_wanted) for part in parts)), None)


def _has_slices(data: Array) -> bool:
    """Whether `data` or a part of it may be a slice of its buffers, as the rows of lists are."""
    return (
        bool(data.offset)
        or data.schema.format in ("+l", "+L", "+m")
        or any(map(_has_slices, data.children))
    )


def from_start(take: Take, *formats: str) -> Take:
    """Return `take` for a library that misreads slices of the types with these formats.

    Their rows are copied to the start of buffers of their own.
    """

    def taken(obj: Source, copy: bool | None, stream: object) -> Array:
        data = take(obj, copy, stream)
        part = find_part(data.schema, lambda format: format.startswith(formats))
        if part is None or not _has_slices(data):
            return data
        require_copy(
            copy, f"the library misreads slices of {part}, and other rows are a copy", data
        )
        return _copied(data, f"the library misreads slices of {part}", stream)

    return taken
