"""Whether two objects have the same memory, by what NumPy says, not arrowdev."""

import numpy as np


def address(x):
    """The address of the first element of an object with a buffer or NumPy's interface."""
    return np.asarray(x).__array_interface__["data"][0]
