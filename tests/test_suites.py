"""The suites that need a process of their own.

A driver is process-wide, and other libraries here (torch, jax) must not find
the stand-in one; made-up events must not find a driver at all.
"""

import os
import subprocess
import sys

import pytest

import compiler

# Folder under tests/, and the library without which there is nothing to do.
SUITES = {"gpu_cuda": "cuda.bindings", "gpu_hip": "hip", "no_runtime": "numpy"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("suite", SUITES)
def test_suite(suite):
    pytest.importorskip(SUITES[suite])
    compiler.command()  # the drivers are built
    environment = {**os.environ, "ARROWDEV_SUITE": suite.removeprefix("gpu_")}
    for runtime in ("CUDA", "HIP"):
        environment.pop(f"ARROWDEV_{runtime}_LIBRARY", None)  # of tests/conftest.py
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-c", str(compiler.ROOT / "pyproject.toml")),
            str(compiler.ROOT / "tests" / suite),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
