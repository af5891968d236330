"""Whether objects and their memory are gone."""

import gc

import pytest


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
