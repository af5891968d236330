"""Columns at regular distances in separate allocations, whose gaps are unmapped, are copied."""

import ctypes
import mmap

import common
import numpy as np
import pyarrow as pa

ad = common.ad
NONE, READ_WRITE = 0, 3
PRIVATE_ANONYMOUS = 0x22
PAGE = mmap.PAGESIZE

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def mapped(n, pitch, nbytes):
    """n columns, `pitch` bytes apart. No byte of the pages between them can be read."""
    block = libc.mmap(None, n * pitch, NONE, PRIVATE_ANONYMOUS, -1, 0)
    assert block != ctypes.c_void_p(-1).value, ctypes.get_errno()
    for i in range(n):
        at = block + i * pitch
        assert libc.mprotect(at, -(-nbytes // PAGE) * PAGE, READ_WRITE) == 0
        memory = (ctypes.c_double * (nbytes // 8)).from_address(at)
        yield np.ctypeslib.as_array(memory)


def allocated():
    """Every second one of nine large allocations; the others go back to the system."""
    arrays = [np.empty(1 << 17) for _ in range(9)]
    arrays.sort(key=lambda array: array.ctypes.data)
    return arrays[2:7:2]


def is_shared(batch):
    try:
        tensor = ad.tensor(batch, copy=False)
    except ad.ExchangeError as error:
        return error.reason != "copy"
    (rows, columns), (_, stride) = tensor.shape, tensor.strides
    ctypes.string_at(tensor.data_ptr, ((columns - 1) * stride + rows) * 8)
    return True


cases = [list(mapped(n, pitch, 4096)) for n in (2, 3, 5) for pitch in (2 * PAGE, 16 * PAGE)]
cases += [list(mapped(3, 2 * PAGE, PAGE - 8)), allocated()]
for columns in cases:
    for i, column in enumerate(columns):
        column[:] = np.arange(len(column)) + i
    names = [f"c{i}" for i in range(len(columns))]
    for batch in (
        ad.record_batch(columns, names=names),
        ad.record_batch(pa.record_batch([pa.array(c) for c in columns], names)),
        ad.record_batch(columns, names=names)[1:-1],
    ):
        assert not is_shared(batch) and not hasattr(batch, "__dlpack__")
        found = np.asarray(ad.tensor(batch))
        assert found.shape == (len(batch), len(columns))
        assert (np.diff(found, axis=1) == 1).all()
common.end()
