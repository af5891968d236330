"""The options of arrowdev.h in ctypes, and structs for tests/c_helpers/capi.c."""

import ctypes
from ctypes import Structure, c_int32, c_int64, c_size_t, c_void_p

from arrow_ctypes import release

from arrowdev.testing._abi import ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema

COPY_NEVER, COPY_ALWAYS = 1, 2
NULLS_IGNORE, NULLS_FILL = 1, 2


class Options(Structure):
    """ArrowDevOptions. `stream` and `fill_value` are objects."""

    _fields_ = [
        ("size", c_size_t),
        ("_stream", c_void_p),
        ("_fill_value", c_void_p),
        ("device_id", c_int64),
        ("device_type", c_int32),
        ("copy", c_int32),
        ("nulls", c_int32),
        ("reserved", c_int32),
        ("newer", c_int64),  # an option of a newer header
    ]

    def __init__(self, *, size=48, stream=None, fill_value=None, **options):
        super().__init__(size=size, **options)
        self.kept = stream, fill_value
        self._stream = None if stream is None else id(stream)
        self._fill_value = None if fill_value is None else id(fill_value)


def at(options):
    """The address of the options, or 0."""
    return 0 if options is None else ctypes.addressof(options)


class Column:
    """The two structs of an array, empty."""

    def __init__(self):
        self.schema = ArrowSchema()
        self.data = ArrowDeviceArray()
        # Exports overwrite whatever was there.
        for struct in (self.schema, self.data):
            ctypes.memset(ctypes.addressof(struct), 0xFF, ctypes.sizeof(struct))

    @property
    def addresses(self):
        return ctypes.addressof(self.schema), ctypes.addressof(self.data)

    @property
    def is_released(self):
        return not self.schema.release, not self.data.array.release

    def release(self):
        release(self.schema)
        release(self.data.array)


class Stream:
    """The struct of a device stream, empty."""

    def __init__(self):
        self.struct = ArrowDeviceArrayStream()
        ctypes.memset(self.address, 0xFF, ctypes.sizeof(self.struct))

    @property
    def address(self):
        return ctypes.addressof(self.struct)
