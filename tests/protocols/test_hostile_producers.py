"""Capsules, producers and release callbacks that misbehave."""

import ctypes
import gc
import sys

import arrow_ctypes as ac
import pytest
from hostile import FINAL, REFUSALS, Loud, everywhere, freeze_kept_structs, give, name_of  # noqa: F401
from loops import looped

import arrowdev as ad

# --- capsules -----------------------------------------------------------------------


def test_released_root():
    for part in ("schema", "array"):
        tree = ac.numbers()
        getattr(tree, part).struct.release = None
        with pytest.raises(ad.ExchangeError, match="is released") as error:
            ad.array(ac.Host(tree))
        assert error.value.reason == "consumed"
        assert "ask the producer again" in error.value.hint
        assert tree.released == (0, 0)


@everywhere
def test_capsules_are_consumed_once(way):
    tree = ac.numbers()
    pair = give(tree, way)
    if not isinstance(pair, tuple):
        pair = pair.__getattribute__(
            "__arrow_c_array__" if way == "host" else "__arrow_c_device_array__"
        )()
    array = ad.array(pair)
    with pytest.raises(ad.ExchangeError, match="released") as error:
        ad.array(pair)
    assert error.value.reason == "consumed"
    assert len(array) == 3 and tree.released == (0, 0)
    del array
    assert tree.released == (1, 1)


def test_one_consumed_of_two():
    first, second = ac.numbers(), ac.numbers()
    schema, array = first.host_pair()
    ad.schema(schema)
    with pytest.raises(ad.ExchangeError, match="released"):
        ad.array((schema, array))
    assert first.array.struct.release and first.array.released == 0
    kept = ad.array((second.host_pair()[0], array))
    del kept
    assert first.released == (1, 1) and second.released == (1, 0)


def rubbish():
    tree = ac.numbers()
    schema, array = tree.host_pair()
    device = tree.device_pair()[1]

    class Pair(tuple):
        __slots__ = ()

    named = {
        "None": None,
        "int": 1,
        "str": "ab",
        "capsule": schema,
        "empty": (),
        "one": (schema,),
        "three": (schema, array, array),
        "list": [schema, array],
        "swapped": (array, schema),
        "schemas": (schema, schema),
        "device for host": (schema, device),
        "None in it": (schema, None),
        "str in it": (schema, "arrow_array"),
        "no name": (schema, ac.capsule(tree.array, None)),
        "empty name": (schema, ac.capsule(tree.array, "")),
        "longer name": (schema, ac.capsule(tree.array, "arrow_array_")),
        "shorter name": (schema, ac.capsule(tree.array, "arrow_arra")),
        "used": (schema, ac.capsule(tree.array, "used_arrow_array")),
        "format name": (schema, ac.capsule(tree.array, "%s%n" * 100)),
        "long name": (ac.capsule(tree.schema, "x" * 100_000), array),
        "class": tuple,
        "generator": (item for item in (schema, array)),
        "empty pair": Pair(),
    }
    return tree, named


@pytest.mark.parametrize("case", rubbish()[1])
def test_invalid_pair(case):
    tree, named = rubbish()

    class Producer:
        def __arrow_c_array__(self, requested_schema=None):
            return named[case]

        def __arrow_c_stream__(self, requested_schema=None):
            raise AssertionError("a broken promise is final")

    with pytest.raises(ad.ExchangeError, match="expected") as error:
        ad.array(Producer())
    assert error.value.reason == "protocol"
    assert len(str(error.value)) < 1000
    assert tree.released == (0, 0) and tree.held() == (True, True)


@looped("case", rubbish()[1])
@pytest.mark.parametrize("method", ["__arrow_c_stream__", "__arrow_c_device_stream__"])
def test_invalid_stream(case, method):
    tree, named = rubbish()
    producer = type("Producer", (), {method: lambda self, **_: named[case]})()
    with pytest.raises(ad.ExchangeError, match=f'expected a capsule named|expected "|{method}'):
        ad.array(producer)
    assert tree.released == (0, 0)


@pytest.mark.parametrize("case", [*rubbish()[1], "array capsule"])
def test_invalid_schema(case):
    tree, named = rubbish()
    value = tree.host_pair()[1] if case == "array capsule" else named[case]
    if case == "capsule":
        return
    producer = type("Producer", (), {"__arrow_c_schema__": lambda self: value})()
    for ask in (ad.schema, lambda x: ad.array(ac.Host(ac.numbers()), x)):
        with pytest.raises(ad.ExchangeError, match="arrow_schema"):
            ask(producer)
    assert tree.released == (0, 0)


def test_bare_tuples():
    tree = ac.numbers()
    schema, array = tree.host_pair()
    for value in [(), (schema,), (schema, array, array), (1, 2), (None, None), (schema, 1)]:
        with pytest.raises((TypeError, ad.ExchangeError)):
            ad.array(value)
    for value in [(array, schema), (schema, schema), (schema, ac.capsule(tree.array, "x"))]:
        with pytest.raises(ad.ExchangeError):
            ad.array(value)
    assert tree.held() == (True, True)


def test_probing_does_not_consume_capsules():
    tree = ac.numbers()
    pair = tree.host_pair()
    assert ad.protocols(pair, probe=True) == ("a pair of capsules",)
    assert tree.released == (0, 0)
    assert len(ad.array(pair)) == 3


@pytest.mark.parametrize("reentry", ["import", "export", "raise", "collect"])
def test_capsule_destructor_reenters(reentry):
    ran = []
    inner = ad.array(ac.Host(ac.numbers()))

    def destroy(_):
        ran.append(reentry)
        if reentry == "import":
            ad.array(ac.Host(ac.numbers()))
        elif reentry == "export":
            inner.__arrow_c_device_array__()
        elif reentry == "raise":
            raise ValueError("from the destructor")
        else:
            gc.collect()

    destructor = ac.keep(ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(destroy))
    name = ac.keep(ctypes.c_char_p(b"arrow_array"))

    class Producer:
        def __arrow_c_array__(self, requested_schema=None):
            tree = ac.numbers()
            pointer = ctypes.cast(destructor, ctypes.c_void_p)
            return tree.host_pair()[0], ac.new_capsule(tree.array.address, name, pointer)

    unraisable = []
    old, sys.unraisablehook = sys.unraisablehook, lambda args: unraisable.append(args.exc_value)
    try:
        assert len(ad.array(Producer())) == 3
    finally:
        sys.unraisablehook = old
    assert ran == [reentry]
    assert [type(item) for item in unraisable] == ([ValueError] if reentry == "raise" else [])


# --- requested_schema -----------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
        "__arrow_c_array__",
        "__arrow_c_device_array__",
        "__arrow_c_stream__",
        "__arrow_c_device_stream__",
    ],
)
def test_requested_schema_is_borrowed(method):
    array = ad.array(ac.Host(ac.numbers()))
    export = getattr(array, method)
    good, consumed = ac.SchemaNode("i"), ac.SchemaNode("i")
    capsule = ac.capsule(good, "arrow_schema")
    for _ in range(2):
        export(capsule), export(requested_schema=capsule)
    assert good.released == 0 and good.struct.release

    consumed.struct.release = None
    bad_length = ac.SchemaNode("+s", children=[ac.SchemaNode("l")])
    bad_length.struct.n_children = -7
    cases = [
        (ac.capsule(consumed, "arrow_schema"), ad.ExchangeError, "released"),
        (ac.capsule(good, "arrow_array"), ad.ExchangeError, "expected"),
        (ac.capsule(good, None), ad.ExchangeError, "expected"),
        (ac.capsule(ac.SchemaNode("??"), "arrow_schema"), ad.InvalidArrowError, "format"),
        (ac.capsule(bad_length, "arrow_schema"), ad.InvalidArrowError, "children"),
        (ac.capsule(ac.SchemaNode("u"), "arrow_schema"), ad.ExchangeError, "no representation"),
        (ac.capsule(ac.nested(10_000).schema, "arrow_schema"), ad.InvalidArrowError, "nested"),
        (1, ad.ExchangeError, "expected a capsule"),
        ("l", ad.ExchangeError, "expected a capsule"),
        (ad.schema("l"), ad.ExchangeError, "expected a capsule"),
    ]
    for value, error, text in cases:
        with pytest.raises(error, match=text):
            export(value)
    if "device" in method:
        export(None, unknown=None)
        with pytest.raises(NotImplementedError, match="unknown"):
            export(None, unknown=1)
    else:
        with pytest.raises(TypeError):
            export(None, unknown=None)


def test_requested_schema_may_be_consumed_by_producer():
    eaten = []

    class Producer:
        def __arrow_c_array__(self, requested_schema=None):
            eaten.append(ad.schema(requested_schema))  # consumes the request
            return ac.numbers().host_pair()

    array = ad.array(Producer(), "int64")
    assert str(array.schema) == str(eaten[0]) == "int64"
    del array
    assert str(eaten[0]) == "int64"


# --- producers that raise ---------------------------------------------------------------


METHODS = [
    "__arrow_c_array__",
    "__arrow_c_device_array__",
    "__arrow_c_stream__",
    "__arrow_c_device_stream__",
    "__dlpack__",
    "__array_interface__",
    "__cuda_array_interface__",
    "__sycl_usm_array_interface__",
]


def raising(method, error, **members):
    def fail(self, *args, **kwargs):
        raise error

    value = property(fail) if method.endswith("interface__") else fail
    return type("Producer", (), {method: value, "__dlpack_device__": lambda s: (1, 0), **members})


@looped("method", METHODS)
@pytest.mark.parametrize("error", REFUSALS, ids=name_of)
def test_producer_exception_is_a_refusal(method, error):
    producer = raising(method, error)()
    with pytest.raises(ad.ExchangeError, match="refused") as raised:
        ad.array(producer)
    assert method in str(raised.value) and type(error).__name__ in str(raised.value)
    assert raised.value.__cause__ is error
    assert ad.protocols(producer) == (method,)
    assert ad.protocols(producer, probe=True) in ((), (method,))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("error", FINAL, ids=name_of)
@looped("ask", ["array", "tensor", "record_batch", "buffers", "validity"])
def test_final_exception_propagates(method, error, ask):
    # The next protocol, which would succeed, must not be tried.
    members = {"__arrow_c_stream__": lambda s, **_: 1 / 0} if "array__" in method else {}
    producer = raising(method, error, **members)()
    asked = {
        "array": lambda: ad.array(producer),
        "tensor": lambda: ad.tensor(producer),
        "record_batch": lambda: ad.record_batch({"a": producer}),
        "buffers": lambda: ad.Array.from_buffers("int64", 0, [None, producer]),
        "validity": lambda: ad.array(ac.Host(ac.numbers()), validity=producer),
    }
    with pytest.raises(type(error)) as raised:
        asked[ask]()
    assert raised.value is error


@pytest.mark.parametrize("error", [*REFUSALS, *FINAL], ids=name_of)
def test_schema_producer_exception_propagates(error):
    producer = raising("__arrow_c_schema__", error)()
    for ask in (
        lambda: ad.schema(producer),
        lambda: ad.array(ac.Host(ac.numbers()), producer),
        lambda: ad.Array.from_buffers(producer, 0, []),
        lambda: ad.array(ac.Host(ac.numbers())).view(producer),
    ):
        with pytest.raises(type(error)) as raised:
            ask()
        assert raised.value is error


def test_attribute_error_on_look_up_means_not_supported():
    def look_up(self):
        raise AttributeError("not in this state")

    with pytest.raises(TypeError, match="speaks none"):
        ad.array(type("Later", (), {"__arrow_c_array__": property(look_up)})())


def test_interrupt_during_refusal_message():
    with pytest.raises(KeyboardInterrupt):
        ad.array(raising("__arrow_c_array__", Loud())())


def test_refusal_falls_back_to_next_protocol():
    tree = ac.numbers()
    producer = raising(
        "__arrow_c_device_array__",
        ValueError("not today"),
        __arrow_c_array__=lambda self, **_: tree.host_pair(),
    )()
    array = ad.array(producer)
    assert len(array) == 3
    del array
    assert tree.released == (1, 1)


@pytest.mark.parametrize("method", [name for name in METHODS if "interface" not in name])
@pytest.mark.parametrize("value", [1, "x", None, object(), [], ad.ExchangeError])
def test_dunder_not_callable(method, value):
    producer = type("P", (), {method: value, "__dlpack_device__": lambda s: (1, 0)})()
    with pytest.raises(ad.ExchangeError) as error:
        ad.array(producer)
    assert method in str(error.value)
    with pytest.raises((ad.ExchangeError, TypeError)):
        ad.schema(type("P", (), {"__arrow_c_schema__": value})())


@pytest.mark.parametrize("parts", [(), (1,), (None, None, None), ("a", "b")])
def test_dunder_is_a_class(parts):
    class Weird:
        def __new__(cls, *args, **kwargs):
            return parts

    producer = type("P", (), {"__arrow_c_array__": Weird})()
    with pytest.raises(ad.ExchangeError, match="expected"):
        ad.array(producer)


# --- release callbacks ---------------------------------------------------------------------


def test_release_callback_imports():
    inner = ac.numbers()
    seen = []
    tree = ac.numbers()
    tree.array.on_release = lambda: seen.append(len(ad.array(ac.Host(inner))))
    tree.schema.on_release = lambda: seen.append(str(ad.schema("int8")))
    array = ad.array(ac.Host(tree))
    del array
    assert sorted(map(str, seen)) == ["3", "int8"]
    assert tree.released == inner.released == (1, 1)


def fail_by_type(producer):
    return ad.array(producer, "float32")


def fail_by_nulls(producer):
    return ad.array(producer, ac.WithSchema(ac.SchemaNode("l", flags=0)))


def fail_by_device(producer):
    return ad.array(producer, device="cuda:1")


def fail_by_tensor_device(producer):
    return ad.tensor(producer, order="F", copy=False, nulls="raise")


def fail_by_validity(producer):
    return ad.array(producer, validity=object())


FAILURES = {
    "type": (fail_by_type, ad.ExchangeError),
    "not nullable": (fail_by_nulls, ad.ExchangeError),
    "device": (fail_by_device, ad.ExchangeError),
    "tensor": (fail_by_tensor_device, ad.ExchangeError),
    "validity": (fail_by_validity, TypeError),
    "index": (lambda producer: ad.array(producer)[7], IndexError),
    "slice": (lambda producer: ad.array(producer).slice(-(2**63)), IndexError),
    "field": (lambda producer: ad.array(producer).field(0), TypeError),
    "view": (lambda producer: ad.array(producer).view("int8"), ad.ExchangeError),
    "requested": (lambda producer: ad.array(producer).__arrow_c_array__(1), ad.ExchangeError),
    "batch": (lambda producer: ad.record_batch([producer, producer], names=["a"]), ValueError),
    "lengths": (lambda producer: ad.record_batch({"a": producer, "b": b"1"}), ValueError),
    "buffers": (
        lambda producer: ad.Array.from_buffers("utf8", 1, [None, producer]),
        ad.ExchangeError,
    ),
    "children": (
        lambda producer: ad.Array.from_buffers("int8", 1, [None, b"1"], children=[producer]),
        ValueError,
    ),
    "into": (lambda producer: ad.array(producer).into(3), TypeError),
    "capsules": (lambda producer: ad.array(producer).__arrow_c_device_array__()[2], IndexError),
    "stream": (lambda producer: ad.array(producer).__arrow_c_stream__().x, AttributeError),
    "dlpack": (
        lambda producer: ad.tensor(producer, nulls="ignore").__dlpack__().x,
        AttributeError,
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_error_survives_release_of_import(case):
    """Release callbacks made with ctypes clear an exception that is set at that time."""
    fail, error = FAILURES[case]
    bitmap = ac.int64s(0b101)
    tree = ac.numbers(null_count=-1, validity=ac.address(bitmap))
    unraisable = []
    old, sys.unraisablehook = sys.unraisablehook, lambda args: unraisable.append(args.exc_value)
    try:
        with pytest.raises(error) as raised:
            fail(ac.Host(tree))
    finally:
        sys.unraisablehook = old
    assert type(raised.value) is not SystemError and unraisable == []
    raised.value.__traceback__ = None
    del raised
    gc.collect()
    assert set(tree.released) <= {0, 1} and len(set(tree.released)) == 1


class ImportsItself:
    """By every protocol: if each level tried the next one as well, this would take for ever."""

    def __arrow_c_array__(self, requested_schema=None):
        return ad.array(self).__arrow_c_array__()

    def __arrow_c_stream__(self, requested_schema=None):
        return ad.array_stream(self).__arrow_c_stream__()

    def __dlpack_device__(self):
        return ac.CPU, 0

    def __dlpack__(self, **options):
        return ad.tensor(self).__dlpack__(**options)

    @property
    def __array_interface__(self):
        return ad.tensor(self).__array_interface__


def test_producer_that_imports_itself():
    """At a low limit, because the frames of a sanitizer are large."""
    limit = sys.getrecursionlimit()
    for take in (ad.array, ad.tensor, ad.array_stream):
        sys.setrecursionlimit(limit // 4)
        try:
            with pytest.raises(RecursionError):
                take(ImportsItself())
        finally:
            sys.setrecursionlimit(limit)
