"""Producers and consumers with one fault each, for test_conformance.py.

The sound ones are those of arrowdev.testing._scripted; `spoil` changes a struct before it is given
away.
"""

import ctypes
import errno
from ctypes import PYFUNCTYPE, c_int64, c_void_p

from arrowdev.testing import _abi, _dlpack, _reading, _scripted
from arrowdev.testing._scripted import Batch, Column

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
        if _reading.text_at(struct.format) != own or struct.n_children != (own == "+s"):
            raise ValueError("other fields were asked for")


# --- arrays ---------------------------------------------------------------------------


class Host:
    """A new array at each call, behind ``__arrow_c_array__``."""

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
    """The same behind ``__arrow_c_device_array__``; `spoil_device` changes the device struct."""

    spoil_device = staticmethod(nothing)

    def __arrow_c_array__(self):
        raise AttributeError

    __arrow_c_array__ = property(__arrow_c_array__)

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        self.check_keywords(kwargs)
        refuse_other_fields(requested_schema, "l")
        column = self.column()
        given = _scripted.DeviceArray(column)
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


def set_buffers(change):
    def spoil(column):
        found = _reading.buffers(column.array.struct)
        column.array.struct.buffers = _scripted._pointers(change(found))

    return spoil


def crooked(found):
    """The same bytes one further on."""
    size = 8 * (len(VALUES) + 1)
    block = ctypes.create_string_buffer(size + 16)
    forever.append(block)
    at = (ctypes.addressof(block) | 7) + 2
    ctypes.memmove(at, found[1], size)
    return [found[0], at]


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
    column.schema.struct.dictionary = ctypes.addressof(_scripted._schema("u", "").struct)


def extra_dictionary(column):
    column.array.struct.dictionary = ctypes.addressof(Column([1]).array.struct)


def short_child(column):
    column.array.parts[0].struct.length = 2


def lost_child(column):
    column.array.struct.n_children = 0


def spoils_its_child(column):
    """The parent's release frees the buffers of its children, whoever has those."""
    column.array.record.data = column.array.parts[0].record.data
    column.array.record.nbytes = column.array.parts[0].record.nbytes


class NoDestructor(Host):
    def give(self, column):
        return tuple(
            _abi.new_capsule(ctypes.addressof(part.struct), name, None)
            for part, name in ((column.schema, b"arrow_schema"), (column.array, b"arrow_array"))
        )


class Careless(Host):
    """The capsule's destructor frees the data, whether the struct was moved out or not."""

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
        return _scripted._schema("g", "a").give("arrow_schema")


class NoRequests(Host):
    def __arrow_c_array__(self, requested_schema=None):
        if requested_schema is not None:
            raise TypeError("there is but one schema")
        return super().__arrow_c_array__()


class AnyRequest(Host):
    def __arrow_c_array__(self, requested_schema=None):
        return super().__arrow_c_array__()


class NoKeywords(OnDevice):
    def __arrow_c_device_array__(self, requested_schema=None):
        return super().__arrow_c_device_array__(requested_schema)


class AnyKeywords(OnDevice):
    def check_keywords(self, kwargs):
        pass


class Returns(Host):
    def give(self, column):
        return list(super().give(column))


class Shared(Host):
    """All exports have one memory, which the first release frees."""

    data = None

    def column(self):
        column = super().column()
        if self.data is None:
            self.data = column.data
        buffers = _reading.buffers(column.array.struct)
        buffers[1] = ctypes.addressof(self.data)
        column.array.struct.buffers = _scripted._pointers(buffers)
        column.array.record.data = buffers[1]
        return column


class Short(Host):
    """The data die with the object."""

    last = None

    def column(self):
        self.last = super().column()
        return self.last

    def __del__(self):
        if self.last is not None:
            ctypes.memset(ctypes.addressof(self.last.data), 0xCD, ctypes.sizeof(self.last.data))


# --- streams --------------------------------------------------------------------------

CHUNKS = [[7, None], [], [-9, 12]]


class Stream:
    """A new stream at each call; `spoil` changes its struct, `kinds` those of its arrays."""

    def __init__(self, spoil=nothing, kinds=None, fails=False, **attributes):
        self.spoil = spoil
        self.kinds = kinds or [Column] * len(CHUNKS)
        self.fails = fails
        vars(self).update(attributes)

    def given(self):
        given = _scripted.HostStream(Column, CHUNKS, self.fails)
        forever.append(given)
        return given

    def __arrow_c_stream__(self, requested_schema=None):
        refuse_other_fields(requested_schema, "l")
        given = self.given()
        capsule = given.__arrow_c_stream__()
        self.spoil(given.streams[-1])
        return capsule


def set_stream(**members):
    def spoil(stream):
        for name, function in members.items():
            callback = _abi.CALLBACKS[name](lambda *args, f=function: f(stream, *args))
            forever.append(callback)
            setattr(stream.struct, name, _abi.address_of(callback))

    return spoil


def null_callback(stream):
    stream.struct.get_last_error = None


def next_of(make):
    """get_next that gives `make(i)`, a Part, three times."""

    def get_next(stream, _, out):
        i, stream.n_calls = stream.n_calls, stream.n_calls + 1
        if i == 3:
            ctypes.memset(out, 0, ctypes.sizeof(_abi.ArrowArray))
        else:
            stream._put(make(stream, i), out)
        return 0

    return get_next


def unlike_schema(stream, i):
    column = Column(VALUES)
    column.array.struct.n_buffers = 2 + i
    column.array.struct.buffers = _scripted._pointers(
        [None, ctypes.addressof(column.data), None, None]
    )
    column.array.struct.null_count = 0
    return column.array


def spoilt_by_release(stream, i):
    column = Column(VALUES)
    stream.record.data = ctypes.addressof(column.data)
    stream.record.nbytes = ctypes.sizeof(column.data)
    return column.array


def other_schemas(stream, _, out):
    stream.n_schemas = getattr(stream, "n_schemas", 0) + 1
    stream._put(_scripted._schema("l", f"column {stream.n_schemas}"), out)
    return 0


class DeviceStream:
    """A stream of the CPU, whose arrays say CUDA_HOST."""

    def __arrow_c_device_stream__(self, requested_schema=None, **kwargs):
        if any(value is not None for value in kwargs.values()):
            raise NotImplementedError
        refuse_other_fields(requested_schema, "l")
        host = _scripted.HostStream(Column, CHUNKS)
        stream = _scripted._Stream(host)
        struct = _abi.ArrowDeviceArrayStream(device_type=1)
        for name in ("get_schema", "get_next", "get_last_error", "release", "private_data"):
            setattr(struct, name, getattr(stream.struct, name))

        def get_next(_, out):
            device = _abi.ArrowDeviceArray.from_address(out)
            code = stream._get_next(0, out)
            device.device_type, device.device_id = 3, 0
            device.sync_event = None
            device.reserved[:] = [0] * 3
            return code

        def release(pointer):
            _abi.ArrowDeviceArrayStream.from_address(pointer).release = None

        callbacks = [_abi.CALLBACKS["get_next"](get_next), _abi.CALLBACKS["release"](release)]
        struct.get_next, struct.release = map(_abi.address_of, callbacks)

        def destroy(pointer):
            if struct.release:
                _abi.call(struct, "release")

        destructor = PYFUNCTYPE(None, c_void_p)(destroy)
        forever.append((struct, stream, host, callbacks, destructor))
        where = ctypes.addressof(struct)
        pointer = ctypes.cast(destructor, c_void_p)
        return _abi.new_capsule(where, b"arrow_device_array_stream", pointer)


class UnmarkedAfterError(Stream):
    def __init__(self):
        super().__init__(set_stream(release=lambda stream, pointer: None), fails=True)


# --- tensors --------------------------------------------------------------------------


class Tensor:
    """A sound one, all keywords understood; `spoil` changes the struct."""

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
        given = _scripted.Tensor([1, 2, 3], major=self.major)
        forever.append(given)
        is_copied = self.copies(copy)
        if not is_copied:
            given.data = self.data
            given.record.data = None
        keywords = {} if self.is_legacy(max_version) else {"max_version": (1, 0)}
        capsule = given.__dlpack__(**keywords)
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
        _dlpack.set_name(capsule, ctypes.addressof(name))
        return capsule


class Only(Tensor):
    """Knows these keywords alone."""

    def __dlpack__(self, **kwargs):
        unknown = set(kwargs) - set(self.knows)
        if unknown:
            raise TypeError(f"unknown: {unknown}")
        return super().__dlpack__(**kwargs)


class WithDestructor(Tensor):
    """`destroy` is the capsule's destructor; the object lives forever."""

    def __dlpack__(self, **kwargs):
        given = super().__dlpack__(**kwargs)
        name = _dlpack.get_name(given)
        struct = _dlpack.take(given)
        destructor = PYFUNCTYPE(None, c_void_p)(lambda pointer: self.destroy(struct))
        forever.append((self, struct, name, destructor))
        where = ctypes.addressof(struct)
        return _abi.new_capsule(where, name, ctypes.cast(destructor, c_void_p))


class ShortTensor(Tensor):
    def __del__(self):
        ctypes.memset(ctypes.addressof(self.data), 0xCD, 24)


class Refuses(Tensor):
    def __dlpack__(self, **kwargs):
        raise TypeError("this cannot be expressed")


def exchange_type():
    table = _dlpack.DLPackExchangeAPI()
    table.version = _dlpack.DLPackVersion(2, 0)
    forever.append(table)
    capsule = _abi.new_capsule(ctypes.addressof(table), b"dlpack_exchange_api", None)
    return type("WithTable", (Tensor,), {"__dlpack_c_exchange_api__": capsule})


# --- consumers ------------------------------------------------------------------------


def column_of(array):
    """The values of an int64 struct, as the specification has them."""
    if array.n_children:
        return column_of(_reading.children(array)[0])
    bits, data = _reading.buffers(array)
    numbers = (c_int64 * (array.offset + array.length)).from_address(data)
    rows = range(array.offset, array.offset + array.length)
    flags = (ctypes.c_uint8 * (max(rows, default=0) // 8 + 1)).from_address(bits) if bits else None
    return [numbers[i] if flags is None or flags[i // 8] >> i % 8 & 1 else None for i in rows]


class Taken:
    """What the consumer holds: structs, and what to do with them in the end."""

    def __init__(self, read, close):
        self.read, self.close = read, close

    def __del__(self):
        self.close()


class Consumer:
    """Takes whatever it is given; `faults` are the names of what it does wrong."""

    def __init__(self, *faults):
        self.faults = faults

    def __call__(self, obj):
        if hasattr(obj, "__dlpack__"):
            return self.tensor(obj)
        if hasattr(obj, "__arrow_c_stream__"):
            return self.stream(obj.__arrow_c_stream__())
        if hasattr(obj, "__arrow_c_device_array__"):
            return self.array(*obj.__arrow_c_device_array__(), "arrow_device_array")
        return self.array(*obj.__arrow_c_array__(), "arrow_array")

    @staticmethod
    def read(taken):
        return taken.read()

    def has(self, fault):
        return fault in self.faults

    def take(self, capsule, name):
        if self.has("name"):
            pointer = _abi.get_pointer(capsule, _dlpack.get_name(capsule))
            found = _abi.CAPSULES[name].from_address(pointer)
            node = getattr(found, "array", found)
        else:
            found = _abi.inside(capsule, name)
            node = getattr(found, "array", found)
        if not node.release and not self.has("released"):
            raise ValueError("released")
        struct = type(found)()
        _abi.move(found, ctypes.addressof(struct))
        return struct

    def release(self, struct, fault):
        node = getattr(struct, "array", struct)
        if node.release and not self.has(fault):
            _abi.call(node, "release")

    def array(self, schema_capsule, array_capsule, name):
        array = self.take(array_capsule, name)
        schema = self.take(schema_capsule, "arrow_schema")
        node = getattr(array, "array", array)
        try:
            self.check(schema, array)
        except ValueError:
            self.release(array, "malformed")
            self.release(schema, "malformed")
            raise
        self.release(schema, "schema")
        if self.has("values"):
            node.offset = 0
        if self.has("early"):
            kept = type(node).from_buffer_copy(node)
            _abi.call(node, "release")
            return Taken(lambda: column_of(kept), lambda: None)
        return Taken(lambda: column_of(node), lambda: self.release(array, "release"))

    def check(self, schema, array):
        formats = [_reading.text_at(schema.format)]
        formats += [_reading.text_at(child.format) for child in _reading.children(schema)]
        if formats not in (["l"], ["+s", "l"]):
            raise ValueError(f"unknown type {formats}")
        if not isinstance(array, _abi.ArrowDeviceArray):
            return
        if array.device_type != 1 and not self.has("device"):
            raise ValueError("not the host's memory")
        if any(array.reserved) and self.has("reserved"):
            raise ValueError("reserved is not zero")

    def stream(self, capsule):
        stream = self.take(capsule, "arrow_array_stream")
        schema = _abi.ArrowSchema()
        _abi.call(stream, "get_schema", ctypes.addressof(schema))
        self.release(schema, "schema")
        values = []
        try:
            while True:
                array = _abi.ArrowArray()
                code = _abi.call(stream, "get_next", ctypes.addressof(array))
                if code != 0 or not array.release:
                    break
                values += column_of(array)
                self.release(array, "chunks")
            if self.has("after"):
                _abi.call(stream, "get_next", ctypes.addressof(array))
            if code == errno.EIO and not self.has("swallows"):
                raise OSError(code, _reading.text_at(_abi.call(stream, "get_last_error")))
        finally:
            self.release(stream, "stream")
        return Taken(lambda: values, lambda: None)

    def tensor(self, obj):
        try:
            capsule = obj.__dlpack__(max_version=(1, 3))
        except TypeError:
            if self.has("max_version"):
                raise
            capsule = obj.__dlpack__()
        struct = _dlpack.inside(capsule)
        if not self.has("renamed"):
            _dlpack.take(capsule)
        version = getattr(struct, "version", None)
        if version is not None and version.major != 1 and not self.has("major"):
            _dlpack.delete(struct)
            raise BufferError("another version")
        where, n = struct.tensor.data, _dlpack.extents(struct.tensor, "shape")[0]

        def close(capsule=capsule):
            if not self.has("deleter") and not self.has("renamed"):
                _dlpack.delete(struct)

        return Taken(lambda: list((c_int64 * n).from_address(where)), close)
