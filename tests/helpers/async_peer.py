"""Both ends of an async stream in C, on their own threads: tests/c_helpers/async_peer.c."""

import ctypes
import gc
from ctypes import c_bool, c_char_p, c_int, c_int64, c_long, c_void_p, py_object, pythonapi
from functools import cache

import c_library

HANDLER = b"arrowdev_async_device_stream_handler"
USED = b"used_arrowdev_async_device_stream_handler"
LIMIT_MS = 60_000

_FUNCTIONS = {
    "live_arrays": (c_int, []),
    "produce": (c_void_p, [c_void_p, c_long, c_long, c_int, c_char_p]),
    "wait_for_producer": (c_int, [c_void_p, c_int]),
    "let_batches_go": (None, [c_void_p]),
    "n_sent": (c_long, [c_void_p]),
    "n_cancels": (c_long, [c_void_p]),
    "hold_cancel": (None, [c_void_p]),
    "let_cancel_go": (c_bool, [c_void_p]),
    "free_producer": (None, [c_void_p]),
    "read": (None, [c_void_p]),
    "consumer": (c_void_p, [c_int64, c_bool, c_long, c_long]),
    "wait_for_consumer": (c_int, [c_void_p, c_int]),
    "request": (None, [c_void_p, c_int64]),
    "cancel": (None, [c_void_p]),
    "n_received": (c_long, [c_void_p]),
    "sum": (c_int64, [c_void_p]),
    "n_ends": (c_int, [c_void_p]),
    "code": (c_int, [c_void_p]),
    "message": (c_char_p, [c_void_p]),
    "free_consumer": (None, [c_void_p]),
}


@cache
def library(path=None):
    loaded = ctypes.CDLL(str(path or c_library.build("async_peer")))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, f"peer_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


_get_pointer = ctypes.PYFUNCTYPE(c_void_p, py_object, c_char_p)(
    ("PyCapsule_GetPointer", pythonapi)
)
_set_name = ctypes.PYFUNCTYPE(c_int, py_object, c_char_p)(("PyCapsule_SetName", pythonapi))
_new = ctypes.PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", pythonapi))


def take(capsule):
    """Moves the handler out of its capsule."""
    pointer = _get_pointer(capsule, HANDLER)
    _set_name(capsule, USED)
    return pointer


def count_live_arrays():
    """Live arrays of all producers, after a collection (an exception may keep some in a cycle)."""
    gc.collect()
    return library().peer_live_arrays()


def new_capsule(pointer):
    """A capsule for a handler whose memory stays; nothing releases it."""
    return _new(pointer, HANDLER, None)


class Producer:
    """A source for connect(): pushes `n` batches (-1: without end) from a C thread. With a delay
    of -1 the schema comes at once, and no batch before join()."""

    def __init__(self, n, *, fail_at=-1, delay_us=0, metadata=None):
        self.arguments = (n, fail_at, delay_us, metadata)
        self.pointer = None

    def __arrowdev_async_device_stream__(self, handler):
        self.pointer = library().peer_produce(take(handler), *self.arguments)

    @property
    def n_sent(self):
        return library().peer_n_sent(self.pointer)

    @property
    def n_cancels(self):
        return library().peer_n_cancels(self.pointer)

    def hold_cancel(self):
        """Makes cancel() block until let_cancel_go(), which returns True if it was in time."""
        library().peer_hold_cancel(self.pointer)

    def let_cancel_go(self):
        return library().peer_let_cancel_go(self.pointer)

    def join(self):
        """Waits for its thread, which ends once the handler is released."""
        library().peer_let_batches_go(self.pointer)
        assert library().peer_wait_for_producer(self.pointer, LIMIT_MS) == 0
        result = self.n_sent, self.n_cancels
        library().peer_free_producer(self.pointer)
        return result


class Consumer:
    """A handler that extracts batches at once; `capsule` is the argument of produce()."""

    def __init__(self, request=5, *, is_greedy=True, cancel_at=-1, refuse_at=-1):
        self.pointer = library().peer_consumer(request, is_greedy, cancel_at, refuse_at)
        self.capsule = new_capsule(self.pointer)

    def __getattr__(self, name):
        function = getattr(library(), f"peer_{name}")
        return lambda *arguments: function(self.pointer, *arguments)

    def join(self):
        """Waits for the handler's release and returns what it had received."""
        assert library().peer_wait_for_consumer(self.pointer, LIMIT_MS) == 0
        return self.n_received(), self.n_ends(), self.code(), self.message().decode()
