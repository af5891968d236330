"""``python -m arrowdev doctor``: which runtimes, devices and libraries are usable, and why not."""

import importlib.metadata
import json
import os
import platform
import sys
import textwrap
import warnings

import arrowdev
from arrowdev import _core
from arrowdev._cli.device_libraries import DEVICE_PEERS
from arrowdev._cli.libraries import PEERS, Payload
from arrowdev._cli.matrix import Matrix, load, load_devices

DESCRIPTION = """\
Say which runtimes, devices and libraries arrowdev finds here, and why others are missing.

The libraries are imported first: some of them bring the runtime of their devices
along. Paste the output into a bug report.
"""

WIDTH = 100

# Variables that select the runtime and its visible devices.
VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
    "OCL_ICD_FILENAMES",
    "OCL_ICD_VENDORS",
    "ONEAPI_DEVICE_SELECTOR",
    "POCL_DEVICES",
    "ZE_AFFINITY_MASK",
)

# Distributions that belong to a runtime, or that libraries share.
PACKAGES = (
    "cuda-bindings",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "dpctl",
    "hip-python",
    "intel-opencl-rt",
    "intel-sycl-rt",
    "numba",
    "nvidia-cuda-runtime",
    "nvidia-cuda-runtime-cu12",
)


def add_arguments(parser):
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


# The part of a message that refers to this command.
OWN_ADVICE = ", and what `python -m arrowdev doctor` says"


# --- examination -----------------------------------------------------------------


def runtimes():
    """List each backend: whether its runtime is usable, and its version or the reason why not."""
    found = []
    for name, device_type, why, description, devices, current in _core._runtimes():
        found.append(
            {
                "name": name,
                "device_type": arrowdev.DeviceType(device_type).name,
                "usable": why is None,
                "reason": why and why.replace(OWN_ADVICE, ""),
                "description": description,
                "devices": len(devices) if why is None else None,
                "current": current or None,
            }
        )
    return found


def devices():
    """List each device, with the reason if `arrowdev.devices()` leaves it out."""
    found = []
    for _, device_type, _, _, rows, _ in _core._runtimes():
        for number, why in rows:
            device = arrowdev.device((device_type, number))
            found.append({"device": str(device), "name": device.name, "reason": why})
    return found


def variables():
    """List the variables that are set. The runtimes give the names of arrowdev's overrides."""
    own = [f"ARROWDEV_{name.upper()}_LIBRARY" for name, *_ in _core._runtimes()]
    return {name: os.environ[name] for name in (*VARIABLES, *own) if name in os.environ}


def packages():
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def host_libraries(payload):
    for peer in (peer() for peer in PEERS):
        if peer.module is not None:
            library, _ = load(peer, payload, lambda text: None)
            yield library


def device_libraries(payload):
    matrix = Matrix(payload)
    peers = [peer() for peer in DEVICE_PEERS if peer.module is not None]
    load_devices(matrix, peers, payload, None, lambda text: None)
    return matrix.libraries


def libraries():
    """List every library of the matrix: its version, its devices, the protocols of its arrays."""
    payload = Payload()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [*host_libraries(payload), *device_libraries(payload)]
    return [
        {
            "name": library.name,
            "device": library.device,
            "version": library.version,
            "protocols": library.protocols,
            "reason": library.reason,
        }
        for library in found
    ]


def examine():
    """Examine everything; the runtimes after the libraries, which may load them."""
    imported = libraries()
    return {
        "arrowdev": arrowdev.__version__,
        "extension": _core.__file__,
        "python": sys.version.replace("\n", " "),
        "platform": platform.platform(),
        "runtimes": runtimes(),
        "devices": devices(),
        "environment": variables(),
        "packages": packages(),
        "libraries": imported,
    }


# --- output ----------------------------------------------------------------------


def runtime_line(runtime):
    if runtime["usable"]:
        plural = "device" if runtime["devices"] == 1 else "devices"
        current = f"; {runtime['current']}" if runtime["current"] else ""
        return f"yes  {runtime['description']}, {runtime['devices']} {plural}{current}"
    return f"no   {runtime['reason']}"


def device_row(device):
    refused = f", cannot be used: {device['reason']}" if device["reason"] else ""
    return device["device"], device["name"] + refused


def library_row(library):
    """Return (name, text) of an installed library."""
    name = library["name"]
    if library["device"] != "cpu":
        name += f" on {library['device']}" if library["device"] else " on devices"
    version = f"{library['version']}: " if library["version"] else ""
    spoken = ", ".join(library["protocols"]) or "no protocol: by pointer or handle"
    return name, version + (library["reason"] or spoken)


def section(title, rows):
    """Format rows of (name, text): the names in one column, the texts wrapped."""
    yield ""
    yield f"{title}:"
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        yield from textwrap.wrap(
            text,
            WIDTH,
            initial_indent=f"  {name:{width}}  ",
            subsequent_indent=" " * (width + 4),
            break_long_words=False,
            break_on_hyphens=False,
        ) or [f"  {name}"]
    if not rows:
        yield "  (none)"


def report(found):
    yield f"arrowdev {found['arrowdev']} ({found['extension']})"
    yield f"Python {found['python']}"
    yield found["platform"]
    yield from section("Runtimes", [(r["name"], runtime_line(r)) for r in found["runtimes"]])
    yield from section("Devices", [device_row(d) for d in found["devices"]])
    yield from section("Environment", list(found["environment"].items()))
    yield from section("Packages", list(found["packages"].items()))
    here = [lib for lib in found["libraries"] if lib["reason"] != "not installed"]
    yield from section(
        "Libraries, and what an array of theirs speaks", [library_row(lib) for lib in here]
    )
    absent = dict.fromkeys(lib["name"] for lib in found["libraries"] if lib not in here)
    if absent:
        yield ""
        yield from textwrap.wrap(f"Not installed: {', '.join(absent)}", WIDTH)


def run(arguments):
    found = examine()
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(report(found)))
    return 0
