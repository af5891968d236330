"""CUDA in its own process: on the stand-in driver, or on a GPU.

    ARROWDEV_SUITE=cuda pytest tests/gpu_cuda                   the stand-in
    ARROWDEV_SUITE=cuda ARROWDEV_GPU=1 pytest tests/gpu_cuda    a real driver

tests/devices/test_suites.py runs the first one as part of the whole suite. Tests that need
the stand-in's controls (`standin`) are skipped on a GPU. ARROWDEV_FAKE_DELAY is
the number of microseconds by which the stand-in delays each operation.
"""

import gc
import os

import pytest

IS_ON = os.environ.get("ARROWDEV_SUITE") == "cuda"
IS_REAL = os.environ.get("ARROWDEV_GPU", "0") not in ("", "0")

collect_ignore_glob = [] if IS_ON else ["*"]

if IS_ON and not IS_REAL:
    import fakegpu

    # Before any library of CUDA makes its first call.
    DRIVER = fakegpu.load("cuda")
    os.environ["ARROWDEV_CUDA_LIBRARY"] = DRIVER.path
else:
    DRIVER = None


@pytest.fixture
def standin():
    """The controls of the stand-in driver."""
    if DRIVER is None:
        pytest.skip("needs the stand-in driver")
    return DRIVER


@pytest.fixture(autouse=True)
def nothing_wrong(request):
    """No function is missing; the stand-in found no fault that a GPU may only sometimes show."""
    if DRIVER is None:
        yield
        return
    DRIVER.set_patience(20_000)
    DRIVER.set_delay(int(os.environ.get("ARROWDEV_FAKE_DELAY", "0")))
    yield
    DRIVER.reset()
    gc.collect()
    assert DRIVER.stub_hits() == []
    assert DRIVER.violations() == []


@pytest.fixture(autouse=True)
def context(nothing_wrong):
    """The primary context of device 0 is current, before and after each test."""
    import gpu

    gpu.ask(gpu.cu.cuInit, 0)
    context = gpu.ask(gpu.cu.cuDevicePrimaryCtxRetain, 0)
    gpu.ask(gpu.cu.cuCtxSetCurrent, context)
    yield context
    assert int(gpu.ask(gpu.cu.cuCtxGetCurrent)) == int(context)
    gc.collect()
    gpu.ask(gpu.cu.cuCtxSynchronize)
    gpu.Stream.destroy_unused()
    gpu.flags.clear()
