"""The small C libraries in tests/c_helpers, built on first use and loaded with ctypes."""

import ctypes
import hashlib
import os
import subprocess
import sysconfig
import tempfile
from ctypes import POINTER, Structure, c_int, c_int64, c_long, c_void_p
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "tests" / "c_helpers"


class Counters(Structure):
    _fields_ = [(name, c_int) for name in ("schemas", "arrays", "twice", "without_gil")]


def build(name, language="c", flags=()):
    """Path of the shared library of tests/c_helpers/NAME.c or NAME.cpp."""
    import compiler  # only in tests: isolated scripts get the path as an argument

    source = FOLDER / f"{name}.{'cpp' if language == 'c++' else 'c'}"
    command = [
        *compiler.command(language),
        *compiler.STRICT,
        "-O1",
        "-g",
        "-fPIC",
        "-shared",
        "-pthread",
        f"-I{ROOT / 'csrc'}",
        f"-I{sysconfig.get_path('include')}",
        *flags,
        str(source),
    ]
    read = [source, *sorted((ROOT / "csrc" / "kernels").rglob("*.*"))]
    content = b"".join(path.read_bytes() for path in read)
    key = hashlib.sha256(repr(command).encode() + content).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"arrowdev-tests-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    target = folder / f"{name}-{key}.so"
    if not target.exists():
        fresh = target.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            [*command, "-o", str(fresh)],
            capture_output=True,
            text=True,
            env=compiler.clean_environment(),
        )
        assert done.returncode == 0, done.stderr
        fresh.replace(target)
    return target


class Lifetime:
    """tests/c_helpers/lifetime.c; its functions are called with and without the GIL."""

    def __init__(self, path):
        free, held = ctypes.CDLL(str(path)), ctypes.PyDLL(str(path))
        pair = [c_void_p, c_void_p]
        self.plain = self._bind(free.helper_call, pair)
        self.gil = self._bind(held.helper_call, pair)
        self.exception = self._bind(held.helper_call_with_exception, pair)
        self.thread = self._bind(free.helper_call_on_thread, pair)
        self.later = self._bind(free.helper_call_later, [*pair, c_int])
        self.at_exit = self._bind(free.helper_call_at_exit, [*pair, c_int])
        self.many = self._bind(
            free.helper_call_many, [POINTER(c_void_p), POINTER(c_void_p), c_int]
        )
        self.produce = self._bind(
            free.helper_produce, [c_void_p, c_void_p, c_int64, POINTER(Counters)]
        )

    @staticmethod
    def _bind(function, argtypes):
        function.argtypes = argtypes
        return function

    def call(self, mode, release, pointer):
        """Calls a release function in one of MODES."""
        result = getattr(self, mode)(release, pointer)
        assert result == 1 if mode == "exception" else True
        return result


MODES = ["plain", "gil", "exception", "thread"]


class FailingMalloc:
    """tests/c_helpers/failing_malloc.c, which must have been preloaded."""

    def __init__(self, path):
        library = ctypes.CDLL(str(path))
        library.failing_malloc_arm.restype = c_long
        library.failing_malloc_arm.argtypes = [c_long]
        library.failing_malloc_watch.argtypes = [c_void_p, c_void_p]
        self.arm = library.failing_malloc_arm
        self.watch = library.failing_malloc_watch
        self.last = library.failing_malloc_last

    def watch_library(self, name):
        """Counts the allocations of the mapped file whose path ends in `name`."""
        with open("/proc/self/maps", encoding="ascii") as file:
            ranges = [line.split()[0].split("-") for line in file if line.rstrip().endswith(name)]
        numbers = [int(number, 16) for pair in ranges for number in pair]
        self.watch(min(numbers), max(numbers))
