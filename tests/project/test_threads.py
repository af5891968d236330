"""Eight threads at once on the same objects, as a free-threaded CPython runs them.

With a GIL the threads take turns, so that most of this cannot fail there. ARROWDEV_EXAMPLES sets
the number of rounds. docs/internals/threads.md lists what threads share.
"""

import contextlib
import ctypes
import gc
import itertools
import os
import pickle
import sys
import threading
import time
import weakref

import isolation
import pytest
from at_once import run_at_once
from c_api import Column
from lifetimes import settled

import arrowdev as ad
from arrowdev import _core
from arrowdev.testing._abi import get_pointer

N = 8
ROUNDS = int(os.environ.get("ARROWDEV_EXAMPLES", "20"))
ROWS = 100
PATIENCE = 60


@pytest.fixture(autouse=True)
def quick_turns():
    """With a GIL the threads change often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def race(make, *uses, errors=(), rounds=ROUNDS):
    """Call `uses`, in turn one per thread, with the same new objects, at about the same time. The
    result has the N results for each object; an exception of `errors` counts as a result.

    The threads go through the objects without waiting for each other: one that falls behind
    finds objects that others have used, is done with them sooner, and catches up."""
    shared = [make() for _ in range(rounds)]
    results = [[None] * N for _ in shared]

    def run(k):
        use = uses[k % len(uses)]
        for found, each in zip(results, shared, strict=True):
            try:
                found[k] = use(each)
            except errors as error:
                found[k] = error

    run_at_once(N, run, PATIENCE)
    return results


def repeat(use, times=20):
    """`use`, several times in a row."""

    def run(shared):
        for _ in range(times):
            use(shared)

    return run


def column():
    """Every second row is null, and nobody has counted them."""
    return ad.Array.from_buffers("int32", ROWS, [b"\xaa" * 13, bytes(4 * ROWS)])


def batch():
    return ad.record_batch({"a": bytearray(ROWS), "b": column()})


VALUES = [None, 0] * (ROWS // 2)


class Shows:
    """Offers methods of a protocol, which return these values."""

    def __init__(self, **values):
        for method, value in values.items():
            setattr(self, method, lambda *args, value=value, **kwargs: value)


class Interface:
    """Offers the memory of a tensor by __array_interface__."""

    def __init__(self, tensor):
        self.__array_interface__ = tensor.__array_interface__
        self.tensor = tensor


def shows_dlpack(capsule):
    return Shows(__dlpack__=capsule, __dlpack_device__=(1, 0))


# --- members that are computed on first need -----------------------------------------------------


def test_null_count_is_the_same_for_all():
    assert column().null_count == ROWS // 2
    for found in race(
        column,
        lambda a: a.null_count,
        lambda a: a.count_nulls(),
        lambda a: a.slice(0).count_nulls(),
        lambda a: ad.array(a.__arrow_c_array__()).null_count,
        lambda a: ad.array(a.__arrow_c_device_array__()).slice(1).null_count + 1,
        lambda a: ad.concat([a, a]).null_count // 2,
        lambda a: ad.record_batch([a], names=["x"]).field(0).null_count,
        lambda a: (a.validate("full"), a.to_pylist().count(None))[1],
    ):
        assert found == [ROWS // 2] * N


def test_tensor_of_an_array_is_made_once():
    """The attribute looks whether the lists have one length, and keeps the tensor."""

    def lists():
        return ad.array(memoryview(bytearray(6)).cast("B", (3, 2)))

    for found in race(
        lists,
        lambda a: a.__array_interface__["shape"],
        lambda a: memoryview(a).shape,
        lambda a: ad.from_dlpack(a).shape,
        lambda a: ad.tensor(a).shape,
        lambda a: hasattr(a, "__dlpack__") and a.__dlpack_device__() and (3, 2),
    ):
        assert found == [(3, 2)] * N


def test_exports_of_one_array():
    def read(pair):
        return ad.array(pair).to_pylist()

    for make in column, lambda: batch().field("b"), lambda: batch().slice(0).field(1):
        for found in race(
            make,
            lambda a: read(a.__arrow_c_array__()),
            lambda a: read(a.__arrow_c_device_array__()),
            lambda a: read(a.__arrow_c_array__(a.__arrow_c_schema__())),
            lambda a: ad.array_stream(a.__arrow_c_stream__()).read_all().to_pylist(),
            lambda a: a.slice(10).to_pylist()[:0] + a.to_pylist(),
            lambda a: ad.schema(a.__arrow_c_schema__()).equals(a.schema) and VALUES,
        ):
            assert found == [VALUES] * N


def test_views_of_one_tensor():
    values = [[0, 1, 2], [3, 4, 5]]

    def read(tensor):
        return memoryview(tensor).tolist()

    for found in race(
        lambda: ad.tensor(memoryview(bytearray(range(6))).cast("B", (2, 3))),
        read,
        lambda t: [read(t[i]) for i in range(2)],
        lambda t: read(ad.from_dlpack(t)),
        lambda t: read(ad.tensor(shows_dlpack(t.__dlpack__(max_version=(1, 0))))),
        lambda t: read(ad.tensor(Interface(t))),
        lambda t: ad.array(t).to_pylist(),
        lambda t: (repr(t), t.shape, t.strides, values)[-1],
        lambda t: read(pickle.loads(pickle.dumps(t, 5))),
    ):
        assert found == [values] * N


def test_one_schema():
    same = batch().schema
    for found in race(
        lambda: batch().schema,
        lambda schema: schema.equals(same),
        lambda schema: ad.schema(schema.__arrow_c_schema__()) == schema,
        lambda schema: [child.name for child in schema.children] == ["a", "b"],
        lambda schema: hash(schema) == hash(same) and repr(schema) == repr(same),
    ):
        assert found == [True] * N


def test_equality_of_one_array():
    same = batch()
    for found in race(
        batch, lambda b: b.equals(same), lambda b: same.equals(b[:]), lambda b: b.equals(b)
    ):
        assert found == [True] * N


# --- what is consumed once -----------------------------------------------------------------------


def test_capsules_are_consumed_once():
    tensor = ad.tensor(bytearray(ROWS))
    for make, take in (
        (lambda: batch().__arrow_c_array__(), ad.array),
        (lambda: batch().__arrow_c_device_array__(), ad.array),
        (lambda: batch().__arrow_c_schema__(), ad.schema),
        (lambda: batch().__arrow_c_stream__(), ad.array_stream),
        (lambda: batch().__arrow_c_device_stream__(), ad.array_stream),
        (lambda: Shows(__arrow_c_stream__=batch().__arrow_c_stream__()), ad.array),
        (lambda: shows_dlpack(tensor.__dlpack__()), ad.tensor),
        (lambda: shows_dlpack(tensor.__dlpack__(max_version=(1, 0))), ad.tensor),
        (lambda: _core._async_consumer(5, False)[1], _core._async_producer),
    ):
        for found in race(make, take, errors=ad.ExchangeError):
            lost = [each for each in found if isinstance(each, ad.ExchangeError)]
            assert len(lost) == N - 1
            assert {error.reason for error in lost} <= {"consumed", "refused"}
            assert all("consumed" in repr((e.reason, e.__cause__)) for e in lost), lost


def test_requested_schema_may_be_consumed_meanwhile():
    def ask(shared):
        array, capsule = shared
        return ad.array(array.__arrow_c_array__(capsule)).to_pylist() == VALUES

    def make():
        array = column()
        return array, array.__arrow_c_schema__()

    for found in race(
        make, ask, lambda shared: ad.schema(shared[1]) and True, errors=ad.ExchangeError
    ):
        for each in found:
            assert each is True or each.reason == "consumed"


def test_stream_whose_fields_are_looked_at_is_consumed_once():
    """Before a type with fields is asked for, the import looks at that of the stream."""
    wanted = batch().schema
    for name in "__arrow_c_stream__", "__arrow_c_device_stream__":
        for found in race(
            lambda name=name: Shows(**{name: getattr(batch(), name)()}),
            lambda shown: ad.array_stream(shown, schema=wanted).read_all(),
            errors=ad.ExchangeError,
        ):
            [read] = [each for each in found if isinstance(each, ad.Array)]
            assert read.field("b").to_pylist() == VALUES


def test_memory_is_released_once_and_on_any_thread():
    class Memory(bytearray):
        pass

    alive = []

    def make():
        memory = Memory(ROWS)
        alive.append(weakref.ref(memory))
        array = ad.array(memory)
        tensor = ad.tensor(array)
        pairs = [array.__arrow_c_array__() for _ in range(N)]
        return [array, tensor, memoryview(tensor), tensor.__dlpack__(), array.buffers, *pairs]

    def drop(shared):
        while shared:
            try:
                shared.pop()
            except IndexError:
                return

    race(make, drop)
    gc.collect()
    assert len(alive) == ROUNDS and [each() for each in alive] == [None] * ROUNDS


# --- streams -------------------------------------------------------------------------------------

N_BATCHES = 50


def numbers():
    return (ad.array(bytearray([i])) for i in range(N_BATCHES))


def read(stream):
    """The values that this thread read from a stream that others read, too."""
    found = []
    while True:
        try:
            found += next(stream).to_pylist()
        except StopIteration:
            return found
        except ad.ExchangeError as error:
            if error.reason != "consumed":
                raise
            return found
        except RuntimeError as error:
            if "being read" not in str(error):
                raise
            time.sleep(0)


STREAMS = {
    "iterable": lambda: ad.array_stream(numbers()),
    "struct": lambda: ad.array_stream(ad.array_stream(numbers()).__arrow_c_device_stream__()),
    "rechunk": lambda: ad.array_stream(numbers()).rechunk(3),
    "map": lambda: ad.array_stream(numbers()).map(lambda batch: batch),
    "to": lambda: ad.array_stream(numbers()).to("cpu", prefetch=2),
    "concat": lambda: ad.concat_streams([ad.array_stream(numbers())]),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_stream_gives_each_batch_once(kind):
    for found in race(STREAMS[kind], read):
        assert sorted(value for each in found for value in each) == list(range(N_BATCHES))


@pytest.mark.parametrize("kind", STREAMS)
def test_stream_is_closed_or_handed_over_during_a_read(kind):
    def hand_over(stream):
        try:
            return ad.array_stream(stream.__arrow_c_device_stream__()).read_all().to_pylist()
        except (RuntimeError, ad.ExchangeError):
            return []

    def close(stream):
        stream.close()
        return repr(stream)[:0]

    for found in race(STREAMS[kind], read, read, hand_over, lambda s: repr(s)[:0]):
        values = [value for each in found for value in each]
        assert sorted(values) == list(range(N_BATCHES))
    for found in race(STREAMS[kind], read, close, read, hand_over, lambda s: gc.collect() and ""):
        values = [value for each in found for value in each or ()]
        assert len(set(values)) == len(values)


def test_stream_goes_to_one_adapter():
    for make in STREAMS.values():
        for found in race(
            make,
            lambda s: s.rechunk(7),
            lambda s: s.to("cpu"),
            lambda s: s.map(lambda batch: batch),
            lambda s: ad.concat_streams([s]),
            lambda s: ad.array_stream(s.__arrow_c_stream__()),
            errors=(RuntimeError, ad.ExchangeError),
        ):
            [stream] = [each for each in found if isinstance(each, ad.ArrayStream)]
            assert stream.read_all().to_pylist() == list(range(N_BATCHES))


class AsyncEnds:
    """Both ends of an async stream, with what the threads of a race do to them."""

    def __init__(self):
        self.consumer, handler = _core._async_consumer(5, False)
        self.producer = _core._async_producer(handler)
        self.arrived = []
        self.numbers = itertools.count()

    def put(self):
        """Each batch has other values, and more rows than those of the pump."""
        for _ in range(N_BATCHES):
            i = next(self.numbers)
            self.producer.put(bytearray(i.to_bytes(2, "little")), {"i": str(i)})
            self.producer.flush()

    def pop(self):
        for _ in range(N_BATCHES):
            found = self.consumer.pop(True)
            if found is not None:
                self.arrived.append(tuple(found[0].to_pylist()))

    def wait(self):
        self.consumer.begin_wait()
        self.consumer.end_wait()

    def look(self):
        assert self.consumer.condition in ("open", "closed", "handed over")
        self.consumer.poll_schema()
        self.producer.is_ended, self.producer.fileno()

    def clear(self):
        self.producer.clear_waker()

    def close(self):
        time.sleep(1e-4)
        self.producer.close()
        self.consumer.close()

    def pump(self):
        self.producer.pump(ad.array_stream(numbers()))
        while not self.producer.is_over():
            self.pop()

    def cancel(self):
        self.consumer.cancel()
        self.producer.fail(ValueError("broken"))


def refused_or_done(use):
    """`use`, ten times. Both ends refuse what another thread's call rules out."""

    def run(ends):
        for _ in range(10):
            try:
                use(ends)
            except (RuntimeError, BufferError, ValueError, StopAsyncIteration):
                pass
        return ends.arrived

    return run


def test_ends_of_an_async_stream():
    """No batch arrives twice, whatever calls come at once."""
    e = AsyncEnds
    arrived = []
    # A pump waits for the waker that clear() clears.
    for last, other in (
        (e.look, e.clear),
        (e.close, e.clear),
        (e.cancel, e.clear),
        (e.pump, e.look),
    ):
        uses = [e.put, e.pop, e.look, e.wait, e.put, e.pop, other, last]
        arrived += [found[0] for found in race(AsyncEnds, *map(refused_or_done, uses))]
    assert any(arrived)
    for batches in arrived:
        assert len(set(batches)) == len(batches)


def test_flush_sends_a_batch_once():
    """Threads that only flush find a batch that the thread which put it is about to send."""
    ends = AsyncEnds()
    arrived = []
    is_over = threading.Event()

    def until_over(use):
        def run(_):
            while not is_over.is_set():
                with contextlib.suppress(RuntimeError):  # another call is running
                    use()

        return run

    def put(_):
        try:
            for i in range(100 * ROUNDS):
                with contextlib.suppress(RuntimeError):
                    ends.producer.put(bytearray(i.to_bytes(4, "little")), None)
                    ends.producer.flush()
        finally:
            is_over.set()

    def pop():
        found = ends.consumer.pop(False)
        if found is not None:
            arrived.append(bytes(memoryview(found)))

    flush, look = until_over(ends.producer.flush), until_over(lambda: ends.producer.is_ended)
    race(lambda: None, put, flush, flush, flush, flush, look, look, until_over(pop), rounds=1)
    ends.producer.flush()
    for _ in range(6):  # the queue, and the end of it
        pop()
    assert len(arrived) == len(set(arrived)) > 0


def test_stream_without_a_batch_has_no_schema_to_end_with():
    """Where another thread is about to put one, and fails."""
    refused = (TypeError, ad.ExchangeError, RuntimeError, ValueError)
    for found in race(
        AsyncEnds,
        lambda ends: ends.producer.put(object(), None),
        lambda ends: ends.producer.finish(),
        errors=refused,
    ):
        assert all(isinstance(each, refused) for each in found)


# --- Python's types and objects ------------------------------------------------------------------


def test_more_types_than_the_cache_holds():
    def make():
        pair = {"__arrow_c_array__": lambda self, requested_schema=None: array_of(self)}
        return [type(f"Producer{i}", (), pair)() for i in range(2 * N)]

    def array_of(producer):
        return column().__arrow_c_array__()

    def take(producers):
        return [ad.array(each).null_count for each in producers]

    def take_backwards(producers):
        return take(producers[::-1])

    for found in race(make, take, take_backwards):
        assert found == [[ROWS // 2] * 2 * N] * N


def test_class_changes_during_imports():
    """Its attributes, the dict of its instance, and the class of that.

    Assignments to `__bases__` race in CPython itself, as of 3.13."""

    def export(producer, requested_schema=None):
        return column().__arrow_c_array__()

    def make():
        class Producer:
            __arrow_c_array__ = export

        class Inherits(Producer):
            pass

        class Twin(Producer):
            twin = Inherits

        Inherits.twin = Twin
        return Inherits()

    def take(producer):
        for _ in range(20):
            assert ad.array(producer).null_count == ROWS // 2

    def change_dict(producer):
        producer.__dict__ = {"x": 1}
        producer.y = 2

    def change_attributes(producer):
        type(producer).__arrow_c_array__ = export
        with contextlib.suppress(AttributeError):  # another thread has deleted it
            del type(producer).__arrow_c_array__

    def change_class(producer):
        producer.__class__ = producer.twin

    def is_offered(producer):
        assert "__arrow_c_array__" in ad.protocols(producer)

    race(make, take, repeat(change_dict), take, repeat(is_offered))
    race(make, take, take, repeat(change_attributes), take)
    race(make, take, repeat(change_class), take, repeat(is_offered))


def test_interface_dict_changes_during_imports():
    class Producer:
        def __init__(self):
            self.memory = ad.tensor(bytearray(ROWS))
            self.__array_interface__ = dict(self.memory.__array_interface__)

    def take(producer):
        for _ in range(20):
            assert ad.tensor(producer).shape == (ROWS,)

    def change(producer):
        found = producer.__array_interface__
        kept = found.pop("descr", None)
        found["typestr"] = "".join(["|", "u1"])
        found["shape"] = (*found["shape"],)
        found["descr"] = [("", "".join(["|", "u1"]))]
        found["descr"].append(kept)
        found["descr"].pop()

    race(Producer, take, take, take, repeat(change), errors=(TypeError, ad.ExchangeError))


def test_weak_references_come_and_go():
    for make in column, lambda: ad.tensor(bytearray(ROWS)), STREAMS["iterable"]:
        race(lambda make=make: [make()], repeat(lambda o: [weakref.ref(o[0]) for _ in range(3)]))
        race(
            lambda make=make: [make()],
            lambda o: weakref.ref(o[0]),
            lambda o: o.clear(),
            errors=IndexError,
        )


def test_pickles_of_one_object():
    def load(value):
        return pickle.loads(pickle.dumps(value, 5))

    for make, look in (
        (column, lambda a: a.to_pylist()),
        (batch, lambda a: a.field("b").to_pylist()),
        (lambda: ad.tensor(bytearray(ROWS)), bytes),
        (lambda: batch().schema, lambda schema: schema.equals(batch().schema)),
    ):
        for found in race(make, lambda value, look=look: look(load(value))):
            assert found == [look(make())] * N


def test_first_uses():
    for _ in range(1 + ROUNDS // 50):
        isolation.run("first_uses")


def test_errors_are_made_at_once():
    def fail(array):
        try:
            ad.tensor(array)
        except ad.ExchangeError as error:
            return error.reason

    for found in race(column, fail):
        assert found == ["nulls"] * N


class Table(ctypes.Structure):
    """The beginning of ArrowDevAPI, in arrowdev.h."""

    _fields_ = [
        ("version", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("package", ctypes.c_char_p),
        ("export_device_array", ctypes.c_void_p),
        ("import_device_array", ctypes.c_void_p),
    ]


def test_c_api():
    table = Table.from_address(get_pointer(_core._C_API, b"arrowdev._C_API"))
    pointer, any_object = ctypes.c_void_p, ctypes.py_object
    export_to = ctypes.PYFUNCTYPE(ctypes.c_int, any_object, pointer, pointer, pointer)(
        table.export_device_array
    )
    import_from = ctypes.PYFUNCTYPE(any_object, pointer, pointer)(table.import_device_array)

    def take(array):
        column = Column()
        assert export_to(array, None, *column.addresses) == 0
        return import_from(*column.addresses).to_pylist()

    for found in race(column, take, lambda array: array.to_pylist()):
        assert found == [VALUES] * N


# --- peers ---------------------------------------------------------------------------------------


def test_numpy():
    np = pytest.importorskip("numpy")
    for found in race(
        lambda: ad.array(np.arange(ROWS)),
        lambda a: np.asarray(a).sum(),
        lambda a: np.from_dlpack(a).sum(),
        lambda a: a.into(np.ndarray).sum(),
        lambda a: ad.convert(a, np.ndarray).sum(),
        lambda a: memoryview(a).tolist()[-1] * ROWS // 2,
    ):
        assert found == [ROWS * (ROWS - 1) // 2] * N
    for found in race(
        lambda: np.arange(ROWS),
        lambda x: ad.array(x).to_pylist(),
        lambda x: np.asarray(ad.tensor(x)).tolist(),
        lambda x: ad.array(ad.tensor(x)).to_pylist(),
        lambda x: ad.array(np.ma.MaskedArray(x)).to_pylist(),
    ):
        assert found == [list(range(ROWS))] * N


def test_device(software):
    values = list(range(ROWS))
    queues = [software.queue() for _ in range(2)]

    def scoped(shared):
        with shared[1] as scope:
            assert scope.device == shared[0].device
            return ad.array(shared[0]).to("cpu").to_pylist()

    def make():
        array = ad.array(software.array(values, queue=queues[0]))
        return array, ad.use_stream(queues[1])

    for found in race(
        make,
        lambda shared: shared[0].to("cpu").to_pylist(),
        lambda shared: (shared[0].is_ready(), values)[1],
        lambda shared: (shared[0].synchronize(), values)[1],
        lambda shared: (shared[0].wait(queues[1]), values)[1],
        lambda shared: (shared[0].count_nulls(), values)[1],
        scoped,
        lambda shared: ad.array(shared[0].__arrow_c_device_array__()).to("cpu").to_pylist(),
        lambda shared: shared[0].to("ext_dev:1").to("cpu").to_pylist(),
    ):
        assert found == [values] * N


def test_device_memory_is_used_on_several_queues_and_dropped(software):
    """Each of the queues reads the memory behind the others, and any of them may be the last."""
    values = list(range(ROWS))
    before = settled(software)[2:5]
    queues = [software.queue() for _ in range(N)]
    numbers = itertools.count()

    def make():
        tensor = ad.tensor(software.array(values, queue=queues[0]))
        return [ad.tensor(tensor) for _ in range(N)]

    def use(shared):
        tensor = shared.pop()
        queue = queues[next(numbers) % N]
        tensor.wait(queue)
        there = tensor.to("ext_dev:1") if len(shared) % 2 else tensor
        del tensor
        return ad.array(there).to("cpu").to_pylist()

    for found in race(make, use):
        assert found == [values] * N
    assert settled(software)[2:5] == before
