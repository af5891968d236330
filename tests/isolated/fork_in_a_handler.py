"""A signal handler forks during a wait. The child continues, and exits while a C thread runs
an iterable."""

import ctypes
import os
import signal
import sys
import threading
import time
import warnings

import async_peer
import common

import arrowdev as ad
from arrowdev import aio

warnings.simplefilter("ignore")  # 3.12 warns about a fork in a process with threads
async_peer.library(sys.argv[1])


class Interrupted(Exception):
    pass


def handler(number, frame):
    global child
    child = os.fork()  # the timer, which fires once, exists only in the parent
    if child != 0:
        raise Interrupted


def slow():
    yield ad.array(common.Owner())
    begun.set()
    time.sleep(0.5)
    os.write(1, b"the iterable was called to its end\n")
    yield ad.array(common.Owner())


producer = async_peer.Producer(1, delay_us=-1)
pull = aio.connect(producer).to_stream()
signal.signal(signal.SIGALRM, handler)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    next(pull)
except ad.ExchangeError:
    end = "told"
except Interrupted:
    end = "interrupted"
assert end == ("told" if child == 0 else "interrupted")

if child == 0:
    begun = threading.Event()
    capsule = ad.array_stream(slow()).__arrow_c_device_stream__()
    struct = common.moved(capsule, "arrow_device_array_stream")
    async_peer.library().peer_read(ctypes.addressof(struct))
    assert begun.wait(60)
    sys.exit(7)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
common.end()
os._exit(0)  # the producer has not sent its batch
