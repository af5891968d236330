"""Shared functions of the DLPack tests: refusals, exported fields, and a foreign exchange
API."""

import contextlib
import ctypes

import dlpack_ctypes as dl
import pytest
from dlpack_ctypes import Managed, Received

import arrowdev as ad


@contextlib.contextmanager
def fails(reason):
    """Expects ExchangeError with this reason."""
    with pytest.raises(ad.ExchangeError) as info:
        yield info
    assert info.value.reason == reason


def received(tensor, **kwargs):
    kwargs.setdefault("max_version", (1, 3))
    return Received(tensor.__dlpack__(**kwargs))


class Foreign:
    """A class with an exchange API that exports one managed tensor."""

    def __init__(self, *args, stream=None, result=0, major=1, minor=3, prev=None, **kwargs):
        self.managed = Managed(*args, **kwargs)
        self.asked = []
        self.n_calls = 0

        def from_py(_object, out):
            self.n_calls += 1
            if result == 0 and self.managed is not None:
                out[0] = ctypes.pointer(self.managed.struct)
            return result

        def current_stream(device_type, device_id, out):
            self.asked.append((device_type, device_id))
            out[0] = stream
            return 0

        self.table = dl.ExchangeAPI()
        self.table.version = dl.Version(major, minor)
        self.table.prev_api = None if prev is None else ctypes.addressof(prev.table)
        self.table.from_py = dl.FROM_PY(from_py)
        self.table.to_py = dl.TO_PY(lambda managed, out: -1)
        self.table.current_stream = dl.CURRENT_STREAM(current_stream)
        self.type = dl.exchange_type(self.table)

    def __call__(self):
        return self.type()
