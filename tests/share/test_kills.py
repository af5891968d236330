"""Processes that are killed at any moment of an exchange: the other end loses nothing."""

import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from sharing import connections, descriptors, wait_until

import arrowdev as ad

np = pytest.importorskip("numpy")

N = int(os.environ.get("ARROWDEV_EXAMPLES", "0"))
LATEST = 0.02  # seconds: by then a child has done all that it does, several times

# A process that is forked anew for each kill, after its imports. The child says that it runs.
FORKS = """
import os, sys, arrowdev as ad, numpy as np
ad.attach(ad.share(b"imports"))
for line in sys.stdin:
    role, *text = line.split()
    pid = os.fork()
    if pid == 0:
        os.write(1, f"{os.getpid()}\\n".encode())
        globals()[role](*text)
    os.write(1, f"ended {os.waitpid(pid, 0)[1]}\\n".encode())
"""
ROLES = """
def batches(n):
    for i in range(n):
        yield ad.record_batch({"a": np.arange(1000) + i})

def consumer(text):
    while True: ad.attach(text)[999]

def consumer_of_a_stream(text):
    for batch in ad.attach(text): batch["a"][999]

def producer():
    memory = ad.device("cpu").empty(8000, shared=True)
    np.frombuffer(memory, "i8")[:] = np.arange(1000)
    while True:
        with ad.share(memory) as shared, ad.share(np.arange(1000)) as copied:
            os.write(1, f"{shared} {copied}\\n".encode())
            ad.attach(str(shared))

def producer_of_a_stream():
    while True:
        shared = ad.share(ad.array_stream(batches(9)))
        os.write(1, f"{shared} {shared}\\n".encode())
        while ad._core._published_state(shared._published)[0]: pass
"""


class Forks:
    def __enter__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", ROLES + FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(self, *args):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def start(self, role, text=""):
        """The id of a new child."""
        self.process.stdin.write(f"{role} {text}\n".encode())
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def lines(self):
        """What the child says, until it has been killed."""
        for line in self.process.stdout:
            words = line.decode().split()
            if "ended" in words:
                assert words[words.index("ended") + 1] in (str(int(signal.SIGKILL)), "0")
                return
            yield words


def kill_later(pid, seconds):
    def kill():
        with contextlib.suppress(ProcessLookupError):  # it has read the whole stream
            os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(seconds, kill)
    timer.start()
    return timer


def use(text):
    """Attach to what may end at any moment. The error comes in time and says so."""
    started = time.monotonic()
    failure = None
    try:
        found = ad.attach(text)
        if isinstance(found, ad.ArrayStream):
            for i, batch in enumerate(found):
                assert batch["a"][999] == 999 + i
        else:
            assert np.asarray(found).view("i8")[999] == 999
    except ad.ExchangeError as error:
        failure = error.reason, "damaged" in str(error)
    assert failure in (None, ("share", False))
    assert time.monotonic() - started < 5


def kill_consumer(forks, seconds, shared):
    kill_later(forks.start("consumer", shared), seconds).join()
    assert list(forks.lines()) == []


def kill_consumer_of_a_stream(forks, seconds, _):
    released = []

    def batches():
        try:
            for i in range(100_000):
                yield ad.record_batch({"a": np.arange(1000) + i})
        finally:
            released.append(1)

    shared = ad.share(ad.array_stream(batches(), schema=ad.schema({"a": "int64"})))
    timer = kill_later(forks.start("consumer_of_a_stream", shared), seconds)
    assert list(forks.lines()) == []
    timer.join()
    has_begun = not ad._core._published_state(shared._published)[0]
    del shared
    wait_until(lambda: not ad._share._serving)
    assert released or not has_begun


def kill_producer(forks, seconds, _, role="producer"):
    timer = kill_later(forks.start(role), seconds)
    for words in forks.lines():
        for text in words:
            if len(text) > 60:  # else cut off by the kill
                use(text)
    timer.join()


def kill_producer_of_a_stream(forks, seconds, _):
    kill_producer(forks, seconds, _, "producer_of_a_stream")


def held():
    """What could leak: descriptors, mappings, threads."""
    gc.collect()
    with open("/proc/self/maps", encoding="utf-8") as file:
        mappings = sum("memfd:arrowdev" in line for line in file)
    return descriptors(), mappings, len(os.listdir("/proc/self/task"))


@pytest.mark.parametrize("n", [N or 12, pytest.param(N or 120, marks=pytest.mark.slow)])
def test_kills(n):
    """ARROWDEV_EXAMPLES says how many."""
    ways = [kill_consumer, kill_consumer_of_a_stream, kill_producer, kill_producer_of_a_stream]
    shared = ad.share(np.arange(1000))
    generator = random.Random(n)
    with Forks() as forks:
        for way in ways:
            way(forks, LATEST, shared)
        before = held()
        for i in range(n):
            way = ways[i % len(ways)]
            way(forks, generator.random() * LATEST, shared)
        wait_until(lambda: connections(shared) == 0)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: held() == before)
        assert held() == before
    assert ad.attach(shared).tolist()[999] == 999
