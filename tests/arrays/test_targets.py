"""Targets of convert() and .into() that arrowdev does not know: registered, or by convention."""

import logging
import sys
import threading
import types
import weakref

import pytest
from lifetimes import is_gone

import arrowdev as ad
from arrowdev import _targets
from arrowdev.testing import software_device

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")


class Silent:
    """Holds what it is given, and speaks no protocol."""

    def __init__(self, values):
        self.values = values


class Block(Silent):
    """Holds a tensor of NumPy, and speaks DLPack."""

    @property
    def __dlpack__(self):
        return self.values.__dlpack__

    @property
    def __dlpack_device__(self):
        return self.values.__dlpack_device__


class Column(Silent):
    """Holds an array of pyarrow, and speaks Arrow."""

    @property
    def __arrow_c_array__(self):
        return self.values.__arrow_c_array__


@pytest.fixture(autouse=True)
def registries(monkeypatch):
    for name in ("_registered", "_offered", "_asked", "found"):
        monkeypatch.setattr(_targets, name, getattr(_targets, name).copy())


@pytest.fixture
def library(monkeypatch):
    """A module `library` with a class Thing, made anew for each test."""
    module = types.ModuleType("library")
    monkeypatch.setitem(sys.modules, "library", module)
    module.Thing = type("Thing", (Silent,), {"__module__": "library"})
    module.Block = type("Block", (Block,), {"__module__": "library"})
    return module


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.DEBUG, logger="arrowdev")
    return lambda: [record.getMessage() for record in caplog.records]


# --- registered ------------------------------------------------------------------


@pytest.mark.parametrize("takes", ["array", "tensor", "stream"])
def test_registered_function_is_given_what_it_takes(takes):
    kinds = {"array": ad.Array, "tensor": ad.Tensor, "stream": ad.ArrayStream}
    ad.register_target(Silent, Silent, takes=takes)
    for source in (np.arange(3), ad.array(np.arange(3)), pa.array([0, 1, 2])):
        for made in (ad.convert(source, Silent), ad.array(source).into(Silent)):
            assert type(made) is Silent and type(made.values) is kinds[takes]
    given = made.values
    rows = ad.array(given) if takes == "tensor" else given
    rows = rows.read_all() if takes == "stream" else rows
    assert rows.to_pylist() == [0, 1, 2]


def test_array_is_taken_by_default():
    ad.register_target(Silent, Silent)
    assert ad.convert(pa.array(["a", None]), Silent).values.to_pylist() == ["a", None]


def test_registration_holds_for_subclasses_and_the_last_one_counts():
    class Mine(np.ndarray):
        pass

    class Own(Mine):
        pass

    with pytest.raises(TypeError, match=r"numpy\.ndarray, not of"):
        ad.convert(b"abc", Mine)
    ad.register_target(Mine, lambda tensor: np.from_dlpack(tensor).view(Mine), takes="tensor")
    assert type(ad.convert(b"abc", Mine)) is Mine
    ad.register_target(Mine, lambda tensor: np.from_dlpack(tensor).view(Own), takes="tensor")
    assert type(ad.convert(b"abc", Mine)) is Own
    assert ad.convert(b"abc", Own).tolist() == [97, 98, 99]
    assert type(ad.convert(b"abc", np.ndarray)) is np.ndarray


@pytest.mark.parametrize(
    ("arguments", "takes", "error", "text"),
    [
        (("Silent", Silent), "array", TypeError, "cls must be a class, not str"),
        ((Silent, 5), "array", TypeError, "function must be callable, not int"),
        ((Silent, Silent), "table", ValueError, '"array", "tensor" or "stream", not \'table\''),
        ((np.ndarray, Silent), "array", ValueError, "instances of numpy.ndarray itself"),
        ((ad.Array, Silent), "array", ValueError, "instances of arrowdev.Array itself"),
        ((pa.Table, Silent), "stream", ValueError, "instances of pyarrow.lib.Table itself"),
    ],
)
def test_registrations_that_are_refused(arguments, takes, error, text):
    with pytest.raises(error, match=text):
        ad.register_target(*arguments, takes=takes)


def test_class_with_an_exchange_api_is_known():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"instances of torch\.Tensor itself"):
        ad.register_target(torch.Tensor, Silent)


def returns_another_class(given):
    return np.from_dlpack(given)


def raises(given):
    raise RuntimeError("out of order\nsecond line")


def halves(given):
    return Block(np.from_dlpack(given).astype("f4"))


def flattens(given):
    return Block(np.from_dlpack(given).ravel())


@pytest.mark.parametrize(
    ("function", "reason", "text"),
    [
        (returns_another_class, "target", "returned an instance of numpy.ndarray"),
        (raises, "target", "raised RuntimeError: out of order;"),
        (halves, "dtype", "makes float32 of float64"),
        (flattens, "shape", r"makes the shape \(6,\) of \(2, 3\)"),
    ],
)
def test_registered_function_that_fails_is_named(function, reason, text):
    ad.register_target(Block, function, takes="tensor")
    given = np.zeros((2, 3))
    for _ in range(2):
        with pytest.raises(
            ad.ExchangeError, match=f"test_targets.{function.__name__} {text}"
        ) as info:
            ad.convert(given, Block)
        assert info.value.reason == reason and info.value.hint
    if function is raises:
        assert isinstance(info.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("function", "reason", "text"),
    [
        (
            lambda a: Column(pa.array(a).cast("int16")),
            "dtype",
            r"makes int16 \(s\) of int64 \(l\)",
        ),
        (lambda a: Column(pa.array(a).fill_null(0)), "nulls", "makes 0 nulls of 1"),
        (lambda a: Column(pa.array(a)[1:]), "shape", r"makes the shape \(2,\) of \(3,\)"),
    ],
    ids=["dtype", "nulls", "rows"],
)
def test_column_that_says_something_else(function, reason, text):
    ad.register_target(Column, function)
    with pytest.raises(ad.ExchangeError, match=text) as info:
        ad.convert(pa.array([1, None, 3]), Column)
    assert info.value.reason == reason and "<lambda>" in str(info.value)


UUID = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16)))
ROWS = np.arange(12.0).reshape(1, 3, 4)
OTHER_ROWS = np.arange(12.0).reshape(1, 4, 3)


@pytest.mark.parametrize(
    ("given", "made", "reason"),
    [
        (pa.array([1, None, 3]), Block(np.array([1, 0, 3])), "nulls"),
        (pa.array(["a", "b"]), Block(np.array([1, 0])), "dtype"),
        (pa.array([1, 2], pa.timestamp("us", "UTC")), Block(np.array([1, 2])), "dtype"),
        (pa.array(["a", None]).dictionary_encode(), Block(np.arange(5)), "shape"),
        (pa.array(["a", None]), Column(pa.array(["a", "?"], "large_string")), "nulls"),
        (pa.array(["a", None]).dictionary_encode(), Column(pa.array(["a", "?"])), "nulls"),
        (pa.array([{"a": "x"}, None]), Column(pa.array([{"a": "x"}, {"a": "y"}])), "nulls"),
        (pa.array([{"a": "x"}, {"a": None}]), Column(pa.array([{"a": "x"}] * 2)), "nulls"),
        (pa.array([[1], [2, None]])[1:], Column(pa.array([[2, 0]])), "nulls"),
        (
            pa.array([[1, None]]),
            Column(pa.array([[1, 0]], pa.large_list(pa.int64()))),
            "nulls",
        ),
        (
            pa.array([[1, 2], [3, None]], pa.list_(pa.int64(), 2))[1:],
            Column(pa.array([[3, 0]], pa.list_(pa.int64(), 2))),
            "nulls",
        ),
        (
            pa.RunEndEncodedArray.from_arrays([2, 3], [7, None]),
            Column(pa.RunEndEncodedArray.from_arrays([2, 3], [7, 7])),
            "nulls",
        ),
        (
            pa.array([0, 5], "int8"),
            Column(pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 5], "int8"))),
            "dtype",
        ),
        (UUID, Column(UUID.storage), "dtype"),
        (ROWS, Column(pa.array(ad.array(OTHER_ROWS))), "dtype"),
        (ROWS, Column(pa.array(ad.array(OTHER_ROWS.transpose(0, 2, 1)))), "dtype"),
        (ROWS, Column(pa.array(ad.array(ROWS)).storage), "dtype"),
    ],
)
def test_column_that_loses_what_it_means(given, made, reason):
    ad.register_target(type(made), lambda a: made)
    with pytest.raises(ad.ExchangeError) as info:
        ad.convert(given, type(made))
    assert info.value.reason == reason and "<lambda>" in str(info.value)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (Column(pa.array(["a", "b", "c", "d"])), "dtype"),
        (Column(pa.array([1.0, None, 3.0, 4.0])), "nulls"),
        (Column(pa.array([1.0, 2.0])), "shape"),
        (Column(pa.array([[0.0, 1.0], [2.0, 3.0]])), "dtype"),
    ],
)
def test_tensor_that_becomes_another_column(made, reason):
    ad.register_target(Column, lambda tensor: made, takes="tensor")
    with pytest.raises(ad.ExchangeError) as info:
        ad.convert(np.arange(4.0), Column)
    assert info.value.reason == reason


def test_tensor_that_is_read_in_another_order():
    square = np.arange(4.0).reshape(2, 2)
    ad.register_target(Block, lambda tensor: Block(np.from_dlpack(tensor).T), takes="tensor")
    with pytest.raises(ad.ExchangeError, match=r"the strides \(1, 2\) of \(2, 1\)") as info:
        ad.convert(square, Block, copy=False)
    assert info.value.reason == "strides"
    ad.convert(np.ones((1, 1)), Block, copy=False)  # strides of one element say nothing


def test_column_that_is_handed_on_is_accepted():
    lists = pa.array([[1, None], [], None, [2]])
    for given in (
        pa.array([{"a": 1}, None, {"a": None}])[1:],
        *(lists, lists[:2], lists[3:], lists[:0]),
        *(lists.cast(pa.large_list(pa.int64())), pa.array([[1, None]], pa.list_view(pa.int64()))),
        pa.array([[1, 2], [None, 3]], pa.list_(pa.int8(), 2))[1:],
        pa.RunEndEncodedArray.from_arrays([2, 3], [7, None])[1:],
        pa.array([[("a", None)], []], pa.map_("utf8", "int8")),
        *(UUID, ROWS, pa.nulls(2)),
    ):
        for function in (lambda a: a, lambda a: ad.array(a, copy=True)):
            ad.register_target(Column, lambda a, function=function: Column(pa.array(function(a))))
            made = ad.convert(given, Column)
            assert pa.array(made).to_pylist() == pa.array(ad.array(given)).to_pylist()


def test_dtype_of_an_object_without_protocols_is_compared():
    made = Silent(None)
    made.dtype = np.dtype("int32")
    for takes in ("array", "tensor"):
        ad.register_target(Silent, lambda given: made, takes=takes)
        assert ad.convert(np.zeros(2, "i4"), Silent) is made
        with pytest.raises(ad.ExchangeError, match="makes int32 of int64"):
            ad.convert(np.zeros(2, "i8"), Silent)
    made.dtype = np.dtype("bool")  # is stored as a byte
    ad.register_target(Silent, lambda given: made)
    assert ad.convert(np.zeros(2, "?"), Silent) is made


def test_values_may_be_laid_out_in_another_way():
    """Large strings, views and dictionaries have the values of strings."""
    words = pa.array(["a", None, "a"])
    for type in ("large_string", "string_view", "dictionary"):
        ad.register_target(
            Column,
            lambda a, type=type: Column(
                pa.array(a).dictionary_encode() if type == "dictionary" else pa.array(a).cast(type)
            ),
        )
        assert ad.convert(words, Column).values.to_pylist() == ["a", None, "a"]
    encoded = ad.convert(words.dictionary_encode(), Column)
    assert pa.array(encoded).to_pylist() == ["a", None, "a"]


def test_copy_of_registered_function():
    data = np.arange(4.0)
    ad.register_target(Block, lambda tensor: Block(np.from_dlpack(tensor)), takes="tensor")
    for copy in (None, False, True):
        for source in (ad.tensor(data), data):
            made = ad.convert(source, Block, copy=copy)
            assert (made.values.ctypes.data == data.ctypes.data) is (copy is not True)
    ad.register_target(Block, lambda tensor: Block(np.array(tensor)), takes="tensor")
    assert ad.convert(data, Block).values.tolist() == data.tolist()
    with pytest.raises(ad.ExchangeError, match="copied the data, which was ruled out") as info:
        ad.convert(data, Block, copy=False)
    assert info.value.reason == "copy"


def test_copy_of_registered_column():
    data = np.arange(4.0)
    ad.register_target(Column, lambda array: Column(pa.array(array)))
    for source in (ad.array(data), ad.array(data)[1:], pa.array(data)[2:]):
        assert ad.convert(source, Column, copy=False).values.to_pylist()[-1] == 3.0
    ad.register_target(Column, lambda array: Column(pa.array(array.to_pylist())))
    assert ad.convert(data, Column).values.to_pylist() == data.tolist()
    with pytest.raises(ad.ExchangeError, match="copied the data") as info:
        ad.convert(data, Column, copy=False)
    assert info.value.reason == "copy"


@pytest.mark.parametrize("takes", ["array", "tensor", "stream"])
def test_copy_that_cannot_be_verified_is_refused(takes):
    ad.register_target(Silent, Silent, takes=takes)
    with pytest.raises(ad.ExchangeError, match="copy=False cannot be promised") as info:
        ad.convert(np.arange(3), Silent, copy=False)
    assert info.value.reason == "copy" and info.value.hint


def test_nulls_are_refused_before_a_tensor_is_handed_over():
    called = []
    ad.register_target(Silent, called.append, takes="tensor")
    with pytest.raises(ad.ExchangeError) as info:
        ad.convert(pa.array([1, None]), Silent)
    assert info.value.reason == "nulls" and not called


def test_flag_of_read_only_memory():
    class Writable:
        """Ignores the flag, as torch does."""

        def __init__(self, tensor):
            self.values = np.from_dlpack(tensor)
            self.__array_interface__ = dict(self.values.__array_interface__)
            address, _ = self.__array_interface__["data"]
            self.__array_interface__["data"] = (address, False)

    ad.register_target(Block, lambda tensor: Block(np.from_dlpack(tensor)), takes="tensor")
    assert not ad.convert(b"abc", Block).values.flags.writeable  # no warning: it has the flag
    ad.register_target(Writable, Writable, takes="tensor")
    with pytest.warns(UserWarning, match="flagged the memory as read-only") as warned:
        ad.convert(b"abc", Writable)
    assert [warning.filename for warning in warned] == [__file__]
    ad.convert(b"abc", Writable, copy=True)


def test_class_that_takes_a_tensor_gets_that_of_an_image():
    """Of an object whose column is no tensor, a class of tensors gets the tensor."""
    image = pytest.importorskip("PIL.Image").fromarray(np.arange(18, dtype="u1").reshape(2, 3, 3))
    ad.register_target(Block, lambda tensor: Block(np.from_dlpack(tensor)), takes="tensor")
    assert ad.convert(image, Block).values.tolist() == np.asarray(image).tolist()


def test_memory_is_released_when_a_function_fails():
    class Owned(np.ndarray):
        pass

    for function in (returns_another_class, raises, halves):
        owner = np.arange(3.0).view(Owned)
        alive = weakref.ref(owner)
        ad.register_target(Block, function, takes="tensor")
        with pytest.raises(ad.ExchangeError):
            ad.convert(owner, Block)
        del owner
        assert is_gone(alive)


def test_final_exceptions_are_not_wrapped():
    for error in (MemoryError, KeyboardInterrupt, RecursionError, ad.DeviceError, UserWarning):

        def fail(given, error=error):
            raise error("said")

        ad.register_target(Silent, fail)
        with pytest.raises(error, match="said"):
            ad.convert(b"abc", Silent)


def test_register_while_other_threads_convert():
    """Each conversion uses a function that was registered before it began, or one after."""
    stop = threading.Event()
    failures = []

    def convert():
        try:
            while not stop.is_set():
                least = last[0]
                assert ad.convert(b"abc", Silent).values >= least
        except BaseException as error:
            failures.append(error)

    last = [0]
    ad.register_target(Silent, lambda given: Silent(0))
    threads = [threading.Thread(target=convert) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(1, 200):
        ad.register_target(Silent, lambda given, number=number: Silent(number))
        last[0] = number
    stop.set()
    for thread in threads:
        thread.join(20)
    assert not failures and ad.convert(b"abc", Silent).values == 199


def test_registered_class_on_a_device():
    """The exporter carries the event, and is ready on the stream that was passed."""
    ad.register_target(Silent, Silent)
    with software_device() as device:
        theirs, ours = device.queue(), device.queue()
        target = device.empty(3 * 8)
        with theirs.held():
            source = device.array([1, 2, 3], queue=theirs)
            made = ad.convert(source, Silent, stream=ours)
            assert not made.values.is_ready()
            ours.copy(target.address, made.values.buffers[1].data_ptr, 3 * 8)
        assert memoryview(ours.read(target)).cast("q").tolist() == [1, 2, 3]
        ad.register_target(Silent, raises)
        with pytest.raises(ad.ExchangeError) as info:
            ad.convert(source, Silent)
        assert '.to("cpu")' in info.value.hint and str(info.value.device).startswith("ext_dev")
        del made, source, info, target


# --- by the class itself -----------------------------------------------------------


class Itself(Silent):
    calls = []

    @classmethod
    def __arrowdev_from__(cls, exporter, *, copy=None, stream=None):
        cls.calls.append((copy, stream))
        return cls(exporter)


def test_class_that_makes_itself(lines):
    class Derived(Itself):
        pass

    Itself.calls.clear()
    array, tensor = ad.array(b"abc"), ad.tensor(b"abc")
    assert array.into(Itself).values is array
    assert tensor.into(Derived, copy=False).values is tensor
    assert type(ad.convert(b"abc", Derived, copy=True)) is Derived
    with software_device() as device:
        queue = device.queue()
        ad.convert(device.array([1]), Itself, stream=queue)
        assert Itself.calls[-1] == (None, queue)
        Itself.calls[-1] = None
    assert Itself.calls == [(None, None), (False, None), (None, None), None]
    assert "convert: test_targets.Itself by test_targets.Itself.__arrowdev_from__" in lines()


def test_class_method_is_preferred_to_that_of_a_known_base():
    class Mine(np.ndarray):
        @classmethod
        def __arrowdev_from__(cls, exporter, *, copy=None, stream=None):
            return np.from_dlpack(exporter).view(cls)

    assert type(ad.convert(b"abc", Mine)) is Mine


def test_class_that_makes_itself_in_another_way_than_it_was_told():
    class Liar(Block):
        @classmethod
        def __arrowdev_from__(cls, exporter, *, copy=None, stream=None):
            values = np.from_dlpack(exporter)
            return cls(values if copy else values.copy())

    data = ad.tensor(np.arange(3.0))
    for copy, text in ((True, "shares the memory"), (False, "copied the data")):
        with pytest.raises(ad.ExchangeError, match=rf"__arrowdev_from__ {text}") as info:
            data.into(Liar, copy=copy)
        assert info.value.reason == "copy" and info.value.hint


# --- by convention -----------------------------------------------------------------


def from_dlpack(cls):
    return lambda tensor: cls(np.from_dlpack(tensor))


def test_conventions_in_their_order(library, lines):
    namespace = types.ModuleType("library.xp")
    calls = []
    block = library.Block
    make = from_dlpack(block)

    def offer(owner, name, label):
        def function(given):
            calls.append((label, type(given)))
            return make(given)

        setattr(owner, name, function if owner is not block else staticmethod(function))

    offers = [
        (library, "from_arrow", "library.from_arrow", ad.Array),
        (library, "from_dlpack", "library.from_dlpack", ad.Tensor),
        (namespace, "from_dlpack", "library.xp.from_dlpack", ad.Tensor),
        (block, "from_dlpack", "library.Block.from_dlpack", ad.Tensor),
        (block, "from_arrow", "library.Block.from_arrow", ad.Array),
    ]
    with pytest.raises(TypeError, match=r"how to make an instance of library\.Block.*register"):
        ad.convert(b"abc", block)
    for owner, name, label, kind in offers:
        offer(owner, name, label)
        if owner is namespace:
            block.__array_namespace__ = classmethod(lambda cls: namespace)
        _targets.found.clear()
        assert ad.convert(b"abc", block).values.tolist() == [97, 98, 99]
        assert calls[-1] == (label, kind)
        assert lines()[-1] == f"convert: library.Block by {label}"


def test_next_convention_is_tried(library, lines):
    """from_arrow() of some classes takes objects of pyarrow only."""
    library.Block.from_arrow = staticmethod(raises)
    library.from_dlpack = from_dlpack(library.Block)
    assert ad.convert(b"abc", library.Block).values.tolist() == [97, 98, 99]
    assert lines()[-1] == "convert: library.Block by library.from_dlpack"


def test_all_conventions_fail(library):
    library.Block.from_arrow = staticmethod(raises)
    library.from_dlpack = lambda tensor: halves(tensor)
    with pytest.raises(ad.ExchangeError) as info:
        ad.convert(np.arange(3.0), library.Block)
    text = str(info.value)
    assert (
        "library.Block.from_arrow raised RuntimeError: out of order, library.from_dlpack" in text
    )
    assert info.value.reason == "target" and isinstance(info.value.__cause__, RuntimeError)


def test_library_that_makes_other_classes(library):
    library.from_dlpack = from_dlpack(Block)
    with pytest.raises(TypeError, match=r"library\.Thing \(library\.from_dlpack returned"):
        ad.convert(b"abc", library.Thing)


def test_convention_that_copies_or_converts(library):
    library.from_dlpack = lambda tensor: library.Block(np.array(tensor))
    assert ad.convert(np.arange(3), library.Block).values.tolist() == [0, 1, 2]
    with pytest.raises(ad.ExchangeError, match="copied the data") as info:
        ad.convert(np.arange(3), library.Block, copy=False)
    assert info.value.reason == "copy"
    library.from_dlpack = lambda tensor: library.Block(np.array(tensor, "f4"))
    _targets.found.clear()
    with pytest.raises(ad.ExchangeError, match=r"library\.from_dlpack makes float32 of") as info:
        ad.convert(np.arange(3), library.Block)
    assert info.value.reason == "dtype"
    with pytest.raises(ad.ExchangeError) as info:
        ad.convert(pa.array([1, None]), library.Block)
    assert info.value.reason == "nulls"


def test_convention_is_given_no_negative_strides(library):
    library.from_dlpack = lambda tensor: library.Thing(tensor)
    assert ad.convert(np.arange(3)[::-1], library.Thing).values.strides == (1,)


def test_convention_of_a_class_of_tables(library):
    class Table(Silent):
        __module__ = "library"

        def __arrow_c_stream__(self, requested_schema=None):
            raise AssertionError("a stream may be one that can be read only once")

        def __arrow_c_schema__(self):
            return self.values.schema.__arrow_c_schema__()

        @classmethod
        def from_arrow(cls, data):
            return cls(pa.RecordBatchReader.from_stream(data))

    batch = ad.record_batch({"a": np.array([True, False])})
    assert batch.into(Table).values.read_all().to_pydict() == {"a": [True, False]}
    rows = pa.array([{"a": 1}, None])
    with pytest.raises(ad.ExchangeError, match="no place for null rows"):
        ad.convert(rows, Table)
    Table.from_arrow = lambda data: Table(pa.RecordBatchReader.from_stream(data).cast(other))
    other = pa.schema([("a", pa.int8())])
    _targets.found.clear()
    with pytest.raises(ad.ExchangeError, match="makes struct<a: int8>"):
        ad.convert(ad.record_batch({"a": np.arange(3)}), Table)


def test_module_that_fails_when_it_is_asked(library):
    def fail(name):
        raise ImportError(f"no {name}: libfoo.so is missing")

    library.__getattr__ = fail
    with pytest.raises(ad.ExchangeError, match=r"libfoo\.so is missing") as info:
        ad.convert(b"abc", library.Thing)
    assert info.value.reason == "target" and isinstance(info.value.__cause__, ImportError)


def test_class_that_fails_when_it_is_asked():
    class Meta(type):
        def __getattr__(cls, name):
            raise ValueError("no attributes today")

    def divide():
        return 1 / 0

    for cls, cause in (
        (Meta("Thing", (), {}), ValueError),
        (type("Thing", (), {"__array_namespace__": staticmethod(divide)}), ZeroDivisionError),
    ):
        with pytest.raises(ad.ExchangeError, match="look-up of") as info:
            ad.convert(b"abc", cls)
        assert info.value.reason == "target" and type(info.value.__cause__) is cause


@pytest.mark.parametrize("module", ["cudf", "a_library_that_is_not_there", None])
def test_class_whose_module_is_no_module(module):
    assert module not in sys.modules
    with pytest.raises(TypeError, match="does not know how to make an instance of"):
        ad.convert(b"abc", type("Series", (), {"__module__": module}))


# --- entry points ------------------------------------------------------------------

TARGETS = """
import fake_library

calls = []

def targets(register_target):
    calls.append(register_target)
    register_target(fake_library.Thing, fake_library.Thing, takes="tensor")

def broken(register_target):
    raise RuntimeError("half installed")

def wrong(register_target):
    register_target(fake_library.Thing, fake_library.Thing, takes="everything")
"""


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """Installs a package `fake_library` whose entry point is the argument; returns it."""

    def install(entry_point):
        info = tmp_path / "fake_library-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-library\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            f"[arrowdev.targets]\nfake_library = {entry_point}\n"
        )
        (tmp_path / "fake_library.py").write_text(
            "class Thing:\n    def __init__(self, values):\n        self.values = values\n"
        )
        (tmp_path / "fake_targets.py").write_text(TARGETS)
        monkeypatch.syspath_prepend(tmp_path)
        import fake_library

        return fake_library

    yield install
    for name in ("fake_library", "fake_targets"):
        sys.modules.pop(name, None)


def test_entry_point_is_called_once_when_its_class_is_asked_for(distribution):
    library = distribution("fake_targets:targets")
    with pytest.raises(TypeError):
        ad.convert(b"abc", Silent)
    assert "fake_targets" not in sys.modules
    for _ in range(2):
        assert isinstance(ad.convert(np.arange(3), library.Thing).values, ad.Tensor)
        _targets.found.clear()
    assert len(sys.modules["fake_targets"].calls) == 1


def test_registration_of_the_program_is_preferred_to_an_entry_point(distribution):
    library = distribution("fake_targets:targets")

    class Other(library.Thing):
        __module__ = "fake_library"

    ad.register_target(library.Thing, library.Thing)
    assert isinstance(ad.convert(b"abc", library.Thing).values, ad.Array)
    _targets.ask_entry_points("fake_library")
    assert isinstance(ad.convert(b"abc", library.Thing).values, ad.Array)


@pytest.mark.parametrize(
    ("entry_point", "cause"),
    [
        ("fake_targets:broken", RuntimeError),
        ("fake_targets:absent", AttributeError),
        ("fake_targets:wrong", ValueError),
        ("fake_targets:calls", TypeError),
        ("missing_module:targets", ModuleNotFoundError),
    ],
)
def test_entry_point_that_fails_is_named(distribution, entry_point, cause):
    library = distribution(entry_point)
    for _ in range(2):
        with pytest.raises(ad.ExchangeError, match=f"fake_library = {entry_point} of") as info:
            ad.convert(b"abc", library.Thing)
        assert info.value.reason == "target" and isinstance(info.value.__cause__, cause)
    assert ad.convert(b"abc", np.ndarray).tolist() == [97, 98, 99]
