"""Whether objects and their memory are gone."""

import gc

import pytest

import arrowdev as ad


def is_gone(reference):
    """The object of a weak reference; cycles are collected where that is not clear."""
    if reference() is not None:
        gc.collect()
    return reference() is None


def skip_if_sanitized():
    """AddressSanitizer holds what is freed back, and has an allocator of its own."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        if "libasan" in file.read():
            pytest.skip("not measured under a sanitizer")


def settled(device):
    """live(), once what was released or deferred is gone and nothing is pending."""
    gc.collect()
    for index in range(device.n_devices):
        ad.device(f"ext_dev:{index}").synchronize()
    device.synchronize(timeout=20)
    return device.live()
