"""Module functions: signatures, arguments of array(), from_dlpack, validate, wrappers, and
arguments that are inconsistent."""

import ctypes
import inspect
import mmap
import weakref

import arrow_ctypes as ac
import pytest
from lifetimes import is_gone
from peer import Peer
from places import NOWHERE, cuda_array, pointer

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
nanoarrow = Peer("nanoarrow")
pl = Peer("polars")
torch = Peer("torch")


SIGNATURES = {
    ad.array: "(obj, type=None, /, *, device=None, stream=None, copy=None, validity=None)",
    ad.tensor: "(obj, /, *, device=None, stream=None, copy=None, nulls='raise', fill_value=None, "
    "order=None, readonly=None)",
    ad.from_dlpack: "(x, /, *, device=None, copy=None)",
    ad.record_batch: "(columns, /, *, names=None, copy=None)",
    ad.schema: "(obj, /)",
    ad.device: "(spec, /)",
    ad.devices: "()",
    ad.use_stream: "(stream, device=None)",
    ad.convert: "(obj, cls, *, device=None, stream=None, copy=None, nulls='raise', "
    "fill_value=None)",
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


FLAGS = {
    "probe": lambda value: ad.protocols(1, probe=value),
    "check_metadata": lambda value: ad.schema("int8").equals("int8", check_metadata=value),
    "readonly": lambda value: ad.Tensor.from_pointer(64, (1,), "int8", "cpu", readonly=value),
}


@pytest.mark.parametrize("value", [None, 0, 1, "no", np.bool_(False)], ids=repr)
@pytest.mark.parametrize("name", FLAGS)
def test_flag_is_a_bool(name, value):
    """`readonly="no"` would mean True."""
    with pytest.raises(TypeError, match=f"{name} must be True or False, not"):
        FLAGS[name](value)
    FLAGS[name](True)
    FLAGS[name](False)


# --- array(type=) --------------------------------------------------------------------------------


@pytest.mark.parametrize("type", ["int64", "l", pa.int64(), ad.schema("int64"), None])
def test_matching_type(type):
    data = np.arange(3)
    array = ad.array(data, type)
    assert (array.schema.format, pointer(array)) == ("l", data.ctypes.data)


def test_type_casts_schema_without_copy():
    field = pa.field("x", pa.int64(), nullable=False, metadata={"k": "v"})
    array = ad.array(np.arange(3), field)
    assert (array.schema.name, array.schema.nullable) == ("x", False)
    assert array.schema.metadata == {b"k": b"v"}
    names = pa.struct([pa.field("b", pa.int64(), nullable=False)])
    assert ad.array(ad.record_batch({"a": np.arange(3)}), names)["b"].to_pylist() == [0, 1, 2]


def test_type_is_requested_from_producer():
    source = pa.array([1, 2], pa.int16())
    assert ad.array(source, "int64").to_pylist() == [1, 2]  # pyarrow casts on request


def test_copy_false_requests_no_cast_from_producer():
    source = pa.array([1, 2])
    assert ad.array(source, "float64").to_pylist() == [1.0, 2.0]  # cast by pyarrow
    with pytest.raises(ad.ExchangeError, match="int64, not float64"):
        ad.array(source, "float64", copy=False)


@pytest.mark.parametrize(
    ("type", "error", "text"),
    [
        ("int32", ad.ExchangeError, "int64, not int32; convert in"),
        ("utf8", ad.ExchangeError, "int64, not string"),
        (pa.list_(pa.int64()), ad.ExchangeError, "list<item: int64>"),
        (pa.dictionary(pa.int64(), pa.string()), ad.ExchangeError, "dictionary"),
        ("int65", ValueError, "not known"),
        (int, TypeError, "__arrow_c_schema__"),
    ],
)
def test_mismatching_type(type, error, text):
    with pytest.raises(error, match=text) as info:
        ad.array(np.arange(3), type)
    if error is ad.ExchangeError:
        assert (info.value.reason, info.value.dtype) == ("dtype", "int64")


def test_non_nullable_type_for_data_with_nulls():
    never = pa.field("x", pa.int64(), nullable=False)
    source = ad.array(pa.array([1, None, 3]))
    with pytest.raises(ad.ExchangeError, match="not nullable") as info:
        ad.array(source, never)
    assert info.value.reason == "nulls"
    assert not ad.array(source[2:], never).schema.nullable


def test_schema_cast_keeps_nulls_of_a_child():
    source = pa.array([{"a": 1}, {"a": None}])
    strict = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    with pytest.raises(ad.ExchangeError, match="not nullable"):
        ad.array(source, strict, copy=False)


def test_schema_cast_counts_the_unknown_nulls_of_a_child():
    strict = pa.struct([pa.field("a", pa.int64(), nullable=False)])

    def batch(bits):
        schema = ac.SchemaNode("+s", children=[ac.SchemaNode("l", name="a")])
        buffers = [(ctypes.c_uint8 * 1)(bits), ac.int64s(4, 5, 6)]
        child = ac.ArrayNode(3, buffers, null_count=-1)
        return ac.Host(ac.Tree(schema, ac.ArrayNode(3, [None], children=[child])))

    assert ad.array(batch(0b111), strict).to_pylist()[2] == {"a": 6}
    with pytest.raises(ad.ExchangeError, match="not nullable") as info:
        ad.array(batch(0b101), strict)
    assert info.value.reason == "nulls"


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("start", [0, 1, 7, 8, 13])
def test_byte_bools_are_packed_on_request(start, nulls):
    values = np.arange(30) % 3 == 0
    valid = np.arange(30) % 4 != 0
    array = ad.array(values, validity=valid) if nulls else ad.array(values)
    bits = ad.array(array[start:], "bool")
    assert bits.schema.format == "b"
    expected = [bool(v) if k or not nulls else None for v, k in zip(values, valid, strict=True)]
    assert bits.to_pylist() == pa.array(bits).to_pylist() == expected[start:]
    with pytest.raises(ad.ExchangeError, match="not bool"):
        ad.array(array, "bool", copy=False)


def test_export_of_byte_bools_ignores_request_for_bits():
    schema = ad.schema("bool").__arrow_c_schema__()
    exported, _ = ad.array(np.array([True, False])).__arrow_c_device_array__(schema)
    assert str(ad.schema(exported)) == "extension<arrow.bool8>"  # best effort


# --- array(device=, stream=) ---------------------------------------------------------------------


def test_device_of_the_data():
    data = np.arange(3)
    for device in ("cpu", (1, 0), (1, -1), ad.device("cpu"), None):
        assert pointer(ad.array(data, device=device)) == data.ctypes.data
    tensor = ad.Tensor.from_pointer(NOWHERE, (3,), "int8", "rocm:1")
    assert ad.array(tensor, device="rocm:1").device_id == 1
    assert ad.array(tensor, device=ad.array(tensor).device).device_id == 1


def test_other_device_without_runtime():
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


def test_same_stream_needs_no_wait():
    for make in (ad.array, ad.tensor):
        assert make(cuda_array(), stream=7).wait(7) is None
        with pytest.raises(ad.ExchangeError) as info:
            make(cuda_array(), stream=8)
        assert info.value.reason == "event"
        with pytest.raises(ValueError, match="ambiguous"):
            make(cuda_array(), stream=0)


def test_no_sync_drops_pending_work():
    pending = ad.Tensor.from_pointer(NOWHERE, (2,), "int8", "cuda:0", stream=7)
    for take in (ad.tensor, ad.array):
        with pytest.raises(ad.ExchangeError, match="wait"):
            take(pending).is_ready()
        assert take(pending, stream=-1).is_ready()


@pytest.mark.parametrize("call", ["into", "to", "count_nulls"])
def test_invalid_stream_argument(call):
    array = ad.array(np.arange(3))
    arguments = {"into": (np.ndarray,), "to": ("cpu",), "count_nulls": ()}[call]
    with pytest.raises(TypeError, match="stream must be"):
        getattr(array, call)(*arguments, stream="rubbish")


# --- array(validity=) ----------------------------------------------------------------------------


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
        (pa.array([True, None, True, True]), ad.ExchangeError, "1 null among"),
        (pa.array([[True]] * 4), TypeError, "column of bool or uint8, not list<"),
        (pa.record_batch({"a": [True] * 4}), TypeError, "not struct<a: bool>"),
        (pa.array([True] * 4).dictionary_encode(), TypeError, "not dictionary<"),
        (pa.array(["a"] * 4), TypeError, "not string"),
    ],
)
def test_invalid_validity(validity, error, text):
    with pytest.raises(error, match=text):
        ad.array(np.arange(4), validity=validity)


def test_validity_without_a_bitmap():
    with pytest.raises(TypeError, match="every row is null already"):
        ad.array(pa.nulls(4), validity=np.array(MASK))
    with pytest.raises(TypeError, match="no validity bitmap"):
        ad.array(pa.RunEndEncodedArray.from_arrays([4], [1]), validity=np.array(MASK))


# --- from_dlpack, validate -----------------------------------------------------------------------


def test_from_dlpack_uses_only_dlpack():
    source = pa.array([1, 2, 3])
    tensor = ad.from_dlpack(source)
    assert isinstance(tensor, ad.Tensor) and pointer(tensor) == source.buffers()[1].address
    for other in (5, b"bytes", [1, 2], cuda_array(), ad.as_host(source)):
        with pytest.raises(TypeError, match=r"tried: .*__dlpack__\)") as info:
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


def test_validate():
    assert ad.validate(np.arange(3)) == ()
    assert ad.validate(pa.table({"a": [1]}), level="structure") == ()
    with pytest.raises(TypeError, match="int speaks none"):
        ad.validate(5)
    with pytest.raises(ValueError, match="level"):
        ad.validate(np.arange(3), "deep")


# --- as_host, as_device --------------------------------------------------------------------------


def test_wrapper_exposes_host_or_device_protocols():
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


# --- inconsistent arguments ----------------------------------------------------------------------


def test_children_must_match_type():
    schema = pa.struct([("a", pa.int64())])
    with pytest.raises(ad.InvalidArrowError, match=r"^children\[0\]: the array has the format"):
        ad.Array.from_buffers(schema, 3, [None], children=[np.zeros(3, np.int8)])
    coded = pa.dictionary(pa.int8(), pa.int64())
    with pytest.raises(ad.InvalidArrowError, match=r"^dictionary: the array has the format"):
        ad.Array.from_buffers(
            coded, 1, [None, np.zeros(1, np.int8)], dictionary=np.zeros(1, np.int8)
        )


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


def test_buffer_of_unknown_size_is_refused():
    offsets, data = (
        ad.Tensor.from_pointer(NOWHERE, (size,), "int8", "cuda:0") for size in (12, 9)
    )
    text = ad.Array.from_buffers("string", 2, [None, offsets, data])
    buffer = text.buffers[2]
    assert buffer and buffer.nbytes is None
    for use in (ad.tensor, ad.array, len, lambda b: b.__dlpack__(max_version=(1, 3))):
        with pytest.raises((ad.ExchangeError, TypeError), match="size"):
            use(buffer)


def test_empty_chunks_are_ignored():
    chunked = pa.chunked_array([[], [1, 2], []], pa.int64())
    assert ad.array(chunked).to_pylist() == [1, 2]
    assert ad.array(pa.chunked_array([[], []], pa.int64())).to_pylist() == []


def test_empty_array_reads_no_offset():
    with mmap.mmap(-1, 2 * mmap.PAGESIZE) as pages:
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        end = address + 2 * mmap.PAGESIZE
        nothing = pa.foreign_buffer(end, 0)
        for type in (pa.string(), pa.large_binary()):
            empty = pa.Array.from_buffers(type, 0, [None, nothing, pa.py_buffer(b"")])
            array = ad.array(empty)
            assert array.buffers[1].nbytes == 0 and array.to_pylist() == []
            pa.array(ad.array(empty, copy=True)).validate(full=True)


def test_fill_value_of_non_numeric_type():
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


@pytest.mark.parametrize("source", [pa.array([1]), pa.array([{"a": 1}]), np.arange(1)], ids=str)
def test_renamed_schema_capsule_is_released(source):
    rename = ctypes.PyDLL(None).PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    array = ad.array(source)
    for _ in range(3):
        schema, data = array.__arrow_c_device_array__()
        rename(schema, b"used_arrow_schema")
        del schema, data
    assert pa.array(array).to_pylist() == array.to_pylist()


# --- to_pylist -----------------------------------------------------------------------------------


def test_to_pylist_of_extension_types():
    halves = ad.array(torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
    assert halves.to_pylist() == [1.5, -2.0]
    assert ad.array(torch.tensor([1.5]).to(torch.float8_e4m3fn)).to_pylist() == [1.5]
    memory = np.zeros(1, "u8")
    handle = ad.Tensor.from_pointer(memory.ctypes.data, (1,), "opaque", "cpu", owner=memory)
    with pytest.raises(NotImplementedError, match=r"no Python value for opaque; use \.view\(\)"):
        ad.array(handle).to_pylist()


def test_to_pylist_keeps_values_of_repeated_names():
    assert ad.array(np.array(True)).to_pylist() == [True]
    repeated = pa.map_(pa.field("k", pa.string(), nullable=False), pa.field("k", pa.int64()))
    array = pa.array([[("a", 1), ("a", 2)], None], repeated)
    assert ad.array(array).to_pylist() == [[("a", 1), ("a", 2)], None]


@pytest.mark.parametrize("number", [1, 2, 7, -1])
def test_stream_of_host_memory(number):
    """It is ready on every stream; only __dlpack__(), as DLPack says, takes none."""
    x = np.arange(3)
    for found in (
        ad.array(x, stream=number),
        ad.tensor(x, stream=number),
        ad.convert(x, ad.Tensor, stream=number),
        ad.array(x, device="cpu", stream=number),
    ):
        assert found.is_ready() and np.asarray(found).tolist() == [0, 1, 2]
    if number != -1:
        with pytest.raises(ad.ExchangeError, match="where there are no streams") as info:
            ad.tensor(x).__dlpack__(stream=number)
        assert info.value.reason == "stream" and "leave stream out" in info.value.hint
