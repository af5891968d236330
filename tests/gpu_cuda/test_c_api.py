"""ArrowDev_StreamWait() on CUDA's streams."""

import ctypes
from pathlib import Path

import extension
import pytest
from c_api import Column
from gpu import NEW, Held, Reader, Stream

import arrowdev as ad


@pytest.fixture(scope="module")
def capi():
    return extension.load(extension.build(Path(__file__).parent.parent / "c_helpers" / "capi.c"))


def exported(capi, array):
    column = Column()
    capi.export_array(array, 0, *column.addresses)
    return column


@pytest.mark.parametrize("on_thread", [False, True])
def test_stream_waits_for_the_event(capi, on_thread):
    reader = Reader()
    with Held() as held:
        column = exported(capi, ad.array(held.memory))
        address = ctypes.addressof(column.data)
        assert capi.stream_wait(address, reader.stream.handle, on_thread)[0] == 0
        reader.read(held.memory.pointer)
        assert not reader.stream.is_done()
    assert reader.result() == NEW.tolist()
    column.release()


@pytest.mark.parametrize("stream", [0, 1])
def test_default_stream_waits_for_the_event(capi, stream):
    """NULL is the default stream, as for the runtime; blocking streams follow it."""
    reader = Reader(Stream(flags=0))
    with Held() as held:
        column = exported(capi, ad.array(held.memory))
        assert capi.stream_wait(ctypes.addressof(column.data), stream, False)[0] == 0
        reader.read(held.memory.pointer)
        assert not reader.stream.is_done()
    assert reader.result() == NEW.tolist()
    column.release()


def test_driver_error_is_eio_with_its_name(capi, standin):
    with Held() as held:
        column = exported(capi, ad.array(held.memory))
        stream = Stream()
        standin.fail_at(1, 999, "cuStreamWaitEvent")
        code, text = capi.stream_wait(ctypes.addressof(column.data), stream.handle, False)
        assert code == 5
        assert "CUDA_ERROR_UNKNOWN" in text
    column.release()
