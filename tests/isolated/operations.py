"""Operations for failing allocations, and checks that nothing is leaked."""

import os
import sys
from pathlib import Path

import c_library
import common
import extension
from common import ac, ad

capi = extension.load(Path(os.environ["ARROWDEV_CAPI"]))
lifetime = c_library.Lifetime(os.environ["ARROWDEV_LIFETIME"])


class FromC:
    """Structs whose release needs no Python, and so no Python memory."""

    def __init__(self, n_children):
        self.n_nodes = 1 + n_children
        self.counters = ac.keep(c_library.Counters())
        self.schema, self.array = ac.keep(ac.ArrowSchema()), ac.keep(ac.ArrowDeviceArray())
        lifetime.produce(
            ac.address(self.schema), ac.address(self.array), n_children, self.counters
        )
        self.array.device_type, self.array.device_id = ac.CPU, -1

    def pair(self, name):
        return ac.capsule(self.schema, "arrow_schema"), ac.capsule(self.array, name)

    def is_sound(self):
        """True if each was released once, or is still the producer's."""
        parts = [
            (self.schema.release, self.counters.schemas),
            (self.array.array.release, self.counters.arrays),
        ]
        return self.counters.twice == 0 and all(
            released == (0 if held else self.n_nodes) for held, released in parts
        )


class Counted:
    """Producers that count their releases, created before allocations fail."""

    def __init__(self):
        self.batch, self.column = FromC(2), FromC(0)
        self.owner = common.Owner()
        self.batch_pair = self.batch.pair("arrow_array")
        self.column_pair = self.column.pair("arrow_device_array")


class Capsules:
    __slots__ = ("pair",)

    def __init__(self, pair):
        self.pair = pair

    def __arrow_c_array__(self, requested_schema=None):
        return self.pair


class Strange:
    """Elements of a type that tensors lack, over the memory of a counted owner.

    It has slots: CPython 3.13 leaks the contents of an instance's dictionary when it
    runs out of memory while it frees the instance.
    """

    __slots__ = ("owner", "typestr")

    def __init__(self, owner, typestr):
        self.owner, self.typestr = owner, typestr

    @property
    def __array_interface__(self):
        return {**self.owner.__array_interface__, "typestr": self.typestr}


def matrix(owner):
    address = ac.address(owner.memory)
    return ad.Tensor.from_pointer(address, (2, 2), "int64", "cpu", owner=owner)


def lists(owner):
    offsets = ac.int64s(0, 2, 4)
    return ad.Array.from_buffers(list_type, 2, [None, memoryview(offsets)], children=[owner])


owner = common.Owner()
start = sys.getrefcount(owner)
list_type = ad.schema(
    ac.capsule(ac.SchemaNode("+L", children=[ac.SchemaNode("l")]), "arrow_schema")
)
array = ad.array(owner)
batch = ad.record_batch({"a": array, "b": array})
tensor = ad.tensor(array)
names = ["a", "b"]
times = ad.array(ac.int64s(0, 1 << 62)).view("duration[us]")[:1]
words = ad.Array.from_buffers("utf8", 2, [None, ad.array(ac.int32s(0, 1, 3)), "aé".encode()])
nested = ad.record_batch({"lists": lists(owner)[:1], "times": times, "words": words[1:]})
parts = ad._core._parts(batch)


def push(c):
    """Runs both ends of an async stream with one batch."""
    consumer, handler = ad._core._async_consumer(5, False)
    producer = ad._core._async_producer(handler)
    producer.declare(None, {"of": "the stream"})
    producer.put(c.column_pair, {"of": "the batch"})
    if producer.flush():
        producer.finish()
        return consumer
    return consumer.pop(False)  # raises the error that refused the batch


def push_and_pop(c):
    consumer = push(c)
    return consumer.poll_schema(), consumer.pop(True)


def pull_pushed(c):
    stream = push(c).stream(True)
    return next(stream), stream.__arrow_c_device_stream__()


def declare_twice(c):
    consumer, handler = ad._core._async_consumer(5, False)
    producer = ad._core._async_producer(handler)
    for name in ("timestamp[us, UTC]", "timestamp[us, Europe/Paris]"):
        producer.declare(name, {"of": name})
    return consumer


OPERATIONS = {
    "import": lambda c: ad.array(c.owner),
    "import pair": lambda c: ad.array(c.batch_pair),
    "import by method": lambda c: ad.array(Capsules(c.batch_pair)),
    "import device pair": lambda c: ad.array(c.column_pair),
    "import with a type": lambda c: ad.array(c.column_pair, "int64"),
    "import with another type": lambda c: ad.array(c.column_pair, "float32"),
    "import copy": lambda c: ad.array(c.batch_pair, copy=True),
    "import stream": lambda c: ad.array(ad.as_host(batch)),
    "import schema": lambda c: ad.schema(c.batch_pair[0]),
    "schema": lambda c: ad.schema("timestamp[us, UTC]"),
    "schema members": lambda c: (str(batch.schema), repr(batch.schema), batch.schema.children),
    "export": lambda c: array.__arrow_c_device_array__(),
    "export host": lambda c: batch.__arrow_c_array__(),
    "export stream": lambda c: (batch.__arrow_c_stream__(), array.__arrow_c_device_stream__()),
    "export tensor": lambda c: (tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 0))),
    "export arrow of a tensor": lambda c: tensor.__arrow_c_device_array__(),
    "interface": lambda c: (array.__array_interface__, tensor.__array_interface__),
    "buffer": lambda c: bytes(memoryview(array)),
    "tensor": lambda c: ad.tensor(c.owner),
    "tensor of a pair": lambda c: ad.tensor(c.column_pair),
    "tensor copy": lambda c: ad.tensor(array, copy=True),
    "from dlpack": lambda c: ad.from_dlpack(tensor),
    "batch": lambda c: ad.record_batch({"a": c.owner, "b": c.column_pair}),
    "batch with names": lambda c: ad.record_batch([c.owner, c.owner], names=names),
    "from buffers": lambda c: ad.Array.from_buffers("int64", 3, [None, c.owner]),
    "from buffers with children": lambda c: ad.Array.from_buffers(
        batch.schema, 3, [None], children=[c.owner, c.column_pair]
    ),
    "validity": lambda c: ad.array(c.column_pair, validity=b"\1\0\1").validity,
    "validity of rows": lambda c: ad.array(matrix(c.owner), validity=b"\1\0"),
    "slice": lambda c: (batch[1:], batch["a"], batch.children, batch.buffers),
    "view": lambda c: array.view("uint64"),
    "equals": lambda c: batch.equals(c.batch_pair),
    "names": lambda c: (batch.shape, batch.column_names, batch._ipython_key_completions_()),
    "index": lambda c: (tensor[1:], tensor[0], tensor[..., None], list(tensor)),
    "values": lambda c: (nested.to_pylist(), nested[1], lists(c.owner).to_pylist()),
    "parts": lambda c: ad._core._parts(ad.array(c.batch_pair)),
    "array of parts": lambda c: ad._core._array_of_parts(*parts),
    "metadata": lambda c: ad.schema(c.batch_pair[0]).metadata,
    "matrix": lambda c: ad.tensor(batch, order="C"),
    "matrix as it lies": lambda c: ad.tensor(
        ad.record_batch(matrix(c.owner), names=names, copy=True), copy=False
    ),
    "batch of a matrix": lambda c: ad.record_batch(matrix(c.owner), names=names),
    "lists": lambda c: ad.tensor(lists(c.owner)),
    "times": lambda c: ad.array(Strange(c.owner, "<M8[us]")),
    "other byte order": lambda c: ad.array(Strange(c.owner, ">i8")),
    "requested schema": lambda c: array.__arrow_c_array__(
        ad.schema("timestamp[us]").__arrow_c_schema__()
    ),
    "repr": lambda c: (repr(array), repr(tensor), repr(array.device), array.device_type),
    "protocols": lambda c: ad.protocols(c.owner, probe=True),
    "validate": lambda c: ad.validate(c.column_pair),
    "refused": lambda c: ad.array(object()),
    "missing": lambda c: batch["no such column"],
    "convert": lambda c: ad.convert(c.owner, memoryview),
    "array through C": lambda c: capi.pass_array(c.batch_pair),
    "own array through C": lambda c: capi.pass_array(batch),
    "stream through C": lambda c: capi.pass_stream(c.column_pair),
    "tensor through C": lambda c: capi.pass_tensor(c.owner),
    "convert through C": lambda c: capi.into(c.owner, memoryview, 0),
    "struct from C": lambda c: capi.import_array(
        ac.address(c.batch.schema), ac.address(c.batch.array)
    ),
    "async stream": lambda c: push_and_pop(c),
    "async stream that is pulled": lambda c: pull_pushed(c),
    "async stream that is declared twice": lambda c: declare_twice(c),
}
ALLOWED = (MemoryError, TypeError, ValueError, BufferError, LookupError)

# CPython itself raises this, for int("x") too, if there is no memory for the
# frame object of an exception's traceback.
LOST_TRACEBACK = "error return without exception set"


def run(name, start_failing, stop_failing):
    """Runs one operation while allocation after allocation fails, until none does.

    `start_failing(n)` makes allocation n fail, `stop_failing()` ends that.
    Returns the number of failures seen as MemoryError.
    """
    operation = OPERATIONS[name]
    baseline = run_once(operation, Counted(), start_failing, stop_failing, 1 << 30)
    memory_errors = lost = 0
    without = 0
    n = 0
    while without < 30:  # the end: later failures are not needed
        counted = Counted()
        references = sys.getrefcount(counted.owner)
        kind = run_once(operation, counted, start_failing, stop_failing, n)
        assert counted.batch.is_sound() and counted.column.is_sound(), (name, n, kind)
        assert sys.getrefcount(counted.owner) == references, (name, n, kind)
        # An operation may succeed without the memory, or fail for its usual reason.
        assert kind in (MemoryError, LOST_TRACEBACK, baseline), (name, n, kind, baseline)
        memory_errors += kind is MemoryError
        lost += kind is LOST_TRACEBACK
        without = 0 if kind is MemoryError else without + 1
        n += 1
    assert lost <= 3  # one for each Python function in the call chain
    assert len(array) == 4 and sys.getrefcount(owner) > start
    return memory_errors


def run_once(operation, counted, start_failing, stop_failing, n):
    start_failing(n)
    try:
        operation(counted)
    except ALLOWED as error:
        stop_failing()
        return type(error)
    except SystemError as error:
        stop_failing()
        if str(error) == LOST_TRACEBACK:
            return LOST_TRACEBACK
        raise
    stop_failing()
    return None
