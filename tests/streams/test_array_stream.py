"""ad.array_stream() and ad.ArrayStream: import and export of pull streams."""

import ctypes
import errno
import gc
import resource
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path

import arrow_ctypes as ac
import nanoarrow as na
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from lifetimes import is_gone, settled, skip_if_sanitized
from peer import Peer
from stream_samples import OneMethod, failing, foreign
from waiting import LIMIT

import arrowdev as ad
from arrowdev import testing

duckdb = pytest.importorskip("duckdb")
pl = Peer("polars")


def batches(count, rows=2):
    for i in range(count):
        yield pa.record_batch({"a": range(i * rows, (i + 1) * rows), "s": ["text"] * rows})


def numbers(count):
    for i in range(count):
        yield np.full(2, i)


# --- sources -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        lambda: numbers(3),
        lambda: list(numbers(3)),
        lambda: iter(tuple(numbers(3))),
        lambda: (ad.array(x) for x in numbers(3)),
        lambda: (pa.array(x) for x in numbers(3)),
        lambda: map(memoryview, numbers(3)),
        lambda: pa.chunked_array(list(numbers(3))),
        lambda: ad.array_stream(numbers(3)).__arrow_c_stream__(),
        lambda: ad.array_stream(numbers(3)).__arrow_c_device_stream__(),
        lambda: pa.chunked_array(list(numbers(3))).__arrow_c_stream__(),
    ],
)
def test_sources(source):
    stream = ad.array_stream(source())
    assert isinstance(stream, ad.ArrayStream)
    assert stream.schema == ad.schema("int64")
    assert stream.device_type == ad.DeviceType.CPU
    assert [array.to_pylist() for array in stream] == [[0, 0], [1, 1], [2, 2]]
    assert list(stream) == []


@pytest.mark.parametrize(
    "one", [np.arange(3), ad.array(np.arange(3)), pa.array([0, 1, 2]), memoryview(np.arange(3))]
)
def test_one_array_is_a_stream_of_one(one):
    (array,) = ad.array_stream(one)
    assert array.to_pylist() == [0, 1, 2]


def test_stream_of_a_stream_is_itself():
    stream = ad.array_stream(numbers(1))
    assert ad.array_stream(stream) is stream


@pytest.mark.parametrize("nothing", [5, None, object()])
def test_invalid_source(nothing):
    with pytest.raises(TypeError, match="no stream"):
        ad.array_stream(nothing)


def test_wrong_capsule_kind():
    with pytest.raises(ad.ExchangeError, match="arrow_schema"):
        ad.array_stream(ad.schema("int64").__arrow_c_schema__())


def test_capsule_is_consumed_once():
    capsule = ad.array_stream(numbers(1)).__arrow_c_stream__()
    assert len(list(ad.array_stream(capsule))) == 1
    with pytest.raises(ad.ExchangeError) as info:
        ad.array_stream(capsule)
    assert info.value.reason == "consumed"


# --- schema and device type ----------------------------------------------------------------------


def test_schema_of_the_first_element():
    taken = []

    def source():
        for array in numbers(3):
            taken.append(array)
            yield array

    stream = ad.array_stream(source())
    assert len(taken) == 1
    assert len(list(stream)) == 3


def test_source_not_read_if_schema_and_device_given():
    taken = []
    source = (taken.append(x) or x for x in numbers(2))
    stream = ad.array_stream(source, schema="int64", device_type=ad.DeviceType.CPU)
    assert taken == [] and stream.schema == ad.schema("int64")
    assert len(list(stream)) == 2


@pytest.mark.parametrize("schema", [None, "int64"])
def test_single_values_are_no_batches(schema):
    """h5py's and zarr's datasets of one dimension iterate over them."""

    class Dataset:
        def __iter__(self):
            return iter(np.arange(3))

    ours = (ad.tensor(np.array(value)) for value in range(3))
    for source in (Dataset(), list(np.arange(3)), iter(np.arange(3)), ours):
        with pytest.raises(ad.ExchangeError, match="element 0 ") as info:
            list(ad.array_stream(source, schema=schema))
        assert info.value.reason == "ndim" and "arrowdev.array(x[...])" in info.value.hint
    with pytest.raises(ad.ExchangeError):
        ad.array_stream([np.arange(2)]).map(lambda batch: np.int64(5))
    rows = ad.array_stream([np.arange(2).reshape(1, 2), np.arange(4).reshape(2, 2)])
    assert [len(batch) for batch in rows] == [1, 2]


def test_dataset_of_h5py(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "file.h5", "w") as file:
        for values in (np.arange(4.0), np.arange(6).reshape(2, 3)):
            dataset = file.create_dataset(str(values.ndim), data=values)
            assert np.from_dlpack(ad.tensor(dataset[...])).tolist() == values.tolist()
        with pytest.raises(ad.ExchangeError) as info:
            ad.array_stream(file["1"])
        assert "no batch" in str(info.value)
        assert [batch.to_pylist() for batch in ad.array_stream(file["2"])] == [
            [0, 1, 2],
            [3, 4, 5],
        ]


def test_empty_iterable():
    with pytest.raises(ValueError, match="schema="):
        ad.array_stream([])
    stream = ad.array_stream([], schema="utf8")
    assert stream.schema == ad.schema("utf8") and list(stream) == []
    assert ad.array_stream([], schema="utf8").read_all().to_pylist() == []


def test_given_schema_is_applied():
    stream = ad.array_stream(numbers(2), schema=pa.field("x", pa.int64(), nullable=False))
    assert not stream.schema.nullable
    assert all(not array.schema.nullable for array in stream)


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (np.arange(3.0), "float64, but the stream is int64"),
        (pa.array([True]), "bool, but the stream is int64"),
        (5, "int"),
    ],
)
def test_schema_that_changes(second, text):
    stream = ad.array_stream([np.arange(3), second])
    assert next(stream).to_pylist() == [0, 1, 2]
    with pytest.raises(ad.ExchangeError, match="element 1") as info:
        next(stream)
    assert text in str(info.value)
    with pytest.raises(ad.ExchangeError):  # a batch is lost, so the stream does not continue
        next(stream)


def test_extension_that_changes():
    storage = pa.array([1, 0], pa.int8())
    bools = pa.ExtensionArray.from_storage(pa.bool8(), storage)
    stream = ad.array_stream([storage, bools])
    next(stream)
    with pytest.raises(ad.ExchangeError, match="element 1"):
        next(stream)


def test_options_apply_to_foreign_stream():
    table = pa.table({"a": [1, 2]})
    with pytest.raises(ad.ExchangeError) as info:
        ad.array_stream(table, schema=pa.schema({"a": pa.list_(pa.int64())}))
    assert info.value.reason == "schema" and "struct<a: list<item: int64>>" in str(info.value)
    with pytest.raises(ad.ExchangeError) as info:
        ad.array_stream(table, device_type=ad.DeviceType.CUDA)
    assert info.value.reason == "device"
    assert len(list(ad.array_stream(table, schema=table.schema, device_type=1))) == 1


@pytest.mark.parametrize("wrong", ["cpu", 1.0, object()])
def test_invalid_device_type(wrong):
    with pytest.raises(TypeError, match="device_type"):
        ad.array_stream(numbers(1), device_type=wrong)


def test_batch_on_another_device_type():
    here = ac.numbers()
    there = ac.numbers(device=(ac.CUDA, 0))
    stream = ad.array_stream([ad.array(ac.OnDevice(t)) for t in (here, there)])
    next(stream)
    with pytest.raises(ad.ExchangeError, match="cannot access") as info:
        next(stream)
    assert info.value.reason == "device"


# --- foreign streams -----------------------------------------------------------------------------

KINDS = pytest.mark.parametrize("device_type", [None, ac.CUDA], ids=["host", "device"])


@KINDS
def test_foreign_stream_is_released_once(device_type):
    source = foreign(ac.numbers(), ac.numbers(), device_type=device_type)
    stream = ad.array_stream(source)
    arrays = list(stream)
    assert source.released == 1  # released at the end of the stream, not later
    stream.close()
    del stream
    gc.collect()
    assert source.schema.released == 0  # the arrays still hold it
    assert [len(array) for array in arrays] == [3, 3]
    del arrays
    gc.collect()
    assert source.schema.released == 1


@KINDS
def test_close_releases_at_once(device_type):
    tree = ac.numbers()
    source = foreign(tree, ac.numbers(), device_type=device_type)
    with ad.array_stream(source) as stream:
        array = next(stream)
    assert source.released == 1 and tree.array.released == 0
    assert repr(stream).endswith(", closed>")
    for call in (lambda: next(stream), stream.read_all, stream.__arrow_c_device_stream__):
        with pytest.raises(ad.ExchangeError, match="closed") as info:
            call()
        assert info.value.reason == "consumed"
    stream.close()
    del array
    gc.collect()
    assert tree.array.released == 1


@KINDS
@pytest.mark.parametrize("message", ["the disk is full", None, "x" * 5000])
def test_get_next_fails(device_type, message):
    source = foreign(device_type=device_type, next_code=errno.ENOSPC, message=message)
    stream = ad.array_stream(source)
    with pytest.raises(ad.ExchangeError, match="get_next of the stream failed") as info:
        next(stream)
    assert info.value.code == errno.ENOSPC and info.value.reason == "stream"
    assert str(info.value).endswith(message or "no message was given")
    stream.close()
    assert source.released == 1


@KINDS
def test_get_schema_fails(device_type):
    source = foreign(device_type=device_type, schema_code=errno.EIO, message="no schema")
    with pytest.raises(ad.ExchangeError, match=r"get_schema.*no schema") as info:
        ad.array_stream(source)
    assert info.value.code == errno.EIO
    assert source.released == 1


@KINDS
def test_error_passes_through_unchanged(device_type):
    """Error text and errno of a producer reach the consumer of our struct unchanged."""
    message = "y" * 3000
    source = foreign(device_type=device_type, next_code=errno.EAGAIN, message=message)
    capsule = ad.array_stream(source).__arrow_c_device_stream__()
    struct = ac.ArrowDeviceArrayStream.from_address(
        ac.get_pointer(capsule, b"arrow_device_array_stream")
    )
    address = ctypes.addressof(struct)
    out = ac.ArrowDeviceArray()
    get_next = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(struct.get_next)
    last_error = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(struct.get_last_error)
    assert get_next(address, ctypes.addressof(out)) == errno.EAGAIN
    assert last_error(address).decode() == message
    del capsule
    gc.collect()
    assert source.released == 1


@KINDS
def test_second_chunk_is_malformed(device_type):
    good, bad = ac.numbers(), ac.numbers()
    source = foreign(good, bad, device_type=device_type)
    bad.array.struct.length = -1
    stream = ad.array_stream(source)
    next(stream)
    for _ in range(2):
        with pytest.raises(ad.InvalidArrowError, match="length is -1"):
            next(stream)
    stream.close()
    assert source.released == bad.array.released == 1


def test_host_capsule_only_for_host_memory():
    stream = ad.array_stream(foreign(ac.numbers(), device_type=ac.CUDA))
    assert not hasattr(stream, "__arrow_c_stream__")
    with pytest.raises(AttributeError, match="cuda, which the host cannot read"):
        stream.__arrow_c_stream__
    assert hasattr(ad.array_stream(numbers(1)), "__arrow_c_stream__")


# --- errors of Python code -----------------------------------------------------------------------


def test_exception_is_the_cause():
    stream = ad.array_stream(failing(ValueError("broken")))
    next(stream)
    with pytest.raises(ad.ExchangeError, match="ValueError: broken") as info:
        next(stream)
    assert isinstance(info.value.__cause__, ValueError)
    assert info.value.code == errno.EINVAL


@pytest.mark.parametrize("device", [False, True])
def test_exception_is_chained_through_a_capsule(device):
    source = OneMethod(ad.array_stream(failing(ValueError("broken"))), device=device)
    again = ad.array_stream(source)
    with pytest.raises(ad.ExchangeError) as info:
        again.read_all()
    assert str(info.value.__cause__) == "broken"
    source = OneMethod(ad.array_stream(failing(KeyError("k"))), device=device)
    with pytest.raises(ad.ExchangeError) as info:
        ad.array(source)
    assert isinstance(info.value.__cause__, KeyError)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError("no"), SystemExit(3)])
def test_exceptions_that_are_not_wrapped(error):
    stream = ad.array_stream(failing(error))
    next(stream)
    with pytest.raises(type(error)):
        next(stream)


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (ValueError("broken"), pa.ArrowInvalid),
        (NotImplementedError("broken"), NotImplementedError),
        (OSError(errno.ENOSPC, "broken"), OSError),
    ],
)
def test_exported_error_has_exception_text(error, seen):
    source = (pa.record_batch({"a": x}) for x in failing(error))
    reader = pa.RecordBatchReader.from_stream(ad.array_stream(source))
    reader.read_next_batch()
    with pytest.raises(seen, match=f"{type(error).__name__}.*broken"):
        reader.read_next_batch()


def test_refusal_of_the_only_stream_protocol():
    class Failing:
        def __arrow_c_stream__(self, requested_schema=None):
            return self.missing

    class Failing2(Failing):
        def __arrow_c_device_stream__(self, requested_schema=None, **kwargs):
            raise KeyError("x")

    class Absent:
        @property
        def __arrow_c_stream__(self):
            raise AttributeError("no stream today")

    class Own:
        def __arrow_c_stream__(self, requested_schema=None):
            raise unreadable()

    with pytest.raises(
        ad.ExchangeError, match=r"__arrow_c_stream__ refused .AttributeError"
    ) as info:
        ad.array_stream(Failing())
    assert info.value.reason == "refused" and type(info.value.__cause__) is AttributeError
    with pytest.raises(ad.ExchangeError, match=r"device_stream__ refused .*_c_stream__") as info:
        ad.array_stream(Failing2())
    assert info.value.reason == "refused" and type(info.value.__cause__) is KeyError
    with pytest.raises(TypeError, match="Absent is no stream") as info:
        ad.array_stream(Absent())
    assert str(info.value.__cause__) == "no stream today"
    with pytest.raises(ad.ExchangeError, match=r"^no such type$") as info:
        ad.array_stream(Own())
    assert info.value.reason == "dtype"


def test_exception_with_failing_str():
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    stream = ad.array_stream(failing(Odd()))
    next(stream)
    with pytest.raises(ad.ExchangeError, match="Odd") as info:
        next(stream)
    assert isinstance(info.value.__cause__, Odd)


def malformed():
    error = ad.InvalidArrowError("children[0]: length is -1")
    error.path = "children[0]"
    return error


def lost_device():
    error = ad.DeviceError("cuMemAlloc failed")
    error.code, error.device, error.hint = 700, ad.device("cuda:1"), "start again"
    return error


def unreadable():
    error = ad.ExchangeError("no such type")
    error.reason, error.dtype, error.device = "dtype", "utf8", ad.device("cuda:1")
    return error


OWN_ERRORS = [malformed, lost_device, unreadable]
FIELDS = ("reason", "hint", "device", "dtype", "path")


def fields_of(error):
    return {name: getattr(error, name, None) for name in FIELDS}


@pytest.mark.parametrize("make", OWN_ERRORS)
def test_second_read_of_a_failed_stream_says_the_first_failure(make):
    expected = make()
    for stream in (
        ad.array_stream(failing(expected)),
        ad.concat_streams([ad.array_stream(failing(expected))]),
        ad.aio.connect(ad.array_stream(failing(expected))).to_stream(),
    ):
        next(stream)
        for _ in range(3):
            with pytest.raises(type(expected)) as info:
                next(stream)
            assert fields_of(info.value) == fields_of(expected)
            assert str(expected) in str(info.value)
            if isinstance(expected, ad.DeviceError):
                assert info.value.code == 700


def test_second_read_after_a_foreign_exception():
    stream = ad.array_stream(failing(ValueError("broken")))
    next(stream)
    for cause in (ValueError, type(None)):
        with pytest.raises(ad.ExchangeError, match="ValueError: broken") as info:
            next(stream)
        assert info.value.reason == "stream" and type(info.value.__cause__) is cause


def test_fields_of_another_type_are_left_out():
    error = ad.ExchangeError("odd")
    error.reason, error.hint, error.device, error.code = 5, b"x", "cuda:0", 2**80
    stream = ad.array_stream(failing(error))
    next(stream)
    for reason in (5, None):
        with pytest.raises(ad.ExchangeError, match="odd") as info:
            next(stream)
        assert info.value.reason == reason
    assert info.value.hint is None and info.value.device is None


def test_long_text_changes_between_calls():
    """The second text happens to begin with the last letter of the first."""
    texts = iter([ac.text("what was lost"), ac.text("t" * 3000)])

    class Forgetful(ac.Stream):
        message = property(lambda self: next(texts), lambda self, text: None)

    stream = ad.array_stream(Forgetful(ac.SchemaNode("l"), [], next_code=errno.EIO))
    with pytest.raises(ad.ExchangeError) as info:
        next(stream)
    assert str(info.value).endswith(": what was lost")
    assert next(texts, None) is None


def test_long_text_is_complete_on_second_read():
    text = "(" + "x" * 3000

    def source():
        yield np.arange(2)
        raise ValueError(text)

    stream = ad.array_stream(source())
    next(stream)
    with pytest.raises(ad.ExchangeError) as first:
        next(stream)
    assert str(first.value.__cause__) == text
    with pytest.raises(ad.ExchangeError) as again:  # the exception has already been raised
        next(stream)
    assert str(again.value) == f"the iterable of the stream raised ValueError: {text}"


def test_exception_before_the_first_element():
    with pytest.raises(ZeroDivisionError):
        ad.array_stream(1 // 0 for _ in range(1))


# --- export --------------------------------------------------------------------------------------


def test_export_moves_the_stream():
    stream = ad.array_stream(numbers(3))
    next(stream)
    rest = ad.array_stream(stream.__arrow_c_device_stream__())
    assert repr(stream).endswith(", handed over>")
    with pytest.raises(ad.ExchangeError, match="handed over"):
        next(stream)
    assert stream.schema == rest.schema  # still known
    assert [a.to_pylist()[0] for a in rest] == [1, 2]


def test_export_of_a_stream_at_its_end():
    stream = ad.array_stream(numbers(1))
    list(stream)
    assert list(ad.array_stream(stream.__arrow_c_stream__())) == []


def test_requested_schema():
    stream = ad.array_stream(numbers(1))
    with pytest.raises(ad.ExchangeError, match="requested_schema"):
        stream.__arrow_c_stream__(pa.utf8().__arrow_c_schema__())
    assert (
        len(list(ad.array_stream(stream.__arrow_c_stream__(pa.int32().__arrow_c_schema__())))) == 1
    )
    with pytest.raises(NotImplementedError):
        ad.array_stream(numbers(1)).__arrow_c_device_stream__(other=1)


def test_batches_pass_through_unchanged():
    x = np.arange(3)
    (array,) = ad.array_stream(OneMethod(ad.array_stream(iter([x]))))
    assert np.shares_memory(np.asarray(array), x)


# --- lifetime ------------------------------------------------------------------------------------


def test_generator_is_closed_early():
    closed = []

    def source():
        try:
            yield from numbers(5)
        finally:
            closed.append(True)

    stream = ad.array_stream(source())
    next(stream)
    stream.close()
    assert closed == [True]
    capsule = ad.array_stream(source()).__arrow_c_stream__()
    del capsule
    assert closed == [True, True]


@pytest.mark.parametrize("ends", [False, True])
def test_generator_closes_its_reader(ends):
    """The reader's close releases the stream during a call of it."""
    freed = []

    class Memory(bytearray):
        def __del__(self):
            freed.append(True)

    def source():
        memory = Memory(8)
        yield ad.record_batch({"x": memoryview(b"abc")})
        reader.close()
        assert not freed and len(memory) == 8
        if ends:
            raise ValueError("broken")
        yield ad.record_batch({"x": memoryview(b"de")})

    reader = pa.RecordBatchReader.from_stream(ad.array_stream(source()))
    assert reader.read_next_batch().num_rows == 3
    if ends:
        with pytest.raises(pa.ArrowInvalid):
            reader.read_next_batch()
    else:
        assert reader.read_next_batch().num_rows == 2
    assert freed


def test_cycle_is_collected():
    class Source:
        def __iter__(self):
            return self

        def __next__(self):
            return np.arange(3)

    source = Source()
    source.stream = ad.array_stream(source)
    reference = weakref.ref(source)
    del source
    assert is_gone(reference)


def test_arrays_outlive_the_stream():
    x = np.arange(5)
    reference = weakref.ref(x)
    stream = ad.array_stream(iter([x]))
    del x
    array = next(stream)
    schema = stream.schema
    stream.close()
    del stream
    assert array.to_pylist() == [0, 1, 2, 3, 4] and schema == ad.schema("int64")
    del array
    assert is_gone(reference)


def test_memory_is_bounded():
    skip_if_sanitized()

    def source():
        for _ in range(20_000):
            yield np.zeros(2_000)

    reader = pa.RecordBatchReader.from_stream(
        ad.array_stream(pa.record_batch({"a": x}) for x in source())
    )
    stream = ad.array_stream(OneMethod(reader))
    for _ in range(200):
        next(stream)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(1 for _ in stream) == 19_800
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 20_000  # in kB; all batches together take 320,000


def test_source_reads_its_own_stream():
    holder = []

    def source():
        yield np.arange(2)
        next(holder[0])

    holder.append(ad.array_stream(source()))
    next(holder[0])
    with pytest.raises(ad.ExchangeError, match="being read already") as info:
        next(holder[0])
    assert isinstance(info.value.__cause__, RuntimeError)
    holder.clear()


# --- threads -------------------------------------------------------------------------------------


def run_thread(function):
    result = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive()
    return result[0]


def test_generator_is_pulled_by_foreign_threads():
    """DuckDB and polars pull on their own threads, without the GIL."""
    con = duckdb.connect(config={"threads": 4})
    stream = ad.array_stream(batches(50, 100))  # noqa: F841, found by its name
    assert con.sql("select count(*), sum(a) from stream").fetchall() == [(5000, 12497500)]


def test_pulled_on_another_thread():
    stream = ad.array_stream(numbers(100))
    assert run_thread(lambda: sum(len(a) for a in stream)) == 200


def test_one_reader_at_a_time():
    started, go_on = threading.Event(), threading.Event()

    def source():
        yield np.arange(2)
        started.set()
        assert go_on.wait(LIMIT)
        yield np.arange(2)

    stream = ad.array_stream(source())
    next(stream)
    thread = threading.Thread(target=lambda: next(stream))
    thread.start()
    assert started.wait(LIMIT)
    with pytest.raises(RuntimeError, match="one reader at a time"):
        next(stream)
    stream.close()  # takes effect once the reader has its batch
    assert not repr(stream).endswith("closed>")
    go_on.set()
    thread.join(LIMIT)
    assert not thread.is_alive() and repr(stream).endswith("closed>")


def test_foreign_get_next_runs_without_gil():
    started, go_on = threading.Event(), threading.Event()
    source = foreign(ac.numbers())
    blocked = source._get_next

    def slow(pointer, out):  # takes the GIL itself: only possible where it is free
        started.set()
        assert go_on.wait(LIMIT)
        return blocked(pointer, out)

    callback = ac.CALLBACKS["get_next"](slow)
    source.struct.get_next = ctypes.cast(callback, ctypes.c_void_p)
    stream = ad.array_stream(source)
    thread = threading.Thread(target=lambda: list(stream))
    thread.start()
    assert started.wait(LIMIT)
    go_on.set()
    thread.join(LIMIT)
    assert not thread.is_alive()


def run_python(code):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        cwd=Path(ad.__file__).parent.parent,
    )
    return done.returncode, done.stdout, done.stderr


def test_interpreter_exits_while_a_thread_pulls():
    """A thread unknown to Python pulls from a generator while the interpreter exits."""
    code, out, err = run_python(
        """
        import contextlib, threading, time
        import numpy as np
        import pyarrow as pa
        import arrowdev as ad

        def source():
            while True:
                yield pa.record_batch({"a": np.arange(3)})

        reader = pa.RecordBatchReader.from_stream(ad.array_stream(source()))
        n = 0

        def pull():
            global n
            with contextlib.suppress(Exception):  # a thread that prints one at exit is fatal
                while True:
                    reader.read_next_batch()
                    n += 1

        threading.Thread(target=pull, daemon=True).start()
        while n < 100:
            time.sleep(0.001)
        print("exits")
        """
    )
    assert (code, out.strip()) == (0, "exits"), err


def test_stream_that_lives_until_the_exit():
    code, _, err = run_python(
        """
        import sys
        import numpy as np
        import arrowdev as ad
        sys.keep = ad.array_stream(np.arange(3) for _ in range(5))
        next(sys.keep)
        """
    )
    assert code == 0 and err == "", err


# --- peers ---------------------------------------------------------------------------------------

TABLE = pa.concat_tables([pa.table({"a": [1, 2], "s": ["x", None]}) for _ in range(3)])


def frames():
    return {
        "pyarrow.Table": lambda: TABLE,
        "pyarrow.RecordBatchReader": TABLE.to_reader,
        "polars": lambda: pl.concat([pl.from_arrow(t) for t in [TABLE] * 2], rechunk=False),
        "pandas": lambda: pd.DataFrame({"a": [1, 2], "s": ["x", None]}),
        "duckdb": lambda: duckdb.sql("select 1 as a, 'x' as s union all select 2, null"),
        "nanoarrow": lambda: na.ArrayStream(TABLE),
    }


@pytest.mark.parametrize("name", frames())
def test_streams_of_peers(name):
    source = frames()[name]
    expected = pa.RecordBatchReader.from_stream(source()).read_all().to_pylist()
    stream = ad.array_stream(source())
    assert [row for batch in stream for row in batch.to_pylist()] == expected
    assert ad.array(source()).to_pylist() == expected
    assert ad.array_stream(source()).read_all().to_pylist() == expected


def test_pyarrow_reads_ours():
    reader = pa.RecordBatchReader.from_stream(ad.array_stream(batches(3)))
    table = reader.read_all()
    assert table.num_rows == 6 and table.column("a").num_chunks == 3
    assert pa.table(ad.array_stream(batches(3))).equals(table)


def test_polars_reads_ours():
    frame = pl.DataFrame(ad.array_stream(batches(3)))
    assert frame["a"].to_list() == [0, 1, 2, 3, 4, 5]


def test_duckdb_reads_ours():
    stream = ad.array_stream(batches(3))  # noqa: F841, found by its name
    assert duckdb.sql("select sum(a) from stream").fetchall() == [(15,)]


def test_nanoarrow_reads_ours():
    stream = na.ArrayStream(ad.array_stream(batches(3)))
    assert [len(chunk) for chunk in stream] == [2, 2, 2]


@pytest.mark.skipif(not hasattr(pd.DataFrame, "from_arrow"), reason="pandas before 3")
def test_pandas_reads_ours():
    assert list(pd.DataFrame.from_arrow(ad.array_stream(batches(2)))["a"]) == [0, 1, 2, 3]


# --- the software device -------------------------------------------------------------------------


def on_device(device, queue, count):
    for i in range(count):
        yield device.array([i, i + 1], queue=queue)


def test_one_event_per_batch(device):
    queue = device.queue()
    with queue.held():
        arrays = list(ad.array_stream(on_device(device, queue, 4)))
        events = [array.sync_event for array in arrays]
        assert None not in events and len(set(events)) == 4
        assert not any(array.is_ready() for array in arrays)
    for i, array in enumerate(arrays):
        array.synchronize()
        assert array.to("cpu").to_pylist() == [i, i + 1]


def test_events_pass_through_a_capsule(device):
    queue = device.queue()
    with queue.held():
        stream = ad.array_stream(on_device(device, queue, 3))
        assert stream.device_type == ad.DeviceType.EXT_DEV
        assert not hasattr(stream, "__arrow_c_stream__")
        arrays = list(ad.array_stream(OneMethod(stream, device=True)))
        assert len({array.sync_event for array in arrays}) == 3
        assert not arrays[2].is_ready()
    assert [array.to("cpu").to_pylist() for array in arrays] == [[0, 1], [1, 2], [2, 3]]


def test_any_device_of_one_type():
    with testing.software_device(devices=2, timeout=LIMIT) as device:
        arrays = [device.array([i], queue=device.queue(i)) for i in range(2)]
        found = list(ad.array_stream(arrays))
        assert [array.device_id for array in found] == [0, 1]
        del arrays, found
        gc.collect()


def test_current_stream_waits_for_each_batch(device):
    ours, theirs = device.queue(), device.queue()
    memory = device.empty(16)
    with ad.use_stream(ours), theirs.held():
        for array in ad.array_stream(on_device(device, theirs, 1)):
            ours.copy(memory, array.buffers[1].data_ptr, 16)
            assert not ours.is_idle()
        del array
    assert memoryview(ours.read(memory)).cast("q").tolist() == [0, 1]


def test_device_memory_is_freed(device):
    before = settled(device)
    queue = device.queue()
    for array in ad.array_stream(on_device(device, queue, 50)):
        array.synchronize()
    del array
    gc.collect()
    device.synchronize(timeout=LIMIT)
    assert device.live().allocations == before.allocations
