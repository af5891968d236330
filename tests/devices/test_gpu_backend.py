"""The backends of CUDA and HIP, hook by hook: c_helpers/gpu_backend.c.

They run on the stand-in drivers, which fail on demand and report misuse that a real
driver would not tolerate, and on a GPU if there is one.
"""

import os
import subprocess
from pathlib import Path

import c_library
import fakegpu
import pytest

import compiler

SOURCE = compiler.ROOT / "tests" / "c_helpers" / "gpu_backend.c"
VARIABLES = {"cuda": "ARROWDEV_CUDA_LIBRARY", "hip": "ARROWDEV_HIP_LIBRARY"}
DEVICES = {"cuda": "cuda", "hip": "rocm"}
REAL = {"cuda": "libcuda.so.1", "hip": "libamdhip64.so"}
NO_DEVICE = 77


@pytest.fixture(scope="module")
def program(request, tmp_path_factory):
    target = tmp_path_factory.mktemp("gpu") / "gpu_backend"
    folder = compiler.build_folder(request, tmp_path_factory, "core_c", "address,undefined")
    objects = map(str, compiler.core_objects(folder))
    libraries = ["-lpthread", "-ldl", "-lm"]
    flags = [*compiler.STRICT, "-O1", "-g", "-fsanitize=address,undefined", f"-I{compiler.CSRC}"]
    built = compiler.run(
        [*compiler.command(), *flags, str(SOURCE), *objects, *libraries, "-o", str(target)]
    )
    assert built.returncode == 0, built.stderr
    return target


def start(program, face, library, **more):
    # The drivers and the stand-ins keep their state until the process ends.
    environment = {
        **compiler.clean_environment(),
        "ASAN_OPTIONS": "detect_leaks=0:protect_shadow_gap=0",
        VARIABLES[face]: library,
        **more,
    }
    return subprocess.run(
        [str(program), DEVICES[face]], capture_output=True, text=True, timeout=120, env=environment
    )


def run(program, face, library, **more):
    done = start(program, face, library, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok failures") == 2
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("face", ["cuda", "hip"])
def test_on_stand_in(program, face):
    compiler_library = str(c_library.build("fake_hiprtc"))
    said = run(program, face, fakegpu.build(face), ARROWDEV_HIPRTC_LIBRARY=compiler_library)
    assert "no failures on demand" not in said
    assert "no kernels" not in said


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("face", "missing"),
    [
        ("cuda", "cuMemAllocAsync"),
        ("cuda", "cuMemAllocFromPoolAsync"),
        ("cuda", "cuMemFreeAsync"),
        ("cuda", "cuMemPoolCreate"),
        ("cuda", "cuCtxGetId"),
        ("cuda", "cuThreadExchangeStreamCaptureMode"),
        ("hip", "hipDeviceGetDefaultMemPool"),
        ("hip", "hipMallocFromPoolAsync"),
        ("hip", "hipFreeAsync"),
        ("hip", "hipStreamGetDevice"),
        ("hip", "hipThreadExchangeStreamCaptureMode"),
    ],
)
def test_without_an_optional_function(program, tmp_path, face, missing):
    run(program, face, fakegpu.build_without(face, missing, tmp_path))


@pytest.mark.timeout(600)
def test_hip_of_rocm_5(program, tmp_path):
    original = Path(fakegpu.build("hip"))
    library = tmp_path / "libhip_5.so"
    flags = [*compiler.STRICT, "-fPIC", "-shared", f"-I{compiler.CSRC}"]
    linking = ["-Wl,--no-as-needed", str(original), f"-Wl,-rpath,{original.parent}", "-ldl"]
    source = compiler.ROOT / "tests" / "c_helpers" / "hip_5.c"
    built = compiler.run([*compiler.command(), *flags, str(source), *linking, "-o", str(library)])
    assert built.returncode == 0, built.stderr
    said = run(program, "hip", str(library))
    assert "HIP 5.2" in said


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "call",
    ["hiprtcCreateProgram", "hiprtcCompileProgram", "hiprtcGetCodeSize", "hiprtcGetCode"],
)
def test_kernels_that_hip_cannot_build(program, call):
    library = str(c_library.build("fake_hiprtc"))
    more = {"ARROWDEV_HIPRTC_LIBRARY": library, "FAKE_HIPRTC": call}
    said = run(program, "hip", fakegpu.build("hip"), **more)
    message = f"cannot be built for this device: {call} failed: HIPRTC_ERROR_COMPILATION (6)"
    assert said.count(f"no kernels: arrowdev's kernels {message}") == 2
    assert ("arrowdev.hip:1: an error\n" in said) == (call == "hiprtcCompileProgram")


@pytest.mark.timeout(600)
def test_hip_without_its_compiler(program):
    said = run(program, "hip", fakegpu.build("hip"), ARROWDEV_HIPRTC_LIBRARY="/nowhere/lib.so")
    assert said.count("no kernels: arrowdev's kernels cannot be built") == 2
    assert "/nowhere/lib.so" in said


@pytest.mark.timeout(600)
@pytest.mark.parametrize("face", ["cuda", "hip"])
def test_on_a_gpu(program, face):
    name = os.environ.get(VARIABLES[face], "/nowhere/")
    if name.startswith("/nowhere/"):  # conftest.py keeps drivers out of this process
        name = REAL[face]
    done = start(program, face, name)
    if done.returncode == NO_DEVICE:
        pytest.skip(f"needs a GPU: {done.stdout}")
    assert done.returncode == 0, done.stdout + done.stderr
