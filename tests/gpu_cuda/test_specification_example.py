"""The producer of the specification's example, with the CUDA runtime, and arrowdev as consumer."""

import ctypes
import gc

import arrow_ctypes as ac
import c_library
import numpy as np
import pytest
from gpu import Gate, Pinned, Stream, ask, cu

import arrowdev as ad

VALUES = np.arange(64, dtype="int32") * 3 + 1


@pytest.fixture(scope="module")
def producer():
    library = ctypes.CDLL(str(c_library.build("runtime_producer", flags=["-UNDEBUG", "-ldl"])))
    library.allocate.restype = ctypes.c_void_p
    library.allocate.argtypes = [ctypes.c_int64]
    pointer = ctypes.c_void_p
    library.export_int32.argtypes = [pointer, pointer, ctypes.c_int64, pointer]
    return library


def test_int32_device_array(producer):
    """The array comes in with its event, which the copy to the host waits for."""
    stream, source = Stream(), Pinned(VALUES)
    memory = producer.allocate(VALUES.nbytes)
    assert memory
    ask(cu.cuMemsetD8Async, memory, 0, VALUES.nbytes, stream.handle)
    ask(cu.cuStreamSynchronize, stream.handle)
    gate = Gate(stream.handle)
    ask(cu.cuMemcpyAsync, memory, int(source.pointer), VALUES.nbytes, stream.handle)
    struct = ac.keep(ac.ArrowDeviceArray())
    producer.export_int32(memory, stream.handle, len(VALUES), ac.address(struct))

    n_before = producer.releases()
    schema = ac.capsule(ac.SchemaNode("i", flags=0), "arrow_schema")
    array = ad.array((schema, ac.capsule(struct, "arrow_device_array")))
    assert struct.array.release is None  # moved
    assert str(array.device) == "cuda:0" and array.buffers[1].data_ptr == memory
    assert array.sync_event is not None and not array.is_ready()

    gate.open()
    assert array.to("cpu").to_pylist() == VALUES.tolist()
    assert array.is_ready() and producer.releases() == n_before
    del array
    gc.collect()
    assert producer.releases() == n_before + 1
