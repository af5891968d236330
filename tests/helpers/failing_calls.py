"""Every call of a runtime fails in turn."""

import numpy as np
import pyarrow as pa

import arrowdev as ad

ERRORS = (ad.DeviceError, ad.ExchangeError, MemoryError)


def same(found, expected):
    """Equal bit for bit in all valid rows."""
    found = pa.array(found)
    # pyarrow requires increasing offsets in a dense union, which the sample does not have.
    found.validate(full="dense_union" not in str(expected.type))
    return found.type == expected.type and found.equals(expected)


def copy_everything(array, tensor, here, there):
    """An array, a part of it, and a tensor: to a device, between two, and back."""
    copy = ad.array(array).to(here)
    assert same(copy.slice(3, 9).to(there).to("cpu"), array.slice(3, 9))
    copy = ad.tensor(tensor).to(here)
    for found in (copy.to(there), copy):
        assert np.array_equal(np.asarray(found.to("cpu")), tensor)


def fail_every_call(fail_at, count_calls, run):
    """Calls run() with the first call of the runtime failing, then the second, and so on, until
    run() makes no call that could fail. Returns how often run() failed."""
    n_failed = 0
    for n in range(1, 1000):
        before = count_calls()
        fail_at(n)
        try:
            run()
        except ERRORS:
            n_failed += 1
        finally:
            n_made = count_calls() - before
            fail_at(0)
        if n_made < n:
            return n_failed
    raise AssertionError("it never got through")
