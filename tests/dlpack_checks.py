"""What the tests of DLPack share beside the structs: refusals, and what is exported."""

import contextlib

import pytest
from dlpack_ctypes import Received

import arrowdev as ad


@contextlib.contextmanager
def fails(reason):
    """Expect ExchangeError with this reason."""
    with pytest.raises(ad.ExchangeError) as info:
        yield info
    assert info.value.reason == reason


def received(tensor, **kwargs):
    kwargs.setdefault("max_version", (1, 3))
    return Received(tensor.__dlpack__(**kwargs))
