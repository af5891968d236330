"""Look-alikes of what works on the default stream and says nothing about it.

Each class does what the named place of the library does, as far as the order of the work is
concerned, so that it runs on any driver and without the library.
"""

import ctypes
import types

import arrow_ctypes as ac
import c_library
import gpu
from gpu import ask, cu

LEGACY = 1
CUDA = 2


class Default:
    """A default stream of the driver: 1 is the legacy one, 2 that of the thread."""

    def __init__(self, handle=LEGACY):
        self.handle = handle

    def synchronize(self):
        ask(cu.cuStreamSynchronize, self.handle)


# --- producers ------------------------------------------------------------------------


class Releases:
    """tests/c_helpers/pylibcudf.c, called with the GIL."""

    def __init__(self):
        library = ctypes.PyDLL(str(c_library.build("pylibcudf")))
        self.column = library.helper_column
        self.column.argtypes = [
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p),
            *(ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
        ]
        self.column.restype = None
        self.count = library.helper_released
        self.without_gil = library.helper_released_without_gil


class Exported:
    """What the array of a column keeps alive: the column, and the event of libcudf."""

    def __init__(self, column):
        self.column = column
        self.event = ctypes.c_void_p(int(ask(cu.cuEventCreate, 2)))
        ask(cu.cuEventRecord, self.event.value, LEGACY)

    def __del__(self):
        if cu is not None:
            cu.cuEventDestroy(self.event.value)


class Column:
    """A pylibcudf.Column as a producer (to_arrow_device_raw in pylibcudf/libcudf/interop.pxd).

    The event is recorded on the default stream, whichever stream the column was made on.
    """

    def __init__(self, releases, memory):
        self.releases, self.memory = releases, memory

    def __arrow_c_device_array__(self, requested_schema=None, **_):
        exported = Exported(self)
        schema, array = ac.keep(ac.ArrowSchema()), ac.keep(ac.ArrowDeviceArray())
        self.releases.column(
            *(ac.address(schema), ac.address(array), exported),
            *(None, self.memory.pointer, gpu.NEW.size, 0),
        )
        array.device_type, array.device_id = CUDA, 0
        array.sync_event = ac.address(exported.event)
        return ac.capsule(schema, "arrow_schema"), ac.capsule(array, "arrow_device_array")


class ColumnStream:
    """A stream of one such column. libcudf has none for devices yet."""

    def __init__(self, column):
        self.column = column

    def __arrow_c_device_stream__(self, requested_schema=None, **_):
        _, capsule = self.column.__arrow_c_device_array__()
        batch = ac.inside(capsule, "arrow_device_array")
        self.stream = ac.Stream(ac.numbers().schema, [Moved(batch)], device_type=CUDA)
        return self.stream.__arrow_c_device_stream__()


class Moved:
    """A batch that an ac.Stream gives away."""

    def __init__(self, struct):
        self.device = struct

    def device_pair(self):
        pass


# --- consumers ------------------------------------------------------------------------


class ArrowColumn:
    """libcudf's `arrow_column` (cpp/src/interop/arrow_data_structures.cpp), behind
    pylibcudf.Column.from_arrow.

    Its stream waits for the event. The null count is believed, and counts no nulls if it is -1
    (from_arrow_device.cu). The destructor releases the array while work of its own is pending,
    and waits for nothing.
    """

    def __init__(self, source, stream=LEGACY):
        schema, capsule = source.__arrow_c_device_array__()
        self.format = ctypes.string_at(ac.inside(schema, "arrow_schema").format).decode()
        given = ac.inside(capsule, "arrow_device_array")
        self.struct = ac.ArrowDeviceArray()
        ctypes.memmove(ac.address(self.struct), ac.address(given), ctypes.sizeof(given))
        given.array.release = None
        if self.struct.sync_event:
            event = ctypes.c_void_p.from_address(self.struct.sync_event).value
            ask(cu.cuStreamWaitEvent, stream, event, 0)
        array = self.struct.array
        buffers = (ctypes.c_void_p * array.n_buffers).from_address(array.buffers)
        self.pointer = buffers[array.n_buffers - 1] + 8 * array.offset
        self.has_nulls = array.null_count > 0

    def __del__(self):
        release = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(self.struct.array.release)
        release(ac.address(self.struct.array))


class MemoryView:
    """pylibcudf's `gpumemoryview` (gpumemoryview.pyx), behind cudf.Series(x), and torch.as_tensor:
    the pointer of the interface counts, and its stream does not."""

    def __init__(self, source):
        self.source = source
        self.pointer = source.__cuda_array_interface__["data"][0]


class Series:
    """cudf.Series: by pylibcudf, or by the pointer of the interface."""

    def __init__(self, source):
        self.column = MemoryView(source)

    @classmethod
    def from_pylibcudf(cls, column):
        made = cls.__new__(cls)
        made.column = column
        return made


Series.__module__ = "cudf"


def modules():
    """The names of the two packages that arrowdev's convert() uses, for sys.modules."""
    column = types.SimpleNamespace(from_arrow=ArrowColumn)
    return {
        "cudf": types.SimpleNamespace(Series=Series, __version__="0"),
        "pylibcudf": types.SimpleNamespace(Column=column),
    }
