"""A producer of the software device frees its memory also where malloc has none."""

import sys

import c_library
import pyarrow as pa

import arrowdev as ad
from arrowdev.testing import ArrayProducer, software_device

malloc = c_library.FailingMalloc(sys.argv[1])
malloc.watch_library(sys.modules["arrowdev.testing._device"].__file__)

with software_device() as device:
    before = device.live().allocations
    failed = 0
    for n in range(40):
        queue = device.queue()
        producer = ArrayProducer(ad.array(pa.array([1, None, 3])), queue, with_event=False)
        array = ad.array(producer)
        malloc.arm(n)
        del array
        failed += malloc.arm(-1) > n
        queue.synchronize()
        device.synchronize()
        del producer, queue
        assert device.live().allocations == before, n
    assert failed > 0
print("end of the script")
