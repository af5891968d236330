"""ArrayStream.into(), also of an AsyncArrayStream: objects of other libraries."""

import asyncio
import copy
import gc
import pickle
import threading
import weakref

import pytest
from lifetimes import is_gone, settled
from peer import Peer

import arrowdev as ad
from arrowdev import _targets
from arrowdev.testing import software_device

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
arro3 = Peer("arro3.core")
duckdb = Peer("duckdb")
jax = Peer("jax")
pd = Peer("pandas", "3.0")
pl = Peer("polars")
torch = Peer("torch")


def batch(i):
    values = np.arange(2.0) + i
    return ad.record_batch(
        {"x": values, "n": np.array([i, -i], "i4"), "word": pa.array(["a", None])}
    )


def batches(n=3):
    return ad.array_stream(batch(i) for i in range(n))


def columns():
    return ad.array_stream([np.arange(3.0), np.arange(2.0)])


def runs():
    return pa.RunEndEncodedArray.from_arrays([2], [5])


def owned():
    """A weak reference to an array, and a stream of two batches that keeps it."""

    class Owned(np.ndarray):
        pass

    owner = np.arange(3.0).view(Owned)
    return weakref.ref(owner), ad.array_stream([owner, np.arange(2.0)])


@pytest.fixture(autouse=True)
def registries(monkeypatch):
    for name in ("_registered", "_offered", "found"):
        monkeypatch.setattr(_targets, name, getattr(_targets, name).copy())


# --- batch by batch --------------------------------------------------------------


@pytest.mark.parametrize("name", ["np.ndarray", "torch.Tensor", "jax.Array", "pa.Array"])
def test_each_batch_of_a_stream_of_columns(name):
    library, _, attribute = name.partition(".")
    cls = getattr(globals()[library], attribute)
    source = [np.arange(64, dtype="f4"), np.ones(64, dtype="f4")]
    found = list(ad.array_stream(source).into(cls))
    assert all(isinstance(each, cls) for each in found)
    assert [each.tolist() for each in found] == [x.tolist() for x in source]


def test_memory_is_shared():
    source = [np.arange(3.0), np.arange(2.0)]
    found = list(ad.array_stream(source).into(torch.Tensor))
    assert [x.data_ptr() for x in found] == [x.ctypes.data for x in source]
    copied = list(ad.array_stream(source).into(np.ndarray, copy=True))
    assert [x.tolist() for x in copied] == [x.tolist() for x in source]
    assert {x.ctypes.data for x in copied}.isdisjoint(x.ctypes.data for x in source)
    with pytest.raises(ad.ExchangeError) as info:  # bits become bytes
        next(ad.array_stream([pa.array([True])]).into(np.ndarray, copy=False))
    assert info.value.reason == "copy"


@pytest.mark.parametrize("cls", [ad.Array, ad.Tensor, memoryview])
def test_own_classes_and_memoryview(cls):
    found = list(columns().into(cls))
    assert all(type(each) is cls for each in found)
    assert [len(each) for each in found] == [3, 2]


def test_batches_of_one_type_are_matrices_or_batches():
    source = [ad.record_batch({"a": np.arange(3.0), "b": np.arange(3.0) + i}) for i in range(2)]
    matrices = list(ad.array_stream(source).into(np.ndarray))
    assert [matrix.shape for matrix in matrices] == [(3, 2)] * 2
    assert matrices[1].tolist() == [[0, 1], [1, 2], [2, 3]]
    assert [x.num_rows for x in ad.array_stream(source).into(pa.RecordBatch)] == [3, 3]


def test_columns_by_name():
    classes = {"n": np.ndarray, "x": torch.Tensor, "word": pa.Array}
    found = list(batches().into(classes))
    assert [list(each) for each in found] == [list(classes)] * 3
    assert all(isinstance(each[name], cls) for each in found for name, cls in classes.items())
    assert [each["x"].tolist() for each in found] == [[i, i + 1.0] for i in range(3)]
    assert [each["n"].tolist() for each in found] == [[i, -i] for i in range(3)]
    assert found[0]["word"].to_pylist() == ["a", None]


def test_after_adapters():
    found = list(batches(5).rechunk(4).into({"x": np.ndarray}))
    assert [each["x"].tolist() for each in found] == [[0, 1, 1, 2], [2, 3, 3, 4], [4, 5]]


def test_registered_class_takes_batches():
    class Mine:
        def __init__(self, given):
            self.given = given

    ad.register_target(Mine, Mine, takes="tensor")
    assert [type(each.given) for each in columns().into(Mine)] == [ad.Tensor] * 2
    assert [each.given.shape for each in columns().into(Mine)] == [(3,), (2,)]


# --- whole -----------------------------------------------------------------------


WHOLE = {
    "pa.Table": lambda table: table.to_pylist(),
    "pa.RecordBatchReader": lambda reader: reader.read_all().to_pylist(),
    "pl.DataFrame": lambda frame: frame.to_dicts(),
    "pd.DataFrame": lambda frame: pa.table(frame).to_pylist(),
    "duckdb.DuckDBPyRelation": lambda relation: relation.to_arrow_table().to_pylist(),
    "arro3.Table": lambda table: pa.table(table).to_pylist(),
    "arro3.RecordBatchReader": lambda reader: pa.table(reader).to_pylist(),
}


@pytest.mark.parametrize("name", WHOLE)
def test_class_that_takes_the_whole_stream(name):
    library, _, attribute = name.partition(".")
    cls = getattr(globals()[library], attribute)
    rows = [
        {"x": i + j, "n": i - 2 * i * j, "word": None if j else "a"}
        for i in range(3)
        for j in range(2)
    ]
    stream = batches()
    made = stream.into(cls)
    assert isinstance(made, cls) and WHOLE[name](made) == rows
    with pytest.raises(ad.ExchangeError) as info:
        next(stream)
    assert info.value.reason == "consumed"
    chunked = pa.table({"a": pa.chunked_array([[1], [2, None]])})
    assert WHOLE[name](ad.convert(chunked, cls)) == [{"a": 1}, {"a": 2}, {"a": None}]
    assert WHOLE[name](ad.convert(ad.array_stream(chunked), cls, copy=True))[1] == {"a": 2}


def test_batches_are_handed_on_one_by_one():
    """A reader pulls; a table keeps the chunks."""
    taken = []
    source = (taken.append(i) or batch(i) for i in range(3))
    reader = ad.array_stream(source).into(pa.RecordBatchReader)
    assert len(taken) == 1  # for its schema
    assert reader.read_next_batch().num_rows == 2 and len(taken) <= 2
    table = batches().into(pa.Table)
    assert table["x"].num_chunks == 3
    shared = np.arange(3.0)
    table = ad.array_stream([ad.record_batch({"x": shared})]).into(pa.Table, copy=False)
    assert table["x"].chunk(0).buffers()[1].address == shared.ctypes.data
    table = ad.array_stream([ad.record_batch({"x": shared})]).into(pa.Table, copy=True)
    assert table["x"].chunk(0).buffers()[1].address != shared.ctypes.data
    reader = ad.convert(batches(), pa.RecordBatchReader)
    assert [each.num_rows for each in reader] == [2, 2, 2]


def test_bools_of_a_byte_in_a_frame():
    source = [ad.record_batch({"b": np.array([True, False])})] * 2
    assert ad.array_stream(source).into(pl.DataFrame)["b"].to_list() == [True, False] * 2


def test_duckdb_would_show_what_is_stored():
    permuted = np.arange(6.0).reshape(1, 2, 3).transpose(0, 2, 1)
    bfloat16 = torch.ones(2, dtype=torch.bfloat16)
    for data, text in ((bfloat16, "no equivalent of bfloat16"), (permuted, "in another order")):
        for column in (data, ad.record_batch({"x": data})):
            stream = ad.array_stream([ad.record_batch({"c": column})])
            with pytest.raises(ad.ExchangeError, match=text) as info:
                stream.into(duckdb.DuckDBPyRelation)
            assert info.value.reason == "dtype"


@pytest.mark.parametrize("name", ["pl.DataFrame", "pd.DataFrame", "duckdb.DuckDBPyRelation"])
def test_class_that_cannot_promise_to_share(name):
    library, _, attribute = name.partition(".")
    with pytest.raises(ad.ExchangeError, match="decides by itself whether to copy") as info:
        batches().into(getattr(globals()[library], attribute), copy=False)
    assert info.value.reason == "copy"


@pytest.mark.parametrize(
    "name", ["pa.Table", "pa.RecordBatchReader", "pl.DataFrame", "pd.DataFrame"]
)
def test_column_is_no_table(name):
    library, _, attribute = name.partition(".")
    with pytest.raises(ad.ExchangeError, match="made of columns") as info:
        columns().into(getattr(globals()[library], attribute))
    assert info.value.reason == "dtype" and "record_batch" in info.value.hint


@pytest.mark.parametrize("name", ["pl.DataFrame", "duckdb.DuckDBPyRelation", "pd.DataFrame"])
def test_null_rows_in_a_table(name):
    """They would become rows of nulls."""
    library, _, attribute = name.partition(".")
    cls = getattr(globals()[library], attribute)
    with pytest.raises(Exception, match="no place for null rows"):
        made = ad.array_stream([pa.array([{"a": 1}, None])]).into(cls)
        made.fetchall()


def test_null_rows_in_chunks():
    rows = [{"a": 1}, None]
    chunks = ad.array_stream([pa.array(rows), pa.array(rows)]).into(arro3.ChunkedArray)
    assert pa.chunked_array(chunks).to_pylist() == rows * 2


def test_whole_stream_on_a_device_is_refused():
    with software_device() as device:
        source = [device.array([1, 2])]
        for cls in (pa.ChunkedArray, pl.Series):
            with pytest.raises(ad.ExchangeError, match="needs host memory") as info:
                ad.array_stream(source).into(cls)
            assert info.value.reason == "device" and '.to("cpu")' in info.value.hint
        assert ad.array_stream(source).to("cpu").into(pa.ChunkedArray).to_pylist() == [1, 2]
        del source, info


def test_registered_class_takes_the_whole_stream():
    class Rows(list):
        pass

    ad.register_target(
        Rows, lambda stream: Rows(x for each in stream for x in each.to_pylist()), takes="stream"
    )
    assert columns().into(Rows) == [0, 1, 2, 0, 1]
    assert ad.convert(pa.chunked_array([[1], [2]]), Rows) == [1, 2]
    assert ad.convert(np.arange(2), Rows) == [0, 1]
    assert ad.array(np.arange(2)).into(Rows) == [0, 1]
    assert ad.convert(pa.chunked_array([[1], [None]]), Rows, nulls="fill", fill_value=7) == [1, 7]
    ad.register_target(Rows, lambda stream: 5, takes="stream")
    with pytest.raises(ad.ExchangeError, match=r"returned an instance of builtins\.int") as info:
        columns().into(Rows)
    assert info.value.reason == "target"


# --- refused at the call ---------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "error", "text"),
    [
        (int, TypeError, "how to make an instance of builtins.int"),
        ("np.ndarray", TypeError, "a class such as torch.Tensor or a mapping .* not str"),
        ({"x": "np.ndarray"}, TypeError, "a class such as torch.Tensor or a mapping .* not str"),
        ({"x": np.ndarray, "n": int}, TypeError, "how to make an instance of builtins.int"),
        ({"x": np.ndarray, "y": np.ndarray}, KeyError, 'no column is named "y"'),
        ({}, ValueError, "mapping of column names to classes is empty"),
        (np.ndarray, ad.ExchangeError, 'column "x" is of type float64'),
        ({"x": memoryview, "word": np.ndarray}, ad.ExchangeError, "string has no equivalent"),
        ({"word": memoryview}, ad.ExchangeError, "string has no equivalent as a tensor"),
    ],
)
def test_what_is_refused_is_refused_at_the_call(cls, error, text):
    stream = batches()
    with pytest.raises(error, match=text):
        stream.into(cls)
    assert len(list(stream)) == 3  # not handed over


@pytest.mark.parametrize(
    ("make", "name", "arguments", "reason"),
    [
        (batches, "pl.DataFrame", {"copy": False}, "copy"),
        (columns, "pa.Table", {}, "dtype"),
        (lambda: ad.array_stream([runs()]), "pl.Series", {}, "dtype"),
        (lambda: ad.array_stream([pa.array([1], "uint8")] * 3), "pd.DataFrame", {}, "dtype"),
    ],
)
def test_whole_stream_that_is_refused_is_not_handed_over(make, name, arguments, reason):
    library, _, attribute = name.partition(".")
    cls = getattr(globals()[library], attribute)
    stream = make()
    with pytest.raises(ad.ExchangeError) as info:
        stream.into(cls, **arguments)
    assert info.value.reason == reason
    assert len(list(stream)) == len(list(make()))


@pytest.mark.parametrize("name", ["pd.Series", "pd.DataFrame", "pl.Series", "arro3.ChunkedArray"])
def test_whole_stream_of_a_device_is_not_handed_over(name):
    library, _, attribute = name.partition(".")
    with software_device() as device:
        stream = ad.array_stream([device.array([1, 2])] * 2)
        with pytest.raises(ad.ExchangeError, match="needs host memory"):
            stream.into(getattr(globals()[library], attribute))
        assert [len(each) for each in stream] == [2, 2]
        del stream


def test_subclass_that_takes_a_whole_stream():
    class Derived(pa.Table):
        pass

    stream = batches()
    with pytest.raises(TypeError, match=r"make an instance of pyarrow\.lib\.Table, not of"):
        stream.into(Derived)
    assert len(list(stream)) == 3


def test_convention_that_takes_a_whole_stream_is_tried():
    stream = columns()
    with pytest.raises(ad.ExchangeError):
        stream.into(arro3.Table)
    assert len(list(stream)) == 2


def test_type_that_a_library_refuses_itself():
    column = pa.array([1, None], pa.decimal256(50, 0))
    stream = ad.array_stream([pa.record_batch({"x": column})])
    with pytest.raises(ad.ExchangeError, match=r"Relation cannot be made of .*decimal256") as info:
        stream.into(duckdb.DuckDBPyRelation)
    assert info.value.reason == "target" and info.value.__cause__ is not None
    assert len(list(stream)) == 1


def test_class_whose_library_makes_another_one():
    stream = columns()
    with pytest.raises(TypeError, match=r"returned an instance of numpy\.ndarray"):
        stream.into(np.float64)
    assert len(list(stream)) == 2


def test_column_of_two_fields_of_one_name():
    twins = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(ValueError, match='both named "a"'):
        ad.array_stream([twins]).into({"a": np.ndarray})


def test_mapping_for_a_stream_of_columns():
    with pytest.raises(TypeError, match="only a struct has fields"):
        columns().into({"x": np.ndarray})


def test_arguments_that_are_refused():
    for arguments in ({"copy": "no"}, {"stream": "abc"}):
        with pytest.raises(TypeError):
            columns().into(np.ndarray, **arguments)


# --- errors between batches, lifetime --------------------------------------------


def test_batch_that_is_refused_ends_the_stream():
    stream = ad.array_stream([pa.array([1, 2]), pa.array([1, None]), pa.array([3, 4])])
    found = stream.into(np.ndarray)
    assert next(found).tolist() == [1, 2]
    with pytest.raises(ad.ExchangeError) as info:
        next(found)
    assert info.value.reason == "nulls"
    with pytest.raises(ad.ExchangeError) as info:  # never the third batch
        next(found)
    assert info.value.reason == "consumed"


def test_error_of_the_source():
    def broken():
        yield np.arange(2)
        raise ValueError("unplugged")

    found = ad.array_stream(broken()).into(np.ndarray)
    next(found)
    for _ in range(2):
        with pytest.raises(ad.ExchangeError, match="unplugged"):
            next(found)


def test_stream_is_handed_over():
    stream = columns()
    found = stream.into(np.ndarray)
    with pytest.raises(ad.ExchangeError) as info:
        next(stream)
    assert info.value.reason == "consumed"
    with pytest.raises(ad.ExchangeError):
        stream.into(np.ndarray)
    assert iter(found) is found and len(list(found)) == 2 and list(found) == []


def test_close():
    alive, stream = owned()
    with stream.into(np.ndarray) as found:
        assert "ConvertedStream" in repr(found)
        first = next(found)
    with pytest.raises(ad.ExchangeError, match="closed"):
        next(found)
    assert first.tolist() == [0, 1, 2] and not is_gone(alive)
    del first
    assert is_gone(alive)
    found.close()


@pytest.mark.parametrize("cls", [np.ndarray, pa.ChunkedArray, {"x": np.ndarray}])
def test_source_is_released(cls):
    alive, stream = owned()
    if isinstance(cls, dict):
        stream = stream.map(lambda array: ad.record_batch({"x": array}))
    found = stream.into(cls)
    del stream
    made = found if cls is pa.ChunkedArray else next(found)
    del found
    gc.collect()
    assert not is_gone(alive)
    del made
    assert is_gone(alive)


def test_source_is_released_when_a_class_fails():
    class Mine:
        pass

    def fail(given):
        raise RuntimeError("no memory left")

    for takes in ("array", "stream"):
        ad.register_target(Mine, fail, takes=takes)
        alive, stream = owned()
        with pytest.raises(ad.ExchangeError, match="no memory left"):
            list(stream.into(Mine))
        del stream
        assert is_gone(alive)


def test_cycle_through_a_stream_is_collected():
    class Owner(list):
        pass

    owner = Owner()
    alive = weakref.ref(owner)
    owner.append(ad.array_stream(iter([np.arange(2)])).map(lambda a, owner=owner: a))
    owner[0] = owner[0].into(np.ndarray)
    del owner
    assert is_gone(alive)


def test_pickle_is_refused():
    with pytest.raises(TypeError, match="copy ConvertedStream: it can be read only once"):
        pickle.dumps(columns().into(np.ndarray))


def test_two_threads_share_a_stream():
    """Each batch goes to one of them; a read at the same time is refused."""
    found = ad.array_stream(np.arange(i, i + 2) for i in range(400)).into(np.ndarray)
    taken, unexpected = [], []

    def read():
        while True:
            try:
                taken.append(int(next(found)[0]))
            except StopIteration:
                return
            except (RuntimeError, ValueError) as error:
                if "already" not in str(error):
                    unexpected.append(error)
                    return

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not unexpected and sorted(taken) == list(range(400))


# --- on a device -----------------------------------------------------------------


def test_order_on_a_device():
    """The caller's stream waits for the event of each batch; the host does not."""
    with software_device() as device:
        theirs, ours = device.queue(), device.queue()
        memory = device.empty(3 * 8)
        before = settled(device).allocations
        with theirs.held(), ad.use_stream(ours):
            source = (device.array([i], queue=theirs) for i in range(3))
            for i, tensor in enumerate(ad.array_stream(source).into(ad.Tensor)):
                assert not tensor.is_ready()
                ours.copy(memory.address + 8 * i, tensor.data_ptr, 8)
            del tensor, source
        assert memoryview(ours.read(memory)).cast("q").tolist() == [0, 1, 2]
        gc.collect()
        assert settled(device).allocations == before


def test_named_stream_on_a_device():
    class Mine:
        def __init__(self, given):
            self.given = given

    ad.register_target(Mine, Mine, takes="tensor")
    with software_device() as device:
        theirs, ours = device.queue(), device.queue()
        memory = device.empty(8)
        with theirs.held():
            source = [ad.record_batch({"x": ad.array(device.array([7], queue=theirs))})]
            (made,) = ad.array_stream(source).into({"x": Mine}, stream=ours)
            assert not made["x"].given.is_ready()
            ours.copy(memory.address, made["x"].given.data_ptr, 8)
        assert memoryview(ours.read(memory)).cast("q").tolist() == [7]
        del source, made


def test_copies_ahead_to_a_device():
    with software_device() as device:
        before = settled(device).allocations
        source = (np.full(3, i) for i in range(5))
        stream = ad.array_stream(source).to("ext_dev:0", prefetch=2).into(ad.Tensor)
        assert [tensor.to("cpu").into(np.ndarray).tolist() for tensor in stream] == [
            [i] * 3 for i in range(5)
        ]
        del stream
        assert settled(device).allocations == before


# --- async -----------------------------------------------------------------------


def test_async_stream():
    async def run():
        stream = ad.aio.connect(batches(4))
        async with stream.into({"x": np.ndarray, "n": torch.Tensor}) as found:
            dicts = [each async for each in found]
        assert [each["x"].tolist() for each in dicts] == [[i, i + 1.0] for i in range(4)]
        assert [each["n"].tolist() for each in dicts] == [[i, -i] for i in range(4)]
        return [x.tolist() async for x in ad.aio.connect(columns()).into(np.ndarray)]

    assert asyncio.run(run()) == [[0, 1, 2], [0, 1]]


def test_refusals_of_async_streams():
    async def run():
        stream = ad.aio.connect(batches())
        for cls, error, text in (
            (int, TypeError, "instance of builtins.int"),
            ({}, ValueError, "is empty"),
            (pa.Table, TypeError, r"x\.to_stream\(\)\.into\(cls\)"),
        ):
            with pytest.raises(error, match=text):
                stream.into(cls)
        await stream.get_schema()
        with pytest.raises(KeyError, match="is named"):
            stream.into({"y": np.ndarray})
        unknown, _ = ad.aio.consumer()
        unknown.into({"y": np.ndarray})  # the schema is not known yet
        nulls = ad.aio.connect(ad.array_stream([pa.array([1]), pa.array([None, 1])]))
        found = nulls.into(np.ndarray)
        assert (await found.__anext__()).tolist() == [1]
        with pytest.raises(ad.ExchangeError, match="null"):
            await found.__anext__()
        await found.aclose()
        with pytest.raises(KeyError, match="is named"):  # by whichever call knows the schema first
            await ad.aio.connect(batches()).into({"y": np.ndarray}).__anext__()

    asyncio.run(run())


def test_object_of_an_async_stream():
    async def run():
        found = ad.aio.connect(columns()).into(np.ndarray)
        assert weakref.ref(found)() is found
        assert repr(found).startswith("<arrowdev.AsyncConvertedStream of <arrowdev.")
        with pytest.raises(TypeError, match="copy AsyncConvertedStream: it can"):
            copy.copy(found)
        await found.aclose()

    asyncio.run(run())
