"""The module's functions: array, record_batch, from_dlpack, convert, protocols, wrappers."""

import builtins
import ctypes
import inspect
import mmap
import weakref

import pytest
from dlpack_ctypes import Producer
from interface_dicts import Showing
from lifetimes import is_gone
from peer import Peer

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
arro3 = Peer("arro3.core")
jax = Peer("jax")
nanoarrow = Peer("nanoarrow")
pd = Peer("pandas", "3.0")  # the first with an Arrow interface on Series
pl = Peer("polars")
torch = Peer("torch")
tvm_ffi = Peer("tvm_ffi")

NOWHERE = 0x7FFF00001000


def pointer(array):
    return array.buffers[1].data_ptr if isinstance(array, ad.Array) else array.data_ptr


SIGNATURES = {
    ad.array: "(obj, type=None, /, *, device=None, stream=None, copy=None, validity=None)",
    ad.tensor: "(obj, /, *, stream=None, copy=None, nulls='raise', fill_value=None, order=None, "
    "readonly=None)",
    ad.from_dlpack: "(x, /, *, device=None, copy=None)",
    ad.record_batch: "(columns, /, *, names=None, copy=None)",
    ad.schema: "(obj, /)",
    ad.device: "(spec, /)",
    ad.devices: "()",
    ad.use_stream: "(stream, device=None)",
    ad.convert: "(obj, cls, *, stream=None, copy=None)",
    ad.validate: "(obj, level='structure')",
    ad.protocols: "(obj, probe=False)",
    ad.as_host: "(obj)",
    ad.as_device: "(obj)",
}


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda function: function.__name__)
def test_signature(function):
    signature = inspect.signature(function)
    plain = [item.replace(annotation=item.empty) for item in signature.parameters.values()]
    assert str(inspect.Signature(plain)) == SIGNATURES[function]
    assert inspect.getdoc(function)


def test_every_name_is_documented():
    for name in ad.__all__:
        thing = getattr(ad, name)
        assert name == "__version__" or inspect.getdoc(thing), name
    for cls in (ad.Array, ad.Tensor, ad.Buffer, ad.Schema, ad.Device):
        for name, member in vars(cls).items():
            if not name.startswith("_"):
                assert inspect.getdoc(member), f"{cls.__name__}.{name}"
                if callable(member):
                    assert inspect.signature(member), f"{cls.__name__}.{name}"


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda function: function.__name__)
def test_missing_and_unknown_arguments(function):
    if SIGNATURES[function] != "()":
        with pytest.raises(TypeError):
            function()
    with pytest.raises(TypeError):
        function(np.arange(3), unknown=1)
    with pytest.raises(TypeError):
        function(*[np.arange(3)] * 7)


# --- array(type=) ---------------------------------------------------------------------


@pytest.mark.parametrize("type", ["int64", "l", pa.int64(), ad.schema("int64"), None])
def test_type_that_fits(type):
    data = np.arange(3)
    array = ad.array(data, type)
    assert (array.schema.format, pointer(array)) == ("l", data.ctypes.data)


def test_type_relabels_what_is_no_conversion():
    field = pa.field("x", pa.int64(), nullable=False, metadata={"k": "v"})
    array = ad.array(np.arange(3), field)
    assert (array.schema.name, array.schema.nullable) == ("x", False)
    assert array.schema.metadata == {b"k": b"v"}
    names = pa.struct([pa.field("b", pa.int64(), nullable=False)])
    assert ad.array(ad.record_batch({"a": np.arange(3)}), names)["b"].to_pylist() == [0, 1, 2]


def test_type_is_asked_of_the_producer():
    source = pa.array([1, 2], pa.int16())
    assert ad.array(source, "int64").to_pylist() == [1, 2]  # pyarrow casts when asked


@pytest.mark.parametrize(
    ("type", "error", "text"),
    [
        ("int32", ad.ExchangeError, "int64, not int32.*\\.view"),
        ("utf8", ad.ExchangeError, "int64, not string"),
        (pa.list_(pa.int64()), ad.ExchangeError, "list<item: int64>"),
        (pa.dictionary(pa.int64(), pa.string()), ad.ExchangeError, "dictionary"),
        ("int65", ValueError, "not known"),
        (int, TypeError, "__arrow_c_schema__"),
    ],
)
def test_type_that_does_not_fit(type, error, text):
    with pytest.raises(error, match=text) as info:
        ad.array(np.arange(3), type)
    if error is ad.ExchangeError:
        assert (info.value.reason, info.value.dtype) == ("dtype", "int64")


def test_type_without_nulls_for_data_with_some():
    never = pa.field("x", pa.int64(), nullable=False)
    source = ad.array(pa.array([1, None, 3]))
    with pytest.raises(ad.ExchangeError, match="not nullable") as info:
        ad.array(source, never)
    assert info.value.reason == "nulls"
    assert not ad.array(source[2:], never).schema.nullable


# --- array(device=, stream=) -----------------------------------------------------------


def test_device_where_the_data_are():
    data = np.arange(3)
    for device in ("cpu", (1, 0), (1, -1), ad.device("cpu"), None):
        assert pointer(ad.array(data, device=device)) == data.ctypes.data
    tensor = ad.Tensor.from_pointer(NOWHERE, (3,), "int8", "rocm:1")
    assert ad.array(tensor, device="rocm:1").device_id == 1
    assert ad.array(tensor, device=ad.array(tensor).device).device_id == 1


def test_device_elsewhere():
    alive = weakref.ref(owner := type("Owner", (), {})())
    tensor = ad.Tensor.from_pointer(NOWHERE, (3,), "int8", "cuda:1", owner=owner)
    for make in (ad.array, ad.from_dlpack):
        with pytest.raises(ad.ExchangeError, match=r"on cuda:1.*to cuda:0") as info:
            make(tensor, device="cuda:0")
        assert (info.value.reason, info.value.device) == ("runtime", ad.device("cuda:1"))
        with pytest.raises(ad.ExchangeError, match=r"cpu.*cuda:0"):
            make(np.arange(3), device="cuda:0")
        with pytest.raises(ValueError, match="unknown device"):
            make(np.arange(3), device="gpu")
    del tensor, owner, info
    assert is_gone(alive)


def cuda_array(**changes):
    shown = {"shape": (3,), "typestr": "<i4", "data": (NOWHERE, False), "version": 3, "stream": 7}
    return Showing("__cuda_array_interface__", {**shown, **changes})


def test_stream_is_ordered_by_itself():
    for make in (ad.array, ad.tensor):
        assert make(cuda_array(), stream=7).wait(7) is None
        with pytest.raises(ad.ExchangeError) as info:
            make(cuda_array(), stream=8)
        assert info.value.reason == "event"
        with pytest.raises(ValueError, match="ambiguous"):
            make(cuda_array(), stream=0)


# --- array(validity=) ---------------------------------------------------------------------

MASK = [True, False, True, True]


@pytest.mark.parametrize(
    "validity",
    [
        np.array(MASK),
        np.array(MASK, "u1"),
        np.repeat(MASK, 2)[::2],
        pa.array(MASK),
        pa.array([False, *MASK]).slice(1),
        bytes(MASK),
        ad.array(pa.array(MASK)),
        ad.array(np.array(MASK)),
    ],
    ids=lambda value: type(value).__module__,
)
def test_validity(validity):
    data = np.arange(4)
    array = ad.array(data, validity=validity)
    assert array.to_pylist() == [0, None, 2, 3]
    assert (array.null_count, pointer(array)) == (1, data.ctypes.data)
    assert pa.array(array).to_pylist() == [0, None, 2, 3]


def test_validity_of_a_slice():
    array = ad.array(ad.array(np.arange(20))[9:13], validity=np.array(MASK))
    assert array.to_pylist() == [9, None, 11, 12]


def test_validity_of_every_layout():
    for values in (["a", "b", "c", "d"], [[1], [], [2], [3]], [{"a": i} for i in range(4)]):
        expected = [value if valid else None for value, valid in zip(values, MASK, strict=True)]
        array = ad.array(pa.array(values), validity=np.array(MASK))
        assert array.to_pylist() == expected
        assert pa.array(array).to_pylist() == expected


@pytest.mark.parametrize(
    ("validity", "error", "text"),
    [
        (np.ones(3, bool), ValueError, "one element per row: 4, not 3"),
        (np.ones((4, 1), bool), ValueError, "one dimension"),
        (np.ones(4, "f4"), TypeError, "bool or uint8, not float32"),
        (np.ones(4, "i1"), TypeError, "int8"),
        ([True] * 4, TypeError, "list speaks none"),
        (pa.array([True, None, True, True]), ad.ExchangeError, "nulls"),
    ],
)
def test_validity_that_does_not_fit(validity, error, text):
    with pytest.raises(error, match=text):
        ad.array(np.arange(4), validity=validity)


def test_validity_without_a_bitmap():
    with pytest.raises(TypeError, match="no validity bitmap"):
        ad.array(pa.RunEndEncodedArray.from_arrays([4], [1]), validity=np.array(MASK))


# --- record_batch -------------------------------------------------------------------------


def test_record_batch():
    a, b = np.arange(3), np.arange(3) / 2
    for batch in (
        ad.record_batch({"a": a, "b": b}),
        ad.record_batch([a, b], names=["a", "b"]),
        ad.record_batch((a, b), names=("a", "b")),
        ad.record_batch(ad.record_batch({"a": a, "b": b})),
    ):
        assert str(batch.schema) == "struct<a: int64, b: double>"
        assert [pointer(child) for child in batch.children] == [a.ctypes.data, b.ctypes.data]
        assert pa.record_batch(batch).to_pydict() == {"a": [0, 1, 2], "b": [0, 0.5, 1]}


@pytest.mark.parametrize(
    "source",
    [
        lambda: pa.record_batch({"a": [1, 2]}),
        lambda: pa.table({"a": [1, 2]}),
        lambda: pa.array([{"a": 1}, {"a": 2}]),
        lambda: pl.DataFrame({"a": [1, 2]}),
        lambda: pd.DataFrame({"a": [1, 2]}),
        lambda: ad.as_host(pa.record_batch({"a": [1, 2]})),
        lambda: pa.record_batch({"a": [1, 2]}).__arrow_c_device_array__(),
    ],
)
def test_record_batch_of_a_batch(source):
    assert ad.record_batch(source())["a"].to_pylist() == [1, 2]


def test_record_batch_of_several_chunks():
    table = pa.table({"a": pa.chunked_array([[1, 2], [3]])})
    assert ad.record_batch(table)["a"].to_pylist() == [1, 2, 3]


def test_record_batch_of_slices():
    batch = ad.record_batch({"a": ad.array(np.arange(10))[3:5], "b": ad.array(np.arange(5))[:2]})
    assert batch.to_pylist() == [{"a": 3, "b": 0}, {"a": 4, "b": 1}]
    assert pa.array(batch[1:]).to_pylist() == [{"a": 4, "b": 1}]
    again = ad.record_batch({"x": batch["a"], "y": batch["b"]})
    assert again[1] == {"x": 4, "y": 1}


def test_record_batch_without_columns():
    assert len(ad.record_batch({})) == 0 and ad.record_batch([], names=[]).children == ()


@pytest.mark.parametrize(
    ("args", "options", "error", "text"),
    [
        (({"a": np.arange(3), "b": np.arange(2)},), {}, ValueError, '"b" has length 2.*"a" has 3'),
        (({1: np.arange(3)},), {}, TypeError, "names of columns must be str, not int"),
        (({"a\0": np.arange(3)},), {}, ValueError, "NUL"),
        (({"a": 5},), {}, TypeError, "int speaks none"),
        (([np.arange(3)],), {}, TypeError, "needs names="),
        (([np.arange(3)],), {"names": []}, ValueError, "1 columns, but names= has 0"),
        (([np.arange(3)],), {"names": [b"a"]}, TypeError, "str, not bytes"),
        (([np.arange(3)],), {"names": 5}, TypeError, "names must be a sequence"),
        ((np.arange(3),), {}, TypeError, "is a column, not a batch"),
        ((5,), {}, TypeError, "int speaks none"),
        ((pa.array([{"a": 1}, None]),), {}, ad.ExchangeError, "no nulls at the top level"),
    ],
)
def test_record_batch_refuses(args, options, error, text):
    with pytest.raises(error, match=text):
        ad.record_batch(*args, **options)


def test_record_batch_of_several_places():
    def column(device, **options):
        return ad.Tensor.from_pointer(NOWHERE, (3,), "int8", device, **options)

    batch = ad.record_batch({"a": column("cuda:1", stream=5), "b": column("cuda:1")})
    assert (
        repr(batch)
        == "<arrowdev.Array struct<a: int8, b: int8>, length 3, on cuda:1, after stream>"
    )
    with pytest.raises(ad.ExchangeError, match='"b" is on cpu, but "a" is on cuda:1') as info:
        ad.record_batch({"a": column("cuda:1"), "b": np.arange(3)})
    assert info.value.reason == "device"
    with pytest.raises(ad.ExchangeError, match="one event for several parts") as info:
        ad.record_batch({"a": column("cuda:1", stream=5), "b": column("cuda:1", stream=6)})
    assert info.value.reason == "event"


# --- from_dlpack ------------------------------------------------------------------------


def test_from_dlpack_by_dlpack_alone():
    source = pa.array([1, 2, 3])
    tensor = ad.from_dlpack(source)
    assert isinstance(tensor, ad.Tensor) and pointer(tensor) == source.buffers()[1].address
    for other in (5, b"bytes", [1, 2], cuda_array(), ad.as_host(source)):
        with pytest.raises(TypeError, match=r"tried: .*__dlpack__;") as info:
            ad.from_dlpack(other)
        assert "__arrow" not in str(info.value)


@pytest.mark.parametrize("make", [np.asarray, ad.tensor, ad.array])
@pytest.mark.parametrize("device", [None, "cpu", (1, 0)])
@pytest.mark.parametrize("copy", [None, False, True])
def test_from_dlpack_arguments(make, device, copy):
    data = np.arange(3)
    tensor = ad.from_dlpack(make(data), device=device, copy=copy)
    assert (pointer(tensor) == data.ctypes.data) is (copy is not True)
    assert np.from_dlpack(tensor).tolist() == [0, 1, 2]


# --- convert, into ----------------------------------------------------------------------

# Class: address of the first value; None where the library decides whether to copy.
COLUMNS = {
    "builtins.memoryview": lambda x: np.asarray(x).ctypes.data,
    "np.ndarray": lambda x: x.ctypes.data,
    "torch.Tensor": lambda x: x.data_ptr(),
    "jax.Array": lambda x: x.unsafe_buffer_pointer(),
    "tvm_ffi.Tensor": lambda x: np.from_dlpack(x).ctypes.data,
    "pa.Array": lambda x: x.buffers()[1].address + x.offset * 4,
    "pa.FloatArray": lambda x: x.buffers()[1].address + x.offset * 4,
    "pa.ChunkedArray": lambda x: x.chunk(0).buffers()[1].address,
    "nanoarrow.Array": lambda x: np.asarray(x.buffers[1]).ctypes.data,
    "arro3.Array": lambda x: ad.array(x).buffers[1].data_ptr,
    "pl.Series": None,
    "pd.Series": lambda x: x.to_numpy().ctypes.data,
    "ad.Tensor": pointer,
    "ad.Array": pointer,
}
BATCHES = {
    "pa.RecordBatch": lambda x: x.column(0).buffers()[1].address,
    "pa.Table": lambda x: x.column(0).chunk(0).buffers()[1].address,
    "arro3.RecordBatch": lambda x: ad.record_batch(x).children[0].buffers[1].data_ptr,
    "pl.DataFrame": None,
    "pd.DataFrame": None,
}


def values(found):
    if isinstance(found, (ad.Tensor, memoryview)):
        return np.asarray(found).tolist()
    for name in ("to_pylist", "to_list", "tolist"):
        if hasattr(found, name):
            return getattr(found, name)()
    return np.from_dlpack(found).tolist()


def aligned(n=4):
    """jax copies what does not lie at a multiple of 64."""
    raw = np.zeros(n + 16, "f4")
    start = -raw.ctypes.data % 64 // 4
    data = raw[start : start + n]
    data[:] = np.arange(n) / 2
    return data


def the_class(name):
    library, _, cls = name.partition(".")
    return getattr(globals().get(library, builtins), cls)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("copy", [None, False, True])
@pytest.mark.parametrize("source", [ad.array, ad.tensor, pa.array, np.asarray])
def test_convert_a_column(name, copy, source):
    cls, where = the_class(name), COLUMNS[name]
    data = aligned()
    given = source(data)
    ways = [lambda: ad.convert(given, cls, copy=copy)]
    if source in (ad.array, ad.tensor):
        ways.append(lambda: given.into(cls, copy=copy))
    for way in ways:
        if where is None and copy is False:
            with pytest.raises(
                ad.ExchangeError, match="decides by itself whether to copy"
            ) as info:
                way()
            assert info.value.reason == "copy" and info.value.hint
            continue
        found = way()
        assert isinstance(found, cls)
        assert values(found) == [0, 0.5, 1, 1.5]
        if where is not None:
            assert (where(found) == data.ctypes.data) is (copy is not True)


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("copy", [None, False, True])
def test_convert_a_batch(name, copy):
    cls, where = the_class(name), BATCHES[name]
    data = aligned()
    batch = ad.record_batch({"a": data})
    if where is None and copy is False:
        with pytest.raises(ad.ExchangeError) as info:
            batch.into(cls, copy=copy)
        assert info.value.reason == "copy"
        return
    found = batch.into(cls, copy=copy)
    assert isinstance(found, cls)
    assert pa.table(found if hasattr(found, "__arrow_c_stream__") else batch).to_pydict() == {
        "a": [0, 0.5, 1, 1.5]
    }
    if where is not None:
        assert (where(found) == data.ctypes.data) is (copy is not True)


@pytest.mark.parametrize("name", COLUMNS)
def test_converted_memory_stays(name):
    cls = the_class(name)

    class Owned(np.ndarray):
        pass

    owner = aligned().view(Owned)
    alive = weakref.ref(owner)
    found = ad.convert(owner, cls)
    del owner
    assert values(found) == [0, 0.5, 1, 1.5]
    del found
    assert is_gone(alive)


@pytest.mark.parametrize(
    "name", ["pa.Array", "pa.ChunkedArray", "nanoarrow.Array", "pl.Series", "pd.Series"]
)
def test_convert_with_nulls(name):
    cls = the_class(name)
    found = ad.array(pa.array([1, None, 3])).into(cls)
    assert [value if value == value else None for value in values(ad.array(found))] == [1, None, 3]


@pytest.mark.parametrize(
    "name", ["np.ndarray", "torch.Tensor", "jax.Array", "tvm_ffi.Tensor", "builtins.memoryview"]
)
def test_convert_refuses_nulls(name):
    cls = the_class(name)
    with pytest.raises(ad.ExchangeError, match="nulls") as info:
        ad.array(pa.array([1, None, 3])).into(cls)
    assert info.value.reason == "nulls"


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (int, "how to make a builtins.int"),
        (ad.Buffer, "how to make a arrowdev.Buffer"),
        (np.ma.MaskedArray, "numpy.ndarray, not a numpy.ma.MaskedArray"),
        (pa.Int8Array, "FloatArray, not a pyarrow.lib.Int8Array"),
        (5, "must be a class such as torch.Tensor, not int"),
        ("torch.Tensor", "not str"),
        (np, "not module"),
    ],
)
def test_convert_to_something_else(cls, text):
    with pytest.raises(TypeError, match=text):
        ad.array(aligned()).into(cls)
    with pytest.raises(TypeError, match=text):
        ad.convert(aligned(), cls)


def test_convert_copies_once():
    producer = Producer()
    copied = ad.convert(producer, np.ndarray, copy=True)
    assert copied.ctypes.data != producer.managed.data
    assert producer.deleted == 1


# --- protocols -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: 5, ()),
        (lambda: "text", ()),
        (lambda: (1, 2), ()),
        (lambda: b"x", ("buffer protocol",)),
        (lambda: np.arange(3), ("__dlpack__", "__array_interface__", "buffer protocol")),
        (
            lambda: np.ma.masked_array([1]),
            ("numpy.ma.MaskedArray", "__dlpack__", "__array_interface__", "buffer protocol"),
        ),
        (lambda: pa.table({"a": [1]}), ("__arrow_c_stream__",)),
        (lambda: pl.Series([1]), ("__arrow_c_stream__",)),
        (
            lambda: pa.array([1]),
            ("__arrow_c_device_array__", "__arrow_c_array__", "__dlpack__"),
        ),
        (lambda: pa.array([1]).__arrow_c_array__(), ("a pair of capsules",)),
        (lambda: cuda_array(), ("__cuda_array_interface__",)),
        (
            lambda: ad.as_host(np.arange(3)),
            ("__arrow_c_array__", "__arrow_c_stream__"),
        ),
        (
            lambda: ad.as_device(np.arange(3)),
            ("__arrow_c_device_array__", "__arrow_c_device_stream__"),
        ),
    ],
)
def test_protocols(make, expected):
    assert ad.protocols(make()) == expected


def test_protocols_probed():
    tensor = torch.ones(2)
    assert "__cuda_array_interface__" not in ad.protocols(tensor)  # raises AttributeError
    assert ad.protocols(tensor, probe=True) == ("__dlpack_c_exchange_api__", "__dlpack__")
    assert ad.protocols(torch.ones(2, requires_grad=True), probe=True) == ()
    assert ad.protocols(np.array(["a"]), probe=True) == ()
    assert "__dlpack__" not in ad.protocols(pa.array([1, None]), probe=True)
    array = ad.array(np.arange(2))
    for name in ad.protocols(array, probe=True):
        assert name == "buffer protocol" or hasattr(array, name), name
    elsewhere = ad.array(ad.Tensor.from_pointer(NOWHERE, (2,), "int8", "cuda:0"))
    probed = ad.protocols(elsewhere, probe=True)
    assert "__arrow_c_device_array__" in probed and "__cuda_array_interface__" in probed
    assert not {"__arrow_c_array__", "__array_interface__", "buffer protocol"} & set(probed)


def test_probing_leaves_streams_and_capsules_alone():
    reader = pa.table({"a": [1, 2]}).to_reader()
    assert ad.protocols(reader, probe=True) == ("__arrow_c_stream__",)
    assert ad.array(reader)["a"].to_pylist() == [1, 2]
    pair = pa.array([1, 2]).__arrow_c_device_array__()
    assert ad.protocols(pair, probe=True) == ("a pair of capsules",)
    assert ad.array(pair).to_pylist() == [1, 2]


def test_validate():
    assert ad.validate(np.arange(3)) == ()
    assert ad.validate(pa.table({"a": [1]}), level="structure") == ()
    with pytest.raises(TypeError, match="int speaks none"):
        ad.validate(5)
    with pytest.raises(ValueError, match="level"):
        ad.validate(np.arange(3), "deep")


# --- as_host, as_device ------------------------------------------------------------------------


def test_wrappers_show_one_side():
    data = np.arange(3)
    host, device = ad.as_host(data), ad.as_device(data)
    arrow = {name for name in dir(host) if name.startswith("__arrow")}
    assert arrow == {"__arrow_c_schema__", "__arrow_c_array__", "__arrow_c_stream__"}
    arrow = {name for name in dir(device) if name.startswith("__arrow")}
    assert arrow == {
        "__arrow_c_schema__",
        "__arrow_c_device_array__",
        "__arrow_c_device_stream__",
    }
    for wrapper in (host, device):
        assert not hasattr(wrapper, "__dlpack__") and not hasattr(wrapper, "__array_interface__")
        assert "length 3" in repr(wrapper)
        assert pointer(ad.array(wrapper)) == data.ctypes.data
        assert pa.array(wrapper).to_pylist() == [0, 1, 2]
        assert ad.schema(wrapper) == ad.schema("int64")
    assert nanoarrow.Array(host).to_pylist() == [0, 1, 2]
    assert pl.Series(host).to_list() == [0, 1, 2]
    assert pa.array(host, pa.int64()).to_pylist() == [0, 1, 2]
    assert pa.array(device, pa.int64()).to_pylist() == [0, 1, 2]
    with pytest.raises(NotImplementedError, match="colour"):
        device.__arrow_c_device_array__(colour="red")
    assert device.__arrow_c_device_array__(colour=None)


def test_as_host_of_device_memory():
    tensor = ad.Tensor.from_pointer(NOWHERE, (3,), "int8", "cuda:0")
    with pytest.raises(ad.ExchangeError, match="cuda:0") as info:
        ad.as_host(tensor)
    assert (info.value.reason, info.value.device) == ("device", ad.device("cuda:0"))
    assert ad.array(ad.as_device(tensor)).device_id == 0


# --- precedence ---------------------------------------------------------------------------------

ORDER = [
    "__arrow_c_device_array__",
    "__arrow_c_array__",
    "__arrow_c_device_stream__",
    "__arrow_c_stream__",
    "__dlpack__",
    "__sycl_usm_array_interface__",
    "__cuda_array_interface__",
    "__array_interface__",
    "buffer protocol",
]


def offering(names, refusing=(), how=ValueError):
    """An object that gives the place of a protocol in ORDER, by that protocol."""
    data = {name: np.array([ORDER.index(name)], "i4") for name in names}
    calls = []

    def method(name):
        def call(self, *args, **kwargs):
            if name == "__dlpack_device__" and "__dlpack__" not in calls:
                return (1, 0)
            calls.append(name)
            if name in refusing or name == "__dlpack_device__":
                raise how(f"no {name} today")
            if name == "__dlpack__":
                return data[name].__dlpack__(max_version=kwargs.get("max_version"))
            return getattr(ad.array(data[name]), name)(*args)

        return call

    def shown(name):
        def get(self):
            calls.append(name)
            if name in refusing:
                raise how(f"no {name} today")
            base = {"shape": (1,), "typestr": "<i4", "version": 3}
            if name == "__sycl_usm_array_interface__":
                return {**base, "version": 1, "data": (NOWHERE, False), "syclobj": "level_zero"}
            if name == "__cuda_array_interface__":
                return {**base, "data": (NOWHERE, False), "stream": None}
            return {**base, "data": (data[name].ctypes.data, False)}

        return property(get)

    body = {"calls": calls, "data": data}
    for name in names:
        if name.startswith("__arrow") or name == "__dlpack__":
            body[name] = method(name)
        elif name != "buffer protocol":
            body[name] = shown(name)
    if "__dlpack__" in names:
        body["__dlpack_device__"] = method("__dlpack_device__")
    if "buffer protocol" not in names:
        return type("Many", (), body)()
    return type("Many", (bytearray,), body)(data["buffer protocol"].tobytes())


def without_device(calls):
    """__dlpack_device__ is asked by whoever needs a device."""
    return [name for name in calls if name != "__dlpack_device__"]


def place(found):
    if found.device_type == ad.DeviceType.ONEAPI:
        return "__sycl_usm_array_interface__"
    if found.device_type == ad.DeviceType.CUDA:
        return "__cuda_array_interface__"
    values = found.to_pylist()
    return "buffer protocol" if len(values) == 4 else ORDER[values[0]]


@pytest.mark.parametrize("n", range(len(ORDER)))
def test_order(n):
    source = offering(ORDER[n:])
    found = ad.array(source)
    assert place(found) == ORDER[n]
    assert len(source.calls) <= 1
    assert ad.protocols(source) == tuple(ORDER[n:])


@pytest.mark.parametrize("how", [ValueError, AttributeError, BufferError, NotImplementedError])
@pytest.mark.parametrize("n", range(1, len(ORDER)))
def test_fall_through(n, how):
    source = offering(ORDER, refusing=ORDER[:n], how=how)
    assert place(ad.array(source)) == ORDER[n]
    assert without_device(source.calls) == ORDER[: n + 1][:8]


def test_retry_after_type_error_is_still_a_refusal():
    source = offering(ORDER, refusing=ORDER[:2], how=TypeError)
    assert place(ad.array(source)) == ORDER[2]


def test_all_refuse():
    names = ORDER[:-1]
    source = offering(names, refusing=names)
    with pytest.raises(ad.ExchangeError, match=r"^Many cannot be imported: ") as info:
        ad.array(source)
    error = info.value
    assert error.reason == "refused"
    assert isinstance(error.__cause__, ValueError)
    assert str(error.__cause__) == "no __arrow_c_device_array__ today"
    positions = [str(error).index(f"{name} refused (ValueError: no ") for name in names]
    assert positions == sorted(positions)
    assert without_device(source.calls) == names


def test_all_are_absent_after_all():
    names = ORDER[:-1]
    source = offering(names, refusing=names, how=AttributeError)
    with pytest.raises(TypeError, match="Many speaks none of the protocols") as info:
        ad.array(source)
    assert all(name in str(info.value) for name in names)
    assert without_device(source.calls) == names


@pytest.mark.parametrize("final", [MemoryError, KeyboardInterrupt, ad.DeviceError, SystemExit])
def test_final_exceptions(final):
    for n in (0, 4, 6):
        source = offering(ORDER, refusing=ORDER[: n + 1], how=final)
        with pytest.raises(final):
            ad.array(source)
        assert source.calls == ORDER[:1]


@pytest.mark.parametrize(
    ("make", "reason", "hint"),
    [
        (lambda: torch.ones(3, requires_grad=True), "requires_grad", "detach"),
        (lambda: torch.ones(3, dtype=torch.complex64).conj(), "conjugate", "resolve_conj"),
        (lambda: torch.ones(3, dtype=torch.complex64).conj().imag, "negative", "resolve_neg"),
    ],
)
def test_a_lost_meaning_is_final(make, reason, hint):
    class Shadowed(torch.Tensor):
        """Offers another way in, which would not tell what is lost."""

        asked = 0

        @property
        def __array_interface__(self):
            type(self).asked += 1
            return np.zeros(3).__array_interface__

    for make_one in (make, lambda: make().as_subclass(Shadowed)):
        for way in (ad.array, ad.tensor, ad.from_dlpack):
            with pytest.raises(ad.ExchangeError, match=hint) as info:
                way(make_one())
            assert info.value.reason == reason and hint in info.value.hint
    assert Shadowed.asked == 0


# --- bits, streams ----------------------------------------------------------------------


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("start", [0, 1, 7, 8, 13])
def test_bools_become_bits_where_bits_are_asked_for(start, nulls):
    values = np.arange(30) % 3 == 0
    valid = np.arange(30) % 4 != 0
    array = ad.array(values, validity=valid) if nulls else ad.array(values)
    bits = ad.array(array[start:], "bool")
    assert bits.schema.format == "b"
    expected = [bool(v) if k or not nulls else None for v, k in zip(values, valid, strict=True)]
    assert bits.to_pylist() == pa.array(bits).to_pylist() == expected[start:]
    with pytest.raises(ad.ExchangeError, match="not bool"):
        ad.array(array, "bool", copy=False)


def test_stream_off_drops_what_would_have_to_be_waited_for():
    pending = ad.Tensor.from_pointer(NOWHERE, (2,), "int8", "cuda:0", stream=7)
    for take in (ad.tensor, ad.array):
        with pytest.raises(ad.ExchangeError, match="wait"):
            take(pending).is_ready()
        assert take(pending, stream=-1).is_ready()


def test_the_producer_is_not_asked_to_convert_when_nothing_may_be_copied():
    source = pa.array([1, 2])
    assert ad.array(source, "float64").to_pylist() == [1.0, 2.0]  # pyarrow's cast
    with pytest.raises(ad.ExchangeError, match="int64, not double"):
        ad.array(source, "float64", copy=False)


@pytest.mark.parametrize("stop", [3, 5])
def test_a_sliced_batch_is_taken_by_all(stop):
    batch = ad.record_batch({"a": np.arange(5), "b": pa.array(["u", None, "w", "x", None])})
    part = batch[1:stop]
    expected = pa.record_batch(batch).slice(1, stop - 1).to_pylist()
    assert pa.record_batch(part).to_pylist() == expected
    assert pl.DataFrame(part).to_dicts() == expected
    assert part.to_pylist() == pa.array(part).to_pylist() == expected


def test_negative_strides_into_torch():
    data = np.arange(3.0)[::-1]
    assert ad.convert(data, torch.Tensor).tolist() == [2.0, 1.0, 0.0]
    with pytest.raises(ad.ExchangeError, match="negative stride"):
        ad.convert(data, torch.Tensor, copy=False)


def test_jax_may_not_copy_unseen():
    shifted = np.arange(1001, dtype="float32")[1:]
    if shifted.ctypes.data % 64 == 0:
        shifted = shifted[1:]
    assert ad.convert(shifted, jax.Array).tolist() == shifted.tolist()
    with pytest.raises(ad.ExchangeError, match="jax copied"):
        ad.convert(shifted, jax.Array, copy=False)


# --- parts that do not fit --------------------------------------------------------------


def test_children_are_what_the_type_says():
    schema = pa.struct([("a", pa.int64())])
    with pytest.raises(ad.InvalidArrowError, match=r"^children\[0\]: the array has the format"):
        ad.Array.from_buffers(schema, 3, [None], children=[np.zeros(3, np.int8)])
    coded = pa.dictionary(pa.int8(), pa.int64())
    with pytest.raises(ad.InvalidArrowError, match=r"^dictionary: the array has the format"):
        ad.Array.from_buffers(
            coded, 1, [None, np.zeros(1, np.int8)], dictionary=np.zeros(1, np.int8)
        )


def test_batches_of_batches_end_somewhere():
    batch = np.arange(2)
    with pytest.raises(ad.InvalidArrowError, match="nested deeper than 64"):
        for _ in range(100):
            batch = ad.record_batch({"a": batch})


def test_nulls_in_a_child_are_not_relabelled_away():
    source = pa.array([{"a": 1}, {"a": None}])
    strict = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    with pytest.raises(ad.ExchangeError, match="not nullable"):
        ad.array(source, strict, copy=False)


def test_any_other_tuple_speaks_nothing():
    with pytest.raises(TypeError, match="speaks none"):
        ad.array((1, 2, 3))


def test_names_go_with_sequences():
    for columns, names in (({"a": np.arange(2)}, ["b"]), ([np.arange(2)], "a")):
        with pytest.raises(TypeError, match="names= is a sequence of str"):
            ad.record_batch(columns, names=names)


def test_chunks_without_rows_do_not_count():
    chunked = pa.chunked_array([[], [1, 2], []], pa.int64())
    assert ad.array(chunked).to_pylist() == [1, 2]
    assert ad.array(pa.chunked_array([[], []], pa.int64())).to_pylist() == []


def test_bools_of_a_byte_for_who_asks_for_bits():
    schema = ad.schema("bool").__arrow_c_schema__()
    exported, _ = ad.array(np.array([True, False])).__arrow_c_device_array__(schema)
    assert str(ad.schema(exported)) == "extension<arrow.bool8>"  # best effort


@pytest.mark.parametrize("call", ["into", "to", "count_nulls"])
def test_no_stream_is_guessed_at(call):
    array = ad.array(np.arange(3))
    arguments = {"into": (np.ndarray,), "to": ("cpu",), "count_nulls": ()}[call]
    with pytest.raises(TypeError, match="stream must be"):
        getattr(array, call)(*arguments, stream="rubbish")


def test_fill_value_of_a_type_that_is_no_number():
    odd = pa.array([bytes(31), None], pa.binary(31))
    field = pa.field(
        "x",
        odd.type,
        metadata={
            "ARROW:extension:name": "arrowdev.dlpack",
            "ARROW:extension:metadata": '{"code": 0, "bits": 248, "lanes": 1}',
        },
    )
    batch = pa.record_batch([odd], schema=pa.schema([field]))
    with pytest.raises(ValueError, match="cannot be filled"):
        ad.tensor(ad.array(batch)["x"], nulls="fill", fill_value=1)


def test_a_buffer_of_unknown_size_is_not_exchanged():
    offsets, data = (
        ad.Tensor.from_pointer(NOWHERE, (size,), "int8", "cuda:0") for size in (12, 9)
    )
    text = ad.Array.from_buffers("string", 2, [None, offsets, data])
    buffer = text.buffers[2]
    assert buffer and buffer.nbytes is None
    for use in (ad.tensor, ad.array, len, lambda b: b.__dlpack__(max_version=(1, 3))):
        with pytest.raises((ad.ExchangeError, TypeError), match="size"):
            use(buffer)


def test_values_of_extensions_at_the_prompt():
    halves = ad.array(torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
    assert halves.to_pylist() == [1.5, -2.0]
    with pytest.raises(NotImplementedError, match="no Python value for float8_e4m3fn"):
        ad.array(torch.tensor([1.5]).to(torch.float8_e4m3fn)).to_pylist()


# --- what a hostile user found ----------------------------------------------------------


@pytest.mark.parametrize("source", [pa.array([1]), pa.array([{"a": 1}]), np.arange(1)], ids=str)
def test_a_renamed_schema_capsule_does_no_harm(source):
    rename = ctypes.PyDLL(None).PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    array = ad.array(source)
    for _ in range(3):
        schema, data = array.__arrow_c_device_array__()
        rename(schema, b"used_arrow_schema")
        del schema, data
    assert pa.array(array).to_pylist() == array.to_pylist()


def test_no_offset_is_read_where_there_are_no_rows():
    with mmap.mmap(-1, 2 * mmap.PAGESIZE) as pages:
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        end = address + 2 * mmap.PAGESIZE
        nothing = pa.foreign_buffer(end, 0)
        for type in (pa.string(), pa.large_binary()):
            empty = pa.Array.from_buffers(type, 0, [None, nothing, pa.py_buffer(b"")])
            array = ad.array(empty)
            assert array.buffers[1].nbytes == 0 and array.to_pylist() == []
            pa.array(ad.array(empty, copy=True)).validate(full=True)


def test_null_columns_of_polars():
    assert ad.array(pl.Series([None, None])).to_pylist() == [None, None]
    batch = ad.record_batch(pl.DataFrame({"a": [1, 2], "b": [None, None]}))
    assert batch[1:].to_pylist() == pa.record_batch(batch[1:]).to_pylist()
    assert batch[1:].to_pylist() == [{"a": 2, "b": None}]


def test_copies_that_the_producer_cannot_make():
    data = np.arange(3.0)
    tensor = ad.tensor(tvm_ffi.from_dlpack(data), copy=True)
    assert pointer(tensor) != data.ctypes.data and np.from_dlpack(tensor).tolist() == [0, 1, 2]


def test_strided_memory_into_jax():
    data = np.arange(10, dtype="f4")
    for part in (data[::2], data[::-1], data.reshape(2, 5)[:, 1:3]):
        assert ad.convert(part, jax.Array).tolist() == part.tolist()
        with pytest.raises(ad.ExchangeError, match="strided"):
            ad.convert(part, jax.Array, copy=False)


def test_types_that_numpy_has_not():
    halves = ad.tensor(torch.zeros(2, dtype=torch.bfloat16))
    with pytest.raises(ad.ExchangeError, match="no equivalent of bfloat16"):
        halves.into(np.ndarray)


@pytest.mark.parametrize(
    ("type", "buffers", "text"),
    [
        ("int8", [np.array([True, True]), b"ab"], "buffer 0 is a bitmap"),
        ("bool", [None, np.array([True, True])], "buffer 1 is a bitmap"),
        ("utf8", [None, np.array([0, 1, 2]), b"ab"], "buffer 1 has offsets of 32 bits"),
    ],
)
def test_buffers_of_other_elements(type, buffers, text):
    with pytest.raises(ValueError, match=text):
        ad.Array.from_buffers(type, 2, buffers)


def test_columns_pending_on_one_stream_make_a_batch():
    def column(stream):
        return ad.Tensor.from_pointer(NOWHERE, (2,), "int8", "cuda:0", stream=stream)

    assert len(ad.record_batch({"a": column(7), "b": column(7)})) == 2
    with pytest.raises(ad.ExchangeError, match="one event for several parts"):
        ad.record_batch({"a": column(7), "b": column(8)})


def test_values_at_the_prompt_keep_what_names_repeat():
    assert ad.array(np.array(True)).to_pylist() == [True]
    repeated = pa.map_(pa.field("k", pa.string(), nullable=False), pa.field("k", pa.int64()))
    array = pa.array([[("a", 1), ("a", 2)], None], repeated)
    assert ad.array(array).to_pylist() == [[("a", 1), ("a", 2)], None]
