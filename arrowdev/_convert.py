"""How ``convert()`` and ``.into()`` make instances of a class: tables by library and class name.

Classes with an exchange API need none of it. The library of the class has been imported
already. Classes that are not in the tables: _targets.py and _open_targets.py.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys

from arrowdev import _targets
from arrowdev._core import (
    Array,
    ArrayStream,
    DeviceError,
    DeviceType,
    ExchangeError,
    Tensor,
    _extension,
    _has_bool8,
    _require_host,
    _schema_of_parts,
    _schema_parts,
    _warn_if_readonly,
    array,
    array_stream,
    concat,
    schema,
    tensor,
)
from arrowdev._errors import exchange_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from arrowdev._core import Buffer, Schema

    # What every library has is Any: nothing of it is imported.
    _Source = Array | Tensor | Buffer
    _Constructor = Callable[[Any, Any, bool | None, object], Any]
    _Take = Callable[[_Source, bool | None, object], Array]
    _Kind = Literal["array", "tensor", "stream"]
    _Make = Callable[[Any, bool | None, object], Any]


class Target:
    """How instances of a class are made.

    `make(obj, copy, stream)` takes an Array, a Tensor or a Buffer. `whole(obj, copy, stream)`
    takes an ArrayStream; it is None for a class that takes the batches of a stream one by one.
    `kind` is what `make` wants. `is_open`: other code than this module makes the instances.
    """

    __slots__ = ("is_open", "kind", "make", "whole")

    def __init__(
        self, kind: _Kind, make: _Make, whole: _Make | None = None, is_open: bool = False
    ) -> None:
        self.kind = kind
        self.make = make
        self.whole = whole
        self.is_open = is_open


def convert(obj: _Source, cls: type, stream: object, copy: bool | None) -> Any:
    """Return an instance of `cls` over the memory of `obj`."""
    if cls is Tensor:
        return tensor(obj, stream=stream, copy=copy)
    if cls is Array:
        return array(obj, stream=stream, copy=copy)
    target = _targets.found.get(cls) or find_target(cls)
    try:
        result = target.make(obj, copy, stream)
    except (ExchangeError, DeviceError, MemoryError, Warning):
        raise
    except Exception as error:
        if obj.device_type == DeviceType.CPU or target.is_open:
            raise
        raise exchange_error(
            f"{library_name(cls)} takes no memory of {obj.device} "
            f"({type(error).__name__}: {str(error).partition(chr(10))[0]})",
            reason="device",
            hint='bring the data to the host with .to("cpu")',
            device=obj.device,
        ) from error
    if not isinstance(result, cls):
        raise TypeError(
            f"the data make an instance of {class_name(type(result))}, not of {class_name(cls)}"
        )
    return result


def unknown_class(cls: type, found: str = "") -> TypeError:
    """Return the error for a class of which nothing makes an instance."""
    return TypeError(
        f"arrowdev does not know how to make an instance of {class_name(cls)}{found}; "
        + (
            "numpy.asarray(x).tolist() gives Python values, .to_pylist() those of a column"
            if cls.__module__ == "builtins"
            else "hand the arrowdev object to the class's own constructor, or register a "
            "function with arrowdev.register_target()"
        )
    )


def as_numpy(obj: _Source, dtype: Any, copy: bool | None) -> Any:
    """Return the result of ``__array__`` of an Array, Tensor or Buffer."""
    import numpy

    if isinstance(obj, Array):
        _require_host(obj, "a NumPy array")
        result = _numpy_or_objects(numpy, obj, copy)
    else:
        if not hasattr(obj, "__array_interface__"):
            memoryview(obj)  # raises the reason why NumPy cannot read it
        result = _numpy(numpy, obj, False if copy is False else None, None)
    if dtype is not None and result.dtype != dtype:
        if copy is False:
            raise ValueError(f"{result.dtype} cannot become {dtype} without a copy")
        _require_nulls_of(obj, result, numpy.dtype(dtype))
        return result.astype(dtype)
    return result.copy() if copy and result.dtype != object else result


def _numpy_or_objects(numpy: Any, column: Array, copy: bool | None) -> Any:
    """Return the values in shared memory or, if a tensor would lose their meaning, as objects.

    NumPy would make objects itself, of the rows, if there was no ``__array__``. But it lets them
    have a dtype, which cuts zeros off the ends of strings, and makes strings of numbers beside
    strings; and pandas rounds large integers beside None.
    """
    if column.schema.format == "+s":
        raise exchange_error(
            f"an array of NumPy has no place for the names and types in {column.schema}",
            reason="dtype",
            hint="arrowdev.convert(x, pandas.DataFrame) keeps them; arrowdev.tensor(x) is a "
            "matrix, x[name] a column, x.to_pylist() the rows",
            device=column.device,
        )
    try:
        return _numpy(numpy, column, False if copy is False else None, None)
    except ExchangeError as refusal:
        if refusal.reason not in ("dtype", "nulls"):
            raise
        if copy is False:
            raise exchange_error(
                f"making Python objects of {column.schema} needs a copy, which was ruled out",
                reason="copy",
                hint="allow a copy (copy=None)",
                device=column.device,
            ) from refusal
    values = column.to_pylist()
    result = numpy.empty(len(values), object)
    for row, value in enumerate(values):  # result[:] would make rows of lists dimensions
        result[row] = value
    return result


def _require_nulls_of(obj: _Source, values: Any, dtype: Any) -> None:
    """Raise if nulls among Python's values would become something else than null in `dtype`."""
    if values.dtype == object and dtype.kind not in "OfcmM" and None in values.tolist():
        raise exchange_error(
            f"the array has nulls, and {dtype} has no value for them",
            reason="nulls",
            hint='use arrowdev.tensor(x, nulls="fill", fill_value=...), or take dtype=object',
            device=obj.device,
        )


# --- by tensor ---------------------------------------------------------------


def _require_dtype(
    result: Any,
    values: Tensor,
    hint: str = "convert the data first, in the library that has them",
) -> Any:
    """Raise if the library has converted `values` to another dtype."""
    found = str(result.dtype).rpartition(".")[2]
    if found != values.dtype:
        raise exchange_error(
            f"{_library(type(result)).__name__} makes {found} of {values.dtype}",
            reason="dtype",
            hint=hint,
            device=values.device,
        )
    return result


def _writable(result: Any, values: Tensor) -> Any:
    """Check an object whose class may ignore the read-only flag of `values`."""
    if getattr(getattr(result, "flags", None), "writeable", True):
        _warn_if_readonly(values, result)
    return _require_dtype(result, values)


def _numpy(numpy: Any, obj: _Source, copy: bool | None, stream: object) -> Any:
    values = tensor(obj, copy=copy, stream=stream)
    try:
        return numpy.from_dlpack(values)
    except ExchangeError:
        raise
    except (RuntimeError, BufferError) as error:
        # NumPy does not know the device or the type: RuntimeError, or BufferError since 2.5.
        _require_host(values, "a NumPy array")
        raise exchange_error(
            f"NumPy has no equivalent of {values.dtype}",
            reason="dtype",
            hint="take numbers of the same width, as in "
            f'arrowdev.array(x).view("uint{values.itemsize * 8}")',
            device=values.device,
        ) from error


def _by_from_dlpack(path: str) -> _Constructor:
    """Call the function at `path` within the library, which takes a DLPack producer."""

    def constructor(library: Any, obj: _Source, copy: bool | None, stream: object) -> Any:
        values = tensor(obj, copy=copy, stream=stream)
        return _writable(_at(library, path)(values), values)

    return constructor


def _at(library: Any, path: str) -> Any:
    for name in path.split("."):
        library = getattr(library, name)
    return library


def take_without_negative_strides(obj: _Source, copy: bool | None, stream: object) -> Tensor:
    """Return a Tensor for a library that may end the process at a negative stride."""
    values = tensor(obj, copy=copy, stream=stream)
    if any(stride < 0 for stride in values.strides):
        values = tensor(values, order="C", copy=copy, stream=stream)
    return values


def _torch(torch: Any, obj: _Source, copy: bool | None, stream: object) -> Any:
    """Convert to a subclass of torch.Tensor."""
    values = take_without_negative_strides(obj, copy, stream)
    return _writable(torch.from_dlpack(values), values)


def _jagged(torch: Any, obj: _Source, copy: bool | None, stream: object) -> Any:
    """Convert lists to a jagged tensor over their values and, where these begin at 0, offsets.

    torch splits the values by the lengths of the lists: there are none before or behind them.
    """
    data = array(obj, copy=copy, stream=stream)
    if data.schema.format not in ("+l", "+L"):
        raise exchange_error(
            f"a jagged tensor is made of lists of any length, and the data are {data.schema}",
            reason="dtype",
            hint="pyarrow.array(x.to_pylist()) makes lists of them"
            if data.schema.format.startswith("+v")
            else "arrowdev.convert(x, torch.Tensor) makes a strided tensor",
            device=data.device,
        )
    first = last = 0
    if len(data):
        kind = "int32" if data.schema.format == "+l" else "int64"
        parts = [None, data.buffers[1]]
        places = Array.from_buffers(kind, len(data) + 1, parts, offset=data.offset)
        offsets = torch.from_dlpack(tensor(places, stream=stream))
        first, last = offsets[0].item(), offsets[-1].item()
    items = data.children[0][first:last]
    if data.count_nulls() or items.count_nulls():
        raise exchange_error(
            "a jagged tensor has no place for null lists or values",
            reason="nulls",
            hint="drop or fill them first, in the library that has them",
            device=data.device,
        )
    if first and copy is False:
        raise exchange_error(
            f"the lists begin at value {first}, and offsets from 0 are a copy",
            reason="copy",
            hint="leave copy=False out",
            device=data.device,
        )
    values = tensor(items, copy=False if copy is False else None, stream=stream)
    result = _writable(torch.from_dlpack(values), values)
    if not len(data):
        offsets = torch.zeros(1, dtype=torch.int64, device=result.device)
    elif first:
        offsets = offsets - first
    return torch.nested.nested_tensor_from_jagged(result, offsets)


def _is_row_major(values: Tensor) -> bool:
    expected = 1
    for extent, stride in zip(reversed(values.shape), reversed(values.strides), strict=True):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def _take_row_major(obj: _Source, copy: bool | None, stream: object) -> Tensor:
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


def _take_for_old_capsules(obj: _Source, copy: bool | None, stream: object) -> Tensor:
    """The same, for a library whose capsules have no read-only flag."""
    values = _take_row_major(obj, copy, stream)
    if values.readonly and copy is not False:
        values = tensor(values, copy=True, stream=stream)
    return values


def _jax(jax: Any, obj: _Source, copy: bool | None, stream: object) -> Any:
    """Convert to a jax array.

    jax takes only compact memory, and capsules without a read-only flag: other
    memory is copied if that is allowed. jax itself copies unaligned memory, and
    converts elements of 64 bits unless they are enabled.
    """
    values = _take_row_major(obj, copy, stream)
    try:
        result = jax.numpy.from_dlpack(values)
    except ExchangeError as error:
        if error.reason != "readonly" or copy is False:
            raise
        result = jax.numpy.from_dlpack(tensor(values, copy=True, stream=stream))
    _require_dtype(result, values, 'allow it: jax.config.update("jax_enable_x64", True)')
    if copy is False and values.nbytes and result.unsafe_buffer_pointer() != values.data_ptr:
        raise exchange_error(
            "jax copied the data, which are not aligned as it wants them (to 64 bytes)",
            reason="copy",
            hint="leave copy=False out",
        )
    return result


def _openvino(openvino: Any, obj: _Source, copy: bool | None, stream: object) -> Any:
    """Convert to a tensor of OpenVINO, which shares memory that it may write to."""
    values = _numpy(sys.modules["numpy"], obj, copy, stream)
    if copy is False and not values.flags.writeable:
        raise exchange_error(
            "OpenVINO takes read-only memory by a copy alone",
            reason="readonly",
            hint="leave copy=False out",
        )
    return openvino.Tensor(values, shared_memory=values.flags.writeable)


def _memoryview(_: Any, obj: _Source, copy: bool | None, stream: object) -> Any:
    return memoryview(tensor(obj, copy=copy, stream=stream))


# --- by Arrow ----------------------------------------------------------------


def _arrow(obj: _Source, copy: bool | None, stream: object) -> Array:
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


def _schema_with_bits(type: Schema) -> Schema:
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


def _with_bits(take: _Take) -> _Take:
    """Return `take` for a library that shows numbers of arrow.bool8: with bools of one bit."""

    def taken(obj: _Source, copy: bool | None, stream: object) -> Array:
        data = take(obj, copy, stream)
        if not _has_bool8(data):
            return data
        if copy is False:
            raise exchange_error(
                f"the library does not know the bools in {data.schema}, which have a byte each, "
                "and bits are a copy",
                reason="copy",
                hint="leave copy=False out",
                device=data.device,
            )
        return _cast_bools(data, _schema_with_bits(data.schema))

    return taken


def _pyarrow_array(pyarrow: Any, obj: _Source, copy: bool | None, stream: object) -> Any:
    return pyarrow.array(_arrow(obj, copy, stream))


def _require_columns(type: Schema) -> None:
    if type.format != "+s":
        raise exchange_error(
            f"a table or batch is made of columns, and the data are one column of {type}",
            reason="dtype",
            hint='name the column: arrowdev.record_batch({"name": x})',
        )


def _batch(obj: _Source, copy: bool | None, stream: object) -> Array:
    batch = array(obj, copy=copy, stream=stream)
    _require_columns(batch.schema)
    if batch.null_count:
        raise exchange_error(
            f"a table or batch has no place for null rows, and the data have {batch.null_count}",
            reason="nulls",
            hint='keep them in one column: arrowdev.record_batch({"name": x})',
            device=batch.device,
        )
    return batch


def _without_null_rows(obj: _Source, copy: bool | None, stream: object) -> Array:
    data = array(obj, copy=copy, stream=stream)
    return _batch(data, None, None) if data.schema.format == "+s" else data


def take_with_bits(obj: _Source, copy: bool | None, stream: object) -> Array:
    """Return an Array whose bools are bits: the library may not know arrow.bool8."""
    return _with_bits(_arrow)(obj, copy, stream)


def take_stream(obj: _Source | ArrayStream, copy: bool | None, stream: object) -> ArrayStream:
    if isinstance(obj, ArrayStream):
        return obj
    return array_stream(array(obj, copy=copy, stream=stream))


def _taken(
    take: _Take, obj: _Source | ArrayStream, copy: bool | None, stream: object
) -> Array | ArrayStream:
    """Return what `take`, which makes bits of bools, makes of the data or of each batch."""
    if not isinstance(obj, ArrayStream):
        return take(obj, copy, stream)
    return obj.map(lambda batch: take(batch, None, None), schema=_schema_with_bits(obj.schema))


def take_stream_with_bits(
    obj: _Source | ArrayStream, copy: bool | None, stream: object
) -> Array | ArrayStream:
    """The same for a class that takes a stream, and null rows are refused.

    An Array is a stream as well.
    """
    return _taken(_with_bits(_without_null_rows), obj, copy, stream)


def _on_host(data: Any, what: str) -> Any:
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


def _by_arrow(name: str, take: _Take = _arrow) -> _Constructor:
    """Call the library's function or class `name`, which takes an Arrow producer."""

    def constructor(library: Any, obj: _Source, copy: bool | None, stream: object) -> Any:
        return getattr(library, name)(take(obj, copy, stream))

    return constructor


def _by_stream(
    path: str, *, take: _Take | None = None, has_columns: bool = True, shares: bool = False
) -> _Constructor:
    """Call the function at `path` within the library, which takes a stream.

    `take` is what it needs of each batch; `shares` is whether it never copies.
    """

    def constructor(library: Any, obj: ArrayStream, copy: bool | None, stream: object) -> Any:
        if copy is False and not shares:
            raise cannot_promise(library.__name__)
        if has_columns:
            _require_columns(obj.schema)
        data = _on_host(obj, f"{library.__name__}.{path}")
        return _at(library, path)(data if take is None else _taken(take, data, None, None))

    return constructor


def _joined(constructor: _Constructor) -> _Constructor:
    """Read the stream as one Array."""

    def joined(library: Any, obj: ArrayStream, copy: bool | None, stream: object) -> Any:
        if copy is False:
            raise cannot_promise(library.__name__)
        return constructor(library, obj.read_all(), None, stream)

    return joined


def cannot_promise(name: str) -> ExchangeError:
    """Return the error for copy=False if a library or function decides itself whether to copy."""
    return exchange_error(
        f"{name} decides by itself whether to copy, so copy=False cannot be promised",
        reason="copy",
        hint="leave it out",
    )


def _find_part(type: Schema, is_wanted: Callable[[str], bool]) -> Schema | None:
    """Return the first part of a type whose format `is_wanted`, or None."""
    if is_wanted(type.format):
        return type
    parts = type.children if type.dictionary is None else (type.dictionary,)
    return next(filter(None, (_find_part(part, is_wanted) for part in parts)), None)


def _has_slices(data: Array) -> bool:
    """Whether `data` or a part of it may be a slice of its buffers, as the rows of lists are."""
    return (
        bool(data.offset)
        or data.schema.format in ("+l", "+L", "+m")
        or any(map(_has_slices, data.children))
    )


def _from_start(take: _Take, *formats: str) -> _Take:
    """Return `take` for a library that misreads slices of the types with these formats.

    Their rows are copied to the start of buffers of their own.
    """

    def taken(obj: _Source, copy: bool | None, stream: object) -> Array:
        data = take(obj, copy, stream)
        part = _find_part(data.schema, lambda format: format.startswith(formats))
        if part is None or not _has_slices(data):
            return data
        if copy is False:
            raise exchange_error(
                f"the library misreads slices of {part}, and other rows are a copy",
                reason="copy",
                hint="leave copy=False out",
                device=data.device,
            )
        return array(data, copy=True, stream=stream)

    return taken


def _panics_polars(format: str) -> bool:
    is_decimal256 = format.startswith("d:") and format.endswith(",256")
    is_below_scale_0 = format.startswith("d:") and format.split(",")[1].startswith("-")
    return (
        is_decimal256
        or is_below_scale_0
        or format in ("+r", "+vl", "+vL", "w:0", "+w:0", "tiD", "tiM")
        or format.startswith(("+us", "+ud"))
    )


def _is_small_decimal(format: str) -> bool:
    return format.startswith("d:") and format.endswith((",32", ",64"))


def _unknown_to_polars(type: Schema) -> Schema | None:
    """Return a part of `type` at which polars (2.1) panics, or whose values it reads wrongly.

    It reads decimals of 32 and 64 bits as 128 bits, also in a frame, but not in a series.
    """
    parts = type.children if type.dictionary is None else (type.dictionary,)
    decimals = (_find_part(part, _is_small_decimal) for part in parts)
    return _find_part(type, _panics_polars) or next(filter(None, decimals), None)


def _polars(name: str, take: _Take) -> _Constructor:
    """The same as _by_arrow, for polars, which itself decides whether to copy."""

    def constructor(library: Any, obj: Any, copy: bool | None, stream: object) -> Any:
        if copy is False:
            raise cannot_promise(library.__name__)
        data = _on_host(_taken(take, obj, copy, stream), f"a polars.{name}")
        unknown = _unknown_to_polars(data.schema)
        if unknown is not None:
            is_union = unknown.format.startswith("+u")
            raise exchange_error(
                f"polars has no equivalent of {unknown}",
                reason="dtype",
                hint="pass the children of the union one by one: arrowdev.array(x).children"
                if is_union
                else f"pass Python's values: polars.{name}(arrowdev.array(x).to_pylist())",
                device=getattr(data, "device", None),
            )
        try:
            return getattr(library, name)(data)
        except library.exceptions.PanicException as error:  # no Exception of Python's
            raise exchange_error(
                f"polars panics at {data.schema}: {str(error).partition(chr(10))[0]}",
                reason="dtype",
                hint=f"pass Python's values: polars.{name}(arrowdev.array(x).to_pylist())",
                device=getattr(data, "device", None),
            ) from error

    return constructor


def _crashes_on_views(nanoarrow: Any) -> bool:
    """Whether this nanoarrow ends the process when an array of its own with views is exported.

    It adds the buffers to another struct than the one it fills. 0.9 is the last version known.
    """
    numbers = re.match(r"(\d+)\.(\d+)", nanoarrow.__version__)
    return numbers is None or tuple(map(int, numbers.groups())) <= (0, 9)


def _find_view(type: Schema) -> Schema | None:
    return _find_part(type, lambda format: format in ("vu", "vz"))


def require_no_views(obj: Any) -> None:
    """Raise if the export of `obj`, an object of nanoarrow, would end the process.

    Streams hand on the stream of another producer, and have no schema or are named here.
    """
    nanoarrow = sys.modules.get("nanoarrow")  # None: the class only says that it is of it
    streams = getattr(nanoarrow, "ArrayStream", ())
    if nanoarrow is None or isinstance(obj, streams) or not hasattr(obj, "schema"):
        return
    views = _find_view(schema(obj.schema))
    if views is not None and _crashes_on_views(nanoarrow):
        raise exchange_error(
            f"nanoarrow {nanoarrow.__version__} ends the process when it exports {views}",
            reason="version",
            hint="pass the object that nanoarrow has imported, or cast it to pyarrow.string() "
            "before nanoarrow imports it",
        )


def _nanoarrow(nanoarrow: Any, obj: _Source, copy: bool | None, stream: object) -> Any:
    """Convert to nanoarrow.Array, which reads its values by an export to itself."""
    data = _arrow(obj, copy, stream)
    views = _find_view(data.schema)
    if views is not None and _crashes_on_views(nanoarrow):
        raise exchange_error(
            f"nanoarrow cannot read {views}",
            reason="dtype",
            hint="cast the column first: pyarrow.array(x).cast(pyarrow.string())",
            device=data.device,
        )
    return nanoarrow.Array(data)


def _pandas_error(array: Array, message: str, hint: str) -> ExchangeError:
    return exchange_error(f"pandas {message}", reason="dtype", hint=hint, device=array.device)


def _stored(type: Schema) -> str | None:
    """Return the type in which the elements are stored, if it is a primitive one."""
    return str(schema(type.format)) if len(type.format) == 1 else None


def _require_shown(name: str, type: Schema) -> None:
    """Raise if a library that knows no extension types would show other elements or another order.

    name: of the library.
    """
    dtype, _, strides = _extension(type)
    if dtype not in (None, _stored(type)):
        raise exchange_error(
            f"{name} has no equivalent of {dtype} here, and shows what is stored",
            reason="dtype",
            hint="convert the data first, in the library that has them",
        )
    if strides and list(strides) != sorted(strides, reverse=True):
        raise exchange_error(
            f"{name} lays the elements of {type} out flat, in another order than theirs",
            reason="dtype",
            hint='put them in order first: arrowdev.array(arrowdev.tensor(x, order="C"))',
        )
    for part in type.children if type.dictionary is None else (type.dictionary,):
        _require_shown(name, part)


def _require_types_of_pandas(array: Array, source: str) -> None:
    """Raise if pandas would lose fields of `array`, or round its integers.

    source: the class of pyarrow that keeps the integers and the fields.
    """
    keep = f"pass them on by .into({source}).to_pandas(types_mapper=pandas.ArrowDtype)"
    names = [child.name for child in array.schema.children]
    if array.schema.format == "+s" and len(set(names)) < len(names):
        raise _pandas_error(
            array, f"makes dicts of {array.schema}, which keep one field of a name", keep
        )
    for child in array.children:
        _require_types_of_pandas(child, source)
        if child.dictionary:
            # Within a column pandas decodes them.
            _require_integers_that_floats_hold(child.dictionary, child.count_nulls(), keep)
    if not array.dictionary:
        _require_integers_that_floats_hold(array, array.count_nulls(), keep)


def _require_integers_that_floats_hold(array: Array, n_nulls: int, hint: str) -> None:
    """Raise if pandas would round integers: beside nulls they become float64."""
    if array.schema.format not in ("l", "L") or not n_nulls or not len(array):
        return
    values = sys.modules["numpy"].from_dlpack(tensor(array, nulls="fill", fill_value=0))
    if max(int(values.max()), -int(values.min())) > 2**53:
        raise _pandas_error(
            array,
            "makes float64 of integers with nulls, which would round some of these",
            hint,
        )


def _reads_rows_only(column: Array) -> bool:
    """Whether pandas reads no values outside of the rows of a slice, as it does of maps."""
    return (not column.children or column.schema.format[:2] in ("+s", "+l", "+L", "+w")) and all(
        map(_reads_rows_only, column.children)
    )


def _columns_of(data: Array, name: str) -> list[Array]:
    """Return the columns, without the values of their children that pandas does not read."""
    columns = (
        [child[data.offset : data.offset + len(data)] for child in data.children]
        if name == "DataFrame"
        else [data]
    )
    return [
        concat([column[:0], column]) if column.children and _reads_rows_only(column) else column
        for column in columns
    ]


def _from_arrow(pandas: Any, name: str, data: Array) -> Any:
    cls = getattr(pandas, name)
    if not hasattr(cls, "from_arrow"):
        raise exchange_error(
            f"pandas {pandas.__version__} has no {name}.from_arrow()",
            reason="version",
            hint="install pandas 3 or later",
        )
    result = cls.from_arrow(_on_host(data, f"a pandas.{name}"))
    source = "pyarrow.Table" if name == "DataFrame" else "pyarrow.Array"
    _require_shown("pandas", data.schema)
    for column in _columns_of(data, name):
        _require_types_of_pandas(column, source)
    return result


def _for_pandas(take: _Take) -> _Take:
    """Return `take` for pandas, which reads by pyarrow: it takes rows of list views for nulls."""
    return _from_start(_with_bits(take), "+vl", "+vL")


def _pandas_frame(pandas: Any, obj: _Source, copy: bool | None, stream: object) -> Any:
    if copy is False:
        raise cannot_promise("pandas")
    return _from_arrow(pandas, "DataFrame", _for_pandas(_batch)(obj, copy, stream))


def _pandas_series(pandas: Any, obj: _Source, copy: bool | None, stream: object) -> Any:
    """Share the memory of numbers without nulls; from_arrow() would copy them."""
    try:
        values = tensor(obj, copy=copy, stream=stream)
    except ExchangeError:
        if copy is False:
            raise
        return _from_arrow(pandas, "Series", _for_pandas(_arrow)(obj, copy, stream))
    if values.ndim != 1 and isinstance(obj, Array) and obj.schema.format != "+s":
        if copy is False:
            raise exchange_error(
                f"pandas makes objects of {obj.schema}, which takes a copy",
                reason="copy",
                hint="leave copy=False out",
                device=obj.device,
            )
        return _from_arrow(pandas, "Series", _for_pandas(_arrow)(obj, copy, stream))
    if values.ndim != 1 and isinstance(obj, Array):
        raise exchange_error(
            f"a pandas.Series is one column, not the fields of {obj.schema}",
            reason="dtype",
            hint="take one column with .field(...), or all with .into(pandas.DataFrame)",
            device=values.device,
        )
    if values.ndim != 1:
        raise exchange_error(
            f"a pandas.Series has one dimension, not {values.ndim}",
            reason="dtype",
            hint="pass numpy.asarray(x).ravel()",
            device=values.device,
        )
    return pandas.Series(_numpy(sys.modules["numpy"], values, None, None), copy=False)


def _duckdb(duckdb: Any, obj: Any, copy: bool | None, stream: object) -> Any:
    """Convert to a relation, which reads bools of a byte as numbers, and other extensions too."""
    _require_shown("DuckDB", _schema_with_bits(obj.schema))
    return _by_stream("from_arrow", take=_with_bits(_batch))(duckdb, obj, copy, stream)


def _by_geopandas(name: str, take: _Take) -> _Constructor:
    """Call from_arrow() of a class of geopandas, which knows the types of GeoArrow."""

    def constructor(geopandas: Any, obj: _Source, copy: bool | None, stream: object) -> Any:
        if copy is False:
            raise cannot_promise("geopandas")
        data = _on_host(take(obj, copy, stream), f"a geopandas.{name}")
        return getattr(geopandas, name).from_arrow(data)

    return constructor


def _awkward(awkward: Any, obj: _Source, copy: bool | None, stream: object) -> Any:
    """Convert to an array of awkward: strided blocks by DLPack, columns by pyarrow.

    awkward.from_arrow() keeps offsets and bits as they are. It drops time zones, and makes dates
    of times of day.
    """
    if copy is False:
        raise cannot_promise("awkward")
    take = tensor if isinstance(obj, Tensor) else array
    data = _on_host(take(obj, copy=copy, stream=stream), "an awkward.Array")
    if isinstance(data, Tensor) or b"ARROW:extension:name" in (data.schema.metadata or {}):
        return awkward.from_dlpack(tensor(data))
    lost = _find_part(
        data.schema,
        lambda format: (
            format.startswith("tt") or (format.startswith("ts") and not format.endswith(":"))
        ),
    )
    if lost is not None:
        raise exchange_error(
            f"awkward has no equivalent of {lost}",
            reason="dtype",
            hint="take the numbers: arrowdev.array(x).view() with an integer type",
            device=data.device,
        )
    pyarrow = importlib.import_module("pyarrow")  # awkward.from_arrow() imports it, too
    return awkward.from_arrow(pyarrow.array(data))


def _cudf_error(array: Array, message: str, hint: str, reason: str = "dtype") -> ExchangeError:
    return exchange_error(f"cuDF {message}", reason=reason, hint=hint, device=array.device)


def _require_types_of_cudf(array: Array) -> None:
    """Raise if cuDF would lose the meaning of `array`."""
    dtype, _, _ = _extension(array.schema)
    if dtype not in (None, _stored(array.schema)):
        raise _cudf_error(
            array,
            f"has no equivalent of {array.schema} here, and shows what is stored",
            "convert the data first, in the library that has them",
        )
    if array.schema.format.startswith("ts") and not array.schema.format.endswith(":"):
        raise _cudf_error(
            array,
            f"drops the time zone of {array.schema}",
            "take the instants without it: arrowdev.array(x)"
            f'.view("{str(array.schema).partition(",")[0]}]")',
        )
    if array.dictionary and array.dictionary.count_nulls():
        raise _cudf_error(
            array,
            "shows the nulls of a dictionary as values",
            "decode the data first, in the library that has them",
        )
    for part in (*array.children, *filter(None, (array.dictionary,))):
        _require_types_of_cudf(part)


def _cudf_series(cudf: Any, obj: _Source, copy: bool | None, stream: object) -> Any:
    """Go by pylibcudf, whose default stream waits for the event of an Arrow array.

    cudf.Series(x) would read the CUDA Array Interface and ignore its stream. libcudf takes an
    unknown null count for no nulls, so they are counted.
    """
    column: Any = getattr(sys.modules.get("pylibcudf"), "Column", None)
    if not hasattr(column, "from_arrow") or not hasattr(cudf.Series, "from_pylibcudf"):
        raise exchange_error(
            f"cuDF {cudf.__version__} has no Column.from_arrow() or no Series.from_pylibcudf()",
            reason="version",
            hint="install a later one",
        )
    data = _with_bits(_arrow)(obj, copy, stream)
    _require_types_of_cudf(data)
    compact = data if data.device_type == DeviceType.CPU else data.compact(stream=stream)
    if copy is False and not _shares_with_cudf(data, compact):
        raise _cudf_error(
            data, f"takes {data.schema} by a copy here", "leave copy=False out", reason="copy"
        )
    return cudf.Series.from_pylibcudf(column.from_arrow(compact))


def _shares_with_cudf(data: Array, compact: Array) -> bool:
    """Whether cuDF uses the memory of `data`: numbers, times and strings with their bits."""
    is_plain = not data.children and not data.dictionary and data.schema.format not in "bn"
    if data.device_type == DeviceType.CPU or not is_plain or data.schema.format.startswith("v"):
        return False
    before, after = data.buffers[0], compact.buffers[0]
    return after is None or (before is not None and before.data_ptr == after.data_ptr)


def _for_arro3(take: _Take) -> _Take:
    return _from_start(_with_bits(take), "+us")


def _arro3(_: Any, obj: _Source, copy: bool | None, stream: object) -> Any:
    return sys.modules["arro3.core"].Array.from_arrow(_for_arro3(_arrow)(obj, copy, stream))


def _arro3_batch(_: Any, obj: _Source, copy: bool | None, stream: object) -> Any:
    batch = _for_arro3(_batch)(obj, copy, stream)
    return sys.modules["arro3.core"].RecordBatch.from_arrow(batch)


# (library, class name): constructor. The requested class is looked up, then its bases.
#
# Each constructor is called as f(library, obj, copy, stream). `stream` waits for the data; the
# library itself may work on another stream.
_CONSTRUCTORS = {
    ("builtins", "memoryview"): _memoryview,
    ("numpy", "ndarray"): _numpy,
    ("torch", "Tensor"): _torch,
    ("torch", "NestedTensor"): _jagged,
    ("cupy", "ndarray"): _by_from_dlpack("from_dlpack"),
    ("jax", "Array"): _jax,
    ("jaxlib", "ArrayImpl"): _jax,
    ("tvm_ffi", "Tensor"): _by_from_dlpack("from_dlpack"),
    ("dpnp", "dpnp_array"): _by_from_dlpack("from_dlpack"),
    ("openvino", "Tensor"): _openvino,
    ("pyarrow", "Array"): _pyarrow_array,
    ("pyarrow", "ChunkedArray"): _by_arrow("chunked_array"),
    ("pyarrow", "RecordBatch"): _by_arrow("record_batch", _batch),
    ("pyarrow", "Table"): _by_arrow("table", _batch),
    ("nanoarrow", "Array"): _nanoarrow,
    ("arro3", "Array"): _arro3,
    ("arro3", "RecordBatch"): _arro3_batch,
    ("polars", "Series"): _polars("Series", _from_start(_with_bits(_arrow), "+w:")),
    ("polars", "DataFrame"): _polars("DataFrame", _from_start(_with_bits(_batch), "+w:")),
    ("pandas", "Series"): _pandas_series,
    ("pandas", "DataFrame"): _pandas_frame,
    ("geopandas", "GeoSeries"): _by_geopandas("GeoSeries", _arrow),
    ("geopandas", "GeoDataFrame"): _by_geopandas("GeoDataFrame", _batch),
    ("awkward", "Array"): _awkward,
    ("cudf", "Series"): _cudf_series,
}


# The same for classes that take a stream as a whole. Called with an ArrayStream.
_STREAMS = {
    ("pyarrow", "RecordBatchReader"): _by_stream("RecordBatchReader.from_stream", shares=True),
    ("pyarrow", "Table"): _by_stream("table", shares=True),
    ("pyarrow", "ChunkedArray"): _by_stream("chunked_array", has_columns=False, shares=True),
    ("polars", "Series"): _CONSTRUCTORS["polars", "Series"],
    ("polars", "DataFrame"): _CONSTRUCTORS["polars", "DataFrame"],
    ("pandas", "Series"): _joined(_pandas_series),
    ("pandas", "DataFrame"): _joined(_pandas_frame),
    ("geopandas", "GeoDataFrame"): _by_stream("GeoDataFrame.from_arrow"),
    ("duckdb", "DuckDBPyRelation"): _duckdb,
}

# Classes that are made as those of other code are, and checked as they are (_open_targets.py):
# the name of the function, the function of the library and of what it takes, and how that is
# taken.
_FUNCTIONS: dict[tuple[str, str], tuple[str, Callable[[Any, Any], Any], _Kind, _Make]] = {
    ("tensorflow", "Tensor"): (
        "tensorflow.experimental.dlpack.from_dlpack",
        lambda library, given: library.experimental.dlpack.from_dlpack(given.__dlpack__()),
        "tensor",
        _take_for_old_capsules,
    ),
    ("mlx", "array"): (
        "mlx.core.from_dlpack",
        lambda library, given: library.core.from_dlpack(given),
        "tensor",
        _take_row_major,
    ),
    ("datafusion", "DataFrame"): (
        "datafusion.SessionContext.from_arrow",
        lambda library, given: library.SessionContext().from_arrow(given),
        "stream",
        take_stream_with_bits,
    ),
}

# Those whose classes hold tensors.
_TENSOR_LIBRARIES = {
    *("builtins", "numpy", "torch", "cupy", "jax", "jaxlib", "tvm_ffi", "dpnp", "openvino")
}


# --- search --------------------------------------------------------------------


def class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def library_name(cls: type) -> str:
    return str(cls.__module__).partition(".")[0]


def _library(cls: type) -> Any:
    """Return the module that has the constructors; None if no module has the class's name."""
    name = library_name(cls)
    return sys.modules.get("jax" if name == "jaxlib" else name)


def _key(cls: type) -> tuple[str, str]:
    # jax.Array calls itself "jaxlib._jax.Array" in module "jax".
    return library_name(cls), cls.__name__.rpartition(".")[2]


def is_known(cls: type) -> bool:
    """Whether arrowdev itself makes instances of this very class."""
    return (
        cls in (Tensor, Array)
        or _key(cls) in _CONSTRUCTORS
        or _key(cls) in _STREAMS
        or _key(cls) in _FUNCTIONS
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
    library = library_name(cls)
    if (base is None or library_name(base) != library) and _targets.ask_entry_points(library):
        target, _ = _find_base(cls)
    if target is None:
        from arrowdev import _open_targets

        target = _open_targets.by_convention(cls)
    return target


def _find_known(cls: type) -> Target | None:
    """How instances of this very class are made, if it is in the tables."""
    library = _library(cls)
    if library is None:
        return None
    if _key(cls) in _FUNCTIONS:
        from arrowdev import _open_targets

        return _open_targets.by_known_function(cls, library, *_FUNCTIONS[_key(cls)])
    constructor, read = _CONSTRUCTORS.get(_key(cls)), _STREAMS.get(_key(cls))
    if constructor is None and read is None:
        return None
    whole = read and functools.partial(read, library)
    if constructor is not None:
        has_tensors = library_name(cls) in _TENSOR_LIBRARIES and constructor is not _jagged
        kind: _Kind = "tensor" if has_tensors else "array"
        return Target(kind, functools.partial(constructor, library), whole)
    assert read is not None

    def make(obj: _Source, copy: bool | None, stream: object) -> Any:
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


def kind_of(cls: type) -> _Kind:
    """Return what a class wants: "array", "tensor" or "stream"; or raise TypeError."""
    return "array" if cls is Array else find_target(cls).kind
