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
before = set(sys.modules)
start = time.process_time()  # that of others does not count
import arrowdev
seconds = time.process_time() - start
new = {name.partition(".")[0] for name in set(sys.modules) - before}
import json
with open("/proc/self/maps") as file:
    mapped = {line.split(None, 5)[5].strip() for line in file if "/" in line}
print(json.dumps({"seconds": seconds, "new": sorted(new), "mapped": sorted(mapped)}))
"""


def test_checkout_without_the_extension(tmp_path):
    source = pathlib.Path(arrowdev.__file__).parent
    shutil.copytree(source, tmp_path / "arrowdev", ignore=shutil.ignore_patterns("*.so", "*.pyc"))
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import arrowdev"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {tmp_path}/arrowdev has no extension arrowdev._core")
    assert "run `pip install .` in the checkout" in last


def import_once():
    """Runs one import in a fresh isolated interpreter."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", IMPORT], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_imports_no_third_party_package():
    foreign = set(import_once()["new"]) - set(sys.stdlib_module_names) - {"arrowdev"}
    assert foreign == set()


def test_loads_no_gpu_library():
    mapped = [path.rpartition("/")[2] for path in import_once()["mapped"]]
    assert [name for name in mapped if name.startswith(GPU_LIBRARIES)] == []


def test_takes_under_20_ms():
    runs = [import_once() for _ in range(10)]
    if any("libasan" in path for path in runs[0]["mapped"]):
        pytest.skip("not measured under a sanitizer")
    assert min(run["seconds"] for run in runs) < 0.020


def test_version_has_one_source():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.\w+)?", arrowdev.__version__)
    assert arrowdev.__version__ == importlib.metadata.version("arrowdev")
