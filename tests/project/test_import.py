"""`import arrowdev` is fast, prints nothing and imports no other package."""

import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import arrowdev

# The C runtime and driver libraries of all device families.
GPU_LIBRARIES = (
    "libcuda",
    "libcudart",
    "libnvidia",
    "libamdhip64",
    "libhsa-runtime64",
    "libOpenCL",
    "libze_loader",
    "libsycl",
    "libvulkan",
)

IMPORT = """
import sys, time
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
start = time.process_time()  # that of others does not count
import arrowdev
end = time.process_time()
new = {name.partition(".")[0] for name in set(sys.modules) - before}
import asyncio
ratio = (end - start) / (time.process_time() - end)
import json
with open("/proc/self/maps") as file:
    mapped = {line.split(None, 5)[5].strip() for line in file if "/" in line}
print(json.dumps({"ratio": ratio, "new": sorted(new), "mapped": sorted(mapped)}))
"""


# A copy of the table with another first member: the size, the version.
TWO_BUILDS = """
import ctypes
from arrowdev import _core
name = b"arrowdev._core._for_test_device"
api = ctypes.pythonapi
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
there = api.PyCapsule_GetPointer(_core._for_test_device, name)
table = (ctypes.c_size_t * 2).from_buffer_copy(ctypes.string_at(there, 16))
{change}
_core._for_test_device = api.PyCapsule_New(ctypes.addressof(table), name, None)
print("before")
import arrowdev.testing._device
"""


def import_in(folder, code):
    return subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ""},
    )


def test_checkout_without_the_extension(tmp_path):
    source = pathlib.Path(arrowdev.__file__).parent
    shutil.copytree(source, tmp_path / "arrowdev", ignore=shutil.ignore_patterns("*.so", "*.pyc"))
    done = import_in(tmp_path, "import arrowdev")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {tmp_path}/arrowdev has no extension arrowdev._core")
    assert "run `pip install .` in the checkout" in last


def test_checkout_without_the_extension_of_testing(tmp_path):
    source = pathlib.Path(arrowdev.__file__).parent
    shutil.copytree(source, tmp_path / "arrowdev", ignore=shutil.ignore_patterns("_device.*.so"))
    done = import_in(tmp_path, "import arrowdev; print(1); import arrowdev.testing")
    assert done.stdout == "1\n"
    assert "arrowdev/testing has no extension arrowdev.testing._device" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("run `pip install .` in the checkout")


def test_extensions_of_two_builds():
    """The second one calls the first one through a table, whose size and version it compares."""
    for change in ("table[0] -= 8", "table[1] = ctypes.cast(b'0.0.0', ctypes.c_void_p).value"):
        package = pathlib.Path(arrowdev.__file__).parent
        done = import_in(package.parent, TWO_BUILDS.format(change=change))
        assert done.stdout == "before\n", done.stderr
        last = done.stderr.splitlines()[-1]
        assert last.startswith("ImportError: arrowdev.testing._device and arrowdev._core are not")


def import_once():
    """Runs one import, of the package under test, in a fresh isolated interpreter."""
    here = str(pathlib.Path(arrowdev.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-I", "-c", IMPORT, here], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_imports_no_third_party_package():
    foreign = set(import_once()["new"]) - set(sys.stdlib_module_names) - {"arrowdev"}
    assert foreign == set()


def test_loads_one_extension():
    mapped = [path for path in import_once()["mapped"] if "/arrowdev/" in path]
    assert [path.rpartition("/")[2].partition(".")[0] for path in mapped] == ["_core"]


def test_loads_no_gpu_library():
    mapped = [path.rpartition("/")[2] for path in import_once()["mapped"]]
    assert [name for name in mapped if name.startswith(GPU_LIBRARIES)] == []


def test_takes_less_than_half_of_asyncio():
    runs = [import_once() for _ in range(10)]
    if any("libasan" in path for path in runs[0]["mapped"]):
        pytest.skip("not measured under a sanitizer")
    assert min(run["ratio"] for run in runs) < 0.5


def test_version_has_one_source():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.\w+)?", arrowdev.__version__)
    assert arrowdev.__version__ == importlib.metadata.version("arrowdev")
