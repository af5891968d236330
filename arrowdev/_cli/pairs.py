"""Every two libraries: an array of the one is handed to the other, compared, and timed."""

import functools
import gc
import re
import statistics
import time
import warnings
from dataclasses import dataclass, field

import arrowdev
from arrowdev._cli.device_libraries import DevicePeer, NoDevice, OwnDeviceArray
from arrowdev._cli.libraries import Payload
from arrowdev._core import _shown

HOST = "cpu"

REPEATS = 5  # of a timing; the result is their median
BUDGET_NS = 4_000_000  # for all the repeats of one timing
BATCH_MAX = 2_000  # calls in one repeat

ZERO_COPY, COPY, REFUSED, WRONG = RESULTS = "zero-copy", "copy", "refused", "wrong"


# --- results --------------------------------------------------------------------


@dataclass
class Attempt:
    """One way from a producer to a consumer, and its result."""

    how: str
    result: str  # one of RESULTS
    ns: float | None = None
    reason: str | None = None  # of a refusal or a wrong result


@dataclass
class Pair:
    """A producer and a consumer; `direct` holds an attempt for every way of the consumer."""

    producer: str
    consumer: str
    through: Attempt
    direct: list[Attempt] = field(default_factory=list)
    between_peers: bool = True  # two different libraries, neither of them arrowdev or Python
    device: str = HOST  # of both

    @property
    def best_direct(self):
        """The best direct attempt, the fastest of its kind; None: there is no direct way."""
        order = (WRONG, ZERO_COPY, COPY, REFUSED)
        return min(self.direct, key=lambda a: (order.index(a.result), a.ns or 0), default=None)

    @property
    def ratio(self):
        """Time through arrowdev / direct time; None: not comparable.

        The direct way from a library to itself, or to Python's own memoryview, is a call of that
        library alone, and no exchange.
        """
        direct = self.best_direct
        if not self.between_peers or direct is None or direct.result != self.through.result:
            return None
        if direct.ns is None or self.through.ns is None:
            return None
        return self.through.ns / direct.ns

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
    return _shown(": ".join([type(error).__name__, *([" ".join(kept)] if kept else [])]))


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


def catch(function, *arguments):
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
    kinds = set(map(type, expected))
    if len(kinds) == 1 and set(map(type, found)) == kinds:
        return  # the usual case, without a loop
    for have, want in zip(found, expected, strict=True):
        if type(have) is not type(want):
            raise OtherKind(f"values of type {type(have).__name__}, not {type(want).__name__}")


def difference(expected, found):
    """Describe the first difference of `found` and `expected`; None: they are equal."""
    check_kind(expected, found)
    if list(found) == list(expected):
        return None  # likewise
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
    result, error = catch(call)
    if error:
        return Attempt(how, REFUSED, reason=describe_error(error))
    compared, error = catch(compare, consumer, result, payload)
    if error:
        what = _shown(str(error)) if isinstance(error, OtherKind) else describe_error(error)
        reason = f"it gives something else: {what}"
        return Attempt(how, WRONG if strict else REFUSED, reason=reason)
    wrong, found_address = compared
    if wrong:
        return Attempt(how, WRONG, reason=wrong)
    del result
    is_same = found_address == address
    ns = time_call(call) if payload.is_timed else None
    return Attempt(how, ZERO_COPY if is_same else COPY, ns=ns)


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


def try_pair(producer, consumer, source, address, payload, device=HOST):
    rest = (source, address, consumer, payload)
    through = shown_first(producer, consumer.through(payload), payload)
    return Pair(
        producer.name,
        consumer.name,
        through=attempt(*through, *rest, True),
        direct=[attempt(*route, *rest, False) for route in consumer.direct(payload).items()],
        between_peers=producer is not consumer
        and "arrowdev" not in producer.aliases
        and consumer.module is not None,
        device=device,
    )


def try_all(matrix, sources, payload, device=HOST):
    """Try each of `sources` with each consumer, all on one device."""
    for producer, source in sources.items():
        address = producer.pointer(source)
        for consumer in sources:
            if consumer.consumes:
                pair = try_pair(producer, consumer, source, address, payload, device)
                matrix.pairs.append(pair)


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
    source, error = catch(fill_in, library, peer, payload, progress)
    if error:
        library.reason = describe_error(error)
    return library, source


def import_peer(library, peer, progress):
    """Import the library of `peer`, and return whether it is installed."""
    if not peer.is_installed():
        library.missing = True
        library.reason = "not installed"
        return False
    if peer.module:
        progress(f"import {peer.module}")
    peer.load()
    library.version = peer.version()
    return True


def fill_in(library, peer, payload, progress):
    """Return an array of `peer`, and fill in the `library` that load() returns."""
    is_there = import_peer(library, peer, progress)
    return fill_in_source(library, peer, payload) if is_there else None


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
        if not import_peer(library, peer, progress):
            return []
        return [place for place in peer.places() if is_wanted(place, wanted)]

    places, error = catch(find)
    if error:
        is_known = isinstance(error, NoDevice)
        library.reason = _shown(str(error)) if is_known else describe_error(error)
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
            source, error = catch(fill_in_source, on_device, peer, payload)
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


def representative(sources):
    """Return the library of a device for transfers, and its array; None: there is none.

    NumPy comes first, then the first device library, then arrowdev.
    """
    for is_right in (
        lambda peer: peer.name == "numpy",
        lambda peer: isinstance(peer, DevicePeer) and not isinstance(peer, OwnDeviceArray),
        lambda peer: "arrowdev" in peer.aliases,
    ):
        for peer, source in sources.items():
            if is_right(peer):
                return peer, source
    return None


def try_moves(matrix, groups, payload):
    """Try a transfer from each device to each other one."""
    chosen = {device: representative(sources) for device, sources in groups.items()}
    for device, producer in chosen.items():
        for target, consumer in chosen.items():
            if device != target and producer and consumer:
                move = try_move(*producer, consumer[0], payload, (device, target))
                matrix.moves.append(move)


def run_matrix(peers, payload, progress=lambda text: None, wanted=None):
    """Load all `peers`, and try each of them with each.

    wanted: names of the devices to try, or of their types; None: all.
    """
    matrix = Matrix(payload)
    host, devices = {}, {}
    chosen = [p for p in peers if isinstance(p, DevicePeer) and p.may_be_on(wanted)]
    if any(p.may_be_on({"opencl"}) for p in chosen) and is_wanted("opencl:0", wanted):
        # Before TensorFlow: both have an LLVM, and PoCL ends the process if it is the second.
        catch(lambda: arrowdev.device("opencl:0").name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as torch's about read-only memory
        for peer in peers:
            if not isinstance(peer, DevicePeer) and is_wanted(HOST, wanted):
                library, source = load(peer, payload, progress)
                matrix.libraries.append(library)
                if source is not None:
                    host[peer] = source
        if chosen:
            devices = load_devices(matrix, chosen, payload, wanted, progress)
        groups = {HOST: host, **devices}
        for device, sources in groups.items():
            progress(device)
            try_all(matrix, sources, payload, device)
        progress("to()")
        try_moves(matrix, groups, payload)
    return matrix
