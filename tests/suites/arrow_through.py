"""The arrowdev object of the same kind as pyarrow's, and the methods that export it."""

import pyarrow as pa

import arrowdev as ad

METHODS = frozenset(
    {
        "__arrow_c_schema__",
        "__arrow_c_array__",
        "__arrow_c_device_array__",
        "__arrow_c_stream__",
        "__arrow_c_device_stream__",
    }
)


def through(obj):
    if not any(hasattr(obj, name) for name in METHODS):
        return obj  # a dict or a list of values, for example
    if isinstance(obj, (pa.DataType, pa.Field, pa.Schema)):
        return ad.schema(obj)
    if isinstance(obj, (pa.Array, pa.RecordBatch)):
        return ad.array(obj)
    return ad.array_stream(obj)
