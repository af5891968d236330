"""Producers with one fault each, for test_conformance.py.

The correct ones are those of arrowdev.testing; `spoil` changes a struct before its export.
"""

import collections
import ctypes
import errno
import mmap
import os
import struct
import threading
from ctypes import PYFUNCTYPE, c_int, c_int32, c_int64, c_void_p

import arrowdev as ad
from arrowdev.testing import (
    ScriptedAsyncProducer,
    ScriptedStream,
    _abi,
    _dlpack,
    _host_read,
    _spoiling,
    step,
)
from arrowdev.testing._spoiling import Batch, Column

VALUES = [7, None, -9, 12]
forever = []


def text(value):
    forever.append(value)
    return ctypes.cast(ctypes.c_char_p(value), c_void_p)


def nothing(column):
    pass


def refuse_other_fields(requested_schema, own):
    if requested_schema is not None:
        struct = _abi.inside(requested_schema, "arrow_schema")
        if _host_read.text_at(struct.format) != own or struct.n_children != (own == "+s"):
            raise ValueError("other fields were asked for")


# --- arrays ---------------------------------------------------------------------------


class Host:
    """Exports a new array at each call of ``__arrow_c_array__``."""

    kind = Column
    name = "arrow_array"

    def __init__(self, spoil=nothing, **attributes):
        self.spoil = spoil
        vars(self).update(attributes)

    def column(self):
        column = self.kind(VALUES)
        forever.append(column)
        self.spoil(column)
        return column

    def give(self, column):
        return column.schema.give("arrow_schema"), column.array.give(self.name)

    def __arrow_c_array__(self, requested_schema=None):
        refuse_other_fields(requested_schema, "l" if self.kind is Column else "+s")
        return self.give(self.column())


class HostBatch(Host):
    kind = Batch


class OnDevice(Host):
    """Also exports ``__arrow_c_device_array__``; `spoil_device` changes the device struct."""

    spoil_device = staticmethod(nothing)

    def __arrow_c_array__(self):
        raise AttributeError

    __arrow_c_array__ = property(__arrow_c_array__)

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        self.check_keywords(kwargs)
        refuse_other_fields(requested_schema, "l")
        column = self.column()
        given = _spoiling.DeviceArray(column)
        forever.append(given)
        self.spoil_device(given.struct)
        return given.__arrow_c_device_array__()

    def check_keywords(self, kwargs):
        if any(value is not None for value in kwargs.values()):
            raise NotImplementedError(f"unknown: {sorted(kwargs)}")


def set_array(**fields):
    def spoil(column):
        for name, value in fields.items():
            setattr(column.array.struct, name, value)

    return spoil


def set_schema(**fields):
    def spoil(column):
        for name, value in fields.items():
            setattr(column.schema.struct, name, value)

    return spoil


def set_device(**fields):
    def spoil(struct):
        for name, value in fields.items():
            setattr(struct, name, value)

    return spoil


def on_foreign_device(type, kind=OnDevice, **fields):
    """Correct; the count of its nulls cannot be compared with a bitmap that nobody reads."""
    spoil_device = set_device(device_type=type, device_id=0, **fields)
    return kind(set_array(null_count=1), spoil_device=spoil_device)


def on_vulkan():
    return on_foreign_device(ad.DeviceType.VULKAN)


def set_buffers(change):
    def spoil(column):
        found = _host_read.buffers(column.array.struct)
        column.array.struct.buffers = _spoiling._pointers(change(found))

    return spoil


def misaligned(found):
    """The same bytes, misaligned."""
    size = 8 * (len(VALUES) + 1)
    block = ctypes.create_string_buffer(size + 16)
    forever.append(block)
    at = (ctypes.addressof(block) | 7) + 2
    ctypes.memmove(at, found[1], size)
    return [found[0], at]


def set_metadata(*numbers):
    """Metadata of these counts and lengths."""
    return set_schema(metadata=text(struct.pack(f"={len(numbers)}i", *numbers)))


def endless_metadata():
    """Metadata of many pairs; the memory ends after the length of the first key."""
    return set_schema(metadata=before_a_gap(struct.pack("=2i", 1 << 15, 1 << 20)))


def unmapped(found):
    """Data in memory of which the second page is gone."""
    return [found[0], before_a_gap(ctypes.string_at(found[1], 16))]


def before_a_gap(data):
    """The address of a copy of the data at the end of a page. The next page cannot be read."""
    size = mmap.PAGESIZE
    anonymous = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    where = mapped(None, 2 * size, mmap.PROT_READ | mmap.PROT_WRITE, anonymous, -1, 0)
    at = where + size - len(data)
    ctypes.memmove(at, data, len(data))
    protected(where + size, size, 0)
    return at


mapped = ctypes.CFUNCTYPE(
    c_void_p, c_void_p, ctypes.c_size_t, c_int, c_int, c_int, ctypes.c_long, use_errno=True
)(("mmap", ctypes.CDLL(None)))
protected = ctypes.CFUNCTYPE(c_int, c_void_p, ctypes.c_size_t, c_int)(
    ("mprotect", ctypes.CDLL(None))
)


def nulls_against_the_schema(column):
    column.schema.struct.flags = 0
    column.array.struct.null_count = 1


def released(column):
    column.array.struct.release = None


def unmarked(column):
    callback = _abi.CALLBACKS["release"](lambda pointer: None)
    forever.append(callback)
    column.array.struct.release = _abi.address_of(callback)


def dictionary_of_floats(column):
    column.schema.struct.format = text(b"g")
    column.schema.struct.dictionary = ctypes.addressof(_spoiling.schema_of("u", "").struct)


def extra_dictionary(column):
    column.array.struct.dictionary = ctypes.addressof(Column([1]).array.struct)


def short_child(column):
    column.array.children[0].struct.length = 2


def lost_child(column):
    column.array.struct.n_children = 0


def spoils_its_child(column):
    """The parent's release frees the buffers of its children, even after they were moved."""
    column.array.record.data = column.array.children[0].record.data
    column.array.record.nbytes = column.array.children[0].record.nbytes


class Forgets:
    """The release of "schema" or "array" leaves the children and the dictionary alone."""

    def __init__(self, values, part):
        self.own, self.part = ad.array(values), part

    def __arrow_c_array__(self, requested_schema=None):
        capsules = self.own.__arrow_c_array__(requested_schema)
        where = capsules[self.part == "array"]
        forget_below(_abi.inside(where, f"arrow_{self.part}"))
        return capsules


def forget_below(struct):
    callback = _abi.CALLBACKS["release"](
        lambda pointer: setattr(type(struct).from_address(pointer), "release", None)
    )
    forever.append(callback)
    struct.release = _abi.address_of(callback)


def spoilt_by_the_schema(column):
    """The release of the schema frees the data."""
    column.schema.record.data = column.array.record.data
    column.schema.record.nbytes = column.array.record.nbytes


def spoilt_by_the_array(column):
    """The release of the array frees the format of the schema."""
    format = ctypes.create_string_buffer(b"l")
    forever.append(format)
    column.schema.struct.format = ctypes.addressof(format)
    column.array.record.data = ctypes.addressof(format)
    column.array.record.nbytes = 1


class NoDestructor(Host):
    def give(self, column):
        return tuple(
            _abi.new_capsule(ctypes.addressof(part.struct), name, None)
            for part, name in ((column.schema, b"arrow_schema"), (column.array, b"arrow_array"))
        )


class LeaksSchemas:
    """A schema that is not consumed is leaked. It is not allocated by Python."""

    def __init__(self):
        self.own = ad.Array.from_buffers("int64", 1, [None, bytes(8)])

    def __arrow_c_array__(self, requested_schema=None):
        schema, array = self.own.__arrow_c_array__(requested_schema)
        where = malloc(ctypes.sizeof(_abi.ArrowSchema))
        _abi.move(_abi.inside(schema, "arrow_schema"), where)
        return _abi.new_capsule(where, b"arrow_schema", None), array


class KeepsSchemas(Host):
    """Every capsule of a schema stays in a list, so that no schema is released."""

    def give(self, column):
        schema, array = super().give(column)
        forever.append(schema)
        return schema, array


class SharesSchemas(Host):
    """Sound: the capsule of the schema is the same for all, as long as nobody consumes it."""

    schema = None

    def give(self, column):
        kind = type(self)
        if kind.schema is None or not _abi.inside(kind.schema, "arrow_schema").release:
            kind.schema = column.schema.give("arrow_schema")
        return kind.schema, column.array.give(self.name)


class CachesSchemas(Host):
    """Sound: the last schemas stay in a cache."""

    cache = collections.deque(maxlen=20)

    def give(self, column):
        schema, array = super().give(column)
        self.cache.append(schema)
        return schema, array


malloc = ctypes.CFUNCTYPE(c_void_p, ctypes.c_size_t)(("malloc", ctypes.CDLL(None)))


class ReleasesTwice(Host):
    """The capsule's destructor releases the array, or the schema, again, although it is marked."""

    part = "array"

    def give(self, column):
        node = getattr(column, self.part).struct

        def destroy(pointer):
            if not node.release:  # it was moved out
                return
            release = _abi.CALLBACKS["release"](node.release)
            for _ in range(2):
                release(ctypes.addressof(node))

        destructor = PYFUNCTYPE(None, c_void_p)(destroy)
        forever.append(destructor)
        name = f"arrow_{self.part}".encode()
        forever.append(name)
        where = ctypes.addressof(node)
        capsule = _abi.new_capsule(where, name, ctypes.cast(destructor, c_void_p))
        if self.part == "schema":
            return capsule, column.array.give(self.name)
        return column.schema.give("arrow_schema"), capsule


class LeaksArrays(Host):
    """Only the schema is freed with its capsule."""

    def give(self, column):
        where = ctypes.addressof(column.array.struct)
        array = _abi.new_capsule(where, b"arrow_array", None)
        return column.schema.give("arrow_schema"), array


class Careless(Host):
    """The capsule's destructor frees the data even if the struct was moved out."""

    def give(self, column):
        def destroy(pointer):
            ctypes.memset(ctypes.addressof(column.data), 0xCD, ctypes.sizeof(column.data))
            if column.array.struct.release:
                _abi.call(column.array.struct, "release")

        destructor = PYFUNCTYPE(None, c_void_p)(destroy)
        forever.append(destructor)
        where = ctypes.addressof(column.array.struct)
        capsule = _abi.new_capsule(where, b"arrow_array", ctypes.cast(destructor, c_void_p))
        return column.schema.give("arrow_schema"), capsule


class Once(Host):
    calls = 0

    def __arrow_c_array__(self, requested_schema=None):
        self.calls += 1
        if self.calls > 1:
            raise RuntimeError("exported before")
        return super().__arrow_c_array__(requested_schema)


class OtherSchema(Host):
    def __arrow_c_schema__(self):
        return _spoiling.schema_of("g", "a").give("arrow_schema")


class NoRequests(Host):
    def __arrow_c_array__(self, requested_schema=None):
        if requested_schema is not None:
            raise TypeError("there is but one schema")
        return super().__arrow_c_array__()


class AnyRequest(Host):
    def __arrow_c_array__(self, requested_schema=None):
        return super().__arrow_c_array__()


class Ends(Host):
    """The second export ends the process."""

    calls = 0

    def __init__(self, how):
        super().__init__()
        self.end = {"segfault": lambda: ctypes.string_at(8), "abort": os.abort,
                    "exit": lambda: os._exit(0)}[how]  # fmt: skip

    def __arrow_c_array__(self, requested_schema=None):
        Ends.calls += 1
        if Ends.calls > 1:
            self.end()
        return super().__arrow_c_array__(requested_schema)


class Tired(Host):
    """Only the first exports succeed, whoever asks."""

    def column(self):
        self.left[0] -= 1
        if self.left[0] < 0:
            raise MemoryError("no more")
        return super().column()


class NoKeywords(OnDevice):
    def __arrow_c_device_array__(self, requested_schema=None):
        return super().__arrow_c_device_array__(requested_schema)


class AnyKeywords(OnDevice):
    def check_keywords(self, kwargs):
        pass


class Relabels(Host):
    """Data in a requested type are the bytes of their own type."""

    def __arrow_c_array__(self, requested_schema=None):
        if requested_schema is None:
            return super().__arrow_c_array__()
        struct = _abi.inside(requested_schema, "arrow_schema")
        if struct.n_children:
            raise ValueError("other fields were asked for")
        column = self.column()
        format = _host_read.text_at(struct.format)
        return _spoiling.schema_of(format, "a").give("arrow_schema"), self.give(column)[1]


class Casts(Relabels):
    """Data in a requested type, which is int32, are converted."""

    def __arrow_c_array__(self, requested_schema=None):
        schema, array = super().__arrow_c_array__(requested_schema)
        if requested_schema is not None and self.is_requested(schema):
            buffers = _host_read.buffers(_abi.inside(array, "arrow_array"))
            numbers = (c_int32 * 5)(*(c_int64 * 5).from_address(buffers[1]))
            ctypes.memmove(buffers[1], numbers, ctypes.sizeof(numbers))
        return schema, array

    def is_requested(self, schema):
        return _host_read.text_at(_abi.inside(schema, "arrow_schema").format) == "i"


class Returns(Host):
    def give(self, column):
        return list(super().give(column))


class Shared(Host):
    """All exports share one memory, which the first release frees."""

    data = None

    def column(self):
        column = super().column()
        if self.data is None:
            self.data = column.data
        buffers = _host_read.buffers(column.array.struct)
        buffers[1] = ctypes.addressof(self.data)
        column.array.struct.buffers = _spoiling._pointers(buffers)
        column.array.record.data = buffers[1]
        return column


class Short(Host):
    """The data are freed with the object."""

    last = None

    def column(self):
        self.last = super().column()
        return self.last

    def __del__(self):
        if self.last is not None:
            ctypes.memset(ctypes.addressof(self.last.data), 0xCD, ctypes.sizeof(self.last.data))


# --- streams --------------------------------------------------------------------------

CHUNKS = [[7, None], [], [-9, 12]]


def fresh(values):
    """A batch that overwrites its memory when it is released."""
    return step.batch(lambda: ad.array(_spoiling.HostArray(Column(values))))


class Stream:
    """Exports a new stream at each call; `spoil` changes its struct."""

    members = {"host": True, "device": False}

    def __init__(self, spoil=nothing, steps=None, fields="l", **options):
        self.fields = fields
        self.script = ScriptedStream(steps or map(fresh, CHUNKS), **self.members, **options)
        self.spoil = spoil
        forever.append(self.script)

    def __arrow_c_stream__(self, requested_schema=None):
        refuse_other_fields(requested_schema, self.fields)
        capsule = self.script.__arrow_c_stream__()
        self.spoil(_abi.inside(capsule, "arrow_array_stream"))
        return capsule


class DeviceStream(Stream):
    members = {"host": False, "device": True}

    def __arrow_c_device_stream__(self, requested_schema=None, **kwargs):
        refuse_other_fields(requested_schema, "l")
        return self.script.__arrow_c_device_stream__(**kwargs)

    __arrow_c_stream__ = property()


def failing(spoil=nothing):
    return Stream(spoil, [*map(fresh, CHUNKS), step.error(errno.EIO, "planned")])


def set_stream(**members):
    """Replaces these members with functions that get the original one and its arguments."""

    def spoil(struct):
        for name, function in members.items():
            real = _abi.CALLBACKS[name](getattr(struct, name))
            callback = _abi.CALLBACKS[name](lambda *args, f=function, r=real: f(r, *args))
            forever.append((real, callback))
            setattr(struct, name, _abi.address_of(callback))

    return spoil


def forgets_in_stream(member, index):
    """The release of the schema or of the arrays leaves what is below alone."""

    def give(real, address, out):
        code = real(address, out)
        struct = (_abi.ArrowSchema, _abi.ArrowArray)[index].from_address(out)
        if struct.release:
            forget_below(struct)
        return code

    return Stream(set_stream(**{member: give}), [{"a": [1]}], fields="+s")


def null_callback(struct):
    struct.get_last_error = None


def spoilt_by_release():
    """The release of the stream frees the arrays."""
    given = []

    def get_next(real, address, out):
        code = real(address, out)
        array = _abi.ArrowArray.from_address(out)
        if array.release:
            where = _host_read.buffers(array)[1]
            given.append((where, 8 * (array.offset + array.length)))
        return code

    def release(real, address):
        real(address)
        for where, size in given:
            ctypes.memset(where, 0xCD, size)

    return set_stream(get_next=get_next, release=release)


def other_schemas():
    names = iter(range(100))

    def get_schema(real, address, out):
        code = real(address, out)
        _abi.ArrowSchema.from_address(out).name = text(b"column %d" % next(names)).value
        return code

    return set_stream(get_schema=get_schema)


def unmarked_stream(struct):
    set_stream(release=lambda real, address: None)(struct)


# --- async streams --------------------------------------------------------------------

SCHEMA, REQUESTED = step.schema(), step.wait_for_request()
END, RELEASE = step.end(), step.release()
NEGATIVE = ctypes.create_string_buffer(b"\xff" * 8)


def pushed(*steps, obey=False):
    """A producer that runs these steps, whatever its consumer requests."""
    return ScriptedAsyncProducer(steps, type="int64", on_thread=False, obey=obey, timeout=20)


def of(batch, *after):
    """A producer that is correct except for its only batch and the steps after it."""
    return pushed(SCHEMA, REQUESTED, batch, *after, END, RELEASE, obey=True)


def sound_async():
    return ScriptedAsyncProducer.of(map(fresh, CHUNKS), metadata={"rows": "4"}, timeout=20)


def failing_async():
    steps = [SCHEMA, REQUESTED, fresh(VALUES), step.error(errno.EIO, "planned"), RELEASE]
    return pushed(*steps, obey=True)


def released_schema(producer):
    empty = _abi.ArrowSchema()
    producer._tell("on_schema", ctypes.addressof(empty))


def forgetful_schema(producer):
    """The release of the schema leaves its child alone."""
    own = ad.record_batch({"a": ad.Array.from_buffers("int8", 0, [None, None])})
    schema = _abi.take(own.__arrow_c_schema__(), "arrow_schema")
    forget_below(schema)
    producer._tell("on_schema", ctypes.addressof(schema))


def no_producer(producer):
    _abi.ArrowAsyncDeviceStreamHandler.from_address(producer._handler).producer = None


def bad_metadata(producer):
    producer._producer.struct.additional_metadata = ctypes.addressof(NEGATIVE)


def empty_task(producer):
    empty = _abi.ArrowAsyncTask()
    producer._tell("on_next_task", ctypes.addressof(empty), None)


def clean_up_early(producer):
    """Tasks become invalid when on_next_task returns."""
    for task in producer._tasks[-1:]:
        if not task.n_extracted:
            task.take_back()


def fail_where_discarded(producer):
    if any(call.about.endswith("NULL") for call in producer.calls):
        producer._do_error(errno.EIO, "nobody wants it")


def fail_where_cancelled(producer):
    if producer.is_cancelled:
        producer._do_error(errno.ECANCELED, "cancelled")


def spoilt_batch():
    """The release of the handler frees the data."""
    column = Column(VALUES)
    forever.append(column)

    def spoil(_):
        ctypes.memset(ctypes.addressof(column.data), 0xCD, ctypes.sizeof(column.data))

    steps = [SCHEMA, REQUESTED, ad.array(_spoiling.HostArray(column)), END, RELEASE, spoil]
    return pushed(*steps, obey=True)


class Reentrant:
    """A producer without batches whose request and cancel call the handler before they return."""

    def __init__(self, request=nothing, cancel=nothing):
        self.is_ended = False
        self.kept = [
            _abi.CALLBACKS["request"](lambda *_: request(self)),
            _abi.CALLBACKS["cancel"](lambda *_: cancel(self)),
        ]

    def __arrowdev_async_device_stream__(self, capsule):
        pointer = _abi.get_pointer(capsule, b"arrowdev_async_device_stream_handler")
        self.handler = _abi.ArrowAsyncDeviceStreamHandler.from_address(pointer)
        self.struct = _abi.ArrowAsyncProducer(device_type=1)
        self.struct.request, self.struct.cancel = map(_abi.address_of, self.kept)
        self.handler.producer = ctypes.addressof(self.struct)
        schema = _abi.take(ad.schema("int64").__arrow_c_schema__(), "arrow_schema")
        refusal = _abi.call(self.handler, "on_schema", ctypes.addressof(schema))
        if not self.is_ended and not refusal:
            self.end()
        _abi.call(self.handler, "release")

    def end(self):
        self.is_ended = True
        _abi.call(self.handler, "on_next_task", None, None)

    def end_on_thread(self):
        thread = threading.Thread(target=self.end)
        thread.start()
        thread.join()


# --- tensors --------------------------------------------------------------------------


class Tensor:
    """A correct tensor that accepts all keywords; `spoil` changes the struct."""

    def __init__(self, spoil=nothing, **attributes):
        self.data = (c_int64 * 3)(1, 2, 3)
        self.spoil = spoil
        vars(self).update(attributes)

    device = (1, 0)
    is_legacy = staticmethod(lambda max_version: (max_version or (0,))[0] < 1)
    is_flagged = True
    copies = staticmethod(lambda copy: bool(copy))
    major = 1

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        given = _spoiling.Tensor([1, 2, 3], major=self.major)
        forever.append(given)
        is_copied = self.copies(copy)
        if not is_copied:
            given.data = self.data
            given.record.data = None
        keywords = {} if self.is_legacy(max_version) else {"max_version": (1, 0)}
        capsule = given.__dlpack__(**keywords)
        del given.capsule
        struct = _dlpack.inside(capsule)
        if is_copied and self.is_flagged and keywords:
            struct.flags |= _dlpack.IS_COPIED
        self.spoil(struct)
        return capsule


class ReadOnly(Tensor):
    @property
    def __array_interface__(self):
        where = ctypes.addressof(self.data)
        return {"shape": (3,), "typestr": "<i8", "data": (where, True), "version": 3}

    def __dlpack__(self, *, max_version=None, **kwargs):
        if self.is_legacy(max_version) and self.refuses:
            raise BufferError("read-only")
        return super().__dlpack__(max_version=max_version, **kwargs)

    refuses = True


def set_tensor(**fields):
    def spoil(struct):
        for name, value in fields.items():
            setattr(struct.tensor, name, value)

    return spoil


def set_flags(flags):
    def spoil(struct):
        if hasattr(struct, "flags"):
            struct.flags |= flags

    return spoil


class BadName(Tensor):
    def __dlpack__(self, **kwargs):
        capsule = super().__dlpack__(**kwargs)
        name = ctypes.create_string_buffer(b"tensor")
        forever.append(name)
        _abi.set_name(capsule, ctypes.addressof(name))
        return capsule


class Only(Tensor):
    """Accepts only these keywords."""

    def __dlpack__(self, **kwargs):
        unknown = set(kwargs) - set(self.knows)
        if unknown:
            raise TypeError(f"unknown: {unknown}")
        return super().__dlpack__(**kwargs)


class WithDestructor(Tensor):
    """`destroy` is the capsule's destructor; the object is never freed."""

    def __dlpack__(self, **kwargs):
        given = super().__dlpack__(**kwargs)
        name = _abi.get_name(given)
        struct = _dlpack.take(given)
        destructor = PYFUNCTYPE(None, c_void_p)(lambda pointer: self.destroy(struct))
        forever.append((self, struct, name, destructor))
        where = ctypes.addressof(struct)
        return _abi.new_capsule(where, name, ctypes.cast(destructor, c_void_p))


class ShortTensor(Tensor):
    def __del__(self):
        ctypes.memset(ctypes.addressof(self.data), 0xCD, 24)


class Refuses(Tensor):
    """Exports only the legacy capsule."""

    error = TypeError

    def __dlpack__(self, *, max_version=None, **kwargs):
        if self.is_legacy(max_version):
            raise self.error("this cannot be expressed")
        return super().__dlpack__(max_version=max_version, **kwargs)


class RefusesAlways(Refuses):
    is_legacy = staticmethod(lambda max_version: True)


# --- dicts ----------------------------------------------------------------------------


class Dict:
    """Exports only one of the three dicts; a change to None removes a key."""

    version = 3
    more = {}

    def __init__(self, **changes):
        self.data = (c_int64 * 6)(*range(6))
        where = ctypes.addressof(self.data)
        found = {"shape": (2, 3), "typestr": "<i8", "data": (where, False)}
        found |= {"version": self.version, **self.more, **changes}
        self.found = {key: value for key, value in found.items() if value is not None}

    def show(self):
        return dict(self.found)

    __array_interface__ = property(lambda self: self.show())


class CudaDict(Dict):
    __array_interface__ = property()
    __cuda_array_interface__ = property(lambda self: self.show())


class SyclDict(Dict):
    __array_interface__ = property()
    __sycl_usm_array_interface__ = property(lambda self: self.show())
    version = 1
    more = {"syclobj": "opencl:cpu", "offset": 0}


class NoDict(Dict):
    def show(self):
        return list(self.found.items())


class Fickle(Dict):
    """Returns a different dict each time."""

    n = 0

    def show(self):
        self.n += 1
        return self.found | {"shape": (6 - self.n,)}


class Fleeting(Dict):
    """The data are freed with the dict."""

    def show(self):
        copy = (c_int64 * 6)(*range(6))
        forever.append(copy)

        class Found(dict):
            def __del__(found):
                ctypes.memset(copy, 0xCD, ctypes.sizeof(copy))

        return Found(self.found | {"data": (ctypes.addressof(copy), False)})


class Unflagged(ReadOnly):
    """Read-only in DLPack only."""

    def __init__(self):
        super().__init__(set_flags(1))

    @property
    def __array_interface__(self):
        return super().__array_interface__ | {"data": (ctypes.addressof(self.data), False)}


class Exits:
    """An object whose method, or property of that name, ends the program."""

    def __init__(self, name, is_property=False, raised=SystemExit):
        self.names = (name, is_property, raised)

    def __repr__(self):
        name, is_property, raised = self.names
        return f"Exits({name!r}, {is_property}, {raised.__name__})"

    def __getattr__(self, name):
        wanted, is_property, raised = vars(self).get("names", (None, None, None))
        if name != wanted:
            raise AttributeError(name)
        if is_property:
            raise raised(0)
        return self.leave

    def leave(self, *args, **kwargs):
        raise self.names[2](0)
