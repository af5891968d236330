"""Order between libraries: a busy stream on one side, and a wait that must not be left out.

Streams are kept busy for 200 ms by a kernel on a GPU, by a gate on the stand-in.
"""

import gc

import gpu
import libraries
import pytest
from gpu import NEW, OLD, Hold, Reader, copy_later

import arrowdev as ad


class On:
    """A stream of a library, for helpers that take one by its handle."""

    def __init__(self, library, stream):
        self.handle = library.handle(stream)
        self.synchronize = lambda: gpu.ask(gpu.cu.cuStreamSynchronize, self.handle)
        self.is_done = lambda: gpu.cu.cuStreamQuery(self.handle)[0] == 0


WITH_STREAMS = [name for name in libraries.ALL if libraries.ALL[name].has_streams]
PAIRS = libraries.pairs(WITH_STREAMS, WITH_STREAMS)
IMPORTS = {"tensor": ad.tensor, "array": ad.array}


@pytest.fixture(params=PAIRS, ids=libraries.identity)
def pair(request):
    return [libraries.get(name) for name in request.param]


def read_behind_a_write(pair, make, is_held=True, **options):
    """NEW is written late over OLD; the consumer reads on a stream of its own.

    Returns the reader, whether it was still waiting when all was queued, and what ends the hold.
    """
    producer, consumer = pair
    one, two = producer.stream(), consumer.stream()
    source = producer.make(OLD, one)
    reader = Reader(On(consumer, two))
    with producer.on(one):
        pointer = producer.pointer(source)
        late = copy_later(producer.handle(one), pointer, NEW)
        if not is_held:
            late.end()
            gpu.ask(gpu.cu.cuStreamSynchronize, producer.handle(one))
        exchanged = make(source, **options)
    with consumer.on(two):
        taken = consumer.take(exchanged, two)
    reader.read(consumer.pointer(taken))
    reader.kept, reader.producing = (source, exchanged, taken, two), On(producer, one)
    return reader, not reader.stream.is_done(), late


@pytest.mark.parametrize("how", IMPORTS)
def test_consumer_waits_for_the_producer(pair, how):
    """Its stream does; the host does not."""
    read_behind_a_write(pair, IMPORTS[how], is_held=False)[0].result()  # loads what is needed
    reader, was_waiting, late = read_behind_a_write(pair, IMPORTS[how])
    late.end()
    assert reader.result() == NEW.tolist()
    assert was_waiting


def test_without_the_wait_old_data_are_read(pair):
    """The negative control: stream=-1 leaves the wait out."""
    read_behind_a_write(pair, ad.tensor, is_held=False)[0].result()
    reader, _, late = read_behind_a_write(pair, ad.tensor, stream=-1)
    assert reader.result() == OLD.tolist()
    late.end()
    reader.producing.synchronize()  # its memory is still written


def test_memory_is_not_reused_under_a_reader(pair):
    """All is dropped while the consumer's stream reads; the producer then makes more arrays.

    The data are pending at first: ready ones have no stream in the CUDA Array Interface, and
    their consumer would have to keep them.
    """
    producer, consumer = pair
    one, two = producer.stream(), consumer.stream()
    source = producer.make(OLD, one)
    with producer.on(one), copy_later(producer.handle(one), producer.pointer(source), NEW):
        exchanged = ad.tensor(source)
        with consumer.on(two):
            taken = consumer.take(exchanged, two)
    reader = Reader(On(consumer, two))
    with Hold(consumer.handle(two)):
        reader.read(consumer.pointer(taken))
        consumer.give_back(taken, two)
        del source, exchanged, taken
        gc.collect()
        if gpu.IS_REAL:  # on the stand-in, one thread would wait for the gate that it opens
            more = [producer.make(OLD, one) for _ in range(4)]
    more = [producer.make(OLD, one) for _ in range(4)]
    assert reader.result() == NEW.tolist()
    del more


REUSING = ("torch", "cupy")


@pytest.mark.parametrize("name", REUSING)
def test_memory_is_reused_where_no_stream_was_named(name):
    """The negative control: an allocator that caches hands the same memory out again at once."""
    library = libraries.get(name)
    one = library.stream()
    source = library.make(NEW, one)
    pointer = library.pointer(source)
    reader = Reader()
    with library.on(one):
        exchanged = ad.tensor(source)
        exchanged.__dlpack__(stream=-1)
    with Hold(reader.stream.handle):
        reader.read(pointer)
        del source, exchanged
        gc.collect()
        again = library.make(OLD, one)
    assert library.pointer(again) == pointer
    assert reader.result() == OLD.tolist()


# --- libraries without streams ----------------------------------------------------------


def slow_in_jax(jax):
    """A function that takes long, and what it gives for NEW."""

    def step(_, values):
        return values + 1

    steps = 20_000  # a kernel each
    return jax.jit(lambda values: jax.lax.fori_loop(0, steps, step, values)), NEW + steps


def test_jax_is_waited_for():
    """Its arrays are handed out before they are computed."""
    library = libraries.get("jax")
    slow, wanted = slow_in_jax(library.api)
    source = library.make(NEW, None)
    slow(source).block_until_ready()  # compiled
    reader = Reader()
    pending = slow(source)
    tensor = ad.tensor(pending, stream=reader.stream)
    reader.read(tensor.data_ptr)
    assert reader.result() == wanted.tolist()


@pytest.mark.parametrize("name", [n for n in WITH_STREAMS if libraries.ALL[n].can_produce])
def test_jax_waits(name):
    producer, consumer = libraries.get(name), libraries.get("jax")
    one = producer.stream()
    source = producer.make(OLD, one)
    with producer.on(one):
        late = copy_later(producer.handle(one), producer.pointer(source), NEW)
        exchanged = ad.tensor(source)
    taken = consumer.take(exchanged, None)
    assert bytes(consumer.values(taken, None)) == NEW.tobytes()
    late.end()


# --- default streams ----------------------------------------------------------------------

LEGACY, PER_THREAD = 1, 2


class Default:
    def __init__(self, handle):
        self.handle = handle
        self.synchronize = lambda: gpu.ask(gpu.cu.cuStreamSynchronize, handle)


def default_stream(name, library, handle):
    """The library's own object for a default stream, or None."""
    api = library.api
    if name == "torch":
        return api.cuda.default_stream() if handle == LEGACY else None
    if name == "cupy":
        return api.cuda.Stream.null if handle == LEGACY else api.cuda.Stream.ptds
    return Default(handle)


@pytest.mark.parametrize("handle", [LEGACY, PER_THREAD], ids=["legacy", "per-thread"])
@pytest.mark.parametrize("name", ["interface", "dlpack", "numba", "torch", "cupy"])
def test_default_streams_are_waited_for(name, handle):
    producer, consumer = libraries.get(name), libraries.get("interface")
    stream, two = default_stream(name, producer, handle), consumer.stream()
    if stream is None:
        return  # torch has no per-thread stream
    for is_held in (False, True):
        source = producer.make(OLD, stream)
        reader = Reader(two)
        with producer.on(stream):
            late = copy_later(handle, producer.pointer(source), NEW)
            if not is_held:
                late.end()
                gpu.ask(gpu.cu.cuStreamSynchronize, handle)
            tensor = ad.tensor(source)
        taken = consumer.take(tensor, two)
        reader.read(taken.pointer)
        if is_held:
            assert not two.is_done()
        late.end()
        assert reader.result() == NEW.tolist()
