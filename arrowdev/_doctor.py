"""``python -m arrowdev doctor``: what is there, what is not, and why."""

import json
import os
import platform
import sys

import arrowdev
from arrowdev import _core, _matrix
from arrowdev._matrix_peers import PEERS, Payload

DESCRIPTION = """\
Say which runtimes, devices and libraries arrowdev finds here, and why others are missing.

Paste the output into a bug report.
"""

# What decides which runtime is loaded and which devices it shows.
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


def add_arguments(parser):
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


# --- finding out -----------------------------------------------------------------


def runtimes():
    found = []
    for name, device_type, why, description, count in _core._runtimes():
        found.append(
            {
                "name": name,
                "device_type": arrowdev.DeviceType(device_type).name,
                "usable": why is None,
                "reason": why,
                "description": description,
                "devices": count,
            }
        )
    return found


def devices():
    return [{"device": str(device), "name": device.name} for device in arrowdev.devices()]


def variables():
    """Those that are set; names of our own overrides come from the runtimes."""
    own = [f"ARROWDEV_{name.upper()}_LIBRARY" for name, *_ in _core._runtimes()]
    return {name: os.environ[name] for name in (*VARIABLES, *own) if name in os.environ}


def libraries():
    """Every library of the matrix: its version, and what an array of it speaks."""
    payload = Payload()
    for peer in (peer() for peer in PEERS):
        if peer.module is None:
            continue
        library, _ = _matrix.load(peer, payload, lambda text: None)
        yield {
            "name": library.name,
            "version": library.version,
            "protocols": library.protocols,
            "reason": library.reason,
        }


def examine():
    return {
        "arrowdev": arrowdev.__version__,
        "extension": _core.__file__,
        "python": sys.version.replace("\n", " "),
        "platform": platform.platform(),
        "runtimes": runtimes(),
        "devices": devices(),
        "environment": variables(),
        "libraries": list(libraries()),
    }


# --- telling it ------------------------------------------------------------------


def runtime_line(runtime):
    if runtime["usable"]:
        plural = "device" if runtime["devices"] == 1 else "devices"
        return f"yes  {runtime['description']}, {runtime['devices']} {plural}"
    return f"no   {runtime['reason']}"


def library_line(library):
    if library["version"] is None and library["reason"]:
        return library["reason"]
    spoken = ", ".join(library["protocols"]) or "nothing that arrowdev knows"
    if library["reason"]:
        spoken = library["reason"]
    return f"{library['version']}: {spoken}"


def section(title, rows):
    """Rows of (name, text), the names in one column."""
    yield ""
    yield f"{title}:"
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        yield f"  {name:{width}}  {text}"
    if not rows:
        yield "  (none)"


def report(found):
    yield f"arrowdev {found['arrowdev']} ({found['extension']})"
    yield f"Python {found['python']}"
    yield found["platform"]
    yield from section("Runtimes", [(r["name"], runtime_line(r)) for r in found["runtimes"]])
    yield from section("Devices", [(d["device"], d["name"]) for d in found["devices"]])
    yield from section("Environment", list(found["environment"].items()))
    yield from section(
        "Libraries, and what an array of theirs speaks",
        [(lib["name"], library_line(lib)) for lib in found["libraries"]],
    )


def run(arguments):
    found = examine()
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(report(found)))
    return 0
