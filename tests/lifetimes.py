"""Whether objects are gone, without a collection of everything where that is clear."""

import gc


def is_gone(reference):
    """The object of a weak reference; cycles are collected if need be."""
    if reference() is not None:
        gc.collect()
    return reference() is None
