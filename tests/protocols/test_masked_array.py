"""NumPy's masked arrays: the mask becomes validity, or an error says why not."""

import gc
import sys
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arrowdev as ad


def masked(data, mask, **kwargs):
    return np.ma.masked_array(data, mask, **kwargs)


def test_mask_becomes_validity():
    source = masked([1, 2, 3, 4], [False, True, False, True])
    column = ad.array(source)
    assert column.null_count == 2
    assert column.to_pylist() == [1, None, 3, None]
    assert column.buffers[1].data_ptr == source.data.ctypes.data


def test_protocols_lists_masked_array():
    assert any("MaskedArray" in name for name in ad.protocols(masked([1], [True])))


@pytest.mark.parametrize(
    "mask", [np.ma.nomask, False, [False] * 3], ids=["nomask", "False", "all False"]
)
def test_empty_mask_means_no_nulls(mask):
    source = masked([1, 2, 3], mask)
    column = ad.array(source)
    assert column.null_count == 0
    assert column.to_pylist() == [1, 2, 3]
    assert ad.tensor(source).data_ptr == source.data.ctypes.data


def test_full_mask_means_all_null():
    assert ad.array(masked([1, 2, 3], True)).to_pylist() == [None] * 3


def test_no_rows():
    assert ad.array(masked([], [])).to_pylist() == []
    assert len(ad.array(masked(np.zeros((0, 3)), np.zeros((0, 3), bool)))) == 0


def test_scalar():
    assert ad.array(masked(5, False)).to_pylist() == [5]
    assert ad.array(np.ma.masked).null_count == 1


@pytest.mark.parametrize("code", ["b", "H", "i", "Q", "e", "f", "d"])
def test_types(code):
    source = masked(np.arange(5).astype(code), [True, False, False, True, False])
    assert ad.array(source).to_pylist() == [None, 1, 2, None, 4]


def test_bool():
    source = masked([True, False, True], [False, False, True])
    column = ad.array(source)
    assert column.to_pylist() == [True, False, None]


def test_subclass():
    class Mine(np.ma.MaskedArray):
        pass

    source = masked([1, 2], [False, True]).view(Mine)
    assert ad.array(source).to_pylist() == [1, None]


def test_class_of_another_module():
    class MaskedArray:
        data = np.arange(3)
        mask = np.array([True, True, True])

    with pytest.raises(TypeError):
        ad.array(MaskedArray())


def test_hard_mask_and_shared_mask():
    source = masked([1, 2, 3], [False, True, False], hard_mask=True)
    column = ad.array(source)
    source.mask[0] = True  # a later change does not reach the bitmap
    assert column.to_pylist() == [1, None, 3]


def test_strided_mask():
    mask = np.array([True, False, False, False, True, False])
    source = masked(np.arange(6), mask)[::2]
    assert not source.mask.flags.c_contiguous
    assert ad.array(source).to_pylist() == [None, 2, None]


def test_tensor_refuses_nulls():
    source = masked([1, 2, 3], [False, True, False])
    with pytest.raises(ad.ExchangeError) as info:
        ad.tensor(source)
    assert info.value.reason == "nulls"
    assert memoryview(ad.tensor(source, nulls="ignore")).tolist() == [1, 2, 3]
    filled = ad.tensor(source, nulls="fill", fill_value=9)
    assert memoryview(filled).tolist() == [1, 9, 3]


def test_dlpack_has_no_masks():
    source = masked([1, 2, 3], [False, True, False])
    with pytest.raises(ad.ExchangeError) as info:
        ad.from_dlpack(source)
    assert info.value.reason == "nulls"
    for plain in (np.ma.masked_array([1, 2, 3]), masked([1, 2, 3], [False] * 3)):
        tensor = ad.from_dlpack(plain, copy=False)
        assert tensor.data_ptr == plain.ctypes.data and tensor.shape == (3,)
        assert ad.from_dlpack(plain, copy=True).data_ptr != plain.ctypes.data


def test_nothing_is_masked_in_the_matrix():
    source = masked(np.arange(6).reshape(2, 3), np.zeros((2, 3), bool))
    assert ad.tensor(source).shape == (2, 3)
    assert len(ad.array(source)) == 2


def test_masked_rows_of_matrix():
    source = masked(np.arange(6).reshape(3, 2), [[False] * 2, [True] * 2, [False] * 2])
    column = ad.array(source)
    assert len(column) == 3
    assert column.null_count == 1
    assert column.validity.to_pylist() == [True, False, True]


def test_partly_masked_rows_are_refused():
    source = masked(np.arange(6).reshape(3, 2), [[False, False], [True, False], [False, False]])
    for convert in (ad.array, ad.tensor):
        with pytest.raises(ad.ExchangeError, match=r"row 1 .*masked in part") as info:
            convert(source)
        assert info.value.reason == "nulls"
        assert "filled" in info.value.hint


def test_partly_masked_rows_are_filled_or_ignored():
    data = np.arange(24).reshape(2, 3, 4)
    mask = data % 5 == 0
    for array in (np.ma.array(data, mask=mask), np.ma.array(data, mask=mask)[:, ::-1, ::2]):
        filled = np.asarray(ad.tensor(array, nulls="fill", fill_value=-1))
        assert (filled == array.filled(-1)).all() and (filled == -1).any()
        assert (np.asarray(ad.tensor(array, nulls="ignore")) == array.data).all()
        for options in ({}, {"nulls": "fill", "fill_value": -1, "copy": False}):
            with pytest.raises(ad.ExchangeError, match="masked in part"):
                ad.tensor(array, **options)
    ignored = np.ma.array(data, mask=mask)
    assert ad.tensor(ignored, nulls="ignore", copy=False).data_ptr == data.ctypes.data
    for kind, value, error in [
        ("i4", 1.5, TypeError),  # which NumPy rounds
        ("i1", 300, (OverflowError, TypeError)),
        ("?", "False", TypeError),
        ("f4", "1", TypeError),
    ]:
        with pytest.raises(error):
            ad.tensor(ignored.astype(kind), nulls="fill", fill_value=value)
    assert data.tolist() == np.arange(24).reshape(2, 3, 4).tolist()


def test_mask_of_wrong_type_is_refused():
    class Odd(np.ma.MaskedArray):
        mask = times = np.zeros(2, "M8[s]")

    source = np.zeros(2).view(Odd)
    alive = weakref.ref(Odd.times)
    with pytest.raises(ad.ExchangeError, match="does not fit"):
        ad.array(source)
    Odd.mask = Odd.times = None
    gc.collect()
    assert alive() is None


def test_type_without_equivalent_is_final_error():
    for dtype in ["M8[D]", "m8[h]", "S3", "O", "g", [("a", "i4"), ("b", "f4")]]:
        source = np.ma.masked_all(3, dtype)
        for convert in (ad.array, ad.tensor):
            with pytest.raises(ad.ExchangeError) as info:
                convert(source)
            assert info.value.reason == "dtype"


def test_data_without_a_buffer():
    class Listed(np.ma.MaskedArray):
        data = property(lambda self: [1, 2])

    for convert in (ad.array, ad.tensor):
        with pytest.raises(ad.ExchangeError, match="the data of a masked array cannot be") as info:
            convert(np.ma.array([1, 2]).view(Listed))
        assert info.value.reason == "dtype" and isinstance(info.value.__cause__, TypeError)


def test_times():
    for dtype in ("M8[us]", ">m8[us]"):
        source = masked(np.arange(3).astype(dtype), [True, False, False])
        array = ad.array(source)
        assert array.null_count == 1
        assert [str(value)[-14:] for value in array.to_pylist()[1:]] == [
            "0:00:00.000001",
            "0:00:00.000002",
        ]
        with pytest.raises(ad.ExchangeError, match=r'\.view\("int64"\)'):
            ad.tensor(source)
    rows = masked(np.arange(4).astype("M8[us]").reshape(2, 2), [[False, False], [True, True]])
    assert ad.array(rows).null_count == 1


def test_other_byte_order():
    assert ad.array(masked(np.arange(3, dtype=">i4"), [0, 1, 0])).to_pylist() == [0, None, 2]


def test_copy():
    source = masked(np.arange(4), [True, False, False, False])
    assert ad.array(source, copy=False).buffers[1].data_ptr == source.data.ctypes.data
    copied = ad.array(source, copy=True)
    assert copied.buffers[1].data_ptr != source.data.ctypes.data
    assert copied.to_pylist() == [None, 1, 2, 3]
    with pytest.raises(ad.ExchangeError):
        ad.array(source[::-1], copy=False)
    assert ad.array(source[::-1]).to_pylist() == [3, 2, 1, None]


def test_lifetime():
    base = np.arange(4)
    source = masked(base, [True, False, False, False], copy=False)
    assert source.data.ctypes.data == base.ctypes.data
    alive = weakref.ref(base)
    column = ad.array(source)
    del base, source
    gc.collect()
    assert alive() is not None
    assert column.to_pylist() == [None, 1, 2, 3]
    del column
    gc.collect()
    assert alive() is None


def test_reference_counts_are_restored():
    source = masked(np.arange(6).reshape(3, 2), [[True] * 2, [False] * 2, [False] * 2])
    partly = masked(np.arange(4).reshape(2, 2), [[True, False], [False] * 2])
    objects = [source, partly, source.data.base, partly.data.base]
    before = [sys.getrefcount(obj) for obj in objects]
    for _ in range(20):
        ad.array(source)
        with pytest.raises(ad.ExchangeError):
            ad.array(partly)
    gc.collect()
    assert [sys.getrefcount(obj) for obj in objects] == before


@given(st.lists(st.tuples(st.integers(-100, 100), st.booleans()), max_size=100))
def test_like_numpy(rows):
    source = masked(
        np.array([value for value, _ in rows], "i4"), np.array([bit for _, bit in rows], bool)
    )
    column = ad.array(source)
    assert column.to_pylist() == source.tolist()
    assert column.null_count == sum(bit for _, bit in rows)
