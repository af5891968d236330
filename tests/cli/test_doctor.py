"""``python -m arrowdev doctor``, each time in a separate process, because the first use of a
runtime decides what is found."""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sycl_environment
from hidden import HIDDEN

import arrowdev
import compiler
from arrowdev._cli import doctor as command
from arrowdev._cli import terminal

HELPERS = Path(__file__).parent.parent / "helpers"
RUNTIMES = ["cpu", "oneapi", "cuda", "hip", "opencl"]
NOWHERE = "/nowhere/library.so"
WITHOUT_RUNTIMES = {f"ARROWDEV_{name.upper()}_LIBRARY": NOWHERE for name in RUNTIMES[1:]}


@functools.cache
def doctor(*arguments, before="", **variables):
    """The output after `before` and with these environment variables, cached."""
    script = f"""
import sys
sys.path.insert(0, {str(HELPERS)!r})
sys.modules.update(dict.fromkeys({HIDDEN!r}))
{before}
from arrowdev.__main__ import main
raise SystemExit(main(["doctor", *{arguments!r}]))
"""
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("ARROWDEV_")},
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def only(*modules):
    """Code that hides every other library of the matrix: importing all takes long."""
    return f"""
from arrowdev._cli import doctor as command
command.PEERS = [p for p in command.PEERS if p.module in {modules!r}]
command.DEVICE_PEERS = [p for p in command.DEVICE_PEERS if p.module in {modules!r}]
"""


def examined(*modules, before="", **variables):
    return json.loads(doctor("--json", before=only(*modules) + before, **variables))


def runtime(found, name):
    [row] = [r for r in found["runtimes"] if r["name"] == name]
    return row


def test_text():
    lines = doctor(before=only()).splitlines()
    assert lines[0].startswith(f"arrowdev {arrowdev.__version__} (/")
    assert lines[1].startswith("Python 3.")
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == [
        "Runtimes:",
        "Devices:",
        "Environment:",
        "Packages of runtimes:",
        "Libraries, and what an array of theirs speaks:",
    ]
    first = lines.index("Runtimes:") + 1
    rows = [line.split()[:2] for line in lines[first : lines.index("Devices:")] if line[2:3] > " "]
    assert [name for name, _ in rows] == RUNTIMES
    assert rows[0] == ["cpu", "yes"]


def test_line_lengths():
    text = doctor(before=only(), **WITHOUT_RUNTIMES)
    # The first three lines name paths, which cannot be shortened.
    assert max(map(len, text.splitlines()[3:])) <= terminal.WIDTH


def test_json():
    found = examined()
    assert found["arrowdev"] == arrowdev.__version__
    assert [r["name"] for r in found["runtimes"]] == RUNTIMES
    assert found["devices"][0] == {"device": "cpu", "name": "cpu", "reason": None}
    for row in found["runtimes"]:
        assert row["usable"] == (row["reason"] is None)
        assert (row["devices"] is None) == (not row["usable"])
        assert row["device_type"] in arrowdev.DeviceType.__members__
    assert runtime(found, "cpu") == {
        "name": "cpu",
        "device_type": "CPU",
        "usable": True,
        "reason": None,
        "description": "the host",
        "devices": 1,
        "current": None,
    }


@pytest.mark.parametrize("name", RUNTIMES[2:])
def test_missing_library(name):
    variable = f"ARROWDEV_{name.upper()}_LIBRARY"
    found = examined(**WITHOUT_RUNTIMES)
    assert found["environment"][variable] == NOWHERE
    row = runtime(found, name)
    assert not row["usable"]
    for words in (variable, NOWHERE, f"correct or unset {variable}"):
        assert words in row["reason"]


def test_oneapi_without_dpctl_suggests_import():
    found = examined(LD_LIBRARY_PATH="")
    row = runtime(found, "oneapi")
    if row["usable"]:
        pytest.skip("could not import 'nothing': the library is on the linker's path")
    assert "libDPCTLSyclInterface.so" in row["reason"]
    assert "import dpctl first" in row["reason"]


def test_oneapi_found_through_dpnp(tmp_path):
    pytest.importorskip("dpnp")
    found = examined("dpnp", **sycl_environment.variables(tmp_path))
    row = runtime(found, "oneapi")
    if "has no device" in (row["reason"] or ""):
        pytest.skip("could not import 'intel_opencl_rt': SYCL has no device")
    assert row["usable"], row["reason"]
    assert "dpctl" in found["packages"]
    on_devices = [lib for lib in found["libraries"] if lib["device"]]
    if not on_devices:
        pytest.skip("could not import 'intel_opencl_rt': SYCL has no device with USM")
    assert on_devices[0]["name"] == "dpnp"
    assert on_devices[0]["device"] in [d["device"] for d in found["devices"]]
    assert "__dlpack__" in on_devices[0]["protocols"]


def test_unusable_devices(tmp_path):
    """If arrowdev.devices() omits a device, the doctor says why."""
    pytest.importorskip("dpctl")
    code = """
import dpctl
seen = dpctl.get_devices()
import arrowdev
usable = [device.has_aspect_usm_device_allocations for device in seen]
listed = {str(device) for device in arrowdev.devices()}
assert [f"oneapi:{i}" in listed for i in range(len(seen))] == usable
"""
    variables = sycl_environment.variables(tmp_path)
    found = examined("dpnp", before=code, **variables)
    rows = [d for d in found["devices"] if d["device"].startswith("oneapi:")]
    assert len(rows) == (runtime(found, "oneapi")["devices"] or 0)
    for row in rows:
        assert row["reason"] is None or "no unified shared memory" in row["reason"]
    if all(row["reason"] is None for row in rows):
        pytest.skip("could not import 'pocl': every SYCL device has USM")
    text = doctor(before=only("dpnp") + code, **variables)
    assert "cannot be used: this SYCL device has no" in " ".join(text.split())


def test_opencl():
    found = examined()
    row = runtime(found, "opencl")
    if not row["usable"]:
        pytest.skip("could not import 'pocl': there is no OpenCL platform")
    assert "OpenCL" in row["description"]
    devices = [d for d in found["devices"] if d["device"].startswith("opencl:")]
    assert len(devices) == row["devices"] > 0
    assert all(d["name"] != d["device"] for d in devices)


def test_driver_too_old(tmp_path):
    """The driver loads, but lacks functions."""
    source = tmp_path / "driver.c"
    source.write_text("int cuDriverGetVersion(int *v) { *v = 13000; return 0; }\n")
    library = tmp_path / "libcuda.so.1"
    command = [*compiler.command(), "-shared", "-fPIC", str(source), "-o", str(library)]
    subprocess.run(command, check=True, env=compiler.clean_environment())
    row = runtime(examined(ARROWDEV_CUDA_LIBRARY=str(library)), "cuda")
    assert not row["usable"]
    assert f'{library} has no symbol "cu' in row["reason"]


def test_hip_without_a_device():
    row = runtime(examined(), "hip")
    if row["usable"] or "cannot be loaded" in row["reason"]:
        pytest.skip("needs a GPU driver's library without a GPU")
    assert "no device" in row["reason"]
    assert "doctor" not in row["reason"]


def test_software_devices():
    before = """
from arrowdev.testing import software_device
scope = software_device(devices=3)
scope.__enter__()
"""
    found = examined(before=before)
    assert [r["name"] for r in found["runtimes"]] == [*RUNTIMES, "software"]
    assert runtime(found, "software")["devices"] == 3
    names = [d["device"] for d in found["devices"]]
    assert names[-3:] == ["ext_dev:0", "ext_dev:1", "ext_dev:2"]


def test_libraries():
    pytest.importorskip("numpy")
    text = doctor(before=only("numpy"))
    lines = text.splitlines()
    [row] = [line for line in lines if line.startswith("  numpy ")]
    assert row.endswith("__dlpack__, __array_interface__, buffer protocol")


def test_libraries_that_are_not_installed():
    pytest.importorskip("numpy")
    code = """
class Absent(command.PEERS[0]):
    name, module = "absent", "arrowdev_no_such_module"
command.PEERS.append(Absent)
"""
    assert doctor(before=only("numpy") + code).splitlines()[-1] == "Not installed: absent"


def test_library_without_a_device():
    pytest.importorskip("numba.cuda")
    code = only("numba.cuda") + "import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''"
    text = doctor(before=code)
    [row] = [line for line in text.splitlines() if line.startswith("  numba-cuda ")]
    assert row.startswith("  numba-cuda on devices  ")
    assert "numba.cuda.is_available() is False" in row


def test_cuda_driver():
    pytest.importorskip("numba.cuda")
    found = examined("numba.cuda", before="import fakegpu; fakegpu.load('cuda')")
    row = runtime(found, "cuda")
    assert row["usable"] and row["devices"] == 2
    assert "libcuda.so.1" in row["description"]
    assert "the primary one of cuda:1 is in use" in row["current"]
    assert [(lib["name"], lib["device"]) for lib in found["libraries"]] == [
        ("numba-cuda", "cuda:0"),
        ("numba-cuda", "cuda:1"),
    ]


CURRENT = """
import fakegpu
{imports}
fakegpu.load({runtime!r})
def ask(function, *arguments):
    code, *result = function(*arguments)
    assert int(code) == 0, code
    return result[0] if result else None
"""


@pytest.mark.parametrize("id", [None, 0, 1])
def test_current_context(id):
    pytest.importorskip("cuda.bindings")
    code = (
        CURRENT.format(imports="from cuda.bindings import driver", runtime="cuda")
        + "ask(driver.cuInit, 0)\n"
    )
    if id is not None:
        code += f"context = ask(driver.cuCtxCreate, None, 0, ask(driver.cuDeviceGet, {id}))\n"
    current = runtime(examined(before=code), "cuda")["current"]
    if id is None:
        assert current == "no context is current"
    else:
        assert re.fullmatch(rf"context 0x\w+ of cuda:{id} is current", current)


@pytest.mark.parametrize("id", [0, 1])
def test_current_device(id):
    pytest.importorskip("hip")
    code = (
        CURRENT.format(imports="from hip import hip", runtime="hip")
        + f"ask(hip.hipSetDevice, {id})\n"
    )
    current = runtime(examined(before=code), "hip")["current"]
    assert current == f"rocm:{id} is the current device"


@pytest.mark.slow
def test_all_installed_libraries():
    """As a user runs it: no installed library and no runtime makes it fail."""
    text = doctor()
    assert "Traceback" not in text
    for peer in (*command.PEERS, *command.DEVICE_PEERS):
        is_tried = peer.module is not None and peer.by_default
        assert not is_tried or peer.name in text
