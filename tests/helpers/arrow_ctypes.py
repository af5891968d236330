"""Hand-made producers of Arrow structs, in ctypes.

Every field can be set to any value after a node was created, so that every
kind of invalid struct can be produced. Nodes count their releases.
"""

import ctypes
import mmap
import struct
from ctypes import Structure, c_char_p, c_int, c_int32, c_int64, c_void_p

from arrowdev.testing._abi import (
    CALLBACKS,
    ArrowArray,
    ArrowArrayStream,
    ArrowDeviceArray,
    ArrowDeviceArrayStream,
    ArrowSchema,
    encode_metadata,
    get_pointer,  # noqa: F401, for the tests
    inside,  # noqa: F401, for the tests
    new_capsule,
)

CPU, CUDA = 1, 2
NULLABLE = 2

Release = CALLBACKS["release"]

# Structs, strings and callbacks of hand-made producers live until the process ends,
# because the code under test may hold them by pointer, even wrongly.
_forever = []

# Lists of children and buffers are followed by this many NULL entries, so that
# a slightly wrong count stays within mapped memory.
SLACK = 8


def keep(thing):
    _forever.append(thing)
    return thing


def address(thing):
    return None if thing is None else ctypes.addressof(thing)


def text(value):
    """A C string that stays allocated; NULL for None."""
    if value is None:
        return None
    value = value.encode() if isinstance(value, str) else value
    return ctypes.cast(keep(c_char_p(value)), c_void_p).value


def pointers(values):
    return address(keep((c_void_p * (len(values) + SLACK))(*values)))


class Node:
    """A struct and the objects that it points to; `released` counts its own releases."""

    struct_type = None

    def __init__(self, children, dictionary):
        self.children = list(children)
        self.dictionary = dictionary
        self.released = 0
        self.on_release = None
        self.struct = self.struct_type()
        self.address = ctypes.addressof(self.struct)
        self.release = keep(Release(self._release))
        self.struct.n_children = len(self.children)
        self.struct.children = pointers([child.address for child in self.children])
        self.struct.dictionary = dictionary.address if dictionary else None
        self.struct.release = ctypes.cast(self.release, c_void_p)
        keep(self)

    def _release(self, pointer):
        self.released += 1
        if self.on_release is not None:
            self.on_release()
        # No globals are used from here on: they may be gone at interpreter exit.
        call = type(self.release)
        # The children as they were created, whatever the struct says now.
        for part in [*self.children, *([self.dictionary] if self.dictionary else [])]:
            if part.struct.release:
                call(part.struct.release)(part.address)
        self.struct_type.from_address(pointer).release = None

    def raw(self):
        return bytes(self.struct)


class SchemaNode(Node):
    struct_type = ArrowSchema

    def __init__(
        self, format, *, name="", metadata=None, flags=NULLABLE, children=(), dictionary=None
    ):
        super().__init__(children, dictionary)
        self.struct.format = text(format)
        self.struct.name = text(name)
        self.struct.metadata = metadata
        self.struct.flags = flags


class ArrayNode(Node):
    """`buffers`: addresses, None for NULL, or objects whose address is taken."""

    struct_type = ArrowArray

    def __init__(
        self,
        length,
        buffers,
        *,
        null_count=0,
        offset=0,
        children=(),
        dictionary=None,
        n_buffers=None,
    ):
        super().__init__(children, dictionary)
        addresses = [
            item if item is None or isinstance(item, int) else address(keep(item))
            for item in buffers
        ]
        self.struct.length = length
        self.struct.null_count = null_count
        self.struct.offset = offset
        self.struct.n_buffers = len(buffers) if n_buffers is None else n_buffers
        self.struct.buffers = pointers(addresses)


def int64s(*values):
    return keep((c_int64 * max(len(values), 1))(*values))


def int32s(*values):
    return keep((c_int32 * max(len(values), 1))(*values))


def metadata(*pairs):
    """A metadata blob of (key, value) pairs, which stays allocated."""
    return text(encode_metadata(pairs))


# Metadata may claim up to 64 MiB before arrowdev refuses them. Invalid metadata
# are followed by mapped zeros, of which only touched pages use memory.
_ZEROS = 256 << 20


def raw_metadata(*numbers):
    """The address of these int32 numbers, followed by many zeros."""
    region = keep(mmap.mmap(-1, _ZEROS))
    data = struct.pack(f"={len(numbers)}i", *numbers)
    region[: len(data)] = data
    return ctypes.addressof(keep(c_int.from_buffer(region)))


# --- capsules -----------------------------------------------------------------


def capsule(where, name):
    """A capsule without a destructor for a node, a struct or an address."""
    if isinstance(where, Node):
        where = where.address
    elif isinstance(where, Structure):
        where = address(keep(where))
    return new_capsule(where, keep(c_char_p(name.encode())) if name is not None else None, None)


def children_of(struct_):
    """The child structs that the struct lists."""
    list_ = (c_void_p * struct_.n_children).from_address(struct_.children or 0)
    return [type(struct_).from_address(pointer) for pointer in list_]


def buffers_of(struct_):
    return list((c_void_p * struct_.n_buffers).from_address(struct_.buffers or 0))


def release(struct_):
    """Calls a struct's release as a consumer does."""
    Release(struct_.release)(address(struct_))


# --- producers ----------------------------------------------------------------


class Tree:
    """A schema and an array that are exported as a pair of capsules."""

    def __init__(self, schema, array, *, device=(CPU, -1), event=None):
        self.schema = schema
        self.array = array
        self.device = keep(ArrowDeviceArray())
        self.device_type, self.device_id = device
        self.event = event

    @property
    def released(self):
        return self.schema.released, self.array.released

    def host_pair(self):
        return capsule(self.schema, "arrow_schema"), capsule(self.array, "arrow_array")

    def device_pair(self):
        self.device.array = self.array.struct
        self.device.device_type = self.device_type
        self.device.device_id = self.device_id
        self.device.sync_event = self.event
        return capsule(self.schema, "arrow_schema"), capsule(self.device, "arrow_device_array")

    def held(self):
        """For the schema and the array: True if the producer still owns it."""
        array = self.device.array if self.device.device_type else self.array.struct
        return bool(self.schema.struct.release), bool(array.release)


def numbers(length=3, *, format="l", offset=0, null_count=0, validity=None, **options):
    data = int64s(*range(length + offset))
    return Tree(
        SchemaNode(format),
        ArrayNode(length, [validity, data], offset=offset, null_count=null_count),
        **options,
    )


def batch(n=3, length=3, **options):
    """A struct of `n` int64 columns."""
    columns = [numbers(length) for _ in range(n)]
    return Tree(
        SchemaNode("+s", children=[column.schema for column in columns], flags=0),
        ArrayNode(length, [None], children=[column.array for column in columns]),
        **options,
    )


def nested(depth, *, length=1):
    """Nested structs with `depth` levels; the innermost is an int64."""
    tree = numbers(length)
    for _ in range(depth - 1):
        tree = Tree(
            SchemaNode("+s", children=[tree.schema]),
            ArrayNode(length, [None], children=[tree.array]),
        )
    return tree


class Host:
    """An object with __arrow_c_array__."""

    def __init__(self, tree):
        self.tree = tree

    def __arrow_c_array__(self, requested_schema=None):
        return self.tree.host_pair()


class OnDevice:
    """An object with __arrow_c_device_array__."""

    def __init__(self, tree):
        self.tree = tree

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        return self.tree.device_pair()


class WithSchema:
    """An object with __arrow_c_schema__."""

    def __init__(self, node):
        self.node = node

    def __arrow_c_schema__(self):
        return capsule(self.node, "arrow_schema")


class Stream:
    """A stream over trees of one schema. It is also the object that exports it.

    `schema_code`, `next_code`: what the callbacks return instead of 0.
    `message`: what get_last_error returns.
    """

    def __init__(
        self, schema, arrays, *, device_type=None, schema_code=0, next_code=0, message=None
    ):
        self.schema = schema
        self.arrays = list(arrays)
        self.rest = list(arrays)
        self.schema_code = schema_code
        self.next_code = next_code
        self.message = text(message)
        self.released = 0
        self.struct = ArrowArrayStream() if device_type is None else ArrowDeviceArrayStream()
        if device_type is not None:
            self.struct.device_type = device_type
        callbacks = {
            "get_schema": self._get_schema,
            "get_next": self._get_next,
            "get_last_error": lambda pointer: self.message,
            "release": self._release,
        }
        for name, callback in callbacks.items():
            setattr(self.struct, name, ctypes.cast(keep(CALLBACKS[name](callback)), c_void_p))
        self.is_device = device_type is not None
        if self.is_device:
            self.__arrow_c_device_stream__ = self._export
        else:
            self.__arrow_c_stream__ = self._export
        keep(self)

    def _export(self, requested_schema=None, **kwargs):
        name = "arrow_device_array_stream" if self.is_device else "arrow_array_stream"
        return capsule(self.struct, name)

    def _get_schema(self, pointer, out):
        if self.schema_code == 0 and self.schema is not None:
            ctypes.memmove(out, self.schema.address, ctypes.sizeof(ArrowSchema))
            self.schema.struct.release = None
        return self.schema_code

    def _get_next(self, pointer, out):
        if self.next_code == 0 and self.rest:
            tree = self.rest.pop(0)
            tree.device_pair()
            target = ArrowDeviceArray if self.is_device else ArrowArray
            source = tree.device if self.is_device else tree.array.struct
            ctypes.memmove(out, address(source), ctypes.sizeof(target))
        return self.next_code

    def _release(self, pointer):
        self.released += 1
        type(self.struct).from_address(pointer).release = None
