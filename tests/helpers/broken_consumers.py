"""A consumer of all protocols with selectable faults, for test_conformance.py."""

import ctypes
import errno
import threading
from ctypes import c_int64

from broken_ends import forever

from arrowdev.testing import _abi, _dlpack, _host_read


def column_of(array, faults=()):
    """The values of an int64 struct, read as the specification says but for the faults."""
    if array.n_children:
        return column_of(_host_read.children(array)[0], faults)
    bits, data = _host_read.buffers(array)
    if "bitmap" in faults or ("null_count" in faults and array.null_count < 1):
        bits = None
    offset = 0 if "offset" in faults else array.offset
    numbers = (c_int64 * (offset + array.length)).from_address(data)
    rows = range(offset, offset + array.length)
    flags = (ctypes.c_uint8 * (max(rows, default=0) // 8 + 1)).from_address(bits) if bits else None
    return [numbers[i] if flags is None or flags[i // 8] >> i % 8 & 1 else None for i in rows]


def empty(stream):
    """(struct, array in it) for get_next to fill."""
    array = _abi.ArrowDeviceArray() if hasattr(stream, "device_type") else _abi.ArrowArray()
    return array, getattr(array, "array", array)


class Taken:
    """The structs that the consumer holds, and the cleanup calls."""

    def __init__(self, read, close):
        self.read, self.close = read, close

    def __del__(self):
        self.close()


class Consumer:
    """Accepts every protocol; `faults` are the names of its faults."""

    def __init__(self, *faults):
        self.faults = faults

    def __call__(self, obj):
        if "exits" in self.faults:
            raise SystemExit(0)
        if hasattr(obj, "__dlpack__"):
            return self.tensor(obj)
        if hasattr(obj, "connect_address"):
            return Handler(self, obj).taken()
        if hasattr(obj, "__arrow_c_stream__"):
            return self.stream(obj.__arrow_c_stream__(), "arrow_array_stream")
        if hasattr(obj, "__arrow_c_device_stream__"):
            return self.stream(obj.__arrow_c_device_stream__(), "arrow_device_array_stream")
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
            pointer = _abi.get_pointer(capsule, _abi.get_name(capsule))
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
            again = type(node).from_buffer_copy(node)
            _abi.call(node, "release")
            if self.has("twice"):
                _abi.call(again, "release")

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
        if self.has("early"):
            kept = self.copied(array)
            _abi.call(node, "release")
            return Taken(lambda: column_of(kept, self.faults), lambda: None)
        if self.has("copies"):
            values = column_of(node, self.faults)
            self.release(array, "release")
            return Taken(lambda: values, lambda: None)
        return Taken(lambda: column_of(node, self.faults), lambda: self.release(array, "release"))

    def copied(self, array):
        """A column, by itself, that outlives the release of the struct, unlike its data."""
        node = getattr(array, "array", array)
        column = _host_read.children(node)[0] if node.n_children else node
        kept = type(column).from_buffer_copy(column)
        bits, data = _host_read.buffers(column)
        if self.has("keeps the bitmap"):
            n_bytes = 8 * (column.offset + column.length)
            numbers = ctypes.create_string_buffer(ctypes.string_at(data, n_bytes))
            forever.append(numbers)
            data = ctypes.addressof(numbers)
        pointers = (ctypes.c_void_p * 2)(bits, data)
        forever.append(pointers)
        kept.buffers = ctypes.addressof(pointers)
        return kept

    def check(self, schema, array):
        formats = [_host_read.text_at(schema.format)]
        formats += [_host_read.text_at(child.format) for child in _host_read.children(schema)]
        if formats not in (["l"], ["+s", "l"]):
            raise ValueError(f"unknown type {formats}")
        if not isinstance(array, _abi.ArrowDeviceArray):
            return
        if array.device_type != 1 and not self.has("device"):
            raise ValueError("not the host's memory")
        if any(array.reserved) and self.has("reserved"):
            raise ValueError("reserved is not zero")

    def stream(self, capsule, name):
        stream = self.take(capsule, name)
        schema = _abi.ArrowSchema()
        _abi.call(stream, "get_schema", ctypes.addressof(schema))
        self.release(schema, "schema")
        values, kept = [], []
        try:
            if getattr(stream, "device_type", 1) != 1 and not self.has("device"):
                raise ValueError("not the host's memory")
            if self.has("out"):
                _abi.call(stream, "get_next", None)
            if self.has("threads"):
                self.read_at_once(stream)
            while True:
                array, node = empty(stream)
                code = _abi.call(stream, "get_next", ctypes.addressof(array))
                if code != 0 or not node.release:
                    break
                values += column_of(node, self.faults)
                kept.append(self.copied(array))
                self.release(array, "release")
            if self.has("after"):
                _abi.call(stream, "get_next", ctypes.addressof(array))
            if self.has("no error"):
                _abi.call(stream, "get_last_error")
            if code == errno.EIO and not self.has("swallows"):
                raise OSError(code, _host_read.text_at(_abi.call(stream, "get_last_error")))
        finally:
            late = _abi.CALLBACKS["get_next"](stream.get_next)
            self.release(stream, "stream")
            if self.has("late"):
                late(ctypes.addressof(stream), None)
        if self.has("early"):
            return Taken(lambda: [v for one in kept for v in column_of(one)], lambda: None)
        return Taken(lambda: values, lambda: None)

    def read_at_once(self, stream):
        """Reads on two threads. The values are discarded."""

        def read():
            array, node = empty(stream)
            _abi.call(stream, "get_next", ctypes.addressof(array))
            if node.release:
                _abi.call(node, "release")

        thread = threading.Thread(target=read)
        thread.start()
        read()
        thread.join()

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

        if self.has("early"):
            close()
            return Taken(lambda: list((c_int64 * n).from_address(where)), lambda: None)
        return Taken(lambda: list((c_int64 * n).from_address(where)), close)


class Handler:
    """The handler of a Consumer. It follows the specification except for its faults."""

    def __init__(self, consumer, producer):
        self.has, self.release_struct = consumer.has, consumer.release
        self.struct = _abi.ArrowAsyncDeviceStreamHandler()
        self.callbacks = {
            name: _abi.CALLBACKS[name](getattr(self, name))
            for name in ("on_schema", "on_next_task", "on_error", "release")
        }
        for name, callback in self.callbacks.items():
            setattr(self.struct, name, _abi.address_of(callback))
        if self.has("handler"):
            self.struct.on_error = None
        self.values, self.error, self.stale = [], None, []
        self.is_over = threading.Event()
        self.thread = threading.get_ident()
        producer.connect_address(ctypes.addressof(self.struct))
        self.thread = None

    def taken(self):
        assert self.has("handler") or self.is_over.wait(20)
        if self.has("alive"):
            self.call("cancel")
        if self.error is not None and not self.has("swallows"):
            raise self.error
        forever.append(self)
        return Taken(lambda: self.values, lambda: None)

    def call(self, name, *arguments):
        producer = _abi.ArrowAsyncProducer.from_address(self.struct.producer)
        _abi.call(producer, name, *arguments)

    def on_schema(self, _, address):
        if self.has("ready") and threading.get_ident() == self.thread:
            self.error = RuntimeError("not ready yet")
            return errno.EAGAIN
        if not self.has("leaves schema"):
            schema = _abi.ArrowSchema()
            _abi.move(_abi.ArrowSchema.from_address(address), ctypes.addressof(schema))
            self.release_struct(schema, "schema")
        self.call("request", 0 if self.has("request") else 3)
        return 0

    def on_next_task(self, _, address, metadata):
        if address and self.has("task"):
            self.stale.append(address)
        elif address and not self.has("extract"):
            self.extract(_abi.ArrowAsyncTask.from_address(address))
        elif not address:
            for stale in self.stale:
                self.extract(_abi.ArrowAsyncTask.from_address(stale))
        return 0

    def extract(self, task):
        array = _abi.ArrowDeviceArray()
        if _abi.call(task, "extract_data", ctypes.addressof(array)) == 0:
            self.values += column_of(array.array)
            self.release_struct(array, "release")

    def on_error(self, _, code, message, metadata):
        self.error = OSError(code, _host_read.text_at(message))

    def release(self, _):
        if self.has("quiet"):
            self.call("request", 1)
        self.is_over.set()
