"""Property tests over type, shape, offset, nulls, strides; NumPy and pyarrow are the oracles."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

NUMBERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
NUMBERS += ["float16", "float32", "float64"]
ELEMENTS = [*NUMBERS, "bool", "complex64", "complex128"]
NAT = np.iinfo("i8").min

few = settings(max_examples=150)
dtypes = st.sampled_from(ELEMENTS)
numbers = st.sampled_from(NUMBERS)
extents = st.integers(0, 5)


def filled(shape, dtype, seed=0):
    """Arbitrary values; bools are 0 and 1."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    n = int(np.prod(shape)) * dtype.itemsize
    return rng.integers(0, 256, n, dtype="u1").view(dtype).reshape(shape)


def bits(array):
    return np.ascontiguousarray(array).tobytes()


@st.composite
def strided(draw, element=dtypes, least=1, most=4):
    """A view of a larger block: transposed, sliced, stepped, reversed or broadcast."""
    n = draw(st.integers(least, most))
    shape = [draw(extents) for _ in range(n)]
    base = filled([extent * 2 + 1 for extent in shape], draw(element), draw(st.integers(0, 99)))
    cut = []
    for extent in shape:
        step = draw(st.sampled_from([1, 1, 1, 2, -1]))
        start = draw(st.integers(0, 1))
        piece = slice(start, start + extent * abs(step), abs(step))
        cut.append((piece, step < 0))
    view = base[tuple(piece for piece, _ in cut)]
    view = view[tuple(slice(None, None, -1 if back else 1) for _, back in cut)]
    view = view.transpose(draw(st.permutations(range(n))))
    if draw(st.integers(0, 9)) == 0 and view.shape[0]:
        view = np.broadcast_to(view[:1], (3, *view.shape[1:]))
    return view


@st.composite
def masks(draw, n):
    kind = draw(st.sampled_from(["none", "some", "all"]))
    if kind == "some":
        return draw(st.lists(st.booleans(), min_size=n, max_size=n))
    return [kind == "none"] * n


# --- tensor -> column -> tensor ------------------------------------------------------------


@few
@given(strided(), st.booleans())
def test_round_trip_of_any_strides(data, big):
    foreign = data.astype(data.dtype.newbyteorder(">")) if big else data
    array = ad.array(foreign)
    array.validate()
    assert len(array) == data.shape[0]
    for source in (array, ad.array(array.__arrow_c_device_array__())):
        back = ad.tensor(source, copy=False)
        assert back.shape == data.shape and back.dtype == data.dtype.name
        assert bits(np.asarray(back)) == bits(data)
    try:
        array = ad.array(foreign, copy=False)
    except ad.ExchangeError as error:
        reason = error.reason
    else:
        reason = None
        assert data.size == 0 or array_address(array) == foreign.ctypes.data
    assert reason in (None, "strides", "byteorder")


def array_address(array):
    while array.children:
        array = array.children[0]
    return array.buffers[1].data_ptr


@few
@given(strided(numbers), st.integers(0, 3), st.integers(0, 3))
def test_slices_of_rows(data, start, length):
    part = slice(start, start + length)
    array = ad.array(data)[part]
    assert bits(np.asarray(ad.tensor(array, copy=False))) == bits(data[part])
    if data.ndim > 1 and data[part].size:
        theirs = pa.array(array)
        assert bits(theirs.to_numpy_ndarray()) == bits(data[part])


@few
@given(strided(), st.sampled_from("CF"))
def test_order(data, order):
    tensor = ad.tensor(data, order=order)
    assert bits(np.asarray(tensor)) == bits(data)
    flags = np.asarray(tensor).flags
    assert flags.c_contiguous if order == "C" else flags.f_contiguous


# --- columns with nulls ------------------------------------------------------------------------


@few
@given(st.data(), numbers, st.integers(0, 70), st.integers(0, 9))
def test_nulls_of_numbers(data, dtype, n, offset):
    values = filled(n, dtype)
    valid = data.draw(masks(n))
    column = pa.array(values, mask=~np.array(valid, bool))[offset:]
    n_nulls = column.null_count
    if n_nulls:
        with pytest.raises(ad.ExchangeError, match=rf"\b{n_nulls} nulls? among {len(column)}"):
            ad.tensor(column)
    else:
        assert bits(np.asarray(ad.tensor(column, copy=False))) == bits(values[offset:])
    found = np.asarray(ad.tensor(column, nulls="fill", fill_value=1))
    expected = np.where(valid, values, np.ones(n, dtype))[offset:]
    assert bits(found) == bits(expected)
    ignored = np.asarray(ad.tensor(column, nulls="ignore", copy=False))
    assert bits(ignored[valid[offset:]]) == bits(values[offset:][valid[offset:]])


@few
@given(st.data(), st.integers(0, 70), st.integers(0, 9))
def test_bits(data, n, offset):
    values = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    valid = data.draw(masks(n))
    column = pa.array(values, pa.bool_(), mask=~np.array(valid, bool))[offset:]
    found = np.asarray(ad.tensor(column, nulls="fill", fill_value=True))
    expected = [value or not ok for value, ok in zip(values, valid, strict=True)]
    assert found.tolist() == expected[offset:]


@few
@given(
    st.lists(st.one_of(st.just(NAT), st.integers(-(10**12), 10**12)), max_size=70),
    st.sampled_from(["M8[s]", "M8[ms]", "M8[us]", "M8[ns]", "m8[s]", "m8[ns]"]),
    st.sampled_from([1, 2, -1]),
    st.booleans(),
)
def test_times(values, dtype, step, big):
    data = np.array(values, "i8").view(dtype)[::step]
    source = data.astype(data.dtype.newbyteorder(">")) if big else data
    array = ad.array(source)
    array.validate()
    assert pa.array(array).equals(pa.array(np.ascontiguousarray(data)))
    assert array.null_count == int(np.isnat(data).sum())
    back = ad.tensor(array.view("int64"), nulls="fill", fill_value=NAT)
    assert bits(np.asarray(back).view(dtype)) == bits(data)


# --- lists ------------------------------------------------------------------------------------


@few
@given(
    st.data(),
    st.lists(st.integers(0, 3), min_size=0, max_size=6),
    st.sampled_from([pa.list_, pa.large_list]),
    st.integers(0, 3),
)
def test_lists(data, lengths, make, offset):
    """A matrix if and only if all lists have one length and no value is null."""
    valid = data.draw(masks(len(lengths)))
    element = st.one_of(st.integers(0, 9), st.none()) if data.draw(st.booleans()) else st.just(7)
    rows = [
        data.draw(st.lists(element, min_size=n, max_size=n)) if ok else None
        for n, ok in zip(lengths, valid, strict=True)
    ]
    column = pa.array(rows, make(pa.int32()))[offset:]
    expected = rows[offset:]
    is_matrix = (
        None not in expected
        and len({len(row) for row in expected}) <= 1
        and all(None not in row for row in expected)
    )
    if is_matrix:
        tensor = ad.tensor(column, copy=False)
        assert np.asarray(tensor).tolist() == expected
        assert bits(np.asarray(ad.tensor(ad.array(tensor)))) == bits(np.asarray(tensor))
    else:
        with pytest.raises(ad.ExchangeError) as info:
            ad.tensor(column)
        assert info.value.reason in ("nulls", "dtype")


# --- batches and matrices ---------------------------------------------------------------------


@few
@given(strided(least=2, most=2), st.sampled_from([None, "C", "F"]))
def test_matrix_to_batch_to_matrix(data, order):
    names = [str(i) for i in range(data.shape[1])]
    batch = ad.record_batch(data, names=names)
    batch.validate()
    assert len(batch) == data.shape[0]
    if not names:
        return
    for source in (batch, pa.record_batch(batch)):
        tensor = ad.tensor(source, order=order)
        assert tensor.shape == data.shape and bits(np.asarray(tensor)) == bits(data)


@few
@given(
    st.data(),
    numbers,
    st.integers(0, 20),
    st.integers(1, 5),
    st.integers(0, 9),
    st.sampled_from([None, "C", "F"]),
)
def test_batches_with_nulls(data, dtype, n, n_columns, offset, order):
    values = filled((n, n_columns), dtype)
    valid = np.array([data.draw(masks(n)) for _ in range(n_columns)], bool).T.reshape(n, n_columns)
    columns = [pa.array(values[:, i], mask=~valid[:, i]) for i in range(n_columns)]
    batch = pa.RecordBatch.from_arrays(columns, [str(i) for i in range(n_columns)])[offset:]
    expected = np.where(valid, values, np.ones_like(values))[offset:]
    filled_ = ad.tensor(batch, nulls="fill", fill_value=1, order=order)
    assert filled_.shape == expected.shape and bits(np.asarray(filled_)) == bits(expected)
    has_nulls = not valid[offset:].all()
    if has_nulls:
        with pytest.raises(ad.ExchangeError, match=r"nulls? among"):
            ad.tensor(batch, order=order)
    else:
        tensor = ad.tensor(batch, order=order)
        assert bits(np.asarray(tensor)) == bits(values[offset:])
        if len(batch):
            assert bits(batch.to_tensor(row_major=True).to_numpy()) == bits(values[offset:])
