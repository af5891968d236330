"""Instances of the classes that arrowdev knows, by library."""

from __future__ import annotations

import importlib
import re
import sys

from arrowdev._core import (
    Array,
    ArrayStream,
    DeviceType,
    ExchangeError,
    Tensor,
    _copied,
    _extension,
    _require_host,
    _warn_if_readonly,
    array,
    concat,
    schema,
    tensor,
)
from arrowdev._errors import exchange_error
from arrowdev._given import (
    UNFLAGGED,
    cannot_promise,
    find_part,
    from_start,
    on_host,
    require_columns,
    require_copy,
    schema_with_bits,
    take_array,
    take_batch,
    take_each,
    take_for_old_capsules,
    take_row_major,
    take_stream_of_columns,
    take_without_negative_strides,
    with_bits,
)
from arrowdev._targets import library_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from arrowdev._core import Device, Schema
    from arrowdev._given import Kind, Make, Source, Take

    # What every library has is Any: nothing of it is imported.
    _Constructor = Callable[[Any, Any, bool | None, object], Any]


def as_numpy(obj: Source, dtype: Any, copy: bool | None) -> Any:
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


def _require_nulls_of(obj: Source, values: Any, dtype: Any) -> None:
    """Raise if nulls among Python's values would become something else than null in `dtype`."""
    if values.dtype == object and dtype.kind not in "OfcmM" and None in values.tolist():
        raise exchange_error(
            f"the array has nulls, and {dtype} has no value for them",
            reason="nulls",
            hint='use arrowdev.tensor(x, nulls="fill", fill_value=...), or take dtype=object',
            device=obj.device,
        )


# --- by tensor ---------------------------------------------------------------


CONVERT_FIRST = "convert the data first, in the library that has them"


def require_dtype(
    name: str,
    expected: object,
    found: object,
    hint: str = CONVERT_FIRST,
    device: Device | None = None,
) -> None:
    """Raise if a library or function has converted the data.

    name: of the library or function.
    """
    if str(found) != str(expected):
        raise exchange_error(
            f"{name} makes {found} of {expected}", reason="dtype", hint=hint, device=device
        )


def _require_dtype_of(values: Tensor, result: Any, hint: str = CONVERT_FIRST) -> None:
    found = str(result.dtype).rpartition(".")[2]
    require_dtype(library_name(type(result)), values.dtype, found, hint, values.device)


def _writable(result: Any, values: Tensor) -> Any:
    """Check an object whose class may ignore the read-only flag of `values`."""
    if getattr(getattr(result, "flags", None), "writeable", True):
        _warn_if_readonly(values, result)
    _require_dtype_of(values, result)
    return result


def _numpy(numpy: Any, obj: Source, copy: bool | None, stream: object) -> Any:
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

    def constructor(library: Any, obj: Source, copy: bool | None, stream: object) -> Any:
        values = tensor(obj, copy=copy, stream=stream)
        return _writable(_at(library, path)(values), values)

    return constructor


def _at(library: Any, path: str) -> Any:
    for name in path.split("."):
        library = getattr(library, name)
    return library


def _torch(torch: Any, obj: Source, copy: bool | None, stream: object) -> Any:
    """Convert to a subclass of torch.Tensor."""
    values = take_without_negative_strides(obj, copy, stream)
    return _writable(torch.from_dlpack(values), values)


def _jagged(torch: Any, obj: Source, copy: bool | None, stream: object) -> Any:
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
    if first:
        require_copy(
            copy, f"the lists begin at value {first}, and offsets from 0 are a copy", data
        )
    values = tensor(items, copy=False if copy is False else None, stream=stream)
    result = _writable(torch.from_dlpack(values), values)
    if not len(data):
        offsets = torch.zeros(1, dtype=torch.int64, device=result.device)
    elif first:
        offsets = offsets - first
    return torch.nested.nested_tensor_from_jagged(result, offsets)


def _jax(jax: Any, obj: Source, copy: bool | None, stream: object) -> Any:
    """Convert to a jax array.

    jax takes only compact memory, and capsules without a read-only flag: other
    memory is copied if that is allowed. jax itself copies unaligned memory, and
    converts elements of 64 bits unless they are enabled.
    """
    values = take_row_major(obj, copy, stream)
    try:
        result = jax.numpy.from_dlpack(values)
    except ExchangeError as error:
        if error.reason != "readonly" or copy is False:
            raise
        result = jax.numpy.from_dlpack(_copied(values, UNFLAGGED, stream))
    _require_dtype_of(values, result, 'allow it: jax.config.update("jax_enable_x64", True)')
    if copy is False and values.nbytes and result.unsafe_buffer_pointer() != values.data_ptr:
        raise exchange_error(
            "jax copied the data, which are not aligned as it wants them (to 64 bytes)",
            reason="copy",
            hint="leave copy=False out",
        )
    return result


def _openvino(openvino: Any, obj: Source, copy: bool | None, stream: object) -> Any:
    """Convert to a tensor of OpenVINO, which shares memory that it may write to."""
    values = _numpy(sys.modules["numpy"], obj, copy, stream)
    if copy is False and not values.flags.writeable:
        raise exchange_error(
            "OpenVINO takes read-only memory by a copy alone",
            reason="readonly",
            hint="leave copy=False out",
        )
    return openvino.Tensor(values, shared_memory=values.flags.writeable)


def _memoryview(_: Any, obj: Source, copy: bool | None, stream: object) -> Any:
    return memoryview(tensor(obj, copy=copy, stream=stream))


# --- by Arrow ----------------------------------------------------------------


def _pyarrow_array(pyarrow: Any, obj: Source, copy: bool | None, stream: object) -> Any:
    return pyarrow.array(take_array(obj, copy, stream))


def _by_arrow(name: str, take: Take = take_array) -> _Constructor:
    """Call the library's function or class `name`, which takes an Arrow producer."""

    def constructor(library: Any, obj: Source, copy: bool | None, stream: object) -> Any:
        return getattr(library, name)(take(obj, copy, stream))

    return constructor


def _by_stream(
    path: str, *, take: Take | None = None, has_columns: bool = True, shares: bool = False
) -> _Constructor:
    """Call the function at `path` within the library, which takes a stream.

    `take` is what it needs of each batch; `shares` is whether it never copies.
    """

    def constructor(library: Any, obj: ArrayStream, copy: bool | None, stream: object) -> Any:
        if copy is False and not shares:
            raise cannot_promise(library.__name__)
        if has_columns:
            require_columns(obj.schema)
        data = on_host(obj, f"{library.__name__}.{path}")
        return _at(library, path)(data if take is None else take_each(take, data, None, None))

    return constructor


def _joined(constructor: _Constructor) -> _Constructor:
    """Read the stream as one Array."""

    def joined(library: Any, obj: ArrayStream, copy: bool | None, stream: object) -> Any:
        if copy is False:
            raise cannot_promise(library.__name__)
        data = on_host(obj, f"a class of {library.__name__}")
        return constructor(library, data.read_all(), None, stream)

    return joined


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
    decimals = (find_part(part, _is_small_decimal) for part in parts)
    return find_part(type, _panics_polars) or next(filter(None, decimals), None)


def _polars(name: str, take: Take) -> _Constructor:
    """The same as _by_arrow, for polars, which itself decides whether to copy."""

    def constructor(library: Any, obj: Any, copy: bool | None, stream: object) -> Any:
        if copy is False:
            raise cannot_promise(library.__name__)
        data = on_host(take_each(take, obj, copy, stream), f"a polars.{name}")
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
    return find_part(type, lambda format: format in ("vu", "vz"))


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


def _nanoarrow(nanoarrow: Any, obj: Source, copy: bool | None, stream: object) -> Any:
    """Convert to nanoarrow.Array, which reads its values by an export to itself."""
    data = take_array(obj, copy, stream)
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
            hint=CONVERT_FIRST,
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
    result = cls.from_arrow(on_host(data, f"a pandas.{name}"))
    source = "pyarrow.Table" if name == "DataFrame" else "pyarrow.Array"
    _require_shown("pandas", data.schema)
    for column in _columns_of(data, name):
        _require_types_of_pandas(column, source)
    return result


def _for_pandas(take: Take) -> Take:
    """Return `take` for pandas, which reads by pyarrow: it takes rows of list views for nulls."""
    return from_start(with_bits(take), "+vl", "+vL")


def _pandas_frame(pandas: Any, obj: Source, copy: bool | None, stream: object) -> Any:
    if copy is False:
        raise cannot_promise("pandas")
    return _from_arrow(pandas, "DataFrame", _for_pandas(take_batch)(obj, copy, stream))


def _pandas_series(pandas: Any, obj: Source, copy: bool | None, stream: object) -> Any:
    """Share the memory of numbers without nulls; from_arrow() would copy them."""
    try:
        values = tensor(obj, copy=copy, stream=stream)
    except ExchangeError:
        if copy is False:
            raise
        return _from_arrow(pandas, "Series", _for_pandas(take_array)(obj, copy, stream))
    if values.ndim != 1 and isinstance(obj, Array) and obj.schema.format != "+s":
        require_copy(copy, f"pandas makes objects of {obj.schema}, which takes a copy", obj)
        return _from_arrow(pandas, "Series", _for_pandas(take_array)(obj, copy, stream))
    if values.ndim != 1 and isinstance(obj, Array):
        raise exchange_error(
            f"a pandas.Series is one column, not the fields of {obj.schema}",
            reason="dtype",
            hint="take one column with arrowdev.array(x).field(...), or all with "
            "arrowdev.array(x).into(pandas.DataFrame)",
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
    _require_shown("DuckDB", schema_with_bits(obj.schema))
    return _by_stream("from_arrow", take=with_bits(take_batch))(duckdb, obj, copy, stream)


def _by_geopandas(name: str, take: Take) -> _Constructor:
    """Call from_arrow() of a class of geopandas, which knows the types of GeoArrow."""

    def constructor(geopandas: Any, obj: Source, copy: bool | None, stream: object) -> Any:
        if copy is False:
            raise cannot_promise("geopandas")
        data = on_host(take(obj, copy, stream), f"a geopandas.{name}")
        try:
            return getattr(geopandas, name).from_arrow(data)
        except ValueError as error:
            raise exchange_error(
                f"geopandas makes no {name} of {data.schema} (ValueError: {error})",
                reason="target",
                hint="geopandas.GeoSeries.from_wkb(x), .from_wkt(x) and .from_xy(x, y) make "
                "geometries of columns",
            ) from error

    return constructor


def _awkward(awkward: Any, obj: Source, copy: bool | None, stream: object) -> Any:
    """Convert to an array of awkward: strided blocks by DLPack, columns by pyarrow.

    awkward.from_arrow() keeps offsets and bits as they are. It drops time zones, and makes dates
    of times of day.
    """
    if copy is False:
        raise cannot_promise("awkward")
    take = tensor if isinstance(obj, Tensor) else array
    data = on_host(take(obj, copy=copy, stream=stream), "an awkward.Array")
    if isinstance(data, Tensor) or b"ARROW:extension:name" in (data.schema.metadata or {}):
        return awkward.from_dlpack(tensor(data))
    lost = find_part(
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
            CONVERT_FIRST,
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


def _cudf_series(cudf: Any, obj: Source, copy: bool | None, stream: object) -> Any:
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
    data = with_bits(take_array)(obj, copy, stream)
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


def _for_arro3(take: Take) -> Take:
    return from_start(with_bits(take), "+us")


def _arro3(_: Any, obj: Source, copy: bool | None, stream: object) -> Any:
    return sys.modules["arro3.core"].Array.from_arrow(_for_arro3(take_array)(obj, copy, stream))


def _arro3_batch(_: Any, obj: Source, copy: bool | None, stream: object) -> Any:
    batch = _for_arro3(take_batch)(obj, copy, stream)
    return sys.modules["arro3.core"].RecordBatch.from_arrow(batch)


# (library, class name): constructor. The requested class is looked up, then its bases.
#
# Each constructor is called as f(library, obj, copy, stream). `stream` waits for the data; the
# library itself may work on another stream.
#
# Those that take tensors:
TENSORS = {
    ("builtins", "memoryview"): _memoryview,
    ("numpy", "ndarray"): _numpy,
    ("torch", "Tensor"): _torch,
    ("cupy", "ndarray"): _by_from_dlpack("from_dlpack"),
    ("jax", "Array"): _jax,
    ("jax", "ArrayImpl"): _jax,
    ("tvm_ffi", "Tensor"): _by_from_dlpack("from_dlpack"),
    ("dpnp", "dpnp_array"): _by_from_dlpack("from_dlpack"),
    ("openvino", "Tensor"): _openvino,
}

# Those that take columns:
COLUMNS = {
    ("torch", "NestedTensor"): _jagged,
    ("pyarrow", "Array"): _pyarrow_array,
    ("pyarrow", "ChunkedArray"): _by_arrow("chunked_array"),
    ("pyarrow", "RecordBatch"): _by_arrow("record_batch", take_batch),
    ("pyarrow", "Table"): _by_arrow("table", take_batch),
    ("nanoarrow", "Array"): _nanoarrow,
    ("arro3", "Array"): _arro3,
    ("arro3", "RecordBatch"): _arro3_batch,
    ("polars", "Series"): _polars("Series", from_start(with_bits(take_array), "+w:")),
    ("polars", "DataFrame"): _polars("DataFrame", from_start(with_bits(take_batch), "+w:")),
    ("pandas", "Series"): _pandas_series,
    ("pandas", "DataFrame"): _pandas_frame,
    ("geopandas", "GeoSeries"): _by_geopandas("GeoSeries", take_array),
    ("geopandas", "GeoDataFrame"): _by_geopandas("GeoDataFrame", take_batch),
    ("awkward", "Array"): _awkward,
    ("cudf", "Series"): _cudf_series,
}


# The same for classes that take a stream as a whole. Called with an ArrayStream.
STREAMS = {
    ("pyarrow", "RecordBatchReader"): _by_stream("RecordBatchReader.from_stream", shares=True),
    ("pyarrow", "Table"): _by_stream("table", shares=True),
    ("pyarrow", "ChunkedArray"): _by_stream("chunked_array", has_columns=False, shares=True),
    ("arro3", "ChunkedArray"): _by_stream(
        "core.ChunkedArray.from_arrow", take=_for_arro3(take_array), has_columns=False
    ),
    ("polars", "Series"): COLUMNS["polars", "Series"],
    ("polars", "DataFrame"): COLUMNS["polars", "DataFrame"],
    ("pandas", "Series"): _joined(_pandas_series),
    ("pandas", "DataFrame"): _joined(_pandas_frame),
    ("geopandas", "GeoDataFrame"): _by_stream("GeoDataFrame.from_arrow"),
    ("duckdb", "DuckDBPyRelation"): _duckdb,
}

# Classes that are made as those of other code are, and checked as they are (_open_targets.py):
# the name of the function, the function of the library and of what it takes, and how that is
# taken.
FUNCTIONS: dict[tuple[str, str], tuple[str, Callable[[Any, Any], Any], Kind, Make]] = {
    ("tensorflow", "Tensor"): (
        "tensorflow.experimental.dlpack.from_dlpack",
        lambda library, given: library.experimental.dlpack.from_dlpack(given.__dlpack__()),
        "tensor",
        take_for_old_capsules,
    ),
    ("mlx", "array"): (
        "mlx.core.from_dlpack",
        lambda library, given: library.core.from_dlpack(given),
        "tensor",
        take_row_major,
    ),
    ("datafusion", "DataFrame"): (
        "datafusion.SessionContext.from_arrow",
        lambda library, given: library.SessionContext().from_arrow(given),
        "stream",
        take_stream_of_columns,
    ),
}
