"""Both ends of an async stream in C, on threads of their own: tests/c_helpers/async_peer.c."""

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
    """The handler in a capsule, of which the capsule knows no more."""
    pointer = _get_pointer(capsule, HANDLER)
    _set_name(capsule, USED)
    return pointer


def count_live_arrays():
    """Of all producers, but for what only a cycle keeps (of an earlier test's exception)."""
    gc.collect()
    return library().peer_live_arrays()


def new_capsule(pointer):
    """For a handler whose memory stays; nothing releases it."""
    return _new(pointer, HANDLER, None)


class Producer:
    """What connect() takes: pushes `n` batches (-1: for ever) from a C thread."""

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
        """From now on its cancel() blocks until let_cancel_go(), which is True if in time."""
        library().peer_hold_cancel(self.pointer)

    def let_cancel_go(self):
        return library().peer_let_cancel_go(self.pointer)

    def join(self):
        """Its thread ends, once the handler was released."""
        assert library().peer_wait_for_producer(self.pointer, LIMIT_MS) == 0
        result = self.n_sent, self.n_cancels
        library().peer_free_producer(self.pointer)
        return result


class Consumer:
    """A handler that takes batches at once; `capsule` is for produce()."""

    def __init__(self, request=5, *, is_greedy=True, cancel_at=-1, refuse_at=-1):
        self.pointer = library().peer_consumer(request, is_greedy, cancel_at, refuse_at)
        self.capsule = new_capsule(self.pointer)

    def __getattr__(self, name):
        function = getattr(library(), f"peer_{name}")
        return lambda *arguments: function(self.pointer, *arguments)

    def join(self):
        """The handler was released; what it was told by then."""
        assert library().peer_wait_for_consumer(self.pointer, LIMIT_MS) == 0
        return self.n_received(), self.n_ends(), self.code(), self.message().decode()
