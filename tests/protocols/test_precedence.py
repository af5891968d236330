"""Which protocols an object supports, which one is used, and what happens when it refuses."""

import warnings

import pytest
from peer import Peer
from places import NOWHERE, cuda_array, pointer

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pl = Peer("polars")
torch = Peer("torch")
tvm_ffi = Peer("tvm_ffi")


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


def test_refused_data_are_asked_for_once():
    """pyarrow warns when it is asked without max_version."""
    with warnings.catch_warnings(), pytest.raises(ad.ExchangeError, match="no nulls") as info:
        warnings.simplefilter("error")
        ad.from_dlpack(pa.array([1, None]))
    assert type(info.value.__cause__) is pa.lib.ArrowTypeError


def test_probing_consumes_no_stream_or_capsule():
    reader = pa.table({"a": [1, 2]}).to_reader()
    assert ad.protocols(reader, probe=True) == ("__arrow_c_stream__",)
    assert ad.array(reader)["a"].to_pylist() == [1, 2]
    pair = pa.array([1, 2]).__arrow_c_device_array__()
    assert ad.protocols(pair, probe=True) == ("a pair of capsules",)
    assert ad.array(pair).to_pylist() == [1, 2]


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


ARROW = set(ORDER[:4])


def interface(name, data):
    """The dict of one of the three protocols; device pointers are not followed."""
    base = {"shape": (1,), "typestr": "<i4", "version": 3}
    if name == "__sycl_usm_array_interface__":
        return {**base, "version": 1, "data": (NOWHERE, False), "syclobj": "level_zero"}
    if name == "__cuda_array_interface__":
        return {**base, "data": (NOWHERE, False), "stream": None}
    return {**base, "data": (data.ctypes.data, False)}


def offering(names, refusing=(), how=ValueError):
    """An object whose result through each protocol is the protocol's position in ORDER."""
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
            return interface(name, data[name])

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
    """Without the __dlpack_device__ calls, which every step that needs a device makes."""
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
    is_compared = n < len(ARROW)  # with the first of the N-d protocols
    assert source.calls == ([] if n == 8 else [ORDER[n]] + is_compared * ["__dlpack__"])
    assert ad.protocols(source) == tuple(ORDER[n:])


@pytest.mark.parametrize("n", range(4, len(ORDER)))
def test_order_of_tensor(n):
    source = offering(ORDER[:4] + ORDER[n:])
    found = ad.tensor(source)
    assert place(ad.array(found)) == ORDER[n]
    asked_for_nulls = ORDER[0]
    assert without_device(source.calls) == [*ORDER[n : n + 1][: 8 - n], asked_for_nulls]


def test_tensor_takes_arrow_where_all_others_refuse():
    source = offering(ORDER[:-1], refusing=ORDER[4:-1])
    assert ad.array(ad.tensor(source)).to_pylist() == [0]
    assert without_device(source.calls)[:5] == [*ORDER[4:-1], ORDER[0]]


@pytest.mark.parametrize("how", [ValueError, AttributeError, BufferError, NotImplementedError])
@pytest.mark.parametrize("n", range(1, len(ORDER)))
def test_fall_through(n, how):
    source = offering(ORDER, refusing=ORDER[:n], how=how)
    assert place(ad.array(source)) == ORDER[n]
    compared = ["__dlpack__"] if ORDER[n] in ARROW else []
    # A property that raises AttributeError is looked up again: is it absent?
    calls = list(dict.fromkeys(without_device(source.calls)))
    assert calls == ORDER[: n + 1][:8] + compared


def test_type_error_after_retry_is_a_refusal():
    source = offering(ORDER, refusing=ORDER[:2], how=TypeError)
    assert place(ad.array(source)) == ORDER[2]


def test_all_refuse():
    names = ORDER[:-1]
    source = offering(names, refusing=names)
    with pytest.raises(
        ad.ExchangeError, match=r"^test_precedence.Many cannot be imported: "
    ) as info:
        ad.array(source)
    error = info.value
    assert error.reason == "refused"
    assert isinstance(error.__cause__, ValueError)
    assert str(error.__cause__) == "no __arrow_c_device_array__ today"
    positions = [str(error).index(f"{name} refused (ValueError: no ") for name in names]
    assert positions == sorted(positions)
    assert without_device(source.calls) == names


def test_attribute_error_of_a_look_up_means_absent():
    names = ORDER[5:-1]
    source = offering(names, refusing=names, how=AttributeError)
    with pytest.raises(TypeError, match="Many speaks none of the protocols") as info:
        ad.array(source)
    assert all(name in str(info.value) for name in names)


@pytest.mark.parametrize("name", ORDER[:5])
@pytest.mark.parametrize("ask", [ad.array, ad.tensor])
def test_attribute_error_in_a_method_is_a_refusal(name, ask):
    source = offering([name], refusing=[name], how=AttributeError)
    with pytest.raises(
        ad.ExchangeError, match=f"{name} refused .AttributeError: no {name}"
    ) as info:
        ask(source)
    assert info.value.reason == "refused"
    assert type(info.value.__cause__) is AttributeError
    assert str(info.value.__cause__) == f"no {name} today"


class SecondLookUp:
    """Its method raises an AttributeError, and the next look-up of it `error`."""

    def __init__(self, error):
        self.error = error
        self.n_look_ups = 0

    @property
    def __arrow_c_array__(self):
        self.n_look_ups += 1
        if self.n_look_ups > 1:
            raise self.error
        return self.refuse

    def refuse(self, *arguments, **options):
        raise AttributeError("within the method")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_final_exception_of_the_second_look_up(error):
    with pytest.raises(error):
        ad.array(SecondLookUp(error))


@pytest.mark.parametrize("final", [MemoryError, KeyboardInterrupt, ad.DeviceError, SystemExit])
def test_final_exceptions_stop_the_search(final):
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
def test_unsupported_meaning_is_final_error(make, reason, hint):
    class Shadowed(torch.Tensor):
        """Offers another protocol, which would lose the same meaning silently."""

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


def test_tuple_of_numbers_has_no_protocol():
    with pytest.raises(TypeError, match="speaks none"):
        ad.array((1, 2, 3))


def test_copy_if_producer_cannot_copy():
    data = np.arange(3.0)
    tensor = ad.tensor(tvm_ffi.from_dlpack(data), copy=True)
    assert pointer(tensor) != data.ctypes.data and np.from_dlpack(tensor).tolist() == [0, 1, 2]
