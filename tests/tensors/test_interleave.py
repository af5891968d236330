"""Columns to rows and back, by copies of tensors and batches."""

import ctypes

import dlpack_ctypes as dl
import numpy as np
import pytest

import arrowdev as ad


@pytest.mark.parametrize("dtype", ["u1", "<u2", "<f4", "<f8", "<c16"])
@pytest.mark.parametrize("is_one_memory", [False, True], ids=["columns", "one memory"])
def test_interleave_turns_columns_into_rows(dtype, is_one_memory):
    """Covers column counts around a power of two and row counts around the tile size."""
    chance = np.random.default_rng(0)
    for n_rows in (1, 2, 15, 63, 64, 65, 255, 256, 257, 600):
        for n_columns in (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 130):
            data = chance.integers(0, 256, (n_columns, n_rows)).astype(dtype)
            if is_one_memory:
                rows = ad.tensor(data.T, copy=True, order="C")
            else:
                columns = [np.concatenate([column, column[:k]]) for k, column in enumerate(data)]
                batch = {str(k): column[:n_rows] for k, column in enumerate(columns)}
                rows = ad.tensor(ad.record_batch(batch), copy=True, order="C")
            assert np.array_equal(np.from_dlpack(rows), data.T), (n_rows, n_columns)


def test_interleave_splits_elements():
    data = np.arange(6000, dtype=np.uint16).reshape(2000, 3)
    for step in (-3, -1, 1, 2, 3):
        for column in (data[::step], data[::step, ::2], data.T[:, ::step]):
            for order in "CF":
                tensor = ad.tensor(column, copy=True, order=order)
                assert np.array_equal(np.from_dlpack(tensor), column)


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20])
def test_interleave_accepts_any_element_size(lanes):
    """An element of 3 bytes has no integer type but is valid."""

    def copied(shape, strides):
        given = dl.Producer(
            data=data.ctypes.data, shape=shape, strides=strides, dtype=(dl.UINT, 8, lanes)
        )
        copy = ad.tensor(ad.tensor(given), copy=True, order="C")
        assert copy.dtype == (f"uint8x{lanes}" if lanes > 1 else "uint8")
        return ctypes.string_at(copy.data_ptr, copy.nbytes)

    data = np.random.default_rng(0).integers(0, 256, (70, 66, lanes), np.uint8)
    for n in (2, 3, 66):
        assert copied((70, n), (66, 1)) == data[:, :n].tobytes()
        assert copied((66, n), (1, 66)) == data[:n].transpose(1, 0, 2).tobytes()
    assert copied((2000,), (2,)) == data.reshape(-1, lanes)[:4000:2].tobytes()
