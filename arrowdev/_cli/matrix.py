"""``python -m arrowdev matrix``: tries the exchange between every two libraries."""

import argparse
import contextlib
import json
import sys
from dataclasses import asdict

import arrowdev
from arrowdev._cli import matrix_page, matrix_text
from arrowdev._cli.device_libraries import DEVICE_PEERS
from arrowdev._cli.frames import PEERS
from arrowdev._cli.libraries import CTYPES, Payload
from arrowdev._cli.machine import machine
from arrowdev._cli.pairs import is_wanted, run_matrix
from arrowdev._cli.terminal import Painter, has_colours, put, write

DESCRIPTION = """\
Hand an array from every installed library to every other, through arrowdev and directly.

Each pair is tried, in host memory and on each device that is there; the values
and the address of the memory are compared. Attach the output to a bug report.
"""

ALL_PEERS = (*PEERS, *DEVICE_PEERS)


def as_json(matrix):
    pairs = []
    for pair in matrix.pairs:
        best = pair.best_direct
        record = asdict(pair)
        record["best_direct"] = best and best.how
        record["ratio"] = pair.ratio
        pairs.append(record)
    return {
        **machine(),
        "payload": {"dtype": matrix.payload.dtype, "length": matrix.payload.length},
        "libraries": [asdict(library) for library in matrix.libraries],
        "devices": [{"device": d, "name": name} for d, name in matrix.devices.items()],
        "pairs": pairs,
        "moves": [asdict(move) for move in matrix.moves],
        "wrong": len(matrix.wrong),
    }


def not_there(matrix, wanted):
    """Yield a line for each name in `wanted` (None: all) of which no device was tried."""
    tried = {pair.device for pair in matrix.pairs}
    for name in wanted or ():
        if not any(is_wanted(device, {name}) for device in tried):
            yield f"no library works on {name}; python -m arrowdev doctor says why"


class Progress:
    """Shows the current step on stderr, so that a crash can be traced to a library.

    On a terminal one line is rewritten; elsewhere one line grows.
    """

    def __init__(self, stream):
        self.stream = stream
        self.is_tty = stream.isatty()
        self.started = False

    def __call__(self, text):
        if self.is_tty:
            self.stream.write(f"\r\x1b[K{text} ...")
        else:
            self.stream.write(f", {text}" if self.started else f"matrix: {text}")
        self.started = True
        self.stream.flush()

    def close(self):
        if self.started:
            self.stream.write("\r\x1b[K" if self.is_tty else "\n")
            self.stream.flush()


def chosen_peers(text):
    """Return the peers that --only names, in the order of the table."""
    names = {name.strip().lower() for name in text.split(",") if name.strip()}
    if names == {"all"}:
        return list(ALL_PEERS)
    found = {cls: {cls.name.lower(), cls.pip, *cls.aliases} & names for cls in ALL_PEERS}
    unknown = names.difference(*found.values())
    if unknown or not names:
        raise argparse.ArgumentTypeError(
            f"unknown: {', '.join(sorted(unknown)) or 'nothing'}; choose from {known_names()}"
        )
    return [cls for cls in ALL_PEERS if found[cls]]


def slow_names():
    return ", ".join(cls.name for cls in ALL_PEERS if not cls.by_default)


def known_names():
    return ", ".join(dict.fromkeys(cls.name for cls in ALL_PEERS))


def chosen_devices(text):
    """Parse the names of devices and device types after --device."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    try:
        devices = {name: arrowdev.device(name) for name in names}
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not names:
        raise argparse.ArgumentTypeError("expected names such as cpu,cuda:0,oneapi")
    return {str(device) if ":" in name else name for name, device in devices.items()}


def add_arguments(parser):
    parser.add_argument(
        "--only",
        metavar="NAMES",
        type=chosen_peers,
        default=[cls for cls in ALL_PEERS if cls.by_default],
        help="try these alone, and import no other library: numpy,torch. Known: all, "
        f"{known_names()}; only if they or 'all' are named, since they take long: {slow_names()}",
    )
    parser.add_argument(
        "--device",
        metavar="NAMES",
        type=chosen_devices,
        help="try these devices alone, by name or type, and load no other runtime: cpu,cuda:0 "
        "(every device that is there)",
    )
    parser.add_argument(
        "--dtype", choices=CTYPES, default="int64", help="type of the numbers (int64)"
    )
    parser.add_argument(
        "--times", action="store_true", help="time each pair too, and print the nanoseconds"
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    parser.add_argument("--html", metavar="FILE", help="write a page as well, with the reasons")
    parser.add_argument("--svg", metavar="FILE", help="write the picture of that page")


def write_files(arguments, matrix, headings):
    """Write the page and the picture, if they are asked for."""
    if arguments.html is not None:
        write(arguments.html, matrix_page.page(matrix, headings))
    if arguments.svg is not None:
        write(arguments.svg, matrix_page.picture(matrix))


def run(arguments):
    """Print the matrix; return 1 if a result is wrong or a device is not there, else 0."""
    progress = Progress(sys.stderr)
    is_timed = bool(
        arguments.times
        or arguments.json
        or arguments.html is not None
        or arguments.svg is not None
    )
    with contextlib.closing(progress):
        peers = [cls() for cls in arguments.only]
        payload = Payload(arguments.dtype, is_timed=is_timed)
        matrix = run_matrix(peers, payload, progress, arguments.device)
    headings = {cls.name: cls.heading for cls in ALL_PEERS if cls.heading}
    if arguments.json:
        put(json.dumps(as_json(matrix), indent=1))
    else:
        paint = Painter(has_colours(sys.stdout))
        lines = matrix_text.lines(matrix, headings, has_times=arguments.times, paint=paint)
        put("\n".join(lines))
    missing = list(not_there(matrix, arguments.device))
    for line in missing:
        print(f"matrix: {line}", file=sys.stderr)
    write_files(arguments, matrix, headings)
    return 1 if matrix.wrong or missing else 0
