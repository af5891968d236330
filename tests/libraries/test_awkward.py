"""Nested columns of awkward: offsets, values and validity bits are shared, in both directions."""

import isolation
import pytest

import arrowdev as ad

ak = pytest.importorskip("awkward")
np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")


def places(x):
    """The addresses of the buffers of an awkward array."""
    return {buffer.ctypes.data for buffer in ak.to_buffers(x)[2].values()}


def refusal(ask):
    with pytest.raises(ad.ExchangeError) as info:
        ask()
    return info.value


COLUMNS = [
    pa.array([[1, 2], [], [3]]),
    pa.array([[1, 2], None, [3]], pa.large_list(pa.int64())),
    pa.array([[[1.5], []], [], [[2.5, None]]]),
    pa.array(["a", None, "b"]),
    pa.array([{"x": 1, "y": [1.5]}, {"x": 2, "y": []}]),
    pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)),
    pa.array([1, None, 3]),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_columns(column):
    x = ad.convert(column, ak.Array)
    assert x.to_list() == column.to_pylist()
    assert places(x) == {buffer.address for buffer in column.buffers() if buffer is not None}
    assert ad.array(x).to_pylist() == column.to_pylist()


def test_a_slice_keeps_its_offsets():
    column = COLUMNS[0].slice(1)
    x = ad.convert(column, ak.Array)
    assert x.to_list() == [[], [3]]
    assert places(x) & {column.values.buffers()[1].address}


@pytest.mark.parametrize("values", [[[1, 2], [], [3]], ["a", "bc"], [{"x": [1.5]}, {"x": []}]])
def test_arrays(values):
    x = ak.Array(values)
    column = ad.array(x)
    assert column.to_pylist() == values
    assert places(x) <= addresses(column)


def addresses(column):
    own = {buffer.data_ptr for buffer in column.buffers if buffer is not None}
    return own.union(*map(addresses, column.children))


@pytest.mark.parametrize(
    "values",
    [
        [],
        [None, None],
        [[], []],
        [1, "a", [2]],
        [1, None, "a"],
        [[1], None, [None, 2]],
        [{"x": 1}, None],
        [{}, {}],
        [b"a", b"bc"],
        [True, None, False],
    ],
    ids=repr,
)
def test_values(values):
    x = ak.Array(values)
    assert ad.array(x).to_pylist() == values
    assert ad.convert(x, pa.Array).to_pylist() == values


def test_views():
    x = ak.Array([[1, 2], [], [3]])
    mask = np.array([True, False, True])
    for view in (x[1:], x[::-1], x[[2, 0]], x[mask], x[:, :1], ak.mask(x, mask)):
        assert ad.array(view).to_pylist() == view.to_list()
    values = ak.to_buffers(x)[2]["node1-data"]
    assert ad.array(x[1:]).children[0].buffers[1].data_ptr == values[2:].ctypes.data


def test_blocks_of_awkward():
    data = np.arange(6).reshape(2, 3)
    x = ak.Array(data)
    assert ad.tensor(x).shape == (2, 3) and ad.tensor(x).data_ptr == data.ctypes.data
    assert ad.convert(x, np.ndarray, copy=False).tolist() == data.tolist()
    assert ad.array(ak.Array(np.zeros((2, 0)))).to_pylist() == [[], []]


def test_other_ways_in():
    x = ak.Array([{"x": 1, "y": [1.5]}, {"x": 2, "y": []}])
    assert ad.protocols(x) == ad.protocols(x, probe=True) == ("awkward.Array",)
    assert ad.record_batch(x)["y"].to_pylist() == [[1.5], []]
    assert ad.record_batch({"z": x})["z"].to_pylist() == x.to_list()
    assert [batch.to_pylist() for batch in ad.array_stream(x)] == [x.to_list()]
    words = ak.str.to_categorical(ak.Array(["a", "b", "a"]))
    assert ad.array(words).dictionary.to_pylist() == ["a", "b"]
    assert ad.array(words).to_pylist() == words.to_list()


def test_copies():
    x = ak.Array([[1, 2], [], [3]])
    assert ad.array(x, copy=False).to_pylist() == x.to_list()
    assert not places(x) & addresses(ad.array(x, copy=True))
    for view in (ak.Array([True, False]), x[[2, 0]], ak.Array([1, None])):
        error = refusal(lambda view=view: ad.array(view, copy=False))
        assert error.reason == "copy" and "awkward copied" in str(error)
        assert ad.array(view).to_pylist() == view.to_list()


def test_one_copy_to_awkward(caplog):
    caplog.set_level("DEBUG", "arrowdev")
    data = np.arange(6).reshape(2, 3)
    for x in (ad.tensor(data), ad.array(data)):
        caplog.clear()
        copied = ad.convert(x, ak.Array, copy=True)
        assert copied.to_list() == data.tolist() and places(copied) != {data.ctypes.data}
        assert len(caplog.messages) == 1 and caplog.messages[0].startswith("copy: ")
    every_other = ad.tensor(np.arange(6)[::2])  # its column would be a copy
    caplog.clear()
    assert places(ad.convert(every_other, ak.Array)) == {every_other.data_ptr}
    assert caplog.messages == []


@pytest.mark.parametrize(
    "x",
    [
        ak.Array([(1, 2.0)]),
        ak.Array([[(1, 2)]]),
        ak.Array([{"p": {"x": 1}}], with_name="Point"),
        ak.with_parameter(ak.Array([[1]]), "__list__", "path"),
        ak.with_parameter(ak.Array([1]), "unit", "m"),
    ],
    ids=lambda x: str(x.type),
)
def test_names_and_parameters_are_refused(x):
    error = refusal(lambda: ad.array(x))
    assert error.reason == "dtype" and "no equivalent of" in str(error)
    assert ad.array(ak.to_arrow(x, extensionarray=False)).to_pylist() is not None


def test_times():
    for type in ("M8[s]", "M8[D]", "m8[ms]"):
        x = ak.Array(np.array([0, 86_400], type))
        assert ad.array(x).to_pylist() == np.array(x).tolist()
    others = [np.array([0, "NaT"], "M8[us]"), np.array([2**40], "M8[D]")]
    for value in (*others, np.array([1], "M8[10s]"), np.array([1], "m8[25us]")):
        x = ak.Array([value])
        error = refusal(lambda x=x: ad.array(x))
        assert error.reason == "dtype" and "values_astype" in error.hint
        numbers = ak.values_astype(x, "int64")
        assert ad.array(numbers).to_pylist() == [value.astype("int64").tolist()]


def test_what_awkward_does_not_export():
    for data in (np.array([1j]), np.arange(6)[::2], np.array([1], "M8[h]")):
        error = refusal(lambda data=data: ad.array(ak.Array(data)))
        assert error.reason == "refused" and "awkward.Array refused" in str(error)


def test_virtual_arrays_are_read():
    form, length, parts = ak.to_buffers(ak.Array([[1, 2], [3]]))
    virtual = ak.from_buffers(form, length, {key: lambda key=key: parts[key] for key in parts})
    assert ad.array(virtual, copy=False).to_pylist() == [[1, 2], [3]]


def test_other_backends_are_refused():
    typed = ak.to_backend(ak.Array([[1], []]), "typetracer")
    error = refusal(lambda: ad.array(typed))
    assert error.reason == "device" and "to_backend" in error.hint


def test_without_pyarrow():
    assert "you must install pyarrow" in isolation.run("awkward_without_pyarrow")


def test_blocks():
    data = np.arange(6).reshape(2, 3)
    for x in (ad.convert(data, ak.Array), ad.convert(ad.array(data), ak.Array)):
        assert x.to_list() == data.tolist() and places(x) == {data.ctypes.data}
    assert ad.convert(np.array([True, False]), ak.Array).to_list() == [True, False]


def test_what_awkward_would_lose_is_refused():
    for column in (
        pa.array([0], pa.timestamp("s", tz="UTC")),
        pa.array([[0]], pa.list_(pa.time32("s"))),
    ):
        assert refusal(lambda column=column: ad.convert(column, ak.Array)).reason == "dtype"
    times = pa.array([86_400], pa.timestamp("s"))
    assert ad.convert(times, ak.Array).to_list() == [np.datetime64(86_400, "s")]
    error = refusal(lambda: ad.convert(COLUMNS[0], ak.Array, copy=False))
    assert error.reason == "copy"
