"""Lifetimes: releases on any thread, with or without the GIL, in any order, without leaks."""

import ctypes
import gc
import sys
import threading
import weakref

import arrow_ctypes as ac
import c_library
import pytest
from c_library import MODES, Counters
from lifetimes import skip_if_sanitized
from loops import looped

import arrowdev as ad

np = pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def helper():
    return c_library.Lifetime(c_library.build("lifetime"))


class FromC:
    """A producer whose structs C code creates and releases; it counts them."""

    def __init__(self, helper, n_children=0):
        self.counters = ac.keep(Counters())
        self.schema, self.array = ac.keep(ac.ArrowSchema()), ac.keep(ac.ArrowArray())
        helper.produce(ac.address(self.schema), ac.address(self.array), n_children, self.counters)

    def __arrow_c_array__(self, requested_schema=None):
        return ac.capsule(self.schema, "arrow_schema"), ac.capsule(self.array, "arrow_array")

    @property
    def released(self):
        assert self.counters.twice == 0
        return self.counters.schemas, self.counters.arrays


class Owner:
    """Memory whose deallocation can be observed."""

    def __init__(self):
        self.memory = np.arange(12, dtype="float32")

    @property
    def __array_interface__(self):
        return self.memory.__array_interface__


# --- one export, released in every way -------------------------------------------


class Taken:
    """The struct of a capsule, moved out as a C consumer holds it."""

    def __init__(self, capsule, name):
        source = ac.inside(capsule, name)
        self.struct = ac.keep(type(source)())
        ctypes.memmove(ac.address(self.struct), ac.address(source), ctypes.sizeof(source))
        self.base(source).release = None

    @staticmethod
    def base(struct):
        return struct.array if isinstance(struct, ac.ArrowDeviceArray) else struct

    def release(self, helper, mode):
        base = self.base(self.struct)
        helper.call(mode, base.release, ctypes.addressof(base))
        assert not base.release


class TakenTensor:
    """The tensor of a DLPack capsule."""

    def __init__(self, capsule, versioned):
        name = b"dltensor_versioned" if versioned else b"dltensor"
        self.pointer = ac.get_pointer(capsule, name)
        set_name = ctypes.pythonapi.PyCapsule_SetName
        set_name.argtypes = [ctypes.py_object, ctypes.c_char_p]
        set_name(capsule, ac.keep(ctypes.c_char_p(b"used_" + name)))
        # After the version and manager_ctx, or after the tensor and manager_ctx.
        offset = 16 if versioned else 56
        self.deleter = ctypes.c_void_p.from_address(self.pointer + offset).value

    def release(self, helper, mode):
        helper.call(mode, self.deleter, self.pointer)


def by_pair(array, device):
    method = array.__arrow_c_device_array__ if device else array.__arrow_c_array__
    schema, second = method()
    name = "arrow_device_array" if device else "arrow_array"
    return [Taken(schema, "arrow_schema"), Taken(second, name)]


def by_stream(array, device):
    method = array.__arrow_c_device_stream__ if device else array.__arrow_c_stream__
    name = "arrow_device_array_stream" if device else "arrow_array_stream"
    return [Taken(method(), name)]


EXPORTS = {
    "device array": lambda array: by_pair(array, True),
    "host array": lambda array: by_pair(array, False),
    "device stream": lambda array: by_stream(array, True),
    "host stream": lambda array: by_stream(array, False),
    "dlpack": lambda array: [TakenTensor(array.__dlpack__(max_version=(1, 3)), True)],
    "legacy dlpack": lambda array: [TakenTensor(ad.tensor(array).__dlpack__(), False)],
    "slice": lambda array: by_pair(array[2:5], True),
    "batch": lambda array: by_pair(ad.record_batch({"a": array, "b": array}), True),
    "child": lambda array: by_pair(ad.record_batch({"a": array}).children[0], True),
    "field": lambda array: by_pair(ad.record_batch({"a": array})[1:]["a"], True),
    "view": lambda array: by_pair(array.view("int32"), True),
    "from buffers": lambda array: by_pair(
        ad.Array.from_buffers("float", 3, [None, array.buffers[1]]), True
    ),
    "reimported": lambda array: by_pair(ad.array(array.__arrow_c_device_array__()), False),
    "validity": lambda array: by_pair(ad.array(array, validity=np.arange(12) > 3), True),
    "tensor": lambda array: by_pair(ad.tensor(array), True),
}

INPUTS = {
    "array interface": lambda owner: owner,
    "buffer": lambda owner: Buffered(owner),
    "dlpack": lambda owner: Lent(owner),
}


class Buffered(np.ndarray):
    """A subclass that references the owner and exports through the buffer protocol."""

    def __new__(cls, owner):
        self = owner.memory.view(cls)
        self.owner = owner
        return self

    def __dlpack__(self, **kwargs):
        raise BufferError("by the buffer protocol, please")

    __array_interface__ = property(lambda self: 1 / 0)


class Lent:
    def __init__(self, owner):
        self.array = np.asarray(owner)

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@looped("mode", MODES)
@pytest.mark.parametrize("export", EXPORTS)
@pytest.mark.parametrize("entry", INPUTS)
def test_owner_lives_until_release(helper, entry, export, mode):
    owner = Owner()
    gone = weakref.ref(owner)
    array = ad.array(INPUTS[entry](owner))
    memory = sys.getrefcount(owner.memory)
    del owner
    assert gone() is not None
    taken = EXPORTS[export](array)
    del array
    gc.collect()
    assert gone() is not None and memory > 1
    for item in taken[:-1]:
        item.release(helper, mode)
    assert gone() is not None
    taken[-1].release(helper, mode)
    assert gone() is None


CONSUMED = {
    "host array": lambda array: array.__arrow_c_array__(),
    "device array": lambda array: array.__arrow_c_device_array__(),
    "batch": lambda array: ad.record_batch({"a": array, "b": array}).__arrow_c_array__(),
}


@pytest.mark.parametrize("kind", CONSUMED)
def test_consumed_capsules_keep_nothing_alive(kind):
    owner = Owner()
    gone = weakref.ref(owner)
    array = ad.array(owner)
    del owner
    capsules = CONSUMED[kind](array)
    del array
    taken = ad.array(capsules)
    assert gone() is not None
    del taken
    assert gone() is None and len(capsules) == 2


def test_consumed_schema_capsules_keep_nothing_alive(helper):
    producer = FromC(helper, 2)
    array = ad.array(producer)
    schema, _ = pair = array.__arrow_c_array__()
    again = array.__arrow_c_schema__()
    del array, _
    taken = [Taken(schema, "arrow_schema"), Taken(again, "arrow_schema")]
    del pair
    assert producer.released == (0, 3)
    for item in taken:
        item.release(helper, "gil")
    assert producer.released == (3, 3)


@pytest.mark.parametrize("export", EXPORTS)
@pytest.mark.parametrize("entry", INPUTS)
def test_refcounts_return_to_initial(helper, entry, export):
    owner = Owner()

    def counts():
        gc.collect()
        return sys.getrefcount(owner), sys.getrefcount(owner.memory)

    start = counts()
    for mode in MODES:
        for item in EXPORTS[export](ad.array(INPUTS[entry](owner))):
            item.release(helper, mode)
    assert counts() == start


CAPSULES = {
    "device array": lambda array: array.__arrow_c_device_array__(),
    "host array": lambda array: array.__arrow_c_array__(),
    "device stream": lambda array: array.__arrow_c_device_stream__(),
    "host stream": lambda array: array.__arrow_c_stream__(),
    "schema": lambda array: (array.__arrow_c_schema__(), array),
    "dlpack": lambda array: array.__dlpack__(max_version=(1, 3)),
    "legacy dlpack": lambda array: ad.tensor(array).__dlpack__(),
    "memoryview": lambda array: memoryview(array),
    "buffers": lambda array: array.buffers,
    "validity": lambda array: ad.array(array, validity=np.arange(12) > 3).validity or array,
    "cycle": lambda array: (lambda cell: cell.append(cell))([array]) or array,
}


@pytest.mark.parametrize("kind", CAPSULES)
def test_unconsumed_capsule_releases(kind):
    owner = Owner()
    gone = weakref.ref(owner)
    array = ad.array(owner)
    del owner
    held = CAPSULES[kind](array)
    del array
    assert gone() is not None or kind == "validity"
    del held
    gc.collect()
    assert gone() is None


def capsule_with_a_foreign_struct(kind):
    """A consumer put a struct of its own into the capsule's; its release is a ctypes callback."""
    if kind == "schema":
        capsule = ad.schema("int64").__arrow_c_schema__()
        struct, other = ac.inside(capsule, "arrow_schema"), ac.numbers().schema
    else:
        capsule = ad.record_batch({"a": np.arange(3)}).__arrow_c_array__()[1]
        struct, other = ac.inside(capsule, "arrow_array"), ac.numbers().array
        if kind == "child":
            struct = ac.children_of(struct)[0]
    ac.release(struct)
    ctypes.memmove(ac.address(struct), other.address, ctypes.sizeof(struct))
    return capsule


@pytest.mark.parametrize("kind", ["child", "array", "schema"])
def test_release_of_a_foreign_struct_keeps_the_exception(kind):
    with pytest.raises(ZeroDivisionError):
        (capsule_with_a_foreign_struct(kind), 1 / 0)


# --- a producer in C ------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_children", [0, 1, 5])
def test_c_producer_to_c_consumer(helper, n_children, mode):
    """The array came in a capsule, and its producer may have relied on the GIL."""
    producer = FromC(helper, n_children)
    total = n_children + 1
    array = ad.array(producer)
    views = [array, array[1:4], *array.children, array.schema, *array.schema.children]
    taken = by_pair(array, True) + by_pair(array, False) + by_stream(array, True)
    del array
    assert producer.released == (0, 0)
    del views
    assert producer.released == (0, 0)
    for item in taken:
        item.release(helper, mode)
    assert producer.released == (total, total)
    assert producer.counters.without_gil == 0


ORDERS = {
    "children first": lambda parts, root: [*parts, root],
    "root first": lambda parts, root: [root, *parts],
    "backwards": lambda parts, root: [*reversed(parts), root],
    "root between": lambda parts, root: [parts[2], root, *parts[:2], *parts[3:]],
}


def move_children(struct):
    """Copies of all children; the originals are marked as released."""
    moved = []
    for child in ac.children_of(struct):
        copy = ac.keep(type(child)())
        ctypes.memmove(ac.address(copy), ac.address(child), ctypes.sizeof(child))
        child.release = None
        moved.append(copy)
    return moved


@looped("order", ORDERS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("part", ["schema", "array"])
@pytest.mark.parametrize("moved_root", [True, False])
def test_children_moved_out(helper, part, mode, order, moved_root):
    producer = FromC(helper, 5)
    array = ad.array(producer)
    capsules = array.__arrow_c_array__()
    del array
    index, name = (0, "arrow_schema") if part == "schema" else (1, "arrow_array")
    if moved_root:
        root = Taken(capsules[index], name).struct
        other = Taken(capsules[1 - index], "arrow_array" if index == 0 else "arrow_schema").struct
    else:
        root = ac.inside(capsules[index], name)
        other = ac.inside(capsules[1 - index], "arrow_array" if index == 0 else "arrow_schema")
    parts = move_children(root)
    for struct in [other, *ORDERS[order](parts, root)]:
        # One half of the pair is held until the last step.
        assert producer.released in ((0, 0), (6, 0), (0, 6))
        helper.call(mode, struct.release, ac.address(struct))
        assert not struct.release
    # The emptied holders in the capsules share a block with the nodes.
    del capsules
    assert producer.released == (6, 6)


def test_threads_release_one_tree(helper):
    for _ in range(50):
        producer = FromC(helper, 32)
        schema, array = (taken.struct for taken in by_pair(ad.array(producer), False))
        structs = [schema, array, *move_children(array), *move_children(schema)]
        n = len(structs)
        releases = (ctypes.c_void_p * n)(*[struct.release for struct in structs])
        pointers = (ctypes.c_void_p * n)(*[ac.address(struct) for struct in structs])
        assert helper.many(releases, pointers, n) == 0
        assert producer.released == (33, 33)


def test_threads_release_python_owners(helper):
    for _ in range(30):
        owners = [Owner() for _ in range(8)]
        gone = [weakref.ref(owner) for owner in owners]
        taken = [
            item.struct
            for owner in owners
            for item in by_pair(ad.record_batch({"a": owner, "b": owner}), False)
        ]
        n = len(taken)
        del owners
        assert all(ref() is not None for ref in gone)
        releases = (ctypes.c_void_p * n)(*[struct.release for struct in taken])
        pointers = (ctypes.c_void_p * n)(*[ac.address(struct) for struct in taken])
        assert helper.many(releases, pointers, n) == 0
        assert [ref() for ref in gone] == [None] * 8


def test_imports_while_threads_release(helper):
    stop = threading.Event()
    failed = []

    def work():
        try:
            while not stop.is_set():
                producer = FromC(helper, 3)
                for item in by_pair(ad.array(producer)[1:], True):
                    item.release(helper, "thread")
                assert producer.released == (4, 4)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        owner = Owner()
        gone = weakref.ref(owner)
        array = ad.array(owner)
        del owner
        for item in by_pair(array, True):
            del item
        del array
        gone()
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == []


ERRORS = {
    "type": lambda p: ad.array(p, "float32"),
    "device": lambda p: ad.array(p, device="cuda"),
    "validity": lambda p: ad.array(p, validity=b"1"),
    "validity kind": lambda p: ad.array(p, validity=object()),
    "names": lambda p: ad.record_batch([p], names=[]),
    "lengths": lambda p: ad.record_batch({"a": p, "b": b"123"}),
    "later column": lambda p: ad.record_batch({"a": p, "b": object()}),
    "no batch": lambda p: ad.record_batch(p),
    "child": lambda p: ad.Array.from_buffers("int8", 1, [None, b"1"], children=[p]),
    "child of more": lambda p: ad.Array.from_buffers("int8", 1, [None, b"1"], children=[p, 3]),
    "dictionary": lambda p: ad.Array.from_buffers("float", 1, [None, b"1234"], dictionary=p),
    "buffers": lambda p: ad.Array.from_buffers("int64", 100, [None, p]),
    "fill": lambda p: ad.tensor(p, nulls="fill", fill_value="x"),
    "into": lambda p: ad.convert(p, int),
    "level": lambda p: ad.validate(p, "no such level"),
    "order": lambda p: ad.tensor(p, order="X"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_error_paths_release_once(helper, case):
    producer = FromC(helper)
    with pytest.raises((ValueError, TypeError, BufferError, OverflowError)) as error:
        ERRORS[case](producer)
    error.value.__traceback__ = None
    del error
    gc.collect()
    assert producer.released in ((1, 1), (0, 0))
    # The producer still owns what was not taken over.
    assert bool(producer.schema.release) == (producer.released == (0, 0))


# --- no leaks -------------------------------------------------------------------------------


class Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def allocated():
    """Bytes allocated through malloc, and blocks allocated by Python."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("this C library has no mallinfo2")
    libc.mallinfo2.restype = Mallinfo2
    gc.collect()
    info = libc.mallinfo2()
    return info.uordblks + info.hblkhd, sys.getallocatedblocks()


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


SOURCE = np.arange(12, dtype="float32")
ARRAY = ad.array(SOURCE)
TENSOR = ad.tensor(SOURCE)
BATCH = ad.record_batch({"a": SOURCE, "b": SOURCE})
BITS = np.arange(12) > 3


class Base:
    """Base of short-lived classes. CPython's table of subclasses grows with the classes that are
    not collected yet, and the table of `object` is large already."""

    __slots__ = ()


class Refusing:
    __slots__ = ()

    def __arrow_c_array__(self, requested_schema=None):
        raise ValueError("no")


class Malformed:
    """Structs with a length of -1, created once."""

    tree = ac.numbers()
    tree.array.struct.length = -1
    pair = tree.host_pair()

    def __arrow_c_array__(self, requested_schema=None):
        return self.pair


def refused(function):
    def call():
        try:
            function()
        except (ValueError, TypeError, BufferError, LookupError, NotImplementedError):
            return
        raise AssertionError

    return call


PATHS = {
    "numpy": lambda: ad.array(SOURCE),
    "copy": lambda: ad.array(SOURCE, copy=True),
    "array interface": lambda: ad.array(OWNER),
    "dlpack": lambda: ad.from_dlpack(SOURCE),
    "pair": lambda: ad.array(ARRAY.__arrow_c_device_array__()),
    "batch pair": lambda: ad.array(BATCH.__arrow_c_device_array__()),
    "stream": lambda: ad.array(ad.as_host(BATCH)),
    "streams": lambda: (BATCH.__arrow_c_stream__(), BATCH.__arrow_c_device_stream__()),
    "capsules": lambda: (ARRAY.__dlpack__(), TENSOR.__dlpack__(max_version=(1, 0))),
    "schema": lambda: ad.schema("timestamp[us, UTC]").equals("tsu:UTC"),
    "schema capsule": lambda: ad.schema(BATCH.__arrow_c_schema__()).children,
    "record batch": lambda: ad.record_batch({"a": SOURCE, "b": ARRAY}),
    "from buffers": lambda: ad.Array.from_buffers("float", 3, [None, SOURCE]),
    "validity": lambda: ad.array(SOURCE, validity=BITS).validity.buffers,
    "members": lambda: (BATCH.children, BATCH.schema, BATCH[1:], BATCH["a"]),
    "repr": lambda: repr(BATCH),
    "fill": lambda: ad.tensor(SOURCE, nulls="fill", fill_value=1, copy=True),
    "memoryview": lambda: memoryview(TENSOR).release(),
    "numpy again": lambda: np.from_dlpack(ARRAY),
    "interface": lambda: ARRAY.__array_interface__,
    "new class": lambda: ad.protocols(type("T", (Base,), {"__slots__": ()})()),
    "protocols": lambda: ad.protocols(BATCH, probe=True),
    "type refused": refused(lambda: ad.array(ARRAY.__arrow_c_device_array__(), "int8")),
    "producer refuses": refused(lambda: ad.array(Refusing())),
    "malformed": refused(lambda: ad.array(Malformed())),
    "speaks nothing": refused(lambda: ad.array(object())),
    "bad index": refused(lambda: BATCH["no such column"]),
    "bad type": refused(lambda: ad.schema("no such type")),
    "bad keyword": refused(lambda: ARRAY.__arrow_c_device_array__(unknown=1)),
    "bad columns": refused(lambda: ad.record_batch({"a": SOURCE, "b": b"1"})),
    "requested": refused(lambda: ARRAY.__arrow_c_array__(BATCH.__arrow_c_schema__())),
    "small buffer": refused(lambda: ad.Array.from_buffers("int64", 9, [None, SOURCE])),
}
OWNER = Owner()
SLOW = {"new class": 20, "repr": 5}
N_UNCOLLECTED = 500
N_WINDOWS = 5


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_no_leak(path):
    skip_if_sanitized()
    call = PATHS[path]
    rounds = 100_000 // SLOW.get(path, 1)

    def repeat(n):
        for i in range(n):
            call()
            if i % N_UNCOLLECTED == 0:
                gc.collect()

    repeat(rounds // 5)  # until the caches of the interpreter no longer grow
    counts = sys.getrefcount(SOURCE), sys.getrefcount(None)
    before = resident()
    grown = []
    for _ in range(N_WINDOWS):
        memory, blocks = allocated()
        repeat(rounds // N_WINDOWS)
        now = allocated()
        grown.append((now[0] - memory, now[1] - blocks))
    # A leak is in every window; what a cache or another thread keeps is in one of them.
    most_memory, most_blocks = map(max, zip(*grown, strict=True))
    memory, blocks = map(sum, zip(*grown, strict=True))
    assert blocks - most_blocks < 200 * (N_WINDOWS - 1) // N_WINDOWS, grown
    # The smallest possible leak is 32 bytes, in thousands of rounds.
    assert memory - most_memory < (256 << 10) * (N_WINDOWS - 1) // N_WINDOWS, grown
    assert resident() - before < 8 << 20
    assert sys.getrefcount(SOURCE) == counts[0]
    if sys.version_info < (3, 12):  # newer versions make it immortal
        assert abs(sys.getrefcount(None) - counts[1]) < rounds // 10
