"""Libraries that work on the default stream and do not say so: cuDF, numba, torch.as_tensor."""

import gc
import weakref

import pytest
from default_stream import Column, ColumnStream, Releases
from gpu import NEW, Gate, Memory, Stream
from stream_samples import wait_until

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
