"""cuda-core in two processes: memory of a pool, and an event whose work is pending."""

import multiprocessing
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "helpers")]

import conftest  # noqa: E402  # the driver and its settings
from cuda.core import (  # noqa: E402
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    EventOptions,
)

N_BYTES = 64


def bytes_of(buffer):
    return conftest.DRIVER.peek(int(buffer.handle), N_BYTES)


def read(resource, to_child, to_parent):
    """The other process, which gets the pool with its arguments."""
    device = Device()
    device.set_current()
    buffer, event = to_child.get(timeout=20), to_child.get(timeout=20)
    assert buffer.memory_resource.is_mapped
    stream = device.create_stream()
    stream.wait(event)
    assert not event.is_done and bytes_of(buffer) != bytes([7]) * N_BYTES
    to_parent.put("waits")
    stream.sync()
    assert event.is_done and bytes_of(buffer) == bytes([7]) * N_BYTES
    buffer.close(stream)
    stream.sync()
    assert conftest.DRIVER.violations() == [] and conftest.DRIVER.stub_hits() == []


def main():
    context = multiprocessing.get_context("spawn")
    device = Device()
    device.set_current()
    options = DeviceMemoryResourceOptions(max_size=2 << 20, ipc_enabled=True)
    resource = DeviceMemoryResource(device, options)
    stream = device.create_stream()
    buffer = resource.allocate(N_BYTES, stream=stream)
    stream.sync()
    to_child, to_parent = context.Queue(), context.Queue()
    child = context.Process(target=read, args=(resource, to_child, to_parent))
    with conftest.DRIVER.held(int(stream.handle)):
        buffer.fill(7, stream=stream)
        event = stream.record(options=EventOptions(ipc_enabled=True))
        child.start()
        to_child.put(buffer)
        to_child.put(event)
        assert to_parent.get(timeout=20) == "waits"
    child.join(20)
    assert child.exitcode == 0
    buffer.close(stream)
    stream.sync()
    assert conftest.DRIVER.violations() == [] and conftest.DRIVER.stub_hits() == []
    print("end")


if __name__ == "__main__":
    main()
