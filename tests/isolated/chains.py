"""Chains of owners, each made of the one before, are released on any stack."""

import sys
import threading

import numpy as np
import pyarrow as pa

import arrowdev as ad
from arrowdev.testing import software_device

FIRST = ad.tensor(np.arange(4))
COLUMN = ad.array(pa.array([1, None, 3]))
BATCH = ad.array(pa.array([{"a": 1}]))


class Capsule:
    def __init__(self, array):
        self.capsules = array.__arrow_c_device_array__()

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        return self.capsules


def pointer(x):
    return ad.Tensor.from_pointer(x.data_ptr, (4,), "int64", "cpu", owner=x)


def column(x):
    return ad.record_batch({"a": x})["a"]


def stream(batch):
    return ad.array_stream([batch])


def reader(x):
    return ad.array_stream(pa.RecordBatchReader.from_stream(x))


# The first object, and what makes the next one of it.
KINDS = {
    "owner=": (FIRST, pointer),
    "pyarrow": (COLUMN, lambda x: ad.array(pa.array(x))),
    "capsules": (COLUMN, lambda x: ad.array(Capsule(x))),
    "memoryview": (FIRST, lambda x: ad.tensor(memoryview(x))),
    "numpy": (FIRST, lambda x: ad.tensor(np.asarray(memoryview(x)))),
    "dlpack": (FIRST, lambda x: ad.tensor(np.from_dlpack(x))),
    "memoryview and owner=": (FIRST, lambda x: pointer(ad.tensor(memoryview(x)))),
    "slice and pyarrow": (COLUMN, lambda x: ad.array(pa.array(x[0:]))),
    "columns": (COLUMN, column),
    "groups": (COLUMN, lambda x: column(ad.array(pa.array(x)))),
    "schema": (COLUMN.schema, lambda x: ad.schema(pa.field(x))),
    "rechunk": (stream(COLUMN), lambda x: x.rechunk(2)),
    "generators": (stream(COLUMN), lambda x: ad.array_stream(iter(x))),
    "readers": (stream(BATCH), reader),
}


class Told(np.ndarray):
    """Memory that tells when it is released."""

    is_released = False

    def __del__(self):
        Told.is_released = True


def released(kind, n):
    """Makes a chain and releases it, with the memory that all of it is over."""
    x, make = KINDS[kind]
    tells = x is FIRST
    if tells:
        x = ad.tensor(np.arange(4).view(Told))
        Told.is_released = False
    for _ in range(n):
        x = make(x)
    assert not Told.is_released
    del x
    assert Told.is_released == tells


def used(n):
    """Memory at the end of a chain is used on a queue, which is recorded: it is freed later."""
    with software_device() as device:
        queue = device.queue()
        x = device.array([1, 2, 3])
        for _ in range(n):
            x = column(x)
        n_live = device.live()
        with queue.held():
            ad.tensor(x).__dlpack__(stream=queue.handle)
            del x
            assert device.live().allocations == n_live.allocations
        device.synchronize()
        ad.device("ext_dev:0").synchronize()
        assert device.live().allocations == n_live.allocations - 1


def read(make, start, n):
    """Reading recurses: it works, or says that the stack does not suffice."""
    x = start
    for _ in range(n):
        x = make(x)
    try:
        assert sum(len(batch) for batch in x) > 0
        print("read")
    except RecursionError as error:
        assert "join many streams" in str(error)  # noqa: PT017
        print("refused")
    except ad.ExchangeError as error:  # of another library in between
        assert n > 100 and "get_next of the stream failed" in str(error)  # noqa: PT017
        print("refused")


kind, n, stack = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def work():
    if kind == "read rechunk":
        read(lambda x: x.rechunk(2), ad.array_stream([COLUMN]), n)
    elif kind == "read readers":
        read(reader, ad.array_stream([BATCH]), n)
    elif kind == "used":
        used(n)
    else:
        released(kind, n)


if stack:
    failed = []
    threading.excepthook = lambda hooked: failed.append(hooked.exc_value)
    threading.stack_size(stack)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
else:
    work()
print("end of the script")
