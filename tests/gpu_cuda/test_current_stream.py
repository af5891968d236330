"""Libraries without an exchange API, in DLPack's direction and back: CuPy and jax.

CuPy tells its current stream, and jax has none.
"""

import sys
import time

import current_stream
import pytest
from current_stream import Jax, Shared, from_dlpack, ndarray
from gpu import NEW, Gate, Memory, Reader, Watched, wait_for_frees

import arrowdev as ad

MORE_THAN_ARE_DEFERRED = 1_500


@pytest.fixture(autouse=True)
def nothing_freed():
    Watched.freed = 0


@pytest.fixture(autouse=True)
def cupy(monkeypatch):
    module = current_stream.cupy()
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def unordered(type=Memory):
    """Freed at once when it is released, so that no stream has to live for it."""
    return type(NEW, is_ordered=False)


# --- CuPy -------------------------------------------------------------------------------


@pytest.mark.parametrize("is_default", [False, True])
def test_hand_overs_on_cupys_current_stream_block_nobody(standin, is_default):
    """Its user answers for what runs there: no use is recorded and no release is deferred."""
    stream = current_stream.BaseStream(0) if is_default else current_stream.Stream()
    array = ndarray(unordered())
    with stream:
        from_dlpack(ad.tensor(array))  # an earlier stream may have had this number
        with Gate(stream.ptr or 1):
            n_deleted, n_waits = Shared.n_deleted, standin.count().host_waits
            for _ in range(MORE_THAN_ARE_DEFERRED):
                from_dlpack(ad.tensor(array))
            assert Shared.n_deleted == n_deleted + MORE_THAN_ARE_DEFERRED
            assert standin.count().host_waits == n_waits


def test_use_on_another_stream_is_waited_for():
    memory, reader = unordered(Watched), Reader()
    with current_stream.Stream():
        tensor = ad.tensor(ndarray(memory))
        taken = from_dlpack(tensor)
        del memory, taken
        with Gate(reader.stream.handle):
            tensor.__dlpack__(stream=reader.stream.handle)
            reader.read(tensor.data_ptr)
            del tensor
            time.sleep(0.05)
            assert Watched.freed == 0
    assert reader.result() == NEW.tolist()
    wait_for_frees(1)


def test_cupys_stream_of_another_time_is_waited_for():
    """The stream that is current at the import counts, not the one at the export."""
    memory = unordered(Watched)
    tensor = ad.tensor(ndarray(memory))
    del memory
    with current_stream.Stream() as stream, Gate(stream.ptr):
        taken = from_dlpack(tensor)
        del tensor, taken
        time.sleep(0.05)
        assert Watched.freed == 0
    wait_for_frees(1)


@pytest.mark.parametrize("error", [TypeError, RuntimeError])
def test_cupy_that_does_not_tell_its_stream(cupy, error):
    """Older versions take no device. The use is recorded."""

    def refuse(device_id):
        raise error

    cupy.cuda.get_current_stream = refuse
    memory = unordered(Watched)
    with current_stream.Stream() as stream, Gate(stream.ptr):
        tensor = ad.tensor(ndarray(memory))
        taken = from_dlpack(tensor)
        del memory, tensor, taken
        assert Watched.freed == 0
    wait_for_frees(1)


def test_interruption_while_cupy_is_asked(cupy):
    def refuse(device_id):
        raise KeyboardInterrupt

    cupy.cuda.get_current_stream = refuse
    array = ndarray(unordered())
    n_deleted = Shared.n_deleted
    with pytest.raises(KeyboardInterrupt):
        ad.tensor(array)
    assert Shared.n_deleted == n_deleted + 1


# --- jax --------------------------------------------------------------------------------


def test_array_of_jax_is_released_after_its_consumer():
    """jax has no current stream to tell: each use is recorded."""
    device, reader = Jax(), Reader()
    array = device.array(unordered(Watched))
    with Gate(reader.stream.handle):
        tensor = ad.tensor(array)
        tensor.__dlpack__(stream=reader.stream.handle)
        reader.read(tensor.data_ptr)
        del array, tensor
        time.sleep(0.05)
        assert Watched.freed == 0
    assert reader.result() == NEW.tolist()
    wait_for_frees(1)


def test_array_that_jax_is_done_with_is_released_at_once():
    """XLA drops what it took after its own work, and the stream that it named only waits."""
    device = Jax()
    tensor = ad.tensor(device.array(unordered(Watched)))
    taken = device.from_dlpack(tensor)
    del tensor
    device.compute.synchronize()
    del taken
    assert Watched.freed == 1


def test_pending_array_of_jax_that_goes_back_is_released_when_it_is_ready():
    device = Jax()
    with Gate(device.compute.handle):
        tensor = ad.tensor(device.array(unordered(Watched)))
        device.from_dlpack(tensor)
        del tensor
        time.sleep(0.05)
        assert Watched.freed == 0
    wait_for_frees(1)
