"""Stand-in GPU drivers (tests/fakedriver): built on first use, controlled with ctypes.

`load("cuda")` must run before the first call of any CUDA library in the
process: every later dlopen of libcuda.so.1 then finds the stand-in by its SONAME.
"""

import contextlib
import ctypes
import hashlib
import os
import subprocess
import sys
import tempfile
from collections import namedtuple
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from pathlib import Path

import compiler

FOLDER = compiler.ROOT / "tests" / "fakedriver"
SONAMES = {"cuda": "libcuda.so.1", "hip": "libamdhip64.so"}

Call = namedtuple("Call", "name thread stream context")

# Calls that wait on the host, or that are used in loops that wait.
WAITING = ("Synchronize", "Query", "MemcpyHtoD_v2", "MemcpyDtoH_v2", "MemcpyDtoD_v2")


class _Call(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("thread", c_uint64),
        ("stream", c_uint64),
        ("context", c_uint64),
    ]


class Counts(Structure):
    _fields_ = [
        (name, c_uint64)
        for name in [
            "contexts",
            "streams",
            "events",
            "device",
            "pinned",
            "managed",
            "registered",
            "bytes",
            "pending",
            "host_waits",
            "maps",
            "host_spins",
            "reserved",
            "imported",
        ]
    ]

    def leaks(self, before):
        """The counts that have grown."""
        names = (
            *("contexts", "streams", "events", "device", "pinned", "managed", "registered"),
            *("reserved", "imported"),
        )
        more = {name: getattr(self, name) - getattr(before, name) for name in names}
        return {name: n for name, n in more.items() if n != 0}


def sources(face):
    others = tuple(f"{other}_" for other in SONAMES if other != face)
    own = [path for path in sorted(FOLDER.glob("*.c")) if not path.name.startswith(others)]
    device = sorted((compiler.CSRC / "test_device").glob("engine*.c"))
    shared = (
        "base/list.c",
        "base/os_posix.c",
        "base/process.c",
        "base/status.c",
        "kernels/kernels.c",
    )
    return [*own, *device, *(compiler.CSRC / name for name in shared)]


def headers():
    return [
        *FOLDER.glob("*.h"),
        *FOLDER.glob("*.def"),
        *(compiler.CSRC / "base").glob("*.[hd]*"),
        *(compiler.CSRC / "test_device").glob("engine*.h"),
        *(compiler.CSRC / "kernels").rglob("*.[hi]*"),
    ]


def command(face):
    return [
        *compiler.command(),
        *compiler.STRICT,
        "-O1",
        "-g",
        "-fPIC",
        "-shared",
        "-pthread",
        "-fvisibility=hidden",
        "-Wl,-Bsymbolic",
        "-Wl,--no-undefined",
        f"-Wl,-soname,{SONAMES[face]}",
        *compiler.KERNELS_OF_DEVICES,
        f"-I{compiler.CSRC}",
        f"-I{FOLDER}",
        *map(str, sources(face)),
    ]


def build(face):
    """Path of the stand-in library, built if its sources have changed."""
    key = hashlib.sha256(repr(command(face)).encode())
    for path in sorted([*sources(face), *headers()]):
        key.update(path.read_bytes())
    parent = os.path.join(tempfile.gettempdir(), f"arrowdev-tests-{os.getuid()}")
    os.makedirs(parent, mode=0o700, exist_ok=True)
    folder = os.path.join(parent, f"{face}-{key.hexdigest()[:16]}")
    target = os.path.join(folder, SONAMES[face])
    if not os.path.exists(target):
        os.makedirs(folder, exist_ok=True)
        fresh = f"{target}.{os.getpid()}"
        done = subprocess.run(
            [*command(face), "-o", fresh],
            capture_output=True,
            text=True,
            env=compiler.clean_environment(),
        )
        assert done.returncode == 0, done.stderr
        os.replace(fresh, target)
    return target


def build_without(face, function, folder):
    """Path of a copy of the library in which the name of a function is misspelled."""
    original = Path(build(face))
    name = f"\0{function}\0".encode()
    content = original.read_bytes()
    assert name in content
    copy = folder / original.name
    copy.write_bytes(content.replace(name, name[:-2] + b"_\0"))
    # Not in this process, where other tests would find the library.
    probe = f"import ctypes; assert not hasattr(ctypes.CDLL({str(copy)!r}), {function!r})"
    subprocess.run([sys.executable, "-c", probe], check=True, env=compiler.clean_environment())
    return str(copy)


_SIGNATURES = {
    "fake_hold": (c_int, [c_void_p]),
    "fake_release": (c_int, [c_void_p]),
    "fake_set_delay": (None, [c_int64]),
    "fake_fail_at": (None, [c_uint64, c_char_p, c_int, c_int]),
    "fake_break_context": (c_int, [c_int]),
    "fake_set_patience": (None, [c_int64]),
    "fake_set_free_waits": (None, [c_int]),
    "fake_set_staging": (None, [c_int]),
    "fake_set_handle_reuse": (None, [c_int]),
    "fake_set_pageable_access": (None, [c_int]),
    "fake_set_managed_without_device": (None, [c_int]),
    "fake_set_version": (None, [c_int]),
    "fake_reset": (None, []),
    "fake_log_start": (None, []),
    "fake_log_stop": (None, []),
    "fake_log_read": (c_size_t, [POINTER(_Call), c_size_t]),
    "fake_n_calls": (c_uint64, []),
    "fake_violations": (c_size_t, [c_char_p, c_size_t]),
    "fake_stub_hits": (c_size_t, [c_char_p, c_size_t]),
    "fake_count": (None, [POINTER(Counts)]),
    "fake_current_context": (c_size_t, []),
    "fake_context_depth": (c_int, []),
    "fake_peek": (c_int, [c_void_p, c_char_p, c_size_t]),
}


class Driver:
    """The controls of tests/fakedriver/controls.h."""

    def __init__(self, face):
        self.face = face
        self.path = build(face)
        self.library = ctypes.CDLL(self.path)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self.library, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, "_" + name, function)

    def __getattr__(self, name):
        """A setting: `set_delay`, `set_patience`, `reset`, `n_calls`, ..."""
        return self.__getattribute__("_fake_" + name)

    @staticmethod
    def _check(code):
        assert code == 0, f"the stand-in driver answered {code}"

    @contextlib.contextmanager
    def held(self, stream):
        """Delays later work on the stream until the end of the block."""
        self.hold(stream)
        try:
            yield
        finally:
            self.release(stream)

    def hold(self, stream):
        self._check(self._fake_hold(stream))

    def release(self, stream):
        self._check(self._fake_release(stream))

    def fail_at(self, n, code, name=None, stay=False):
        self._fake_fail_at(n, name.encode() if name else None, code, stay)

    def log(self):
        n = self._fake_log_read(None, 0)
        calls = (_Call * max(n, 1))()
        n = min(n, self._fake_log_read(calls, n))
        return [Call(c.name.decode(), c.thread, c.stream, c.context) for c in calls[:n]]

    @contextlib.contextmanager
    def logged(self):
        """A list that holds the calls made in the block, once the block ends."""
        calls = []
        self._fake_log_start()
        try:
            yield calls
        finally:
            self._fake_log_stop()
            calls.extend(self.log())

    def count(self):
        counts = Counts()
        self._fake_count(byref(counts))
        return counts

    def _lines(self, function):
        text = ctypes.create_string_buffer(65536)
        function(text, len(text))
        return text.value.decode().splitlines()

    def violations(self):
        """Misuse since the last call that a GPU would punish only sometimes."""
        return self._lines(self._fake_violations)

    def stub_hits(self):
        """Functions called since the last call that the stand-in lacks."""
        return self._lines(self._fake_stub_hits)

    def context(self):
        """The thread's current context and the depth of its stack."""
        return self._fake_current_context(), self._fake_context_depth()

    def peek(self, address, nbytes):
        """The bytes at this moment, even if work is pending."""
        out = ctypes.create_string_buffer(nbytes)
        self._check(self._fake_peek(address, out, nbytes))
        return out.raw


_loaded = {}


def load(face):
    if face not in _loaded:
        _loaded[face] = Driver(face)
    return _loaded[face]


def waits(calls):
    """The logged calls that wait on the host, or query whether they have to."""
    return [call.name for call in calls if any(word in call.name for word in WAITING)]
