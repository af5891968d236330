"""Sources of the stream tests, and threads with a result."""

import threading

import arrow_ctypes as ac
import numpy as np
import pyarrow as pa
import pytest

import arrowdev as ad

HERE = "ext_dev:0"
LIMIT = 60  # seconds; upper limit of any wait of these tests
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


class Call:
    """A function that runs on its own thread; result() waits for its end."""

    def __init__(self, function):
        self._function = function
        self._result = self._error = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error

    def is_running(self):
        return self._thread.is_alive()

    def result(self):
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error
        return self._result


def wait_until(condition):
    for _ in range(LIMIT * 100):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail("it never came true")
