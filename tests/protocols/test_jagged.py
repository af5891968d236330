"""Jagged tensors of torch from lists and back: values, addresses, and what is refused."""

import warnings

import pytest
from peer import Peer

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
torch = Peer("torch")

LISTS = [[0, 1], [], [2, 3, 4, 5]]


def jagged(values, offsets=(0, 2, 2, 6), **options):
    return torch.nested.nested_tensor_from_jagged(values, torch.tensor(offsets), **options)


def jagged_class():
    return type(jagged(torch.arange(6)))


def convert(x, **options):
    return ad.convert(x, jagged_class(), **options)


def lists(x):
    return [part.tolist() for part in x.unbind()]


def refusal(ask):
    with pytest.raises(ad.ExchangeError) as info:
        ask()
    return info.value


# --- from torch ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int64", "float32", "bool", "bfloat16", "complex64"])
def test_a_jagged_tensor_is_a_column_of_lists(dtype):
    values = torch.arange(6).to(getattr(torch, dtype))
    x = jagged(values)
    column = ad.array(x)
    assert column.to_pylist() == lists(x)
    assert column.schema.format == "+L"
    assert column.buffers[1].data_ptr == x.offsets().data_ptr()
    assert ad.tensor(column.children[0]).data_ptr == values.data_ptr()
    back = convert(column)
    assert lists(back) == lists(x) and back.dtype == x.dtype
    assert back.values().data_ptr() == values.data_ptr()
    assert back.offsets().data_ptr() == x.offsets().data_ptr()


def test_values_of_several_dimensions():
    values = torch.arange(24.0).reshape(6, 2, 2)
    column = ad.array(jagged(values), copy=False)
    assert ad.tensor(column.children[0]).data_ptr == values.data_ptr()
    back = convert(column)
    assert lists(back) == lists(jagged(values)) and back.values().data_ptr() == values.data_ptr()


def test_offsets_of_32_bits():
    offsets = torch.tensor([0, 2, 2, 6], dtype=torch.int32)
    x = torch.nested.nested_tensor_from_jagged(torch.arange(6), offsets)
    column = ad.array(x, copy=False)
    assert column.schema.format == "+l" and column.to_pylist() == LISTS
    assert column.buffers[1].data_ptr == offsets.data_ptr()


def test_other_ways_in():
    x = jagged(torch.arange(6))
    assert ad.protocols(x) == ("torch.nested", "__dlpack__")
    assert ad.protocols(x, probe=True) == ("torch.nested",)
    assert ad.convert(x, pa.Array).to_pylist() == LISTS
    assert ad.record_batch({"x": x})["x"].to_pylist() == LISTS
    assert [batch.to_pylist() for batch in ad.array_stream(x)] == [LISTS]
    copied = ad.array(x, copy=True)
    assert copied.to_pylist() == LISTS
    assert copied.children[0].buffers[1].data_ptr != x.values().data_ptr()
    assert ad.array(jagged(torch.zeros(0), [0])).to_pylist() == []


def test_lists_of_one_length_are_a_tensor():
    x = jagged(torch.arange(6), [0, 3, 6])
    assert ad.tensor(x).shape == (2, 3) and ad.tensor(x).data_ptr == x.values().data_ptr()
    assert ad.convert(x, torch.Tensor).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert refusal(lambda: ad.tensor(jagged(torch.arange(6)))).reason == "dtype"


def test_a_gradient_is_refused():
    x = torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged, requires_grad=True)
    with torch.no_grad():  # its values() require none here
        error = refusal(lambda: ad.array(x))
    assert error.reason == "requires_grad" and "x.detach()" in error.hint
    assert ad.array(x.detach()).to_pylist() == [[1.0, 1.0]]
    error = refusal(lambda: ad.array(jagged(torch.ones(6).cfloat().conj())))
    assert error.reason == "conjugate"


def test_gaps_between_lists_are_refused():
    starts, lengths = torch.tensor([0, 1]), torch.tensor([2, 3])
    x = torch.nested.narrow(torch.arange(8).reshape(2, 4), 1, starts, lengths, layout=torch.jagged)
    error = refusal(lambda: ad.array(x))
    assert error.reason == "strides" and "x.contiguous()" in error.hint
    assert ad.array(x.contiguous()).to_pylist() == [[0, 1], [5, 6, 7]]


def test_another_dimension_is_refused():
    x = jagged(torch.arange(12).reshape(2, 6), jagged_dim=2)
    error = refusal(lambda: ad.array(x))
    assert error.reason == "strides" and "x.transpose(1, 2)" in error.hint
    column = ad.array(x.transpose(1, 2))
    assert column.to_pylist() == [[[0, 6], [1, 7]], [], [[2, 8], [3, 9], [4, 10], [5, 11]]]


@pytest.mark.parametrize("offsets", [[0, 9], [2, 8], [0, -1], [0, 5, 2, 6]])
def test_wrong_offsets_are_refused(offsets):
    with pytest.raises(ad.InvalidArrowError):
        ad.array(jagged(torch.arange(6), offsets))


def test_strided_values_are_copied():
    x = jagged(torch.arange(12)[::2])
    assert ad.array(x).to_pylist() == [[0, 2], [], [4, 6, 8, 10]]
    assert refusal(lambda: ad.array(x, copy=False)).reason == "strides"


def test_the_strided_layout_is_refused_with_a_way():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch prefers the jagged layout as well
        x = torch.nested.nested_tensor([torch.ones(2), torch.ones(1)])
    error = refusal(lambda: ad.array(x))
    assert error.reason == "refused" and "layout=torch.jagged" in error.hint
    way = torch.nested.as_nested_tensor(x.unbind(), layout=torch.jagged)
    assert ad.array(way).to_pylist() == [[1.0, 1.0], [1.0]]
    error = refusal(lambda: ad.from_dlpack(way))
    assert error.reason == "refused" and "arrowdev.array(x)" in error.hint
    assert refusal(lambda: ad.array(torch.eye(2).to_sparse())).hint is None


# --- to torch -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
@pytest.mark.parametrize("values", ["int8", "int64", "float32"])
def test_lists_are_shared(kind, values):
    column = pa.array(LISTS, kind(pa.type_for_alias(values)))
    x = convert(column, copy=False)
    assert lists(x) == LISTS
    assert x.values().data_ptr() == column.values.buffers()[1].address
    assert x.offsets().data_ptr() == column.buffers()[1].address
    assert ad.array(x).into(pa.Array).equals(column)
    copied = convert(column, copy=True)
    assert lists(copied) == LISTS and copied.values().data_ptr() != x.values().data_ptr()
    assert ad.array(column).into(jagged_class()).values().data_ptr() == x.values().data_ptr()


def test_slices_have_other_offsets_over_the_same_values():
    column = pa.array([[9], *LISTS, [8]])
    x = convert(column.slice(1, 3))
    assert lists(x) == LISTS
    assert x.values().data_ptr() == column.values.buffers()[1].address + 8
    assert len(x.values()) == 6
    error = refusal(lambda: convert(column.slice(1, 3), copy=False))
    assert error.reason == "copy" and "begin at value 1" in str(error)
    assert lists(convert(column.slice(0, 2), copy=False)) == [[9], [0, 1]]
    assert lists(convert(pa.array([[None], [1]]).slice(1))) == [[1]]


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_no_lists(kind):
    x = convert(pa.array([], kind(pa.int8())))
    assert x.shape[0] == 0 and lists(x) == [] and x.dtype == torch.int8
    assert lists(convert(pa.array([[]], kind(pa.int8())))) == [[]]


def test_rows_of_one_length_within_lists():
    column = pa.array([[[1, 2], [3, 4]], [[5, 6]]])
    assert lists(convert(column)) == column.to_pylist()
    assert refusal(lambda: convert(pa.array([[[1, 2], [3]]]))).reason == "dtype"


@pytest.mark.parametrize("column", [[[1], None], [[1], [None]]])
def test_nulls_are_refused(column):
    error = refusal(lambda: convert(pa.array(column)))
    assert error.reason == "nulls" and "drop or fill" in error.hint


def test_other_columns_are_refused():
    for column in (pa.array([1, 2]), pa.array([[1, 2]], pa.list_(pa.int64(), 2))):
        error = refusal(lambda column=column: convert(column))
        assert error.reason == "dtype" and "torch.Tensor" in error.hint
        assert ad.convert(column, torch.Tensor).tolist() == column.to_pylist()
    views = pa.array([[1, 2]], pa.list_view(pa.int64()))
    error = refusal(lambda: convert(views))
    assert error.reason == "dtype" and "pyarrow.array(x.to_pylist())" in error.hint
    assert lists(convert(pa.array(views.to_pylist()))) == [[1, 2]]


def test_other_sources():
    pl, pd = Peer("polars"), Peer("pandas")
    assert lists(convert(pl.Series(LISTS))) == LISTS
    assert lists(convert(pd.Series(LISTS))) == LISTS
    assert lists(convert(jagged(torch.arange(6)))) == LISTS
    assert lists(convert(pa.array([[True, False], []]))) == [[True, False], []]
    batches = ad.array_stream(pa.table({"x": LISTS})).into({"x": jagged_class()})
    assert [lists(batch["x"]) for batch in batches] == [LISTS]


def test_a_warning_of_values_that_are_read_only():
    values = np.arange(6)
    values.flags.writeable = False
    offsets = np.array([0, 2, 2, 6])
    column = ad.Array.from_buffers(
        "large_list<int64>", 3, [None, offsets], children=[ad.array(values)]
    )
    with pytest.warns(UserWarning, match="read-only") as record:
        assert lists(convert(column)) == LISTS
    assert record[0].filename == __file__
