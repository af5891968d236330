"""CUDA in its own process: on the stand-in driver, or on a GPU.

    ARROWDEV_SUITE=cuda pytest tests/gpu_cuda                   the stand-in
    ARROWDEV_SUITE=cuda ARROWDEV_GPU=1 pytest tests/gpu_cuda    a real driver

tests/devices/test_suites.py runs the first one as part of the whole suite. Tests that need
the stand-in's controls (`standin`) are skipped on a GPU; all others have the marker `gpu`.
Tests that need cuda:1 ask for `two_devices`. ARROWDEV_FAKE_DELAY is the number of microseconds
by which the stand-in delays each operation, ARROWDEV_FAKE_DEVICES the number of its devices.
Handles of destroyed streams and events are given out again at once, as drivers do. With
ARROWDEV_FAKE_REUSE=0 they are not, and each use of a destroyed one is reported.
docs/internals/gpu_first_day.md is the page for a run on a GPU.
"""

import gc
import os
import pathlib

import pytest

IS_ON = os.environ.get("ARROWDEV_SUITE") == "cuda"
IS_REAL = os.environ.get("ARROWDEV_GPU", "0") not in ("", "0")

collect_ignore_glob = [] if IS_ON else ["*"]

# Read by the driver and by other libraries when they are loaded. With fewer connections than
# streams, a stream that a gate holds also stalls unrelated ones.
SETTINGS = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "32",
    "JAX_ENABLE_X64": "1",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}
if IS_ON:
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)

if IS_ON and not IS_REAL:
    import fakegpu

    # Before any library of CUDA makes its first call.
    DRIVER = fakegpu.load("cuda")
    os.environ["ARROWDEV_CUDA_LIBRARY"] = DRIVER.path
else:
    DRIVER = None


def pytest_collection_modifyitems(items):
    """Marks what runs on a GPU. A timeout's signal does not reach a thread that is inside the
    driver: another thread ends the process there."""
    folder = pathlib.Path(__file__).parent
    for item in items:
        if folder not in item.path.parents:
            continue
        if "standin" not in item.fixturenames:
            item.add_marker("gpu")
        if IS_REAL and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(90, method="thread"))


@pytest.fixture
def two_devices():
    """Skips the test on a machine with one device."""
    import gpu

    gpu.ask(gpu.cu.cuInit, 0)
    if gpu.ask(gpu.cu.cuDeviceGetCount) < 2:
        pytest.skip("needs two devices")


@pytest.fixture(scope="session", autouse=True)
def loaded():
    """On a GPU, loads what would otherwise be loaded, and might wait, behind a closed gate."""
    if IS_REAL:
        import gpu

        gpu.load_kernels()


@pytest.fixture
def standin():
    """The controls of the stand-in driver."""
    if DRIVER is None:
        pytest.skip("needs the stand-in driver")
    return DRIVER


@pytest.fixture
def no_handle_reuse(nothing_wrong):
    """The stand-in reports each use of a destroyed stream or event."""
    if DRIVER is not None:
        DRIVER.set_handle_reuse(0)


@pytest.fixture(autouse=True)
def nothing_wrong(request):
    """No function is missing; the stand-in found no fault that a GPU may only sometimes show."""
    if DRIVER is None:
        yield
        return
    DRIVER.set_patience(20_000)
    DRIVER.set_delay(int(os.environ.get("ARROWDEV_FAKE_DELAY", "0")))
    DRIVER.set_handle_reuse(int(os.environ.get("ARROWDEV_FAKE_REUSE", "1")))
    yield
    DRIVER.reset()
    gc.collect()
    assert DRIVER.stub_hits() == []
    assert DRIVER.violations() == []


@pytest.fixture(autouse=True)
def context(nothing_wrong):
    """The primary context of device 0 is current, before and after each test."""
    import gpu

    import arrowdev

    gpu.ask(gpu.cu.cuInit, 0)
    context = gpu.ask(gpu.cu.cuDevicePrimaryCtxRetain, 0)
    gpu.ask(gpu.cu.cuCtxSetCurrent, context)
    yield context
    assert int(gpu.ask(gpu.cu.cuCtxGetCurrent)) == int(context)
    gc.collect()
    expired = gpu.Gate.end_all()
    gpu.ask(gpu.cu.cuCtxSynchronize)
    arrowdev.device("cuda:0").synchronize()  # nothing is released on them any more
    gpu.Stream.destroy_unused()
    gpu.flags.clear()
    assert not expired, f"something waited {gpu.Gate.LIMIT_S} s for a stream that a gate held"
