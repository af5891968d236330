"""Pickles of CUDA memory: pinned memory, events, streams in capture, missing devices."""

import copy
import pickle

import numpy as np
import pytest
from gpu import NEW, Capture, Held, Memory

import arrowdev as ad


def test_pending_data_come_back_to_the_device():
    for how in (lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy):
        with Held() as held:
            tensor = ad.tensor(held.memory)
            assert not tensor.is_ready()
            held.gate.open()
            found = how(tensor)
        assert str(found.device) == "cuda:0"
        assert np.asarray(found.to("cpu")).tolist() == NEW.tolist()


def test_array_with_nulls_and_text():
    for text in (False, True):
        values = [b"ab", b"", b"cde"] if text else [1, 2, 3]
        offsets, data = np.array([0, 2, 2, 5], "i4"), np.frombuffer(b"abcde", "u1")
        buffers = [offsets, data] if text else [np.array(values)]
        array = ad.Array.from_buffers("z" if text else "l", 3, [np.array([5], "u1"), *buffers])
        there = array.to("cuda:0")
        found = pickle.loads(pickle.dumps(there[1:]))
        assert str(found.device) == "cuda:0"
        assert found.to("cpu").to_pylist() == [None, values[2]]


def test_host_memory_out_of_band_is_pinned():
    there = ad.tensor(np.arange(1000)).to("cuda:0")
    buffers = []
    data = pickle.dumps(there, 5, buffer_callback=buffers.append)
    block = ad.tensor(np.frombuffer(buffers[0].raw(), "u1"))
    pinned = ad.Tensor.from_pointer(block.data_ptr, (8000,), "uint8", "cuda_host:0", owner=buffers)
    assert pinned.device_type == ad.DeviceType.CUDA_HOST
    found = pickle.loads(data, buffers=buffers)
    assert np.asarray(found.to("cpu")).tolist() == list(range(1000))


@pytest.mark.parametrize("kind", ["cuda_host:0", "cuda_managed:0"])
def test_kind_of_memory_is_kept(kind):
    there = ad.array(np.arange(10)).to(kind)
    buffers = []
    data = pickle.dumps(there, 5, buffer_callback=buffers.append)
    address = np.frombuffer(buffers[0].raw(), "u1").ctypes.data
    assert address == there.buffers[1].data_ptr  # the host can read it where it is
    found = pickle.loads(data, buffers=buffers)
    assert str(found.device) == kind
    assert found.to("cpu").to_pylist() == list(range(10))


@pytest.mark.parametrize("how", [pickle.dumps, copy.deepcopy])
def test_captured_data_are_refused(how):
    memory = Memory(NEW)
    with Capture() as capture:
        memory.stream = capture.stream.handle
        tensor = ad.tensor(memory)
        for captured in (tensor, ad.array(tensor)):
            with pytest.raises(ad.ExchangeError) as refusal:
                how(captured)
            assert refusal.value.reason == "capture" and refusal.value.hint
        memory.stream = None


def test_device_that_is_not_there():
    there = ad.array(np.arange(10)).to("cuda:0")
    function, (*parts, _) = there.__reduce_ex__(4)
    memories = tuple(m and m.__reduce_ex__(4)[1][0] for m in parts[3])
    with pytest.raises(ad.ExchangeError, match=r"cuda:31.*unpickle_on"):
        function(*parts[:3], memories, (2, 31))
    with ad.unpickle_on("cpu"):
        assert function(*parts[:3], memories, (2, 31)).to_pylist() == list(range(10))
