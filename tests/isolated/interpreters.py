"""Several interpreters use arrowdev. Arguments: what they do, and a C library for it."""

import ctypes
import random
import sys
import threading

import common

import arrowdev as ad

try:
    import _interpreters as interpreters  # 3.13
except ImportError:
    import _xxsubinterpreters as interpreters

WHAT, LIBRARY = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
N_THREADS, N_ROUNDS, N_RELEASED = 4, 5, 20_000
# Isolated ones have a GIL of their own. ctypes of 3.12 cannot be imported there.
NEEDS_CTYPES = WHAT in ("outlives", "foreign_thread")
KINDS = ("legacy",) if sys.version_info < (3, 13) and NEEDS_CTYPES else ("isolated", "legacy")


class Interpreter:
    """A sub-interpreter, which can import what this one can."""

    def __init__(self, kind):
        if sys.version_info >= (3, 13):
            self.id = interpreters.create(kind)
        else:
            self.id = interpreters.create(isolated=kind == "isolated")

    def run(self, script, **names):
        """Runs a script with these ints and strings as its globals."""
        lines = [f"import sys; sys.path[:] = {sys.path!r}"]
        lines += [f"{name} = {value!r}" for name, value in names.items()]
        failed = interpreters.run_string(self.id, "\n".join([*lines, script]))
        assert failed is None, getattr(failed, "errdisplay", failed)

    def end(self):
        interpreters.destroy(self.id)


def each_kind(function):
    for kind in KINDS:
        function(kind)
        common.everything()  # this interpreter is not affected
        common.read_pending()


# --- each on its own -----------------------------------------------------------------------------

EXCHANGE = """
import array
import threading
import arrowdev as ad

def exchange(i):
    x = array.array("d", range(100))
    column, tensor = ad.array(x), ad.tensor(x)
    batch = ad.record_batch({"x": x, "y": column[:]})
    assert sum(len(each) for each in ad.array_stream([batch, batch])) == 200
    assert memoryview(tensor)[3] == 3.0
    assert ad.array(column.__arrow_c_device_array__()).to_pylist() == x.tolist()
    with ad.share(x) as shared:
        assert memoryview(ad.attach(str(shared))).tolist() == x.tolist()
    try:
        ad.attach(str(shared))
    except ad.ExchangeError as error:
        assert error.reason == "share"
    else:
        raise AssertionError
    return column.__arrow_c_device_array__(), tensor.__dlpack__(), batch.__arrow_c_stream__()

threads = [threading.Thread(target=lambda: [exchange(i) for i in range(10)]) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
alive = exchange(0)
"""


def exchange():
    """Interpreters in threads exchange arrays, and end in any order."""
    failures = []
    order = random.Random(len(WHAT))

    def live(kinds):
        try:
            for kind in kinds:
                made = Interpreter(kind)
                made.run(EXCHANGE)
                made.run(EXCHANGE)
                made.end()
        except BaseException as error:
            failures.append(error)

    threads = [
        threading.Thread(target=live, args=([order.choice(KINDS) for _ in range(N_ROUNDS)],))
        for _ in range(N_THREADS)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        common.everything()
    assert not failures, failures


# --- what outlives an interpreter ----------------------------------------------------------------

# arrowdev.testing, which the other scripts use for this, is for the main interpreter.
MOVED = """
import ctypes
import array
import arrowdev as ad

inside = ctypes.pythonapi.PyCapsule_GetPointer
inside.restype, inside.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
SIZE, RELEASE = 10 * 8, 8 * 8  # of an ArrowArray, and the offset of its release

def moved(x, where):
    capsule = ad.array(x).__arrow_c_array__()[1]
    source = inside(capsule, b"arrow_array")
    target = libc.malloc(ctypes.c_size_t(SIZE))
    ctypes.memmove(target, source, SIZE)
    ctypes.c_void_p.from_address(source + RELEASE).value = None
    ctypes.c_void_p.from_address(where).value = target
"""

MOVE_OUT = """
class Memory(array.array):
    def __del__(self):
        print(name, "was released", flush=True)

moved(Memory("d", [1.0]), where)
"""


def outlives(kind):
    """This interpreter's thread releases arrays of one that lives, and of one that has ended."""
    for alive in (True, False):
        made = Interpreter(kind)
        where = ctypes.c_void_p()
        name = "what lives" if alive else "what has ended"
        made.run(MOVED + MOVE_OUT, where=ctypes.addressof(where), name=name)
        if not alive:
            made.end()
        struct = common.ac.ArrowArray.from_address(where.value)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(struct.release)(where.value)
        assert not struct.release
        if alive:
            made.end()


MOVE_MANY_OUT = """
for i in range(n):
    moved(array.array("q", [i]), structs + 8 * i)
    struct = ctypes.c_void_p.from_address(structs + 8 * i).value
    release = ctypes.c_void_p.from_address(struct + RELEASE).value
    ctypes.c_void_p.from_address(releases + 8 * i).value = release
"""


def foreign_thread(kind):
    """A C++ thread releases arrays of an interpreter while that ends."""
    library = ctypes.CDLL(LIBRARY)
    structs = (ctypes.c_void_p * N_RELEASED)()
    releases = (ctypes.c_void_p * N_RELEASED)()
    for kept in (structs, releases):  # the thread reads them to the end
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    made = Interpreter(kind)
    made.run(
        MOVED + MOVE_MANY_OUT,
        n=N_RELEASED,
        structs=ctypes.addressof(structs),
        releases=ctypes.addressof(releases),
    )
    before = library.released_so_far()
    library.release_on_thread(releases, structs, N_RELEASED)
    while library.released_so_far() < before + N_RELEASED // 50:
        pass
    made.end()
    while library.released_so_far() < before + N_RELEASED:
        pass


# --- threads of arrowdev -------------------------------------------------------------------------

PUSH = """
import time
import arrowdev as ad
from arrowdev import aio

def for_ever():
    while True:
        time.sleep(0.05)  # most of the time the thread is here
        yield ad.array(b"abc")

stream, handler = aio.consumer()
ad.array_stream(for_ever()).__arrowdev_async_device_stream__(handler)
batches = iter(stream.to_stream())
"""


def pump(kind):
    """An interpreter ends while a thread of arrowdev reads an iterable and pushes its batches."""
    first, second = Interpreter(kind), Interpreter(kind)
    for made in (first, second):
        made.run(PUSH)
        made.run("assert len(next(batches)) == 3")
    first.end()
    second.run("assert len(next(batches)) == 3")
    second.end()


# --- messages ------------------------------------------------------------------------------------

LOG = """
import array, logging
import arrowdev as ad

class Handler(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())

lines = []
logger = logging.getLogger("arrowdev")
if not logger.handlers:
    logger.addHandler(Handler())
logger.setLevel(level)
x = memoryview(array.array("d", range(10)))[::2]
lines.clear()
ad.array(x)
assert len(lines) == (level == logging.DEBUG), lines
"""


def logger(kind):
    """Each interpreter has its own logger; one that is off does not silence another one."""
    loud, silent = Interpreter(kind), Interpreter(kind)
    for _ in range(2):
        loud.run(LOG, level=10)
        silent.run(LOG, level=30)
    loud.run("ad.array(x); assert len(lines) == 2, lines")
    loud.end()
    silent.run("ad.array(x); assert not lines")
    silent.end()


# --- traces --------------------------------------------------------------------------------------

# A package `nvtx` of this interpreter.
NVTX = """
import sys, types
import arrowdev as ad

begun = []
nvtx = sys.modules["nvtx"] = types.ModuleType("nvtx")
nvtx.push_range = begun.append
nvtx.pop_range = lambda: ended.append(begun.pop())
ended = []
"""

TRACE = """
with ad.trace() as t:
    for _ in range(100):
        ad.array(b"abc")
names = [event["name"] for event in t.data["traceEvents"] if event["ph"] == "X"]
assert names.count("import bytes") == 100, names
assert not begun and ended == ["array"] * 100, (begun, ended)
ended.clear()
"""


def trace_in_each(kind):
    """A trace of one interpreter leaves nothing behind for that of another one."""
    here = {}
    exec(NVTX + TRACE, here)
    made, other = Interpreter(kind), Interpreter(kind)
    made.run(NVTX + TRACE)
    other.run(NVTX + TRACE)
    made.run(TRACE)
    made.end()
    other.run(TRACE)
    exec(TRACE, here)
    other.end()
    exec(TRACE, here)
    del sys.modules["nvtx"]


LEFT_OPEN = """
import atexit
if is_ended:  # after arrowdev's own end, which was registered later
    atexit.register(lambda: t.end())
import arrowdev as ad

t = ad.trace()
t.__enter__()
column = ad.array(b"abc")
"""


def trace_left_open(kind):
    """An interpreter ends while its trace is on; the next trace is not affected."""
    for is_ended in (False, True):
        made = Interpreter(kind)
        made.run(LEFT_OPEN, is_ended=is_ended)
        refused = ""
        try:
            ad.trace().__enter__()
        except RuntimeError as error:
            refused = str(error)
        assert "on already, in another interpreter" in refused
        made.end()
        with ad.trace() as t:
            ad.array(b"abc")
        names = [event["name"] for event in t.data["traceEvents"] if event["ph"] == "X"]
        assert names.count("import bytes") == 1, names


# --- what is for the main interpreter ------------------------------------------------------------

TESTING = """
import arrowdev as ad
try:
    import arrowdev.testing
except ImportError as error:
    assert "subinterpreters" in str(error)
else:
    raise AssertionError
assert len(ad.array(b"abc")) == 3
"""


def testing(kind):
    """A process has one software device."""
    made = Interpreter("isolated")  # CPython checks extensions in these only
    made.run(TESTING)
    made.end()


if WHAT == "exchange":
    exchange()
else:
    each_kind(globals()[WHAT])
common.end()
