"""Signals end a host wait for CUDA, and the awaited work continues."""

from functools import partial

import pytest
from gpu import NEW, Gate, Held, Memory, Stream, ask, cu
from interrupts import interrupt

import arrowdev as ad


@pytest.fixture(params=[True, False], ids=["staged", "not staged"])
def staging(request, standin):
    """A copy to pageable memory either blocks in the driver or does not."""
    standin.set_staging(request.param)


WAITS = {
    "synchronize": lambda array: array.synchronize(),
    "array to host": lambda array: array.to("cpu"),
    "tensor to host": lambda array: ad.tensor(array).to("cpu"),
    "device": lambda array: ad.device("cuda:0").synchronize(),
}


@pytest.mark.usefixtures("staging")
@pytest.mark.parametrize("name", WAITS)
def test_interrupt_ends_wait(name):
    with Held() as held:
        array = ad.array(held.memory)
        interrupt(partial(WAITS[name], array))
        assert not array.is_ready()
    assert array.to("cpu").to_pylist() == NEW.tolist()
    WAITS[name](array)


def test_interrupt_ends_copy_on_a_busy_stream():
    """The stream has pending work, the data have none."""
    array, stream = ad.array(Memory(NEW)), Stream()
    array.synchronize()
    with Gate(stream.handle):
        interrupt(lambda: array.to("cpu", stream=stream))
    assert array.to("cpu", stream=stream).to_pylist() == NEW.tolist()


class Managed:
    """Managed memory to which NEW is written once the gate is opened."""

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


def test_interrupt_ends_wait_of_buffer_protocol():
    memory = Managed()
    place = (ad.DeviceType.CUDA_MANAGED, 0)
    with memory.gate:
        tensor = ad.Tensor.from_pointer(
            memory.pointer, (64,), "int64", place, owner=memory, stream=memory.stream
        )
        interrupt(partial(memoryview, tensor))
        assert not tensor.is_ready()
    assert memoryview(tensor).tolist() == NEW.tolist()
