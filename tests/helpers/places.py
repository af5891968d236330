"""Addresses: of inaccessible memory, and of results."""

from interface_dicts import Showing

import arrowdev as ad

NOWHERE = 0x7FFF00001000


def pointer(array):
    return array.buffers[1].data_ptr if isinstance(array, ad.Array) else array.data_ptr


def cuda_array(**changes):
    shown = {"shape": (3,), "typestr": "<i4", "data": (NOWHERE, False), "version": 3, "stream": 7}
    return Showing("__cuda_array_interface__", {**shown, **changes})
