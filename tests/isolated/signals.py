"""Signals come at any time in waits, copies, streams and imports. Each round ends by the exception
of the handler, and nothing of it stays alive."""

import array
import gc
import random
import signal
import sys
import threading
import time
import weakref

import common

from arrowdev.testing import software_device

ad = common.ad
VALUES = [1, None, 3]
HERE, THERE = "ext_dev:0", "ext_dev:1"


owners = []


def owner():
    """Host memory. It is counted without Python code, which a signal could interrupt."""
    memory = array.array("q", [1, 2, 3])
    owners.append(weakref.ref(memory))
    return memory


def import_and_export():
    column = ad.array(owner())
    ad.array(column.__arrow_c_device_array__()).to_pylist()
    ad.tensor(column).__dlpack__()


def import_of_a_table():
    column = ad.array(owner())
    batch = ad.record_batch({"x": column, "y": ad.array(owner())})
    ad.array(batch.__arrow_c_device_array__()).to_pylist()


def host_stream():
    columns = [ad.array(owner()) for _ in range(3)]
    ad.array_stream(column for column in columns).rechunk(2).read_all()


# By name: the call, and whether the work that it waits for is pending.
CALLS = {
    "import and export": (lambda _: import_and_export(), False),
    "import of a table": (lambda _: import_of_a_table(), False),
    "host stream": (lambda _: host_stream(), False),
    "copy to the host": (lambda a: a.to("cpu"), False),
    "copy to another device": (lambda a: a.to(THERE), False),
    "copy from the host": (lambda _: ad.array(owner()).to(HERE), False),
    "stream": (lambda a: list(ad.array_stream([a, a]).to("cpu", prefetch=0)), False),
    "stream read ahead": (lambda a: list(ad.array_stream([a, a]).to("cpu", prefetch=1)), False),
    "read_all": (lambda a: ad.array_stream([a, a]).to("cpu").rechunk(2).read_all(), False),
    "wait": (lambda a: a.synchronize(), True),
    "wait for the device": (lambda _: ad.device(HERE).synchronize(), True),
    "wait in a copy": (lambda a: a.to("cpu"), True),
    "wait in a stream": (lambda a: list(ad.array_stream([a]).to("cpu")), True),
}


def send_alarm(delay):
    signal.setitimer(signal.ITIMER_REAL, delay)


def send_interrupt(delay):
    def work():
        time.sleep(delay)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def raises(call, column, send, delay):
    """Whether the exception of a handler ends the calls. In a destructor Python ignores it."""
    ignored, sys.unraisablehook = [], lambda raised: ignored.append(raised.exc_type)
    thread, end = None, time.monotonic() + 20
    try:
        thread = send(delay)
        while not ignored and time.monotonic() < end:
            call(column)
    except KeyboardInterrupt:
        return True
    finally:
        if thread is not None:
            thread.join()
        sys.unraisablehook = sys.__unraisablehook__
    return ignored == [KeyboardInterrupt]


def live(device):
    for place in (HERE, THERE):
        ad.device(place).synchronize()
    device.synchronize(timeout=20)
    return *device.live()[:5], sum(reference() is not None for reference in owners)


def settles_to(device, before):
    """Polls: a thread that reads ahead ends a little later."""
    end = time.monotonic() + 20
    while live(device) != before:
        if time.monotonic() > end:
            return False
        gc.collect()
        time.sleep(0.001)
    return True


def main(n_rounds):
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    names = list(CALLS)
    with software_device() as device:
        queue = device.queue()
        ready = ad.array(device.array(VALUES, queue=queue))
        for call, _ in CALLS.values():  # the first call of each loads what it needs
            call(ready)
        before = live(device)
        for i in range(n_rounds):
            name = names[i % len(names)]
            call, is_pending = CALLS[name]
            if is_pending:
                queue.hold()
            column = ad.array(device.array(VALUES, queue=queue))
            send = rng.choice([send_alarm, send_interrupt])
            delay = rng.uniform(1e-6, 3e-3)
            place = f"round {i} of seed {seed}: {name}, {send.__name__}, {delay:.6f} s"
            try:
                is_raised = raises(call, column, send, delay)
            except KeyboardInterrupt:  # in CPython 3.13, at an instruction that no clause covers
                is_raised = True
            assert is_raised, place
            if is_pending:
                queue.release()
            del column
            owners[:] = [reference for reference in owners if reference() is not None]
            assert settles_to(device, before), f"{place}: {live(device)} are alive, not {before}"
        assert ready.to("cpu").to_pylist() == VALUES
    print(n_rounds, "rounds")
    common.end()


main(int(sys.argv[1]))
