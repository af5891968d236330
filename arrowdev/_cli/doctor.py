"""``python -m arrowdev doctor``: which runtimes, devices and libraries are usable, and why not."""

import importlib.metadata
import json
import os
import platform
import sys
import warnings

import arrowdev
from arrowdev import _core
from arrowdev._cli.device_libraries import DEVICE_PEERS
from arrowdev._cli.frames import PEERS
from arrowdev._cli.libraries import Payload
from arrowdev._cli.machine import FORMAT
from arrowdev._cli.pairs import Matrix, load, load_devices
from arrowdev._cli.terminal import Painter, has_colours, put, wrapped, write
from arrowdev._pages import page

DESCRIPTION = """\
Say which runtimes, devices and libraries arrowdev finds here, and why others are missing.

The libraries are imported first: some of them bring the runtime of their devices
along. Paste the output into a bug report.
"""

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
    parser.add_argument("--html", metavar="FILE", help="write a page as well")


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
        if peer.module is not None and peer.by_default:
            library, _ = load(peer, payload, lambda text: None)
            yield library


def device_libraries(payload):
    matrix = Matrix(payload)
    peers = [peer() for peer in DEVICE_PEERS if peer.module is not None]
    load_devices(matrix, peers, payload, None, lambda text: None)
    return matrix.libraries


def libraries():
    """List what the matrix tries by default: versions, devices, the protocols of their arrays."""
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
        "format": FORMAT,
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


def runtime_row(runtime):
    """Return (name, "yes" or "no" and a text, whether it is usable)."""
    if runtime["usable"]:
        plural = "device" if runtime["devices"] == 1 else "devices"
        current = f"; {runtime['current']}" if runtime["current"] else ""
        texts = "yes", f"{runtime['description']}, {runtime['devices']} {plural}{current}"
    else:
        texts = "no", runtime["reason"]
    return runtime["name"], texts, runtime["usable"]


def device_row(device):
    refused = f", cannot be used: {device['reason']}" if device["reason"] else ""
    return device["device"], (device["name"] + refused,), not refused


def library_row(library):
    """Return the row of an installed library."""
    name = library["name"]
    if library["device"] != "cpu":
        name += f" on {library['device']}" if library["device"] else " on devices"
    version = f"{library['version']}: " if library["version"] else ""
    spoken = ", ".join(library["protocols"]) or "no protocol: by pointer or handle"
    return name, (version + (library["reason"] or spoken),), not library["reason"]


def is_installed(library):
    return library["reason"] != "not installed"


def sections(found):
    """Yield (title, rows of (name, texts, is good or None)) of the report."""
    yield "Runtimes", [runtime_row(runtime) for runtime in found["runtimes"]]
    yield "Devices", [device_row(device) for device in found["devices"]]
    yield "Environment", [(name, (text,), None) for name, text in found["environment"].items()]
    yield (
        "Packages of runtimes",
        [(name, (text,), None) for name, text in found["packages"].items()],
    )
    here = filter(is_installed, found["libraries"])
    yield "Libraries, and what an array of theirs speaks", [library_row(lib) for lib in here]


def not_installed(found):
    names = (lib["name"] for lib in found["libraries"] if not is_installed(lib))
    return ", ".join(dict.fromkeys(names))


def kind_of(is_good):
    """Return the colour of a name. What a machine does not have is no error."""
    return {True: "good", False: "faint", None: None}[is_good]


def section(title, rows, paint):
    """Format rows: the names in one column, yes or no in another, the texts wrapped."""
    yield ""
    yield paint("strong", f"{title}:")
    width = max((len(name) for name, _, _ in rows), default=0)
    for name, (*answer, text), is_good in rows:
        first = f"  {name:{width}}  " + "".join(f"{word:5}" for word in answer)
        lines = wrapped(text, first, " " * len(first)) or [first.rstrip()]
        yield f"  {paint(kind_of(is_good), lines[0][2 : 2 + width])}{lines[0][2 + width :]}"
        yield from lines[1:]
    if not rows:
        yield "  (none)"


def report(found, paint=None):
    paint = paint or Painter()
    yield f"arrowdev {found['arrowdev']} ({found['extension']})"
    yield f"Python {found['python']}"
    yield found["platform"]
    for title, rows in sections(found):
        yield from section(title, rows, paint)
    if not_installed(found):
        yield ""
        yield from wrapped(f"Not installed: {not_installed(found)}")


def html_page(found):
    parts = [
        page.paragraph(f"arrowdev {found['arrowdev']} ({found['extension']})"),
        page.paragraph(f"Python {found['python']}, {found['platform']}", "faint"),
    ]
    for title, rows in sections(found):
        parts.append(page.heading(title))
        cells = [
            [page.cell(name, "th", kind_of(is_good)), *map(page.cell, texts)]
            for name, texts, is_good in rows
        ]
        parts.append(page.table(cells) if cells else page.paragraph("none", "faint"))
    if not_installed(found):
        parts += [page.heading("Not installed"), page.paragraph(not_installed(found))]
    return page.document("python -m arrowdev doctor", parts, "\n".join(report(found)))


def run(arguments):
    found = examine()
    if arguments.json:
        put(json.dumps(found, indent=2))
    else:
        put("\n".join(report(found, Painter(has_colours(sys.stdout)))))
    if arguments.html is not None:
        write(arguments.html, html_page(found))
    return 0
