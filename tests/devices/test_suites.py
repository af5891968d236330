"""The suites that need their own process.

A driver is process-wide. Other libraries here (torch, jax) must not find
the stand-in driver, and invalid events must not reach any driver.
"""

import os
import subprocess
import sys

import fakegpu
import pytest

import compiler

# Folder under tests/, and the library that the suite needs.
SUITES = {
    "gpu_cuda": "cuda.bindings",
    "gpu_hip": "hip",
    "no_runtime": "numpy",
    "vulkan": "vulkan._vulkan",  # `vulkan` alone may be the folder of the suite
}


def run(suite, *options, **settings):
    pytest.importorskip(SUITES[suite])
    compiler.command()  # builds the drivers
    environment = {**os.environ, "ARROWDEV_SUITE": suite.removeprefix("gpu_"), **settings}
    for runtime in ("CUDA", "HIP"):
        environment.pop(f"ARROWDEV_{runtime}_LIBRARY", None)  # set by tests/conftest.py
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-c", str(compiler.ROOT / "pyproject.toml")),
            *options,
            str(compiler.ROOT / "tests" / suite),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize("suite", SUITES)
def test_suite(suite):
    run(suite)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_as_on_a_gpu():
    """The stand-in as the system's driver: what runs on a GPU does without the controls."""
    library = fakegpu.build("cuda")
    folders = [os.path.dirname(library), os.environ.get("LD_LIBRARY_PATH", "")]
    run(
        "gpu_cuda",
        ARROWDEV_GPU="1",
        ARROWDEV_NO_SKIPS="0",
        LD_LIBRARY_PATH=os.pathsep.join(filter(None, folders)),
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_device():
    """A test that needs a second device says so: a machine with a GPU usually has one."""
    run("gpu_cuda", "-m", "gpu", ARROWDEV_FAKE_DEVICES="1", ARROWDEV_NO_SKIPS="0")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("suite", ["gpu_cuda", "gpu_hip"])
def test_handles_of_destroyed_objects_are_not_used(suite):
    """No handle is given out again, and the stand-in reports each use of a destroyed one."""
    run(suite, ARROWDEV_FAKE_REUSE="0")
