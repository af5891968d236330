"""``python -m arrowdev matrix``: tries and times the exchange between every two libraries."""

import argparse
import contextlib
import functools
import gc
import json
import platform
import re
import statistics
import sys
import textwrap
import time
import warnings
from dataclasses import asdict, dataclass, field

import arrowdev
from arrowdev._cli.device_libraries import DEVICE_PEERS, DevicePeer, NoDevice, OwnDeviceArray
from arrowdev._cli.libraries import CTYPES, PEERS, Payload

DESCRIPTION = """\
Hand an array from every installed library to every other, through arrowdev and directly.

Each pair is tried, in host memory and on each device that is there, the values
and the address of the memory are compared, and the time is taken. Attach the
output to a bug report.
"""

ALL_PEERS = (*PEERS, *DEVICE_PEERS)
HOST = "cpu"

WIDTH = 100  # columns of text
REPEATS = 5  # of a timing; the result is their median
BUDGET_NS = 4_000_000  # for all the repeats of one timing
BATCH_MAX = 2_000  # calls in one repeat

ZERO_COPY, COPY, REFUSED, WRONG = "zero-copy", "copy", "refused", "wrong"
SYMBOLS = {ZERO_COPY: "=", COPY: "c", REFUSED: "x", WRONG: "!"}


# --- results --------------------------------------------------------------------


@dataclass
class Attempt:
    """One way from a producer to a consumer, and its result."""

    how: str
    result: str  # one of SYMBOLS
    ns: float | None = None
    reason: str | None = None  # of a refusal or a wrong result


@dataclass
class Pair:
    """A producer and a consumer; `direct` holds an attempt for every way of the consumer."""

    producer: str
    consumer: str
    through: Attempt
    direct: list[Attempt] = field(default_factory=list)
    between_peers: bool = True  # two different libraries, neither of them arrowdev
    device: str = HOST  # of both

    @property
    def best_direct(self):
        """The best direct attempt, the fastest of its kind; None: there is no direct way."""
        order = (WRONG, ZERO_COPY, COPY, REFUSED)
        return min(self.direct, key=lambda a: (order.index(a.result), a.ns or 0), default=None)

    @property
    def ratio(self):
        """Direct time / time through arrowdev; None: not comparable."""
        direct = self.best_direct
        if direct is None or direct.result != self.through.result or direct.ns is None:
            return None
        return direct.ns / self.through.ns

    def attempts(self):
        return [self.through, *self.direct]


@dataclass
class Move:
    """The transfer of a `producer` array from one device to another, for `consumer`."""

    producer: str
    device: str
    consumer: str
    target: str
    through: Attempt


@dataclass
class Library:
    """The data of a peer that are known before its pairs are tried."""

    name: str
    pip: str | None
    device: str | None = HOST  # None: this machine has none for it
    type: str | None = None  # of its array
    version: str | None = None
    missing: bool = False  # not installed
    reason: str | None = None  # why it is left out
    protocols: list[str] = field(default_factory=list)


@dataclass
class Matrix:
    payload: Payload
    libraries: list[Library] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    devices: dict[str, str] = field(default_factory=dict)  # the devices tried -> their names

    @property
    def wrong(self):
        tried = [(p, a) for p in self.pairs for a in p.attempts()]
        tried += [(m, m.through) for m in self.moves]
        return [(pair, a) for pair, a in tried if a.result == WRONG]

    def pairs_on(self, device):
        return [pair for pair in self.pairs if pair.device == device]


# --- trying ---------------------------------------------------------------------


def describe_error(error):
    """Return the class and the first line of the message; two lines after a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = lines[: 2 if lines and lines[0].endswith(":") else 1]
    return ": ".join([type(error).__name__, *([" ".join(kept)] if kept else [])])


def time_call(call):
    """Return the nanoseconds per call: the median of a few batches, within about BUDGET_NS."""
    clock = time.perf_counter_ns
    start = clock()
    call()
    once = max(clock() - start, 1)
    batch = max(1, min(BATCH_MAX, BUDGET_NS // REPEATS // once))
    repeats = max(1, min(REPEATS, BUDGET_NS // once))
    times = []
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(repeats):
            start = clock()
            for _ in range(batch):
                call()
            times.append((clock() - start) / batch)
    finally:
        if was_enabled:
            gc.enable()
    return statistics.median(times)


def tried(function, *arguments):
    """Return the result and the exception of ``function(*arguments)``: one is None."""
    try:
        return function(*arguments), None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the panic of a Rust library is not an Exception
        return None, error


class OtherKind(Exception):
    """The result is not an array of the numbers, but for instance of one object."""


def check_kind(expected, found):
    """Raise OtherKind unless `found` has the length and the Python types of `expected`."""
    if len(found) != len(expected):
        raise OtherKind(f"{len(found)} values, not {len(expected)}")
    for have, want in zip(found, expected, strict=True):
        if type(have) is not type(want):
            raise OtherKind(f"values of type {type(have).__name__}, not {type(want).__name__}")


def difference(expected, found):
    """Describe the first difference of `found` and `expected`; None: they are equal."""
    check_kind(expected, found)
    for i, (want, have) in enumerate(zip(expected, found, strict=True)):
        if have != want:
            return f"value {i} is {have!r}, not {want!r}"
    return None


def attempt(how, function, source, address, consumer, payload, strict):
    """Call ``function(source)`` and check whether the result is the same memory.

    A result of another kind is wrong if `strict`, else it counts as refused:
    pandas.Series(x) makes a Series of one object from an unknown type.
    """
    call = functools.partial(function, source)
    result, error = tried(call)
    if error:
        return Attempt(how, REFUSED, reason=describe_error(error))
    compared, error = tried(compare, consumer, result, payload)
    if error:
        what = str(error) if isinstance(error, OtherKind) else describe_error(error)
        reason = f"it gives something else: {what}"
        return Attempt(how, WRONG if strict else REFUSED, reason=reason)
    wrong, found_address = compared
    if wrong:
        return Attempt(how, WRONG, reason=wrong)
    del result
    is_same = found_address == address
    return Attempt(how, ZERO_COPY if is_same else COPY, ns=time_call(call))


def compare(consumer, result, payload):
    """Return the error in the values of `result`, or None, and their address."""
    wrong = difference(payload.values, consumer.values(result))
    return wrong, None if wrong else consumer.pointer(result)


def shown_first(producer, route, payload):
    """Return `route` through arrowdev, for the object that arrowdev gets from `producer`."""
    how, function = route
    shown = producer.shown(payload)
    if shown is None:
        return how, function
    as_what, show = shown
    return f"{how}, with x = {as_what}", lambda x: function(show(x))


def try_pair(producer, consumer, source, payload, device=HOST):
    rest = (source, producer.pointer(source), consumer, payload)
    through = shown_first(producer, consumer.through(payload), payload)
    return Pair(
        producer.name,
        consumer.name,
        through=attempt(*through, *rest, True),
        direct=[attempt(*route, *rest, False) for route in consumer.direct(payload).items()],
        between_peers=producer is not consumer and "arrowdev" not in producer.aliases,
        device=device,
    )


def try_all(matrix, sources, payload, device=HOST):
    """Try each of `sources` with each consumer, all on one device."""
    for producer, source in sources.items():
        for consumer in sources:
            if consumer.consumes:
                matrix.pairs.append(try_pair(producer, consumer, source, payload, device))


def try_move(producer, source, consumer, payload, devices):
    """Try a transfer to another device: .to(), then the same as on one device."""
    device, target = devices
    through, take = consumer.through(payload)
    route = (
        re.sub(r"\bx\b", f"arrowdev.tensor(x).to({target!r})", through, count=1),
        lambda x: take(arrowdev.tensor(x).to(target)),
    )
    made = attempt(*shown_first(producer, route, payload), source, None, consumer, payload, True)
    return Move(producer.name, device, consumer.name, target, made)


def load(peer, payload, progress):
    """Return the Library of `peer` and an array of it, or None if it is left out."""
    library = Library(peer.name, peer.pip)
    source, error = tried(fill_in, library, peer, payload, progress)
    if error:
        library.reason = describe_error(error)
    return library, source


def fill_in(library, peer, payload, progress):
    """Return an array of `peer`, and fill in the `library` that load() returns."""
    if not peer.is_installed():
        library.missing = True
        library.reason = "not installed"
        return None
    if peer.module:
        progress(f"import {peer.module}")
    peer.load()
    library.version = peer.version()
    return fill_in_source(library, peer, payload)


def fill_in_source(library, peer, payload):
    source = peer.make(payload)
    library.reason = difference(payload.values, peer.values(source))
    if library.reason:
        return None
    peer.pointer(source)  # raises if the library cannot return the address
    library.type = f"{type(source).__module__}.{type(source).__qualname__}"
    library.protocols = list(arrowdev.protocols(source))
    return source


def is_wanted(device, wanted):
    """Return whether `wanted` (None: all) names the device, or its type."""
    return wanted is None or not {device, device.partition(":")[0]}.isdisjoint(wanted)


def find_places(peer, wanted, progress):
    """Return the Library of a device library, and the devices on which it can have arrays."""
    library = Library(peer.name, peer.pip, device=None)

    def find():
        if not peer.is_installed():
            library.missing = True
            library.reason = "not installed"
            return []
        if peer.module:
            progress(f"import {peer.module}")
        peer.load()
        library.version = peer.version()
        return [place for place in peer.places() if is_wanted(place, wanted)]

    places, error = tried(find)
    if error:
        library.reason = str(error) if isinstance(error, NoDevice) else describe_error(error)
    return library, places or []


def not_seen(own, devices):
    reason = "arrowdev has no runtime of this device; `python -m arrowdev doctor` says why"
    for device in sorted(devices):
        yield Library(own.name, own.pip, device, reason=reason)


def load_devices(matrix, peers, payload, wanted, progress):
    """Return {device: {peer: array of it}} for every device of this machine."""
    found = {}
    # A library may load the runtime of its devices, so arrowdev comes last.
    for template in sorted(peers, key=lambda peer: isinstance(peer, OwnDeviceArray)):
        library, places = find_places(template, wanted, progress)
        for device in places:
            peer = template.on(device, template)
            on_device = Library(peer.name, peer.pip, device, version=library.version)
            source, error = tried(fill_in_source, on_device, peer, payload)
            if error:
                on_device.reason = describe_error(error)
            matrix.libraries.append(on_device)
            if source is not None:
                found.setdefault(device, []).append((peer, source))
        if template.module and not places:
            matrix.libraries.append(library)
        if isinstance(template, OwnDeviceArray):
            matrix.libraries += not_seen(template, set(found).difference(places))
    names = {str(device): device.name for device in arrowdev.devices()}
    order = [*(name for name in names if name in found), *(d for d in found if d not in names)]
    matrix.devices.update((device, names.get(device, device)) for device in order)
    as_listed = [type(peer) for peer in peers]
    return {
        device: dict(sorted(found[device], key=lambda pair: as_listed.index(type(pair[0]))))
        for device in order
    }


def spokesman(sources):
    """Return the library of a device for transfers: NumPy, else the first but arrowdev."""
    for is_right in (
        lambda peer: peer.name == "numpy",
        lambda peer: isinstance(peer, DevicePeer) and not isinstance(peer, OwnDeviceArray),
        lambda peer: "arrowdev" in peer.aliases,
    ):
        for peer, source in sources.items():
            if is_right(peer):
                return peer, source
    return None


def run_matrix(peers, payload, progress=lambda text: None, wanted=None):
    """Load all `peers`, and try each of them with each.

    wanted: names of the devices to try, or of their types; None: all.
    """
    matrix = Matrix(payload)
    host, devices = {}, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as torch's about read-only memory
        for peer in peers:
            if not isinstance(peer, DevicePeer) and is_wanted(HOST, wanted):
                library, source = load(peer, payload, progress)
                matrix.libraries.append(library)
                if source is not None:
                    host[peer] = source
        chosen = [p for p in peers if isinstance(p, DevicePeer) and p.may_be_on(wanted)]
        if chosen:
            devices = load_devices(matrix, chosen, payload, wanted, progress)
        groups = {HOST: host, **devices}
        for device, sources in groups.items():
            progress(device)
            try_all(matrix, sources, payload, device)
        progress("to()")
        speaking = {device: spokesman(sources) for device, sources in groups.items()}
        for device, speaker in speaking.items():
            for target, other in speaking.items():
                if device != target and speaker and other:
                    move = try_move(*speaker, other[0], payload, (device, target))
                    matrix.moves.append(move)
    return matrix


# --- output ----------------------------------------------------------------------


class Reasons:
    """Numbers the distinct reasons."""

    def __init__(self):
        self.texts = []

    def number(self, text):
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1

    def lines(self):
        for i, text in enumerate(self.texts, 1):
            yield from textwrap.wrap(
                text, WIDTH, initial_indent=f"x{i:<3} ", subsequent_indent=" " * 5
            )


def short_time(ns):
    """Format a time with two or three digits: 87, 940, 1.2k, 13k, 1.3M."""
    for limit, divisor, unit in ((999.5, 1, ""), (999.5e3, 1e3, "k"), (float("inf"), 1e6, "M")):
        if ns < limit:
            value = ns / divisor
            return f"{value:.1f}{unit}" if unit and value < 9.95 else f"{value:.0f}{unit}"
    raise ValueError(f"not a time: {ns}")


def cell_text(attempts, best, type_name, reasons):
    if best is None:
        return "-"
    if best.result == WRONG:
        return "!WRONG"
    if best.result == REFUSED:
        return f"x{reasons.number(refusal(attempts, type_name))}"
    return SYMBOLS[best.result] + short_time(best.ns)


def refusal(attempts, type_name):
    """Return why the first of `attempts` was refused; x replaces the type, to merge reasons."""
    first, *others = attempts
    short_name = re.escape(type_name.rpartition(".")[2])
    reason = re.sub(rf"'?\b(?:\w+\.)*{short_name}\b'?", "x", first.reason)
    text = f"{first.how}: {reason}"
    if others:
        text += f" (nor did {', '.join(a.how for a in others)} do)"
    return text


def gain(pairs):
    """Return the median ratio of the pairs of two different libraries."""
    ratios = [p.ratio for p in pairs if p.between_peers and p.ratio is not None]
    if not ratios:
        return "-"
    middle = statistics.median(ratios)
    return f"{middle:.2f}x" if middle < 10 else f"{middle:.0f}x"


def grid(matrix, device, headings, reasons):
    """Return the cells: two lines of headings, two per producer, one of ratios."""
    on_device = matrix.pairs_on(device)
    types = {lib.name: lib.type for lib in matrix.libraries if lib.device == device}

    def cell(producer, attempts, best):
        return cell_text(attempts, best, types[producer], reasons)

    consumers = list(dict.fromkeys(pair.consumer for pair in on_device))
    producers = list(dict.fromkeys(pair.producer for pair in on_device))
    at = {(pair.producer, pair.consumer): pair for pair in on_device}
    parts = [headings.get(name, name).split("/") for name in consumers]
    rows = [
        ["", *(part[0] if len(part) > 1 else "" for part in parts)],
        ["from \\ to", *(part[-1] for part in parts)],
    ]
    for producer in producers:
        pairs = [at[producer, consumer] for consumer in consumers]
        rows.append([producer, *(cell(producer, [p.through], p.through) for p in pairs)])
        rows.append(["  direct", *(cell(producer, p.direct, p.best_direct) for p in pairs)])
    columns = [[at[producer, consumer] for producer in producers] for consumer in consumers]
    gains = [gain(column) for column in columns]
    if set(gains) != {"-"}:
        rows.append(["gain", *gains])
    return rows


def move_grid(matrix, reasons):
    """Return the cells of the transfers: a row and a column for each device and its library."""
    types = {(lib.name, lib.device): lib.type for lib in matrix.libraries}
    speakers = {move.device: move.producer for move in matrix.moves}
    at = {(move.device, move.target): move.through for move in matrix.moves}
    rows = [["", *speakers], ["from \\ to", *speakers.values()]]
    for device, speaker in speakers.items():
        row = [f"{device} {speaker}"]
        for target in speakers:
            made = at.get((device, target))
            type_name = types[speaker, device]
            row.append(cell_text([made], made, type_name, reasons) if made else "")
        rows.append(row)
    return rows


def aligned_text(rows):
    """Yield the lines with aligned columns, in blocks of at most WIDTH characters."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    blocks, used = [[]], WIDTH
    for i, width in enumerate(widths[1:], 1):
        if used + 1 + width > WIDTH:
            blocks.append([])
            used = widths[0]
        blocks[-1].append(i)
        used += 1 + width
    for block in blocks[1:]:
        for row in rows:
            cells = [row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in block)]
            yield " ".join(cells).rstrip()
        yield ""


def where():
    """Return the data of the machine for a bug report."""
    return {
        "arrowdev": arrowdev.__version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "machine": platform.machine(),
    }


def counted(pairs, attempts):
    found = [attempt.result for attempt in attempts if attempt]
    parts = [f"{found.count(result)} {result}" for result in SYMBOLS if result in found]
    return f"{', '.join(parts)}, of {pairs} pairs"


def summary(matrix):
    yield f"through arrowdev: {counted(len(matrix.pairs), [p.through for p in matrix.pairs])}"
    tried = [p.best_direct for p in matrix.pairs if p.direct]
    if tried:
        yield f"directly:         {counted(len(tried), tried)}"
    if matrix.moves:
        moves = [move.through for move in matrix.moves]
        yield f"between devices:  {counted(len(moves), moves)}"


def absent(matrix):
    """Yield the libraries that are left out, and how to install those that are missing."""
    left_out = {}
    for library in matrix.libraries:
        if library.reason and not library.missing:
            name = " ".join(filter(None, (library.name, library.version)))
            where = f" on {library.device}" if library.device not in (None, HOST) else ""
            what = "No device for" if library.device is None else "Left out"
            left_out.setdefault((what, where, library.reason), []).append(name)
    for (what, where, reason), names in left_out.items():
        separator = " " if what.startswith("No") else f"{where}: "
        yield f"{what}{separator}{', '.join(names)}: {reason}"
    missing = [lib.pip for lib in matrix.libraries if lib.missing and would_add(lib, matrix)]
    if missing:
        yield f"Not installed, each would add a row: pip install {' '.join(missing)}"


def would_add(library, matrix):
    """Return whether there is a device for a library that is not installed."""
    if library.device == HOST:
        return True
    [types] = [cls.types for cls in DEVICE_PEERS if cls.name == library.name and cls.module]
    return any(device.partition(":")[0] in types for device in matrix.devices)


def wrong_lines(matrix):
    if matrix.wrong:
        yield "!! WRONG: what arrived is not what was handed over. Please report this:"
        for pair, found in matrix.wrong:
            on = f" on {pair.device}" if pair.device != HOST else ""
            yield f"!!   {pair.producer} to {pair.consumer}{on} by {found.how}: {found.reason}"
        yield ""


def not_there(matrix, wanted):
    """Yield a line for each name in `wanted` (None: all) of which no device was tried."""
    tried = {pair.device for pair in matrix.pairs}
    for name in wanted or ():
        if not any(is_wanted(device, {name}) for device in tried):
            yield f"no library works on {name}; python -m arrowdev doctor says why"


def title(matrix, device):
    if device == HOST:
        return "In host memory"
    name = matrix.devices[device]
    return f"On {device} ({name})" if name != device else f"On {device}"


def table(matrix, headings):
    here = where()
    # A no-break space keeps a version on the line of its name.
    versions = [f"{lib.name}\xa0{lib.version}" for lib in matrix.libraries if lib.version]
    head = (
        f"arrowdev {here['arrowdev']}, {here['implementation']} {here['python']}, "
        f"{here['platform']}"
    )
    reasons = Reasons()
    yield from textwrap.wrap(head, WIDTH)
    for line in textwrap.wrap(", ".join(dict.fromkeys(versions)), WIDTH):
        yield line.replace("\xa0", " ")
    yield ""
    if matrix.pairs:
        yield (
            f"{matrix.payload.length} numbers of {matrix.payload.dtype}, handed from each row "
            "to each column. Upper line: through arrowdev;"
        )
        yield "lower line: directly, by the best of the column's own constructors. Nanoseconds,"
        yield "k: thousand, M: million; the values are compared each time."
        yield "=  zero-copy: the addresses are equal    c  copy    x1  refused: see reason 1 below"
        yield ""
        for device in (HOST, *matrix.devices):
            if matrix.pairs_on(device):
                yield f"{title(matrix, device)}:"
                yield from aligned_text(grid(matrix, device, headings, reasons))
        if matrix.moves:
            yield "From device to device, by arrowdev's .to(): nanoseconds until the call returns."
            yield from aligned_text(move_grid(matrix, reasons))
        if any(pair.between_peers and pair.ratio is not None for pair in matrix.pairs):
            yield "gain: direct time / time through arrowdev; the median of the pairs of two"
            yield "different libraries where both are zero-copy or both copy."
        yield from summary(matrix)
        yield ""
        yield from reasons.lines()
    yield from wrong_lines(matrix)
    for line in absent(matrix):
        yield from textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_long_words=False)


def as_json(matrix):
    pairs = []
    for pair in matrix.pairs:
        best = pair.best_direct
        record = asdict(pair)
        record["best_direct"] = best and best.how
        record["ratio"] = pair.ratio
        pairs.append(record)
    return {
        **where(),
        "payload": {"dtype": matrix.payload.dtype, "length": matrix.payload.length},
        "libraries": [asdict(library) for library in matrix.libraries],
        "devices": [{"device": d, "name": name} for d, name in matrix.devices.items()],
        "pairs": pairs,
        "moves": [asdict(move) for move in matrix.moves],
        "wrong": len(matrix.wrong),
    }


# --- the command -----------------------------------------------------------------


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
    found = {cls: {cls.name.lower(), cls.pip, *cls.aliases} & names for cls in ALL_PEERS}
    unknown = names.difference(*found.values())
    if unknown or not names:
        raise argparse.ArgumentTypeError(
            f"unknown: {', '.join(sorted(unknown)) or 'nothing'}; choose from {known_names()}"
        )
    return [cls for cls in ALL_PEERS if found[cls]]


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
        default=ALL_PEERS,
        help=f"try these alone, and import no other library: numpy,torch. Known: {known_names()}",
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
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")


def run(arguments):
    """Print the matrix; return 1 if a result is wrong or a device is not there, else 0."""
    progress = Progress(sys.stderr)
    with contextlib.closing(progress):
        peers = [cls() for cls in arguments.only]
        matrix = run_matrix(peers, Payload(arguments.dtype), progress, arguments.device)
    if arguments.json:
        print(json.dumps(as_json(matrix), indent=1))
    else:
        headings = {cls.name: cls.heading for cls in ALL_PEERS if cls.heading}
        print("\n".join(table(matrix, headings)))
    absent = list(not_there(matrix, arguments.device))
    for line in absent:
        print(f"matrix: {line}", file=sys.stderr)
    return 1 if matrix.wrong or absent else 0
