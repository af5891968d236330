"""Signals end a wait of the host for CUDA, and what was waited for goes on."""

from functools import partial

import pytest
from gpu import NEW, Gate, Held, Memory, Stream, ask, cu
from interrupts import interrupt

import arrowdev as ad


@pytest.fixture(params=[True, False], ids=["staged", "not staged"])
def staging(request, standin):
    """A copy to pageable memory blocks in the driver, or it does not."""
    standin.set_staging(request.param)


WAITS = {
    "synchronize": lambda array: array.synchronize(),
    "array to host": lambda array: array.to("cpu"),
    "tensor to host": lambda array: ad.tensor(array).to("cpu"),
    "device": lambda array: ad.device("cuda:0").synchronize(),
}


@pytest.mark.usefixtures("staging")
@pytest.mark.parametrize("name", WAITS)
def test_wait_ends(name):
    with Held() as held:
        array = ad.array(held.memory)
        interrupt(partial(WAITS[name], array))
        assert not array.is_ready()
    assert array.to("cpu").to_pylist() == NEW.tolist()
    WAITS[name](array)


def test_copy_on_a_busy_stream_ends():
    """It is the stream that is not done, and not the data."""
    array, stream = ad.array(Memory(NEW)), Stream()
    array.synchronize()
    with Gate(stream.handle):
        interrupt(lambda: array.to("cpu", stream=stream))
    assert array.to("cpu", stream=stream).to_pylist() == NEW.tolist()


class Managed:
    """Memory of both sides that gets NEW once the gate is opened."""

    def __init__(self):
        self.stream, self.source = Stream(), Memory(NEW)
        self.pointer = int(ask(cu.cuMemAllocManaged, NEW.nbytes, 1))
        self.gate = Gate(self.stream.handle)
        ask(
            cu.cuMemcpyDtoDAsync,
            self.pointer,
            self.source.pointer,
            NEW.nbytes,
            self.stream.handle,
        )

    def __del__(self):
        self.stream.synchronize()
        ask(cu.cuMemFree, self.pointer)


def test_wait_of_the_buffer_protocol_ends():
    memory = Managed()
    place = (ad.DeviceType.CUDA_MANAGED, 0)
    with memory.gate:
        tensor = ad.Tensor.from_pointer(
            memory.pointer, (64,), "int64", place, owner=memory, stream=memory.stream
        )
        interrupt(partial(memoryview, tensor))
        assert not tensor.is_ready()
    assert memoryview(tensor).tolist() == NEW.tolist()
