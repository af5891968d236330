"""Memory of devices that this version has no runtime for: passed on, never read.

All pointers and events point to inaccessible pages.
"""

import ctypes
import errno
import gc
import os

import pytest
from arrow_ctypes import (
    CALLBACKS,
    ArrayNode,
    ArrowArray,
    ArrowDeviceArray,
    OnDevice,
    SchemaNode,
    Stream,
    Tree,
    address,
    buffers_of,
    children_of,
    inside,
    release,
)
from dlpack_ctypes import Received

import arrowdev as ad

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.write.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
PROT_NONE, MAP_PRIVATE_ANONYMOUS = 0, 0x22
FORBIDDEN = libc.mmap(None, 1 << 20, PROT_NONE, MAP_PRIVATE_ANONYMOUS, -1, 0)
BITMAP, DATA, MORE, EVENT = (FORBIDDEN + (i << 16) for i in range(1, 5))

CPU = 1
DEVICES = [type for type in ad.DeviceType if type != CPU] + [19, 99, -5, (1 << 31) - 1]
CUDA_FAMILY = (ad.DeviceType.CUDA, ad.DeviceType.CUDA_HOST, ad.DeviceType.CUDA_MANAGED)
HANDLES = ("OPENCL", "VULKAN", "METAL", "WEBGPU")

HOST_READS = (ad.DeviceType.CUDA_HOST, ad.DeviceType.ROCM_HOST, ad.DeviceType.CUDA_MANAGED)
UNREADABLE = [type for type in DEVICES if type not in HOST_READS]

every_device = pytest.mark.parametrize("type", DEVICES, ids=str)
unreadable = pytest.mark.parametrize("type", UNREADABLE, ids=str)
host_reads = pytest.mark.parametrize("type", HOST_READS, ids=str)
with_or_without = pytest.mark.parametrize("event", [None, EVENT], ids=["ready", "event"])


def test_memory_cannot_be_read():
    for place in (BITMAP, DATA, MORE, EVENT):
        read, write = os.pipe()
        assert libc.write(write, place, 1) == -1
        assert ctypes.get_errno() == errno.EFAULT
        os.close(read)
        os.close(write)


def column(format="i", length=8, *, offset=0, nulls=None, **options):
    """`nulls`: the null count, with a bitmap; None: no bitmap."""
    return Tree(
        SchemaNode(format),
        ArrayNode(
            length,
            [None if nulls is None else BITMAP, DATA],
            offset=offset,
            null_count=nulls or 0,
        ),
        **options,
    )


def batch(**options):
    """A batch of an int32, a string, a dictionary and a list column."""
    text = Tree(SchemaNode("u", name="text"), ArrayNode(8, [BITMAP, DATA, MORE], null_count=-1))
    words = Tree(
        SchemaNode("c", name="words", dictionary=SchemaNode("u")),
        ArrayNode(8, [None, DATA], dictionary=ArrayNode(3, [None, DATA, MORE])),
    )
    items = SchemaNode("i", name="item")
    lists = Tree(
        SchemaNode("+l", name="lists", children=[items]),
        ArrayNode(8, [None, DATA], children=[ArrayNode(80, [None, MORE])]),
    )
    numbers = Tree(SchemaNode("i", name="numbers"), ArrayNode(10, [BITMAP, DATA], null_count=2))
    columns = [numbers, text, words, lists]
    return Tree(
        SchemaNode("+s", flags=0, children=[part.schema for part in columns]),
        ArrayNode(8, [None], children=[part.array for part in columns]),
        **options,
    )


def imported(tree):
    return ad.array(OnDevice(tree))


def exported(array):
    """The structs of an export; the capsules stay alive."""
    pair = array.__arrow_c_device_array__()
    return inside(pair[0], "arrow_schema"), inside(pair[1], "arrow_device_array"), pair


def is_released_once(tree):
    if tree.array.released == 0:
        gc.collect()
    return tree.array.released == 1


def label(type):
    """The device as messages and reprs write it."""
    return f"{type.name.lower() if isinstance(type, ad.DeviceType) else f'device({type})'}:3"


def same_place(thing, type, event=None):
    assert (thing.device_type, thing.device_id, thing.sync_event) == (type, 3, event)
    assert thing.device == ad.device((type, 3))
    named = isinstance(type, ad.DeviceType)
    assert isinstance(thing.device_type, ad.DeviceType) is named


# --- import and inspection --------------------------------------------------------------


@unreadable
@with_or_without
def test_inspect(type, event):
    array = imported(column(offset=2, nulls=-1, device=(type, 3), event=event))
    same_place(array, type, event)
    assert (len(array), array.offset, array.null_count) == (8, 2, None)
    assert array.schema == ad.schema("int32")
    assert array.nbytes == 10 * 4 + 2
    bitmap, values = array.buffers
    assert (bitmap.data_ptr, bitmap.nbytes) == (BITMAP, 2)
    assert (values.data_ptr, values.nbytes) == (DATA, 40)
    for buffer in (bitmap, values):
        same_place(buffer, type, event)
    end = ", after event>" if event else ">"
    name = label(type)
    assert repr(array) == f"<arrowdev.Array int32, length 8, on {name}{end}"
    assert repr(values) == f"<arrowdev.Buffer 40 bytes on {name}{end}"
    n_notes = 1 if event and type in NO_EVENTS else 0
    assert len(array.validate()) == len(ad.validate(array)) == n_notes


@unreadable
@with_or_without
def test_children_and_slices(type, event):
    tree = batch(device=(type, 3), event=event)
    array = imported(tree)
    parts = [
        array[2:5],
        array.slice(7),
        array["numbers"],
        array[1:]["text"][2:],
        array.field(-1).children[0],
        array["words"].dictionary,
        array["numbers"].validity,
        array["numbers"].view("float32"),
        array[1:].children[2],
        ad.record_batch({"a": array["numbers"], "b": array["text"]}),
        ad.tensor(array["numbers"], nulls="ignore"),
        ad.array(array["lists"].children[0], "int32", device=(type, 3)),
        *filter(None, array["text"].buffers),
    ]
    for part in parts:
        same_place(part, type, event)
        assert label(type) in repr(part)
    assert array["text"].nbytes is None
    assert array.children[0].null_count == 2  # of 10 rows, 8 of which are in the batch
    assert array["numbers"].null_count is None
    del array, part
    while parts:
        assert tree.array.released == 0
        parts.pop()
    assert is_released_once(tree)


def test_repr_of_unknown_device_and_event():
    array = imported(column(device=(99, -1), event=EVENT))
    assert repr(array.device) == "arrowdev.device((99, -1))"
    assert array.device_id == -1


# --- export ------------------------------------------------------------------------------


@every_device
@with_or_without
def test_export(type, event):
    array = imported(batch(device=(type, 3), event=event))
    schema, device, _capsules = exported(array)
    assert (device.device_type, device.device_id) == (type, 3)
    assert device.sync_event == event
    assert list(device.reserved) == [0, 0, 0]
    assert (device.array.length, device.array.offset, device.array.null_count) == (8, 0, 0)
    numbers, text, words, lists = children_of(device.array)
    assert buffers_of(numbers) == [BITMAP, DATA] and numbers.null_count == 2
    assert buffers_of(text) == [BITMAP, DATA, MORE] and text.null_count == -1
    assert buffers_of(words) == [None, DATA] and words.dictionary
    assert buffers_of(children_of(lists)[0]) == [None, MORE]
    assert schema.n_children == 4


@every_device
def test_export_of_children_and_slices(type):
    array = imported(batch(device=(type, 3), event=EVENT))
    _, device, _capsules = exported(array["numbers"][3:5])
    assert (device.device_type, device.device_id, device.sync_event) == (type, 3, EVENT)
    assert (device.array.length, device.array.offset, device.array.null_count) == (2, 3, -1)
    assert buffers_of(device.array) == [BITMAP, DATA]
    _, device, _capsules = exported(array["words"].dictionary)
    assert device.sync_event == EVENT and buffers_of(device.array) == [None, DATA, MORE]


@unreadable
@with_or_without
def test_repeated_round_trips(type, event):
    """Ten round trips through arrowdev, alternating array, stream and record_batch."""
    tree = batch(device=(type, 3), event=event)
    array = imported(tree)
    for i in range(10):
        array = ad.array(ad.as_device(array))
        if i % 2:
            array = ad.array(array.__arrow_c_device_array__())
        else:
            array = ad.array(StreamOnly(array))
    same_place(array, type, event)
    assert array["text"].buffers[2].data_ptr == MORE
    del array
    assert is_released_once(tree)


class StreamOnly:
    def __init__(self, array):
        self.array = array

    def __arrow_c_device_stream__(self, requested_schema=None, **kwargs):
        return self.array.__arrow_c_device_stream__(requested_schema, **kwargs)


@every_device
def test_event_lives_until_the_last_export_is_released(type):
    tree = column(device=(type, 3), event=EVENT)
    _, _, capsules = exported(imported(tree)[1:])
    assert tree.array.released == 0
    taken = ad.array(capsules)
    del capsules
    assert (tree.array.released, taken.sync_event) == (0, EVENT)
    del taken
    assert is_released_once(tree)


def test_release_of_the_exported_struct():
    tree = column(device=(99, 3), event=EVENT)
    _, device, capsules = exported(imported(tree))
    release(device.array)
    assert not device.array.release
    del capsules
    assert is_released_once(tree)


@every_device
def test_from_a_device_stream(type):
    tree = column(device=(type, 3), event=EVENT)
    stream = Stream(SchemaNode("i"), [tree], device_type=type)
    array = ad.array(stream)
    same_place(array, type, EVENT)
    assert array.buffers[1].data_ptr == DATA


# --- operations that read the memory ----------------------------------------------------------


@unreadable
@with_or_without
@pytest.mark.parametrize(
    "look",
    [
        lambda array: array.to_pylist(),
        lambda array: array[0],
        lambda array: list(array),
        lambda array: array.count_nulls(),
        lambda array: memoryview(array),
        lambda array: memoryview(array.buffers[1]),
        lambda array: bytes(array.buffers[0]),
        lambda array: ad.as_host(array),
        lambda array: ad.tensor(array),
        lambda array: ad.tensor(array, nulls="fill", fill_value=1),
        lambda array: ad.tensor(array, nulls="ignore", copy=True),
        lambda array: ad.array(array, copy=True),
        lambda array: ad.array(array, device="cpu"),
        lambda array: ad.array(array, validity=bytes(8)),
        lambda array: array.to("cpu"),
        lambda array: array.into(memoryview),
    ],
)
def test_refused(type, event, look):
    tree = column(nulls=-1, device=(type, 3), event=event)
    array = imported(tree)
    with pytest.raises(ad.ExchangeError) as info:
        look(array)
    error = info.value
    assert error.reason in ("device", "nulls", "event", "runtime") and error.hint
    assert error.device.type == array.device.type
    assert array.is_ready() if event is None else True
    del array, error, info
    assert is_released_once(tree)


@every_device
def test_event_cannot_be_waited_for(type):
    array = imported(column(device=(type, 3), event=EVENT))
    waits = [array.is_ready, array.synchronize]
    if type == ad.DeviceType.ONEAPI:  # its queues are objects, and numbers are refused
        with pytest.raises(TypeError, match="queue object"):
            array.wait(7)
    else:
        waits.append(lambda: array.wait(7))
    for wait in waits:
        with pytest.raises(ad.ExchangeError) as info:
            wait()
        assert (info.value.reason, info.value.device) == ("event", array.device)


@host_reads
def test_pinned_and_managed_memory_is_read(type):
    values = (ctypes.c_int32 * 4)(1, 2, 3, 4)
    node = ArrayNode(4, [None, address(values)])
    array = imported(Tree(SchemaNode("i"), node, device=(type, 3)))
    assert array.to_pylist() == memoryview(array).tolist() == [1, 2, 3, 4]
    assert array.__array_interface__["data"] == (address(values), True)
    assert ad.array(ad.as_host(array)).device == ad.device("cpu")


@host_reads
@pytest.mark.parametrize(
    "copy",
    [
        lambda array: ad.concat([array, array]),
        lambda array: ad.array_stream([array, array]).read_all(),
        lambda array: ad.array(array, copy=True),
        lambda array: ad.tensor(array, copy=True),
        lambda array: ad.array(ad.tensor(array), copy=True),
    ],
)
def test_hint_if_pinned_memory_cannot_be_allocated(type, copy):
    values = (ctypes.c_int32 * 2)(1, 2)
    node = ArrayNode(2, [None, address(values)])
    array = imported(Tree(SchemaNode("i"), node, device=(type, 3)))
    with pytest.raises(ad.ExchangeError, match=r"runtime.*\.to\(\"cpu\"\)") as info:
        copy(array)
    assert info.value.device == array.device
    assert ad.array(copy(array.to("cpu"))).to_pylist()[:2] == [1, 2]


@host_reads
def test_pinned_memory_with_unusable_event(type):
    array = imported(column(device=(type, 3), event=EVENT))
    assert not any(hasattr(array, name) for name in (*HOST_NAMES, "__array__"))
    with pytest.raises(ad.ExchangeError, match="no runtime"):
        array.to_pylist()
    with pytest.raises(ad.ExchangeError) as info:
        memoryview(array)
    assert (info.value.reason, info.value.device) == ("event", array.device)


HOST_NAMES = ("__arrow_c_array__", "__arrow_c_stream__", "__array_interface__")


@unreadable
@with_or_without
@pytest.mark.parametrize("make", [lambda a: a, lambda a: ad.tensor(a), lambda a: a.buffers[1]])
def test_hasattr_matches_the_export(type, event, make):
    thing = make(imported(column(device=(type, 3), event=event)))
    for name in HOST_NAMES:
        assert not hasattr(thing, name)
    # NumPy would make an array of one object of a Tensor without it.
    assert hasattr(thing, "__array__") is not isinstance(thing, ad.Array)
    assert hasattr(thing, "__cuda_array_interface__") is (type in CUDA_FAMILY and event is None)
    if type in CUDA_FAMILY and event is None:
        shown = thing.__cuda_array_interface__
        assert shown["data"] == (DATA, True) and shown["stream"] is None
    # The interface requires a queue, and the memory came without one.
    assert not hasattr(thing, "__sycl_usm_array_interface__")


@every_device
def test_dlpack(type):
    array = imported(column(offset=2, device=(type, 3)))
    ordinal = 0 if type in (3, 11, 13) else 3
    assert array.__dlpack_device__() == (type, ordinal)
    received = Received(array.__dlpack__(max_version=(1, 3)))
    tensor = received.struct.tensor
    assert (tensor.device.type, tensor.device.id) == (type, ordinal)
    if getattr(type, "name", "") in HANDLES:
        assert (tensor.data, tensor.byte_offset) == (DATA, 8)
    else:
        assert (tensor.data, tensor.byte_offset) == (DATA + 8, 0)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(received.struct.deleter)(address(received.struct))


@every_device
def test_dlpack_with_an_event(type):
    array = imported(column(device=(type, 3), event=EVENT))
    with pytest.raises(ad.ExchangeError) as info:
        array.__dlpack__(max_version=(1, 3))
    assert info.value.reason == "event"
    assert array.__dlpack_device__()[0] == type


# --- handles -------------------------------------------------------------------------------


@pytest.mark.parametrize("type", [ad.DeviceType[name] for name in HANDLES], ids=str)
def test_offsets_stay_beside_handles(type):
    array = imported(column("l", offset=2, device=(type, 3)))
    part = array[1:]
    assert (part.offset, part.buffers[1].data_ptr) == (3, DATA)
    assert part.buffers[1].byte_offset == 0
    tensor = ad.tensor(part)
    assert (tensor.data_ptr, tensor.byte_offset, tensor.shape) == (DATA, 24, (7,))
    again = ad.array(tensor)
    assert (again.offset, again.buffers[1].data_ptr, len(again)) == (3, DATA, 7)
    _, device, _capsules = exported(again)
    assert device.array.offset == 3 and buffers_of(device.array) == [None, DATA]
    odd = ad.Tensor.from_pointer(DATA, (4,), "int64", (type, 3), byte_offset=12)
    with pytest.raises(ad.ExchangeError):
        ad.array(odd)


# --- devices without an event type -------------------------------------------------------------

NO_EVENTS = [
    ad.DeviceType.VPI,
    ad.DeviceType.WEBGPU,
    ad.DeviceType.HEXAGON,
    ad.DeviceType.MAIA,
    ad.DeviceType.TRAINIUM,
]


def host_ints(**options):
    memory = (ctypes.c_int32 * 8)(*range(8))
    return Tree(SchemaNode("i"), ArrayNode(8, [None, memory]), device=(CPU, 3), **options)


def test_event_of_host_memory_is_ignored():
    """The specification forbids it, and names no type that anybody could wait for."""
    array = imported(host_ints(event=EVENT))
    assert (array.device_type, array.device_id, array.sync_event) == (CPU, 3, None)
    event, device_id = array.validate()
    assert "taken as ready" in event and "device_id" in device_id
    assert array.is_ready() and array.to_pylist() == list(range(8))
    _, device, _capsules = exported(array)
    assert (device.device_type, device.device_id, device.sync_event) == (CPU, 3, None)


@pytest.mark.parametrize("method", ["__arrow_c_stream__", "__arrow_c_device_stream__"])
def test_events_of_a_host_stream_are_ignored(method):
    def stream():
        trees = [host_ints(event=EVENT), host_ints(event=EVENT)]
        return ad.array_stream(Stream(SchemaNode("i"), trees, device_type=CPU))

    first, second = stream()
    assert first.to_pylist() == second.to_pylist() == list(range(8))
    assert "taken as ready" in first.validate()[0]
    exported = getattr(stream(), method)()
    is_device = method == "__arrow_c_device_stream__"
    struct = inside(exported, "arrow_device_array_stream" if is_device else "arrow_array_stream")
    for _ in range(2):
        batch = ArrowDeviceArray() if is_device else ArrowArray()
        assert CALLBACKS["get_next"](struct.get_next)(address(struct), address(batch)) == 0
        assert not is_device or batch.sync_event is None
        release(batch.array if is_device else batch)


@pytest.mark.parametrize("type", NO_EVENTS, ids=str)
def test_event_without_a_type_is_noted(type):
    array = imported(column(device=(type, 3), event=EVENT))
    (note,) = array.validate()
    assert "no event type" in note and "sync_event" in note
    _, device, _capsules = exported(array)
    assert device.sync_event == EVENT


def test_garbage_in_reserved_is_not_passed_on():
    tree = column(device=(2, 3))
    tree.device.reserved[:] = [1, -1, 1 << 40]
    _, device, _capsules = exported(imported(tree))
    assert list(device.reserved) == [0, 0, 0]
