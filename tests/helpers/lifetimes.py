"""Checks whether objects and their memory are released."""

import gc

import pytest

import arrowdev as ad


def is_gone(reference):
    """Whether the object of a weak reference is gone. Collects cycles if it is still alive."""
    if reference() is not None:
        gc.collect()
    return reference() is None


def skip_if_sanitized():
    """Skips the test under AddressSanitizer, which delays frees and has its own allocator."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        if "libasan" in file.read():
            pytest.skip("not measured under a sanitizer")


def settled(device):
    """live() of the device, after deferred releases are drained and no work is pending."""
    gc.collect()
    for index in range(device.n_devices):
        ad.device(f"ext_dev:{index}").synchronize()
    device.synchronize(timeout=20)
    return device.live()
