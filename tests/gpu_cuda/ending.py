"""A process that ends while its GPU is busy, or after a kernel failed: ending.py LIBRARY HOW."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "helpers")]

import conftest  # noqa: E402  # the driver and its settings
import gpu  # noqa: E402
import libraries  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

import arrowdev as ad  # noqa: E402

name, how = sys.argv[1:]
gpu.ask(gpu.cu.cuInit, 0)
gpu.ask(gpu.cu.cuCtxSetCurrent, gpu.ask(gpu.cu.cuDevicePrimaryCtxRetain, 0))
gpu.load_kernels()
library = libraries.get(name)
stream, other = library.stream(), gpu.Stream()
source, dropped = library.make(gpu.OLD, stream), library.make(gpu.OLD, stream)


def work():
    """Everything that can be pending: data, an upload, a download, a kernel, a release."""
    late = gpu.copy_later(library.handle(stream), library.pointer(source), gpu.NEW)
    with library.on(stream):
        tensor, released = ad.tensor(source), ad.tensor(dropped)
    busy = gpu.Hold(other.handle)
    released.__dlpack__(stream=other.handle)
    del released
    sent = ad.tensor(gpu.NEW).to("cuda:0")
    big = np.zeros(1 << 18, "uint8")
    staged = ad.tensor(big).to("cuda:0", stream=other.handle)
    in_use = ad.tensor(gpu.NEW).to("cuda:0")  # of the pool
    in_use.__dlpack__(stream=other.handle)
    batches = ad.array_stream([ad.array(big)] * 4).to("cuda:0", prefetch=2, stream=other.handle)
    fetched = staged, in_use, batches, next(batches), ad.device("cuda_host:0").empty(4096)
    copy = ad.array(tensor, copy=True)
    bits = ad.tensor(ad.Array.from_buffers("bool", 4096, [None, tensor]))
    pair = ad.array(tensor).__arrow_c_device_array__()
    return late, busy, tensor, sent, fetched, copy, bits, pair


def fault():
    if gpu.IS_REAL:
        gpu.launch("fault", library.handle(stream), 16)  # writes to the address 16
    else:
        conftest.DRIVER.break_context(700)


def refused(call):
    """A failed kernel is told by each use after it, and by none as success."""
    with pytest.raises(ad.DeviceError) as caught:
        call()
    assert caught.value.code in (700, 715, 716, 717, 718, 719), caught.value


kept = work()
if how == "faulted":
    late, busy, tensor, sent, *_ = kept
    late.end()
    busy.end()
    fault()
    refused(tensor.synchronize)
    refused(lambda: tensor.to("cpu"))
    refused(lambda: sent.to("cpu"))
    refused(lambda: kept[4][0].to("cpu"))
    refused(lambda: ad.tensor(gpu.NEW).to("cuda:0"))
    refused(ad.device("cuda:0").synchronize)
elif how == "dropped":
    del kept
assert gpu.IS_REAL or conftest.DRIVER.violations() == []
print("end", flush=True)
