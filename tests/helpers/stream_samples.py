"""Sources of the stream tests."""

import arrow_ctypes as ac
import numpy as np
import pyarrow as pa

import arrowdev as ad

HERE = "ext_dev:0"
TABLE = pa.concat_tables([pa.table({"a": [1, 2, 3], "s": ["x", None, "yz"]}) for _ in range(3)])
TYPES = {
    "int": pa.array([1, None, 3, 4, 5] * 2),
    "bool": pa.array([True, None, False] * 3),
    "utf8": pa.array(["a", None, "bc", ""] * 3),
    "list": pa.array([[1, 2], None, [], [3]] * 3),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}] * 3),
    "dictionary": pa.array(["a", "b", None, "a", "c"] * 2).dictionary_encode(),
    "string view": pa.array(["short", None, "longer than twelve bytes"] * 3, pa.string_view()),
}


def numbers(count, rows=2):
    for i in range(count):
        yield np.arange(i * rows, (i + 1) * rows)


def failing(error, after=1):
    yield from numbers(after)
    raise error


def counted(taken, arrays):
    """Yields the same arrays and appends each one to `taken` when it is requested."""
    for array in arrays:
        taken.append(array)
        yield array


def values(stream):
    return [array.to("cpu").to_pylist() for array in stream]


def foreign(*trees, device_type=None, **options):
    for tree in trees:
        tree.device_type = device_type or ac.CPU
    return ac.Stream(ac.SchemaNode("l"), trees, device_type=device_type, **options)


def numbers_there(count):
    return (ad.array(x).to(HERE) for x in numbers(count))


def on_device(device, queues):
    for i, queue in enumerate(queues):
        yield device.array([i, i + 1], queue=queue)


class OneMethod:
    """Exposes one method of a stream, so that no consumer can use another one."""

    def __init__(self, stream, *, device=False):
        name = "__arrow_c_device_stream__" if device else "__arrow_c_stream__"
        setattr(self, name, getattr(stream, name))
