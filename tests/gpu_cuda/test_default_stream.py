"""Libraries that work on the default stream and do not say so: cuDF, numba, torch.as_tensor."""

import contextlib
import gc
import sys
import weakref

import default_stream
import numpy as np
import pytest
from default_stream import ArrowColumn, Column, ColumnStream, Default, MemoryView, Releases
from gpu import (
    NEW,
    OLD,
    AtAddress,
    Capture,
    Gate,
    Held,
    Memory,
    Reader,
    Stream,
    Watched,
    copy_later,
    wait_for_frees,
)
from waiting import wait_until

import arrowdev as ad


@pytest.fixture(scope="module")
def releases():
    return Releases()


# --- from pylibcudf ----------------------------------------------------------------------


def one_array(column):
    return ad.array(column)


def one_batch(column):
    (batch,) = ad.array_stream(ColumnStream(column))
    return batch


@pytest.mark.parametrize("take", [one_array, one_batch])
def test_array_of_python_is_released_with_the_gil(releases, take):
    """By the thread of the deferred releases, after pending work."""
    reader, column = Stream(), Column(releases, Memory(NEW))
    n, n_wrong, gone = releases.count(), releases.without_gil(), weakref.ref(column)
    with Gate(reader.handle):
        array = take(column)
        array.__dlpack__(stream=reader.handle)
        del array, column
        gc.collect()
        assert gone() is not None and releases.count() == n
    wait_until(lambda: releases.count() == n + 1)
    assert releases.without_gil() == n_wrong and gone() is None


# --- to libcudf --------------------------------------------------------------------------

# libcudf works on the first of them unless it is told otherwise.
STREAMS = {
    "legacy": Default,
    "blocking": lambda: Stream(flags=0),
    "per-thread": lambda: Default(2),
}


@pytest.fixture(autouse=True)
def nothing_freed():
    Watched.freed = 0


def exported(memory, stream):
    return ArrowColumn(ad.array(memory), stream)


def exported_as_child(memory, stream):
    return ArrowColumn(ad.record_batch({"x": ad.array(memory)})["x"], stream)


def exported_again(memory, stream):
    """By an import of arrowdev's own, which is no consumer of its own."""
    return ArrowColumn(ad.array(ad.array(memory).__arrow_c_device_array__()), stream)


@pytest.mark.parametrize("take", [exported, exported_as_child, exported_again])
@pytest.mark.parametrize("name", STREAMS)
def test_memory_is_freed_behind_a_consumer_that_waits_for_nothing(name, take):
    """Its work is pending when it releases the array."""
    reader = Reader(STREAMS[name]())
    taken = take(Watched(NEW), reader.stream.handle)
    with Gate(reader.stream.handle):
        reader.read(taken.pointer)
        del taken
        assert Watched.freed == 0
    assert reader.result() == NEW.tolist()
    wait_for_frees(1)


def test_own_memory_is_freed_behind_such_a_consumer(standin):
    """The stand-in reports memory that is freed in use."""
    there, reader = ad.array(NEW).to("cuda:0"), Reader(Default())
    there.synchronize()
    taken = ArrowColumn(there)
    del there
    with Gate(reader.stream.handle):
        reader.read(taken.pointer)
        del taken
    assert reader.result() == NEW.tolist()


def test_own_memory_is_not_freed_before_it_is_written(standin):
    """The consumer, whose stream is non-blocking, gives it back without any work on it."""
    source, idle = ad.tensor(np.zeros(1 << 23)).to("cuda:0"), Stream()
    source.synchronize()
    copy = ad.tensor(source, copy=True)
    taken = ArrowColumn(copy, idle.handle)
    del copy
    del taken
    source.synchronize()


def test_release_by_a_consumer_during_a_capture_of_a_blocking_stream():
    """No event can be recorded on the legacy stream until its end."""
    taken = exported(Watched(NEW), 1)
    with Capture(flags=0):
        del taken
        assert Watched.freed == 0
    wait_for_frees(1)


def test_release_by_arrowdev_is_at_once(standin):
    """What it has done with the memory is recorded anyway."""
    array = ad.array(Memory(NEW), stream=-1)
    pair = array.__arrow_c_device_array__()
    with standin.logged() as calls:
        again = ad.array(pair)
        del pair, again
    assert calls == []


# --- an interface without a stream -------------------------------------------------------


def without_stream(pointer):
    """numba's default arrays, cudf.Series and slices of pylibcudf leave it out, or say None."""
    return AtAddress(pointer)


def by_numba(pointer):
    """The interface of numba's own class, for an array that no stream was given for."""
    cuda = pytest.importorskip("numba.cuda")
    array = cuda.as_cuda_array(AtAddress(pointer))
    assert array.__cuda_array_interface__["stream"] is None
    return array


@pytest.mark.parametrize("show", [without_stream, by_numba])
@pytest.mark.parametrize("name", STREAMS)
def test_interface_without_a_stream_waits_for_the_legacy_one(name, show):
    """Version 3 says that such data are ready."""
    memory, stream = Memory(OLD), STREAMS[name]()
    source = show(memory.pointer)
    with copy_later(stream.handle, memory.pointer, NEW):
        column = ad.array(source)
        assert not column.is_ready()
        assert ad.array(source, stream=-1).is_ready()
    assert column.to("cpu").to_pylist() == NEW.tolist()


# --- consumers that ignore the stream of the interface -----------------------------------


@pytest.mark.parametrize("name", STREAMS)
def test_consumer_that_ignores_the_stream_of_the_interface(name):
    """The producer's stream does not block the legacy one."""
    reader = Reader(STREAMS[name]())
    with Held() as held:
        view = MemoryView(ad.tensor(held.memory))
        reader.read(view.pointer)
    assert reader.result() == NEW.tolist()


@pytest.mark.parametrize("is_pending", [True, False])
@pytest.mark.parametrize("name", STREAMS)
def test_memory_is_freed_behind_a_consumer_of_the_interface(name, is_pending):
    reader, memory = Reader(STREAMS[name]()), Watched(NEW)
    with Gate(Default().handle) if is_pending else contextlib.nullcontext():
        tensor = ad.tensor(memory)
        assert tensor.is_ready() != is_pending
        view = MemoryView(tensor)
    del tensor, memory
    with Gate(reader.stream.handle):
        reader.read(view.pointer)
        del view
        assert Watched.freed == 0
    assert reader.result() == NEW.tolist()
    wait_for_frees(1)


def test_interface_of_pending_data_while_a_blocking_stream_is_captured():
    """Nothing may wait on the legacy stream, and a consumer may work there."""
    with Held() as held:
        tensor = ad.tensor(held.memory)
        with Capture(flags=0):
            assert not hasattr(tensor, "__cuda_array_interface__")
        assert hasattr(tensor, "__cuda_array_interface__")


# --- convert(x, cudf.Series) -------------------------------------------------------------


@pytest.fixture
def series(monkeypatch):
    for name, module in default_stream.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    return default_stream.Series


def test_series_waits_for_the_event(series):
    reader = Reader(Default())
    with Held() as held:
        made = ad.convert(held.memory, series, copy=False)
        reader.read(made.column.pointer)
        assert made.column.pointer == held.memory.pointer
    assert reader.result() == NEW.tolist()


def test_nulls_are_counted_for_a_series(series):
    """libcudf takes an unknown count, as that of a slice, for no nulls."""
    bits = np.array([0b1101], "uint8")
    column = ad.Array.from_buffers("int64", 4, [bits, NEW[:4]]).to("cuda:0")
    part, without = column[1:], column[2:]
    assert not ArrowColumn(part).has_nulls
    assert ad.convert(part, series).column.has_nulls
    assert not ad.convert(without, series).column.has_nulls
    with pytest.raises(ad.ExchangeError) as info:
        ad.convert(part, series, copy=False)
    assert info.value.reason == "copy"


def test_bools_become_bits_for_a_series(series):
    """libcudf reads arrow.bool8 as int8."""
    bools = ad.array(np.array([True, False, True])).to("cuda:0")
    assert ad.convert(bools, series).column.format == "b"


LOST = {
    "time zone": lambda: ad.array(NEW).view("int64").view("timestamp[us, tz=UTC]"),
    "complex numbers": lambda: ad.array(np.array([1j, 2j])),
}


@pytest.mark.parametrize("name", LOST)
def test_types_whose_meaning_cudf_drops(series, name):
    with pytest.raises(ad.ExchangeError) as info:
        ad.convert(LOST[name]().to("cuda:0"), series)
    assert info.value.reason == "dtype"


def test_old_cudf(series):
    sys.modules["pylibcudf"].Column = None
    with pytest.raises(ad.ExchangeError) as info:
        ad.convert(ad.array(NEW).to("cuda:0"), series)
    assert info.value.reason == "version"
