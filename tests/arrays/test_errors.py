"""Provokes every documented error and checks its class, attributes and message."""

import pickle
import re
from pathlib import Path

import pytest
from arrow_ctypes import (
    ArrayNode,
    Host,
    OnDevice,
    SchemaNode,
    Stream,
    Tree,
    int32s,
    nested,
    numbers,
)
from dlpack_ctypes import Managed, Producer
from interface_dicts import Showing
from peer import Peer

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pl = Peer("polars")
torch = Peer("torch")

NOWHERE = 0x7FFF00001000
DOCS = Path(__file__).parent.parent.parent / "docs" / "errors.md"


def on(device="cuda:1", dtype="int32", shape=(4,), **options):
    return ad.Tensor.from_pointer(NOWHERE, shape, dtype, device, **options)


def shown(**changes):
    data = np.arange(4, dtype="<i4")
    fields = {"shape": (4,), "typestr": "<i4", "data": (data.ctypes.data, False), "version": 3}
    return Showing("__array_interface__", {**fields, **changes}, keep=data)


def consumed_pair():
    pair = ad.array(b"abc").__arrow_c_device_array__()
    ad.array(pair)
    return pair


def chunks():
    return Stream(SchemaNode("l"), [numbers(), numbers()])


def runs():
    return pa.RunEndEncodedArray.from_arrays(pa.array([30_000], pa.int16()), pa.array([1]))


def export_elsewhere():
    return ad.array(b"abc").__arrow_c_array__(pa.string().__arrow_c_schema__())


class Refusing:
    def __arrow_c_array__(self, requested_schema=None):
        raise LookupError("not today")


class Rubbish:
    def __arrow_c_array__(self, requested_schema=None):
        return 5


with_null = pa.array([1, None])
bools = pa.array([True, None])
frozen = ad.Tensor.from_pointer(NOWHERE, (4,), "int8", "cuda:0", readonly=True)

# (reason, code that raises it, .device, .dtype, words of the message)
EXCHANGE = [
    ("byteorder", lambda: ad.array(np.arange(3, dtype=">i4"), copy=False), None, None, "order"),
    ("chunks", lambda: ad.array(chunks(), copy=False), None, None, "chunk"),
    (
        "schema",
        lambda: ad.array_stream(chunks(), schema="utf8"),
        None,
        None,
        "the stream is int64, but what was asked for is string",
    ),
    (
        "size",
        lambda: ad.array_stream([runs(), runs()]).read_all(),
        None,
        None,
        "run ends of the batches together do not fit",
    ),
    (
        "conjugate",
        lambda: ad.array(torch.ones(2, dtype=torch.complex64).conj()),
        None,
        None,
        "resolve_conj",
    ),
    ("consumed", lambda: ad.array(consumed_pair()), None, None, "arrow_schema|consumed"),
    ("consumed", lambda: ad.schema(consumed_pair()[0]), None, None, "consumed|released"),
    ("strides", lambda: ad.array(np.zeros((2, 2))[:, ::2], copy=False), None, None, "copy"),
    (
        "copy",
        lambda: ad.tensor(with_null, nulls="fill", fill_value=0, copy=False),
        "cpu",
        "int64",
        "filling nulls",
    ),
    ("copy", lambda: ad.array(b"abc").into(pl.Series, copy=False), None, None, "polars decides"),
    ("copy", lambda: ad.tensor(np.zeros((2, 3)), order="F", copy=False), None, None, 'order="F"'),
    (
        "runtime",
        lambda: ad.array(b"abc", device="cuda:0"),
        "cpu",
        None,
        "cpu cannot be copied to cuda:0",
    ),
    ("runtime", lambda: on().to("cpu"), "cuda:1", None, "cuda:1 cannot be copied to cpu"),
    ("device", lambda: memoryview(on()), "cuda:1", None, "host"),
    ("device", lambda: ad.array(on()).to_pylist(), "cuda:1", None, "host memory"),
    (
        "device",
        lambda: ad.record_batch({"a": on(), "b": on("cpu")}),
        None,
        None,
        '"b" is on cpu, but "a" is on cuda:1',
    ),
    ("runtime", lambda: ad.array(on(), copy=True), "cuda:1", None, "cuda:1 .*runtime for a copy"),
    (
        "runtime",
        lambda: ad.array(on(), validity=on(dtype="bool")),
        "cuda:1",
        None,
        "memory on cuda:1 needs its runtime for making a validity bitmap",
    ),
    ("dtype", lambda: ad.array(b"abc", "int32"), None, "uint8|int8", "not int32"),
    ("dtype", lambda: ad.tensor(pa.array(["a"])), "cpu", "string", "buffers"),
    ("dtype", lambda: ad.tensor(pa.array([{"a": 1, "b": 1.0}])), "cpu", "struct<.*>", "field"),
    ("dtype", lambda: ad.tensor(pa.array([[1], [2, 3]])), "cpu", "list<item: int64>", "children"),
    ("dtype", lambda: ad.tensor(pa.array([1], pa.timestamp("s"))), "cpu", "timestamp.s.", "view"),
    ("dtype", lambda: ad.array(with_null).view("int8"), None, "int64", "same width"),
    ("dtype", lambda: ad.array(np.array(["a"])), None, "<U1", "fixed-width text"),
    (
        "dtype",
        lambda: ad.array(shown(typestr="StringDType()")),
        None,
        r"StringDType\(\)",
        r"any length.*pyarrow\.array",
    ),
    ("event", lambda: on(stream=5).synchronize(), "cuda:1", None, "ready|pending"),
    (
        "event",
        lambda: on(stream=5).__dlpack__(max_version=(1, 0)),
        "cuda:1",
        None,
        "__dlpack__|stream",
    ),
    ("event", lambda: on(stream=5).__arrow_c_device_array__(), "cuda:1", None, "stream"),
    ("malformed", lambda: on(shape=(-1,)), None, None, "-1"),
    ("malformed", lambda: on(shape=(1 << 62,)), None, None, "overflow"),
    ("malformed", lambda: ad.array(shown(shape=[4])), None, None, "shape is of type list"),
    ("malformed", lambda: ad.array(Producer(ndim=-1)), None, None, "-1 dimensions"),
    ("ndim", lambda: ad.array(Producer(shape=(1,) * 65)), None, None, "64"),
    (
        "negative",
        lambda: ad.array(torch.ones(2, dtype=torch.complex64).conj().imag),
        None,
        None,
        "resolve_neg",
    ),
    ("nulls", lambda: ad.tensor(with_null), "cpu", "int64", "1 null among 2.*fill_value"),
    ("nulls", lambda: ad.array(pa.array([{"a": 1}, None]))["a"], "cpu", "struct", "lose"),
    (
        "nulls",
        lambda: ad.array(b"\1\1", validity=bools),
        None,
        None,
        "mask itself has 1 null among",
    ),
    ("nulls", lambda: ad.record_batch(pa.array([{"a": 1}, None])), None, None, "top level"),
    ("protocol", lambda: ad.array(Rubbish()), None, None, "found int, expected a tuple"),
    ("readonly", lambda: frozen.__dlpack__(), None, None, "read-only"),
    (
        "refused",
        lambda: ad.array(Refusing()),
        None,
        None,
        r"__arrow_c_array__ refused \(LookupError: not today\)",
    ),
    ("requested_schema", export_elsewhere, None, None, "no representation"),
    (
        "requires_grad",
        lambda: ad.array(torch.ones(2, requires_grad=True)),
        None,
        None,
        "x.detach()",
    ),
    (
        "stream",
        lambda: ad.array(Stream(SchemaNode("l"), [], next_code=5, message="boom")),
        None,
        None,
        "boom",
    ),
    ("strides", lambda: ad.array(shown(strides=(3,), shape=(2,))), None, None, "multiple"),
    (
        "strides",
        lambda: ad.Array.from_buffers("int8", 1, [None, np.zeros(4)[::2]]),
        None,
        None,
        "contiguous",
    ),
    ("version", lambda: ad.array(Producer(version=(2, 0))), None, None, "version"),
]


# Errors that need a runtime that supports more, or less, than the software device.
ELSEWHERE = {
    "capture": "gpu_cuda/test_release.py",
    "kernel": "isolated/opencl_faults.py",
    "metadata": "aio/test_aio_bridges.py",
    "shape": "protocols/test_two_kinds.py",
    "share": "share/test_share.py",
    "target": "arrays/test_targets.py",
}


def ids(rows):
    return [f"{row[0]}-{i}" for i, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("reason", "provoke", "device", "dtype", "text"), EXCHANGE, ids=ids(EXCHANGE)
)
def test_exchange_error(reason, provoke, device, dtype, text):
    with pytest.raises(ad.ExchangeError, match=text) as info:
        provoke()
    error = info.value
    assert isinstance(error, BufferError)
    assert error.reason == reason
    assert error.device == (device and ad.device(device)) or device is None
    if dtype is not None:
        assert re.fullmatch(dtype, error.dtype)
    if error.hint is not None:
        assert str(error).endswith(f"; {error.hint}")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is ad.ExchangeError and str(again) == str(error)
    assert (again.reason, again.device, again.dtype, again.hint) == (
        error.reason,
        error.device,
        error.dtype,
        error.hint,
    )


def test_hints_say_what_to_do():
    """Where the user can fix the problem, the error says how."""
    without = {
        "protocol",
        "malformed",
        "refused",
        "version",
        "requested_schema",
        "stream",
        "consumed",
    }
    for reason, provoke, *_ in EXCHANGE:
        if reason not in without | {"strides", "dtype", "ndim"}:
            with pytest.raises(ad.ExchangeError) as info:
                provoke()
            assert info.value.hint, (reason, str(info.value))


@pytest.mark.skipif(not DOCS.exists(), reason="not a checkout")
def test_every_documented_reason_is_provoked():
    text = DOCS.read_text(encoding="utf-8").partition("## Reasons")[2].partition("\n## ")[0]
    documented = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert documented
    provoked = {row[0] for row in EXCHANGE}
    assert documented - provoked == set(ELSEWHERE)
    for reason, file in ELSEWHERE.items():
        text = (Path(__file__).parent.parent / file).read_text(encoding="utf-8")
        assert f'reason == "{reason}"' in text


def lists(child):
    return Tree(
        SchemaNode("+l", children=[child.schema]),
        ArrayNode(1, [None, int32s(0, 1)], children=[child.array]),
    )


def bad_dictionary():
    """A list of dictionary-encoded values whose dictionary is released."""
    values = ArrayNode(1, [None, int32s(0, 1), int32s(0)])
    values.struct.release = None
    words = Tree(
        SchemaNode("c", dictionary=SchemaNode("u")),
        ArrayNode(1, [None, int32s(0)], dictionary=values),
    )
    return lists(words)


# (path, code that raises it, words of the message)
INVALID = [
    ("", lambda: ad.array(Host(numbers(length=-1))), "length is -1, expected 0 or more"),
    ("", lambda: ad.array(OnDevice(numbers(null_count=9))), "null_count is 9"),
    ("", lambda: ad.array(Host(numbers(format="x"))), '"x"'),
    ("", lambda: ad.Array.from_buffers("int8", 1, [b"1"]), 'n_buffers is 1, but format "c" has 2'),
    ("", lambda: ad.Array.from_buffers("utf8", 1, [None] * 3), "offsets"),
    ("children[0]", lambda: ad.array(Host(lists(numbers(length=-1)))), "length is -1"),
    ("children[0].children[0]", lambda: ad.array(Host(lists(lists(numbers(format="?"))))), "\\?"),
    ("children[0].dictionary", lambda: ad.array(Host(bad_dictionary())), "released"),
    (
        "children[1]",
        lambda: ad.Array.from_buffers(
            pa.struct([("a", pa.uint8()), ("b", pa.uint8())]), 3, [None], children=[b"abc", b"ab"]
        ),
        "length is 2",
    ),
]


@pytest.mark.parametrize(("path", "provoke", "text"), INVALID, ids=ids(INVALID))
def test_invalid_arrow_error(path, provoke, text):
    with pytest.raises(ad.InvalidArrowError, match=text) as info:
        provoke()
    error = info.value
    assert isinstance(error, ValueError)
    assert error.path == path
    assert str(error).startswith(f"{path}: " if path else "")
    assert pickle.loads(pickle.dumps(error)).path == path


def test_truncated_paths_keep_their_end():
    with pytest.raises(ad.InvalidArrowError, match="deeper than 64") as info:
        ad.array(Host(nested(100)))
    assert info.value.path.endswith("children[0]")
    assert len(str(info.value)) < 1000


@pytest.mark.parametrize(
    ("cls", "base", "names"),
    [
        (ad.ExchangeError, BufferError, ("reason", "device", "dtype", "hint")),
        (ad.InvalidArrowError, ValueError, ("path", "hint")),
        (ad.DeviceError, RuntimeError, ("code", "device", "hint")),
    ],
)
def test_classes(cls, base, names):
    assert cls.__mro__[1] is base
    assert (cls.__module__, cls.__qualname__) == ("arrowdev", cls.__name__)
    error = cls("text")
    assert str(error) == "text"
    for name in names:
        assert getattr(error, name) is None  # the attribute exists wherever the error is raised
        assert name in cls.__doc__
    error.hint = "do this"
    assert error.hint == "do this" and cls("other").hint is None


def no_array(name):
    return getattr(ad.array(on()), name)


@pytest.mark.parametrize(
    ("provoke", "error", "text"),
    [
        (
            lambda: ad.array(5),
            TypeError,
            r"^int speaks none of the protocols; pyarrow.array\(\[x\]\) .*tried: .*__arrow",
        ),
        (lambda: ad.from_dlpack(5), TypeError, "tried: .*__dlpack__.*"),
        (lambda: ad.array(b"").into(int), TypeError, "builtins.int"),
        (lambda: ad.array(b"abc")[3], IndexError, "index 3.*length 3"),
        (lambda: ad.array(b"abc")[-4], IndexError, "index -4.*length 3"),
        (lambda: ad.array(b"abc").slice(4), IndexError, "rows from row 4"),
        (lambda: ad.record_batch({"a": b""})["b"], KeyError, '"b"'),
        (lambda: ad.schema("int65"), ValueError, '"int65" is not known; examples of names are'),
        (lambda: ad.device("gpu"), ValueError, "'gpu'.*DeviceType"),
        (lambda: ad.record_batch({"a": b"", "b": b"1"}), ValueError, '"b" has length 1'),
        (lambda: ad.Array.from_buffers("int8", 2, [None, b"1"]), ValueError, "1 byte,.*need 2"),
        (
            lambda: ad.Array.from_buffers("int8", 2, [None] * 65),
            ValueError,
            "65 buffers are given, at most 64",
        ),
        (
            lambda: ad.array_stream([b""], device_type=2**40),
            ValueError,
            "1099511627776, expected 32 bits",
        ),
        (
            lambda: ad.array(b"").to("cpu", device="cpu"),
            TypeError,
            r"to\(\) got multiple values for argument 'device'",
        ),
        (lambda: on(stream=0), ValueError, "stream 0 is ambiguous on CUDA; pass 1"),
        (lambda: ad.array(b"").__arrow_c_device_array__(a=1), NotImplementedError, "'a'.*1"),
        (lambda: no_array("__arrow_c_array__"), AttributeError, "cuda:1, which the host cannot"),
        (lambda: no_array("__arrow_c_stream__"), AttributeError, "cuda:1"),
        (lambda: no_array("__array_interface__"), AttributeError, "__array_interface__.*cuda:1"),
        (lambda: ad.array(with_null).__dlpack__, AttributeError, "__dlpack__.*1 null among"),
        (lambda: ad.array(pa.array(["a"])).__dlpack__, AttributeError, "string.*buffers"),
        (lambda: on("cpu").__cuda_array_interface__, AttributeError, "cpu"),
    ],
)
def test_builtin_errors(provoke, error, text):
    with pytest.raises(error, match=text) as info:
        provoke()
    assert not isinstance(info.value, (ad.ExchangeError, ad.InvalidArrowError))


def test_refusals_are_chained():
    with pytest.raises(ad.ExchangeError) as info:
        ad.array(Refusing())
    assert isinstance(info.value.__cause__, LookupError)
    assert info.value.__context__ is info.value.__cause__


def test_error_releases_producer_once():
    managed = [Producer(version=(2, 0)), Producer(ndim=-1), Producer(shape=(1,) * 65)]
    for producer in managed:
        with pytest.raises(ad.ExchangeError):
            ad.array(producer)
        assert isinstance(producer.managed, Managed) and producer.deleted == 1
