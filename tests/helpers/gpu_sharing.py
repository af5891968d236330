"""What the tests of share() on CUDA and on HIP have in common."""

import gc
import json

from sharing import descriptors, wait_until

import arrowdev as ad
from arrowdev import _share

DEVICES = {"cuda": "cuda", "hip": "rocm"}
KEPT = ("streams", "events")  # by arrowdev, for later


def leaks(standin, before):
    found = settled(standin).leaks(before)
    return {name: n for name, n in found.items() if name not in KEPT}


def settled(standin):
    """The counts, once the work on device 0 is done and what deferred its release is released."""
    for _ in range(2):
        gc.collect()
        ad.device(f"{DEVICES[standin.face]}:0").synchronize()
    return standin.count()


def next_line(child):
    child.stdin.write(b"\n")
    child.stdin.flush()
    return child.stdout.readline().decode().strip()


def described(text):
    """The description of what a server sends, and the descriptors."""
    server, token = _share._parsed(text)[:2]
    with _share._connected(server) as connection:
        _, message, files, n = _share._received(connection, token)
    return json.loads(message), files, n


def opened(text, description, files, n):
    with _share._connected(_share._parsed(text)[0]) as connection:
        return _share._built(json.dumps(description).encode(), files, n, connection.fileno(), None)


CODE = 719
# What each leaves behind if it fails, memory and its mapping.
RELEASES = {
    "cuMemFree_v2": 1,
    "cuMemPoolDestroy": 1,
    "cuMemRelease": 1,
    "cuMemUnmap": 2,
    "cuMemAddressFree": 1,
    "cuIpcCloseMemHandle": 1,
    "hipIpcCloseMemHandle": 1,
}


def fail_each(standin, work, restores, settled=settled):
    """Runs work() with each of its calls failing once. `restores`: what is done after a failed
    call that restores the current context."""
    for _ in range(3):
        with standin.logged() as calls:
            work()
        n_events = settled(standin).events
    n_errors = 0
    for n in range(1, len(calls) + 1):
        before, files, context = settled(standin), descriptors(), standin.context()
        standin.fail_at(n, CODE)
        error = None
        with standin.logged() as made:
            try:
                work()
            except (ad.DeviceError, ad.ExchangeError) as found:
                error = found.with_traceback(None)
        standin.fail_at(0, 0)
        name = made[n - 1].name if n <= len(made) else None
        while name in restores and standin.context() != context:  # nothing can repeat this call
            restores[name]()
        assert standin.context() == context
        assert error is None or name.removesuffix("_v2") in str(error) or error.__cause__, name
        n_errors += error is not None
        del error
        found = settled(standin).leaks(before)
        found = {name: n for name, n in found.items() if name not in KEPT}
        # a failed release leaks its resource, which has a descriptor in the stand-in
        most = RELEASES.get(name, 0)
        assert sum(found.values()) <= most, f"call {n}, {name}: {found}"
        wait_until(lambda: descriptors() <= files + most)  # noqa: B023
    assert n_errors > 0
    assert settled(standin).events - n_events <= 2  # arrowdev keeps some for later
