"""An OpenCL library that forwards all calls, counts live references, and fails at the n-th call.

Generated from opencl_api.def, so it has exactly the functions that arrowdev calls. Only
arrowdev uses it, through ARROWDEV_OPENCL_LIBRARY, so it counts only arrowdev's references.
"""

import ctypes
import hashlib
import os
import re
import tempfile
from pathlib import Path

import compiler

DEFINITIONS = compiler.CSRC / "abi" / "opencl_api.def"

PRELUDE = """
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include "abi/opencl_api.h"

enum { OUT_OF_RESOURCES = -5 };
static atomic_long n_calls, fails_at, fails_code = OUT_OF_RESOURCES;
static atomic_long alive[16];
static const char *_Atomic failed_call;
static const char *_Atomic called[10000];

void failing_opencl_arm(long n, long code) {
    fails_at = n > 0 ? n_calls + n : 0;
    fails_code = code;
    failed_call = NULL;
}
long failing_opencl_calls(void) { return n_calls; }
const char *failing_opencl_failed(void) { return failed_call; }
const char *failing_opencl_name(long n) { return called[n - 1]; }
long failing_opencl_alive(int kind) { return alive[kind]; }

static int fails(const char *name) {
    long n = ++n_calls;
    if (n <= (long)(sizeof(called) / sizeof(called[0]))) {
        called[n - 1] = name;
    }
    if (n != fails_at) {
        return 0;
    }
    failed_call = name;
    return 1;
}
static void *find(const char *name) {
    static void *real;
    if (real == NULL) {
        real = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    }
    void *found = real != NULL ? dlsym(real, name) : NULL;
    if (found == NULL) {
        fprintf(stderr, "failing_opencl: %s\\n", dlerror());
        abort();
    }
    return found;
}
"""

# The kind of object that a function creates, retains or releases, by the end of its name.
KINDS = {
    "Context": "context",
    "CommandQueue": "queue",
    "Event": "event",
    "MemObject": "memory",
    "Buffer": "memory",
    "ProgramWithSource": "program",
    "Program": "program",
    "Kernel": "kernel",
}
NAMES = ["context", "queue", "event", "memory", "program", "kernel"]


def wrapper(name, result, types):
    kind = re.match(r"(Create|Retain|Release)(User)?(\w+)", name)
    kind = NAMES.index(KINDS[kind[3]]) if kind else None
    typed = ", ".join(f"{type_} a{i}" for i, type_ in enumerate(types))
    names = ", ".join(f"a{i}" for i in range(len(types)))
    last = f"a{len(types) - 1}"
    yield f"{result} cl{name}({typed})\n{{"
    yield f"    static {result} (*real)({', '.join(types)});"
    yield f'    if (real == NULL) real = find("cl{name}");'
    if not name.startswith("Release"):
        failed = f"return {'NULL' if '_cl_' in result else 'fails_code'};"
        if result != "int32_t":
            failed = f"*{last} = fails_code; return NULL;"
        yield f'    if (fails("cl{name}")) {{ {failed} }}'
    if name == "CreateProgramWithSource":  # a text that no compiler accepts
        yield '    const char *bad = "#error no such header\\n";'
        yield '    if (getenv("FAILING_OPENCL_BUILD")) a2 = &bad;'
    yield f"    {result} result = real({names});"
    if kind is not None and name.startswith("Create"):
        yield f"    if (result != NULL) alive[{kind}]++;"
    elif kind is not None:
        yield f"    if (result == 0) alive[{kind}] {'--' if name[:3] == 'Rel' else '++'};"
    elif types[-1] == "ad_cl_event *":
        yield f"    if (result == 0 && {last} != NULL) alive[{NAMES.index('event')}]++;"
    yield "    return result;\n}"


def build():
    text = DEFINITIONS.read_text(encoding="utf-8")
    lines = [PRELUDE]
    for name, result, types in re.findall(r"^AD_CL\((\w+), (\w+), \((.*)\)\)$", text, re.M):
        lines += wrapper(name, result, types.split(", "))
    source = "\n".join(lines)
    key = hashlib.sha256(source.encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"arrowdev-tests-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    target = folder / f"failing_opencl-{key}.so"
    if not target.exists():
        fresh = target.with_suffix(f".{os.getpid()}")
        flags = ["-Wall", "-Werror", "-fPIC", "-shared", "-g", f"-I{compiler.CSRC}"]
        done = compiler.run(
            [*compiler.command(), *flags, "-x", "c", "-", "-o", str(fresh)], input=source
        )
        assert done.returncode == 0, done.stderr
        fresh.replace(target)
    return target


class FailingOpenCL:
    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.library.failing_opencl_arm.argtypes = [ctypes.c_long, ctypes.c_long]
        self.library.failing_opencl_calls.restype = ctypes.c_long
        self.library.failing_opencl_alive.restype = ctypes.c_long
        self.library.failing_opencl_failed.restype = ctypes.c_char_p
        self.library.failing_opencl_name.restype = ctypes.c_char_p

    def arm(self, n, code=-5):
        """The n-th call from now fails; 0: none."""
        self.library.failing_opencl_arm(n, code)

    @property
    def calls(self):
        return self.library.failing_opencl_calls()

    @property
    def names(self):
        """The functions in the order of their calls."""
        return [self.library.failing_opencl_name(n + 1).decode() for n in range(self.calls)]

    @property
    def failed(self):
        """The call that failed, or None."""
        name = self.library.failing_opencl_failed()
        return name and name.decode()

    @property
    def alive(self):
        """References that arrowdev holds, by kind."""
        return {name: self.library.failing_opencl_alive(i) for i, name in enumerate(NAMES)}
