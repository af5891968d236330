"""Helpers of the tests of scripted ends: peers that act like C code, and lists of broken rules."""

from ctypes import addressof

import pytest

from arrowdev.testing import RULES, BrokenRule, _abi

LIMIT = 60  # seconds; upper limit of any wait of these tests
TABLE = {"a": [1, 2], "s": ["x", None]}


def broken_by(end, **options):
    """The names of the rules that the other end broke."""
    with pytest.raises(BrokenRule) as info:
        end.check(**options)
    for one in info.value.broken:
        assert one.what in str(info.value)
        assert RULES[one.rule].source in str(info.value)
    return [one.rule for one in info.value.broken]


def rows(batches):
    return [row for batch in batches for row in batch.to_pylist()]


class Struct:
    """A stream's struct, moved out of a capsule, whose callbacks can be called in any order."""

    def __init__(self, stream):
        capsule = stream.__arrow_c_device_stream__()
        self.struct = _abi.take(capsule, "arrow_device_array_stream")
        self.functions = {
            name: _abi.CALLBACKS[name](getattr(self.struct, name))
            for name in ("get_schema", "get_next", "get_last_error", "release")
        }

    def __call__(self, name, *arguments):
        return self.functions[name](addressof(self.struct), *arguments)

    def schema(self):
        out = _abi.ArrowSchema()
        assert self("get_schema", addressof(out)) == 0
        return out

    def batch(self):
        out = _abi.ArrowDeviceArray()
        assert self("get_next", addressof(out)) == 0
        return out


class Handler:
    """A handler as C code would write it; its callbacks are functions of this object's class."""

    def __init__(self, **functions):
        self.struct = _abi.ArrowAsyncDeviceStreamHandler()
        self.callbacks = {
            name: _abi.CALLBACKS[name](functions.get(name, getattr(self, name)))
            for name in ("on_schema", "on_next_task", "on_error", "release")
        }
        for name, callback in self.callbacks.items():
            setattr(self.struct, name, _abi.address_of(callback))
        self.tasks = []

    @property
    def address(self):
        return addressof(self.struct)

    def producer(self, name, *arguments):
        pointer = self.struct.producer
        _abi.call(_abi.ArrowAsyncProducer.from_address(pointer), name, *arguments)

    def on_schema(self, _, schema):
        _abi.call(_abi.ArrowSchema.from_address(schema), "release")
        self.producer("request", 3)
        return 0

    def on_next_task(self, _, task, metadata):
        if task:
            self.extract(_abi.ArrowAsyncTask.from_address(task))
        return 0

    def on_error(self, *_):
        pass

    def release(self, address):
        pass

    def extract(self, task):
        return _abi.call(task, "extract_data", None)
