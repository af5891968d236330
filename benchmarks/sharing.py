"""An array that another process uses: arrowdev.attach() beside other ways.

By itself: python benchmarks/sharing.py [--markdown docs/performance.md]. A second process attaches
to the memory of this one, reads a value, and lets it go; the ways take turns.
"""

import argparse
import json
import mmap
import os
import pickle
import socket
import statistics
import subprocess
import sys
import threading
from multiprocessing import connection, resource_tracker, shared_memory
from pathlib import Path
from time import perf_counter

import numpy as np
from run import conditions, when_and_where, write_table

import arrowdev as ad

MARKERS = ("<!-- sharing: begin -->", "<!-- sharing: end -->")
ROWS = {"16 MB, 10 columns": (10, 200_000), "1 KB, 1 column": (1, 128)}
ROUNDS = 30  # of each way in turn; the result is the median
CALLS = 30  # in one round


# --- this process, which has the memory ----------------------------------------------------------


def batch(n_columns, n_rows):
    return ad.record_batch({f"c{i}": np.arange(n_rows) for i in range(n_columns)})


class Server:
    """The least that hands a memory file over: a token is read, a descriptor is sent."""

    def __init__(self, nbytes):
        self.file = os.memfd_create("bare")
        os.ftruncate(self.file, nbytes)
        self.name = f"bare{os.getpid()}-{nbytes}"
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listening.bind("\0" + self.name)
        self.listening.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            with self.listening.accept()[0] as peer:
                peer.recv(16)
                socket.send_fds(peer, [b"x"], [self.file])


class Pickles:
    """A pickle of protocol 5 for each request."""

    def __init__(self, value):
        self.value = value
        self.listener = connection.Listener(family="AF_UNIX")
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with self.listener.accept() as peer:
            try:
                while peer.recv_bytes():
                    peer.send_bytes(pickle.dumps(self.value, 5))
            except EOFError:
                return


def measure(n_columns, n_rows):
    """The median seconds of each way."""
    value = batch(n_columns, n_rows)
    nbytes = 8 * n_columns * n_rows
    shared = ad.share(value)
    bare = Server(nbytes)
    pickles = Pickles(value)
    block = shared_memory.SharedMemory(create=True, size=nbytes)
    try:
        arguments = [str(shared), bare.name, str(nbytes), block.name, pickles.listener.address]
        done = subprocess.run(
            [sys.executable, __file__, "--consumer", *arguments],
            stdout=subprocess.PIPE,
            check=True,
        )
    finally:
        block.close()
        block.unlink()
    return json.loads(done.stdout)


# --- the other one -------------------------------------------------------------------------------


def consume(text, bare, nbytes, block, pickles):
    peer = connection.Client(pickles, family="AF_UNIX")

    def attach():
        ad.attach(text).field("c0").buffers[1]

    def attach_bare():
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            server.connect("\0" + bare)
            server.send(b"0" * 16)
            _, files, _, _ = socket.recv_fds(server, 100, 10)
            with mmap.mmap(files[0], int(nbytes), prot=mmap.PROT_READ) as memory:
                memory[0]
            os.close(files[0])

    def open_block():
        memory = shared_memory.SharedMemory(block)
        # Else the tracker of this process removes what is the other's.
        resource_tracker.unregister(memory._name, "shared_memory")
        memory.buf[0]
        memory.close()

    def unpickle():
        peer.send_bytes(b"x")
        pickle.loads(peer.recv_bytes())

    ways = {
        "arrowdev": attach,
        "a bare SCM_RIGHTS and mmap": attach_bare,
        "multiprocessing.shared_memory": open_block,
        "pickle through a socket": unpickle,
    }
    times = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            n = 1 if name.startswith("pickle") else CALLS
            started = perf_counter()
            for _ in range(n):
                way()
            times[name].append((perf_counter() - started) / n)
    print(json.dumps({name: statistics.median(each) for name, each in times.items()}))


# --- the table -----------------------------------------------------------------------------------


def table(results):
    yield "| way | " + " | ".join(results) + " |"
    yield "|---|" + "---:|" * len(results)
    for name in next(iter(results.values())):
        cells = []
        for found in results.values():
            times, ratio = 1e6 * found[name], found[name] / found["arrowdev"]
            cells.append(f"{times:,.0f} us" + (f", {ratio:.2f}x" if ratio != 1 else ""))
        yield f"| {name} | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--markdown", type=Path, help="write the table into this page")
    parser.add_argument("--consumer", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.consumer:
        consume(*arguments.consumer)
        return
    results = {name: measure(*shape) for name, shape in ROWS.items()}
    text = "\n".join(table(results))
    print(text)
    if arguments.markdown:
        where = when_and_where(conditions(ROUNDS, 0))
        write_table(arguments.markdown, f"{text}\n\n{where}", MARKERS)


if __name__ == "__main__":
    main()
