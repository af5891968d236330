"""Libraries without an exchange API, in DLPack's direction and back: CuPy and jax.

CuPy tells its current stream, and jax has none.
"""

import gc
import sys
import threading
import time

import current_stream
import pytest
from current_stream import ExternalStream, Jax, Shared, from_dlpack, ndarray
from gpu import NEW, Gate, Memory, Reader, Stream, Watched, wait_for_frees

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
    with pytest.raises(KeyboardInterrupt):
        ad.tensor(array.memory).__dlpack__(stream=Stream().handle)


# --- how long CuPy's streams live -------------------------------------------------------


def release_after_its_stream(stream):
    """CuPy's last array goes with its stream, while work is pending there."""
    memory = unordered(Watched)
    tensor = ad.tensor(memory)
    with stream:
        taken = from_dlpack(tensor)
    gate = Gate(stream.ptr)
    del memory, tensor, stream
    gc.collect()
    return gate, taken


def test_stream_of_cupy_lives_until_the_release(no_handle_reuse):
    """Nothing is asked about a destroyed stream, which the stand-in would report."""
    before = current_stream.Stream.destroyed
    gate, taken = release_after_its_stream(current_stream.Stream())
    with gate:
        assert current_stream.Stream.destroyed == before
        del taken
        assert Watched.freed == 0
    wait_for_frees(1)
    assert current_stream.Stream.destroyed == before + 1


def test_cupys_view_of_a_stream_does_not_keep_it(standin):
    """Its number tells it from a later one, as for a stream that nobody has an object of. The
    stand-in gives the handle out again at once."""
    standin.set_handle_reuse(1)
    stream = Stream()
    _, taken = release_after_its_stream(ExternalStream(stream.handle))
    Gate.end_all()
    stream.synchronize()
    handle = stream.handle
    stream.destroy()
    later = Stream()
    assert later.handle == handle
    with Gate(later.handle):
        del taken
        time.sleep(0.05)
        assert Watched.freed == 0
    ad.device("cuda:0").synchronize()
    assert Watched.freed == 1


def test_stream_of_another_thread_is_not_cupys():
    """The current stream belongs to the thread: the number alone is kept."""
    before, stream = current_stream.Stream.destroyed, Stream()
    tensors = [ad.tensor(unordered(Watched))]
    thread = threading.Thread(target=lambda: tensors[0].__dlpack__(stream=stream.handle))
    thread.start()
    thread.join()
    tensors.clear()
    wait_for_frees(1)
    assert current_stream.Stream.destroyed == before


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
