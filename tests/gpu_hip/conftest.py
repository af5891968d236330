"""HIP on its stand-in driver, in its own process (or on a GPU with ARROWDEV_GPU=1).

The settings are those of tests/gpu_cuda/conftest.py.
"""

import gc
import os

import pytest

IS_ON = os.environ.get("ARROWDEV_SUITE") == "hip"
IS_REAL = os.environ.get("ARROWDEV_GPU", "0") not in ("", "0")

collect_ignore_glob = [] if IS_ON else ["*"]

if IS_ON and not IS_REAL:
    import fakegpu

    # Before any library of HIP makes its first call.
    DRIVER = fakegpu.load("hip")
    os.environ["ARROWDEV_HIP_LIBRARY"] = DRIVER.path
else:
    DRIVER = None


@pytest.fixture
def standin():
    """The controls of the stand-in driver."""
    if DRIVER is None:
        pytest.skip("needs the stand-in driver")
    return DRIVER


@pytest.fixture(autouse=True)
def nothing_wrong():
    """The stand-in found no fault that a GPU may only sometimes show; device 0 stays current."""
    from hip import hip

    if DRIVER is not None:
        DRIVER.set_patience(20_000)
        DRIVER.set_handle_reuse(int(os.environ.get("ARROWDEV_FAKE_REUSE", "1")))
    hip.hipSetDevice(0)
    yield
    assert hip.hipGetDevice()[1] == 0
    gc.collect()
    hip.hipDeviceSynchronize()
    if DRIVER is not None:
        DRIVER.reset()
        assert DRIVER.violations() == []
