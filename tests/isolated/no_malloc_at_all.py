"""Fails all of arrowdev's own malloc calls from one on, during copies to a device."""

import gc
import sys

import c_library
import common
import numpy as np

import arrowdev as ad
from arrowdev.testing import software_device

(library,) = sys.argv[1:]
malloc = c_library.FailingMalloc(library)
malloc.watch_library(sys.modules["arrowdev._core"].__file__)
malloc.last(1)
with software_device() as device:
    device.set_memory_limit(1 << 20)
    array = ad.array(np.arange(50))
    array.to("ext_dev:0").synchronize()
    gc.collect()
    device.synchronize()
    before = device.memory_left()
    failed = 0
    for n in range(100):
        copied = None
        malloc.arm(n)
        try:
            copied = array.to("ext_dev:0")
        except MemoryError:
            pass
        finally:
            malloc.arm(-1)
        failed += copied is None
        if copied is not None:
            break
        gc.collect()
        device.synchronize()
        assert device.memory_left() == before, n
assert copied is not None and failed > 5
print(f"{failed} MemoryErrors")
common.end()
