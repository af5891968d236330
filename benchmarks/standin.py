"""The stand-in CUDA driver of tests/fakedriver, and what devices.py measures on it.

To be imported before anything else that uses CUDA. Needs a C compiler.
"""

import ctypes
import hashlib
import os
import sys
import tempfile
from ctypes import byref, c_double, c_int, c_long, c_size_t, c_void_p
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

import fakegpu  # noqa: E402

import compiler  # noqa: E402


class RealDriver:
    """NVIDIA's driver, for the part "gpu-exchange" of devices.py. It has no log of calls."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")


if os.environ.get("ARROWDEV_BENCHMARKS_DRIVER") == "real":
    DRIVER = RealDriver()
else:
    DRIVER = fakegpu.load("cuda")
    os.environ["ARROWDEV_CUDA_LIBRARY"] = DRIVER.path  # arrowdev's, not loaded yet

# The layers up to csrc/order, with CUDA as the only backend.
CORE = (
    "base/*", "kernels/*", "device/*", "device/gpu/*",
    "order/sync", "order/streams", "order/deferred_release",
)  # fmt: skip


def build():
    """devices.c with the core, optimised as setup.py does it."""
    core = (path for name in CORE for path in sorted((ROOT / "csrc").glob(f"{name}.c")))
    sources = [HERE / "devices.c", *core]
    read = [*sources, *sorted((ROOT / "csrc").rglob("*.[hid]*"))]
    command = [*compiler.command(), *compiler.STRICT, "-O2", "-fPIC", "-shared", "-pthread",
               "-fvisibility=hidden", "-Wl,--no-undefined"]  # fmt: skip
    key = hashlib.sha256(repr(command).encode() + b"".join(path.read_bytes() for path in read))
    folder = Path(tempfile.gettempdir()) / f"arrowdev-benchmarks-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    target = folder / f"devices-{key.hexdigest()[:16]}.so"
    if not target.exists():
        # Found before the shipped table, which names all backends.
        table = folder / "only_cuda" / "device" / "backends.def"
        table.parent.mkdir(parents=True, exist_ok=True)
        names = ("cpu", "cuda", "idle")  # the last one is in devices.c
        rows = "".join(f"AD_BACKEND(ad_backend_{name})\n" for name in names)
        table.write_text(f"{rows}#undef AD_BACKEND\n")
        fresh = target.with_suffix(f".{os.getpid()}")
        include = [f"-I{table.parent.parent}", f"-I{ROOT / 'csrc'}"]
        done = compiler.run([*command, *include, *map(str, sources), "-ldl", "-o", str(fresh)])
        if done.returncode:
            raise SystemExit(done.stderr)
        fresh.replace(target)
    return target


HELPER = ctypes.CDLL(str(build()))
for loop in ("bare_loop", "bare_threads", "core_loop", "core_threads"):
    getattr(HELPER, loop).restype = c_double
HELPER.library_set.argtypes = [c_void_p, c_void_p]


# --- the driver ----------------------------------------------------------------


def call(name, *arguments):
    code = getattr(DRIVER.library, name)(*arguments)
    assert code == 0, f"{name} answered {code}"


def made(kind, name, *arguments):
    out = kind()
    call(name, byref(out), *arguments)
    return out.value


def stream():
    return made(c_size_t, "cuStreamCreate", 1)


def memory(nbytes):
    return made(c_size_t, "cuMemAlloc_v2", c_size_t(nbytes))


call("cuInit", 0)
CONTEXT = made(c_void_p, "cuDevicePrimaryCtxRetain", 0)
call("cuCtxSetCurrent", c_void_p(CONTEXT))
PRODUCER, CONSUMER = stream(), stream()
EVENT = made(c_size_t, "cuEventCreate", 2)
POINTER = memory(8000)
call("cuEventRecord", c_size_t(EVENT), c_size_t(PRODUCER))


# --- producers -------------------------------------------------------------------


class Table:
    """A tensor of a library like torch: DLPack's C exchange API."""


def capsule_of(pointer, name):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [c_void_p, ctypes.c_char_p, c_void_p]
    return new(pointer, name, None)


TABLE_NAME = b"dlpack_exchange_api"
Table.__dlpack_c_exchange_api__ = capsule_of(
    ctypes.addressof(ctypes.c_char.in_dll(HELPER, "library_table")), TABLE_NAME
)
HELPER.library_set(POINTER, PRODUCER)


class Dict:
    """CUDA Array Interface, with the stream on which work is pending."""

    __slots__ = ("__cuda_array_interface__",)

    def __init__(self):
        self.__cuda_array_interface__ = {
            "shape": (1000,),
            "typestr": "<i8",
            "data": (POINTER, False),
            "version": 3,
            "stream": PRODUCER,
        }


class Methods:
    """DLPack by its Python methods, those of an arrowdev.Tensor that is ready."""

    __slots__ = ("__dlpack__", "__dlpack_device__")

    def __init__(self):
        import arrowdev as ad

        tensor = ad.tensor(Dict(), stream=-1)
        self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__


# --- loops in C --------------------------------------------------------------------


class Loop:
    """Stands in for a timeit.Timer: a loop in C that takes its own time."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def timeit(self, number):
        failed = c_int(0)
        seconds = self.function(*self.arguments, c_long(number), byref(failed))
        assert not failed.value, "a call in the loop failed"
        return seconds


class BareCall(ctypes.Structure):
    _fields_ = [("function", c_void_p), ("arguments", c_size_t * 4)]


BUFFER = ctypes.create_string_buffer(64)
ATTRIBUTES = (c_int * 4)(1, 2, 9, 8)  # context, type of memory, ordinal, is it managed
INTO = (c_void_p * 4)(*(ctypes.addressof(BUFFER) + 16 * i for i in range(4)))
MODE = ctypes.c_int(2)  # CU_STREAM_CAPTURE_MODE_RELAXED
ARGUMENTS = {
    "cuStreamIsCapturing": (CONSUMER, ctypes.addressof(BUFFER)),
    "cuThreadExchangeStreamCaptureMode": (ctypes.addressof(MODE),),
    "cuEventRecord": (EVENT, PRODUCER),
    "cuStreamWaitEvent": (CONSUMER, EVENT, 0),
    "cuEventQuery": (EVENT,),
    "cuCtxGetCurrent": (ctypes.addressof(BUFFER),),
    "cuCtxGetDevice": (ctypes.addressof(BUFFER),),
    "cuStreamGetCtx": (PRODUCER, ctypes.addressof(BUFFER)),
    "cuStreamGetId": (PRODUCER, ctypes.addressof(BUFFER)),
    "cuPointerGetAttributes": (
        4,
        ctypes.addressof(ATTRIBUTES),
        ctypes.addressof(INTO),
        POINTER,
    ),
}


def bare_calls(names, arguments):
    calls = (BareCall * len(names))()
    for one, name in zip(calls, names, strict=True):
        one.function = ctypes.cast(getattr(DRIVER.library, name), c_void_p)
        one.arguments[: len(arguments[name])] = arguments[name]
    return calls


def give_calls(module, names):
    """To the module of floor.py, which makes them as a part of an exchange."""
    calls = bare_calls(names, ARGUMENTS)
    module.use_calls(ctypes.addressof(calls), len(names))
    module.kept_calls = calls


def bare(*names):
    """The calls alone, one after the other."""
    return Loop(HELPER.bare_loop, bare_calls(names, ARGUMENTS), c_long(len(names)))


def calls_of(statement, names):
    """Names of the runtime calls that the statement makes, once it is warm."""
    code = compile(statement, "<statement>", "exec")
    for _ in range(3):
        exec(code, names)
    with DRIVER.logged() as calls:
        exec(code, names)
    return [one.name for one in calls]


def core(step):
    """A loop over arrowdev's core: "record", "wait" or "both"."""
    index = ("record", "wait", "both").index(step)
    return Loop(HELPER.core_loop, index, c_void_p(CONTEXT), c_void_p(PRODUCER), c_void_p(CONSUMER))


CUDA, IDLE = 2, 12  # the driver, and a runtime that does nothing


def threads(n, device_type=CUDA):
    """`number` exchanges in all, on n threads."""
    streams = (c_void_p * (2 * n))(*(stream() for _ in range(2 * n)))
    context = c_void_p(CONTEXT)
    return Loop(HELPER.core_threads, n, device_type, context, streams)


def bare_on_threads(n, *names):
    """The calls alone, on n threads, with streams and an event for each."""
    calls = (BareCall * (n * len(names)))()
    for i in range(n):
        event, own = made(c_size_t, "cuEventCreate", 2), stream()
        arguments = {"cuEventRecord": (event, own), "cuStreamWaitEvent": (stream(), event, 0)}
        calls[i * len(names) : (i + 1) * len(names)] = bare_calls(names, arguments)
    return Loop(HELPER.bare_threads, n, calls, c_long(len(names)))
