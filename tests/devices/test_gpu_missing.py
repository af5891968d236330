"""Error messages of CUDA and HIP when the library or driver is missing or fails."""

import json
import subprocess
import sys

import c_library
import pytest
from isolation import run

REAL_HIP = "libamdhip64.so.5"


def error_of_use(device, library, **environment):
    """(message, reason, hint, device) of the error that using the device raises."""
    kind = "HIP" if device.startswith("rocm") else "CUDA"
    environment = {f"ARROWDEV_{kind}_LIBRARY": str(library), **environment}
    return json.loads(run("gpu_missing", device, environment=environment).splitlines()[0])


def stub(device, codes):
    return error_of_use(device, c_library.build("gpu_stub"), GPU_STUB=codes)


@pytest.mark.parametrize(
    ("device", "variable"),
    [("cuda:0", "ARROWDEV_CUDA_LIBRARY"), ("rocm:0", "ARROWDEV_HIP_LIBRARY")],
)
def test_library_is_missing(device, variable):
    message, reason, hint, _ = error_of_use(device, "/nowhere/lib.so")
    assert "/nowhere/lib.so" in message
    assert variable in message
    assert variable in hint
    assert reason == "runtime"


@pytest.mark.parametrize("device", ["cuda:0", "cuda_host:0", "cuda_managed:0"])
def test_library_is_not_cuda(device):
    message, reason, hint, _ = error_of_use(device, "libm.so.6")
    assert 'has no symbol "cuStreamCreate"' in message
    assert reason == "runtime"
    assert "newer" in hint


@pytest.mark.parametrize("device", ["rocm:0", "rocm_host:0"])
def test_library_is_not_hip(device):
    message, reason, _, _ = error_of_use(device, "libm.so.6")
    assert 'has no symbol "hipStreamCreateWithFlags"' in message
    assert reason == "runtime"


def test_stub_library_of_the_toolkit():
    message, reason, hint, _ = stub("cuda:0", "*=34")
    assert "cuInit failed: CUDA_ERROR_STUB_LIBRARY (34)" in message
    assert reason == "runtime"
    assert "stub" in hint
    assert "driver" in hint


def test_driver_fails_to_start():
    message, reason, hint, _ = stub("cuda:0", "cuInit=803")
    assert "cuInit failed" in message
    assert "(803)" in message
    assert reason == "runtime"
    assert "nvidia-smi" in hint


def test_device_count_fails():
    message, reason, _, _ = stub("cuda:0", "cuDeviceGetCount=999")
    assert "cuDeviceGetCount failed" in message
    assert "(999)" in message
    assert reason == "runtime"


@pytest.mark.parametrize("codes", ["cuInit=100", "cuDeviceGetCount=100", ""])
def test_driver_without_a_device(codes):
    message, reason, hint, device = stub("cuda:1", codes)
    assert "the cuda runtime is there, but has no device" in message
    assert reason == "runtime"
    assert "doctor" in hint
    assert "cuda" in device


def test_hip_fails_to_start():
    message, reason, hint, _ = stub("rocm:0", "hipInit=999")
    assert "hipInit failed: hipErrorUnknown (999)" in message
    assert reason == "runtime"
    assert "/dev/kfd" in hint


def test_hip_device_count_fails():
    message, reason, _, _ = stub("rocm:0", "hipGetDeviceCount=999")
    assert "hipGetDeviceCount failed: hipErrorUnknown (999)" in message
    assert reason == "runtime"


COUNT = """
import ctypes, sys
try:
    library = ctypes.CDLL(sys.argv[1])
except OSError:
    sys.exit(3)
count = ctypes.c_int(-1)
code = library.hipGetDeviceCount(ctypes.byref(count))
sys.exit(4 if code == 0 and count.value > 0 else 0)
"""


def test_real_hip_without_a_device():
    """hipInit() returns 101 and hipGetDeviceCount() 100, which means that there is no device."""
    # In a separate process, because other tests would find a library that is loaded.
    found = subprocess.run([sys.executable, "-c", COUNT, REAL_HIP]).returncode
    if found == 3:
        pytest.skip("could not import 'libamdhip64': not installed")
    if found == 4:
        pytest.skip("a device of ROCm is there")
    message, reason, hint, device = error_of_use("rocm:0", REAL_HIP)
    assert "the hip runtime is there, but has no device" in message
    assert reason == "runtime"
    assert "doctor" in hint
    assert "rocm" in device
