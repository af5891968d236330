"""datetime64 and timedelta64 with NaT, and elements in the other byte order: what an array
interface (or a buffer) can say and a tensor can not. NumPy and pyarrow are the oracles."""

import sys

import pytest
from loops import looped
from peer import Peer
from type_checks import refused

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pl = Peer("polars")

NAT = np.iinfo("i8").min
UNITS = ("s", "ms", "us", "ns")
KINDS = {"M": pa.timestamp, "m": pa.duration}
FOREIGN = ">" if sys.byteorder == "little" else "<"

every_time = pytest.mark.parametrize(
    "dtype", [f"{kind}8[{unit}]" for kind in "Mm" for unit in UNITS]
)


def times(dtype, *values):
    return np.array(values or [0, 1, -5, NAT, 10**9], "i8").view(dtype)


def type_of(dtype):
    return KINDS[dtype[0]](dtype[3:-1])


# --- datetime64, timedelta64 -------------------------------------------------------------


@every_time
@pytest.mark.parametrize("copy", [None, False, True])
def test_times_and_nat(dtype, copy):
    data = times(dtype)
    array = ad.array(data, copy=copy)
    theirs = pa.array(array)
    assert theirs.type == type_of(dtype)
    assert theirs.equals(pa.array(data)) and theirs.null_count == 1
    assert (array.buffers[1].data_ptr == data.ctypes.data) is (copy is not True)
    # NaT is still there, behind the bitmap
    assert np.frombuffer(array.buffers[1], "i8").tolist() == data.view("i8").tolist()


@every_time
def test_times_without_nat_have_no_bitmap(dtype):
    data = times(dtype, 1, 2, 3)
    array = ad.array(data, copy=False)
    assert array.validity is None and array.null_count == 0
    assert pa.array(array).to_numpy(zero_copy_only=False).tolist() == data.tolist()
    assert ad.array(data[:0]).to_pylist() == []


@every_time
def test_times_come_back_as_they_were(dtype):
    """By the plain numbers, with NaT where there is a null."""
    data = times(dtype)
    array = ad.array(data)
    for source in (array, ad.array(pa.array(array)), ad.array(pa.array(data))):
        values = ad.tensor(source.view("int64"), nulls="fill", fill_value=NAT)
        assert np.asarray(values).view(dtype).tobytes() == data.tobytes()
    full = ad.array(data[:3])
    assert np.asarray(full.view("int64")).view(dtype).tobytes() == data[:3].tobytes()
    assert np.shares_memory(np.asarray(full.view("int64")), data)
    series = pl.Series(data[:3]) if dtype != "M8[s]" and dtype != "m8[s]" else None
    if series is not None:
        assert ad.array(series).schema == ad.schema(type_of(dtype))


@every_time
@pytest.mark.parametrize("step", [2, -1, -2])
def test_strided_times(dtype, step):
    data = times(dtype)[::step]
    assert pa.array(ad.array(data)).equals(pa.array(np.ascontiguousarray(data)))
    assert refused(ad.array, data, copy=False).reason == "strides"


@pytest.mark.parametrize("n", [1, 7, 8, 9, 63, 64, 65])
def test_every_bit_of_the_bitmap(n):
    for i in range(n):
        values = np.arange(n)
        values[i] = NAT
        array = ad.array(values.view("M8[us]"))
        assert array.null_count == 1 and array.count_nulls() == 1
        assert [k for k in range(n) if array[k : k + 1].to_pylist() == [None]] == [i]


def test_unaligned_times():
    block = bytearray(8 * 4 + 1)
    data = np.frombuffer(block, "M8[us]", count=4, offset=1)
    data[:] = times("M8[us]", 1, NAT, 3, 4)
    assert pa.array(ad.array(data)).equals(pa.array(data.copy()))


def test_rows_of_times():
    data = times("M8[us]", 1, 2, NAT, 4, 5, 6).reshape(3, 2)
    array = ad.array(data, copy=False)
    theirs = pa.array(array)
    assert theirs.type == pa.fixed_shape_tensor(pa.timestamp("us"), [2])
    assert theirs.storage.flatten().equals(pa.array(data.ravel()))
    assert array.children[0].null_count == 1
    assert ad.array(data.T[:, :2]).children[0].null_count == 1
    turned = ad.array(data.reshape(3, 1, 2).transpose(0, 2, 1), copy=False)
    assert turned.children[0].null_count == 1


@every_time
def test_a_tensor_of_times_is_refused(dtype):
    for source in (times(dtype), ad.array(times(dtype)), pa.array(times(dtype))):
        error = refused(ad.tensor, source)
        assert error.reason == "dtype" and '.view("int64")' in error.hint
    error = refused(ad.array, times(dtype)[0])
    assert error.reason == "ndim" and ".reshape(1)" in error.hint
    assert (
        ad.array(times(dtype)[0].reshape(1)).to_pylist() == ad.array(times(dtype)[:1]).to_pylist()
    )
    assert refused(ad.array, times(dtype)[0].reshape(())).reason == "ndim"


# The coarsest unit that keeps the values, where one does.
OTHER_UNITS = {
    "M8[D]": "s",
    "M8[h]": "s",
    "M8[Y]": "s",
    "m8[W]": "s",
    "m8[2s]": "s",
    "M8[10ms]": "ms",
    "M8[25us]": "us",
    "m8[7ns]": "ns",
    "M8[ps]": "ns",
    "m8[fs]": "ns",
    "M8[as]": "ns",
    "m8[Y]": None,  # of no known length
    "m8[M]": None,
    "M8": None,
    "m8": None,
}


@pytest.mark.parametrize(("dtype", "unit"), OTHER_UNITS.items())
def test_units_without_an_arrow_unit_are_refused(dtype, unit):
    data = np.array([3, 2], "i8").view(dtype)
    error = refused(ad.array, data)
    assert error.reason == "dtype" and "unit of time" in str(error)
    # the hint
    assert '.view("int64")' in error.hint
    assert ad.array(data.view("int64")).to_pylist() == [3, 2]
    if unit is None:
        assert "astype" not in error.hint
        return
    name = f"{'datetime64' if dtype[0] == 'M' else 'timedelta64'}[{unit}]"
    assert f'.astype("{name}")' in error.hint
    assert str(ad.array(data.astype(name)).schema).endswith(f"[{unit}]")
    is_finer = dtype[3:] in ("ps]", "fs]", "as]")
    assert ("drops finer units" in error.hint) is is_finer
    assert is_finer or (data.astype(name) == data).all()


def test_types_that_are_asked_for():
    data = times("M8[us]")
    assert ad.array(data, "timestamp[us]").null_count == 1
    assert refused(ad.array, data, "timestamp[ms]").reason == "dtype"
    assert refused(ad.array, data, "int64").reason == "dtype"
    assert ad.array(data).view("duration[us]").null_count == 1
    field = pa.field("t", pa.timestamp("us"), nullable=False)
    assert refused(ad.array, data, field).reason == "nulls"
    assert not ad.array(data[:3], field).schema.nullable


def test_batches_and_frames_of_times():
    data = times("M8[us]")
    batch = ad.record_batch({"t": data, "n": np.arange(5)})
    assert pa.record_batch(batch)["t"].equals(pa.array(data))
    assert pl.DataFrame(batch)["t"].null_count() == 1
    assert pl.DataFrame(batch)["t"].to_list()[:2] == data.tolist()[:2]


# --- the other byte order -----------------------------------------------------------------

SWAPPED = ["i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]


def foreign(code, shape=(3, 4)):
    n = int(np.prod(shape)) * np.dtype(code).itemsize
    raw = np.random.default_rng(1).integers(0, 256, n, dtype="u1")
    return raw.view(FOREIGN + code).reshape(shape)


VIEWS = {
    "whole": lambda x: x,
    "turned": lambda x: x.T,
    "every second row": lambda x: x[::2],
    "backwards": lambda x: x[:, ::-1],
    "a row": lambda x: x[1],
    "a column": lambda x: x[:, 1],
    "one": lambda x: x[1:2, 1:2],
    "none": lambda x: x[:0],
    "no dimension": lambda x: x[1:2, 1:2].reshape(()),
    "repeated": lambda x: np.broadcast_to(x[0], (3, 4)),
}


@pytest.mark.parametrize("code", SWAPPED)
@looped("view", VIEWS)
def test_other_byte_order(code, view):
    data = VIEWS[view](foreign(code))
    native = data.astype(data.dtype.newbyteorder("="))
    for copy in (None, True):
        tensor = ad.tensor(data, copy=copy)
        assert tensor.shape == data.shape and not tensor.readonly
        assert np.asarray(tensor).tobytes() == native.tobytes()
    back = ad.tensor(ad.array(data))
    assert np.asarray(back).tobytes() == native.tobytes()
    error = refused(ad.tensor, data, copy=False)
    assert error.reason == "byteorder" and "newbyteorder" in error.hint
    assert refused(ad.array, data, copy=False).reason == "byteorder"


def test_order_of_a_turned_tensor():
    assert ad.tensor(foreign("i4").T).strides == (1, 4)
    assert ad.tensor(foreign("i4").T, order="C").strides == (3, 1)


def test_single_bytes_have_no_order():
    data = np.arange(3, dtype="u1")
    shown = {**data.__array_interface__, "typestr": ">u1", "descr": [("", "|u1")]}

    class Showing:
        __array_interface__ = shown

    assert ad.tensor(Showing(), copy=False).data_ptr == data.ctypes.data


@every_time
def test_times_in_the_other_byte_order(dtype):
    data = times(dtype)
    swapped = data.astype(data.dtype.newbyteorder(FOREIGN))
    for copy in (None, True):
        assert pa.array(ad.array(swapped, copy=copy)).equals(pa.array(data))
    assert refused(ad.array, swapped, copy=False).reason == "byteorder"


def test_columns_in_the_other_byte_order():
    batch = ad.record_batch({"x": foreign("i4")[0], "y": np.arange(4)})
    assert batch["x"].to_pylist() == foreign("i4")[0].tolist()


# --- what is none of it ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["S3", "U3", "O", "V4", "i4,f4", "g", "S0"])
def test_refused(dtype):
    data = np.zeros(2, dtype)
    for convert in (ad.array, ad.tensor):
        assert refused(convert, data).reason in ("dtype", "refused")
    if dtype == "i4,f4":
        assert ad.array(data["f0"].copy()).to_pylist() == [0, 0]
    if dtype == "g":
        assert "64-bit" in str(refused(ad.array, data)) or "equivalent" in str(
            refused(ad.array, data)
        )
        assert ad.array(data.astype("d")).to_pylist() == [0, 0]


def test_typestr_and_descr_that_contradict_each_other():
    data = np.arange(4)
    good = data.__array_interface__

    class Showing:
        def __init__(self, **changes):
            self.__array_interface__ = {**good, **changes}

    pairs = [
        ("<i8", "<u8"),
        ("<i8", ">i8"),
        ("<i8", "<M8[s]"),
        ("<M8[s]", "<M8[ms]"),
        ("<M8[s]", "<m8[s]"),
    ]
    for typestr, descr in pairs:
        for first, second in ((typestr, descr), (descr, typestr)):
            error = refused(ad.array, Showing(typestr=first, descr=[("", second)]))
            assert error.reason == "malformed" and "type in descr" in str(error)
        assert ad.array(Showing(typestr=descr, descr=[("", descr)])) is not None
    assert refused(ad.array, Showing(descr=[("a", "<i4"), ("b", "<i4")])).reason == "dtype"
    assert data.tolist() == [0, 1, 2, 3]
