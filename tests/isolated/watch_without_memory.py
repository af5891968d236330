"""The search for races and the record of what queues run begin both, or none of them does."""

import gc
import sys
import weakref

import c_library

from arrowdev.testing import _device, software_device

malloc = c_library.FailingMalloc(sys.argv[1])
malloc.watch_library(_device.__file__)


class Here:
    n_calls = 0

    def __call__(self):
        self.n_calls += 1
        return 1


def race(device):
    """What was found, and the number of runs that were recorded."""
    memory = device.empty(24)
    for queue in (device.queue(), device.queue()):
        queue.fill(memory, 1)
    device.synchronize()
    return len(_device.races(0)), _device.runs(0)[0]


with software_device() as device:
    here = Here()
    malloc.arm(0)
    try:
        _device.watch(here, True, True)
    except MemoryError:
        print("MemoryError")
    finally:
        malloc.arm(-1)
    assert race(device) == (0, 0) and here.n_calls == 0
    lost = weakref.ref(here)
    del here
    gc.collect()
    assert lost() is None

    here = Here()
    _device.watch(here, True, True)
    assert race(device) == (1, 2) and here.n_calls > 0
    _device.unwatch()
print("end of the script")
