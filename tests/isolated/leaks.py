"""LeakSanitizer, which is preloaded, finds no memory that the operations have lost."""

import array
import ctypes
import gc
import sys

import operations
from operations import ad, common

from arrowdev.testing import software_device

find_leaks = ctypes.CDLL(None).__lsan_do_recoverable_leak_check


def attempt(operation):
    try:
        operation(operations.Counted())
    except operations.ALLOWED:
        pass


def device_work():
    with software_device() as device:
        there = ad.array(device.array([1, None, 3]))
        for place in ("cpu", "ext_dev:1"):
            there.to(place).synchronize()
        list(ad.array_stream([there, there]).to("cpu", prefetch=1))
        device.fail_at(1)
        attempt(lambda _: there.to("cpu"))


def lose_an_export():
    common.moved(
        ad.array(array.array("q", [1])).__arrow_c_device_array__()[1], "arrow_device_array"
    )


if sys.argv[1] == "planted":
    for _ in range(10):
        lose_an_export()
    assert find_leaks() != 0
else:
    operations.ALLOWED += (ad.DeviceError,)
    for operation in operations.OPERATIONS.values():
        for _ in range(3):
            attempt(operation)
    for _ in range(3):
        device_work()
    gc.collect()
    assert find_leaks() == 0
common.end()
