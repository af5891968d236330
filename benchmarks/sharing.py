"""An array that another process uses: arrowdev.attach() beside other ways.

By itself: python benchmarks/sharing.py [--markdown docs/performance.md]. A second process attaches
to the memory of this one, reads a value, and lets it go; the ways take turns.
"""

import argparse
import contextlib
import importlib.util
import json
import mmap
import os
import pickle
import socket
import statistics
import subprocess
import sys
import threading
from multiprocessing import connection, current_process, reduction, resource_tracker, shared_memory
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


def pickled(value):
    return pickle.dumps(value, 5)


class Pickles:
    """A pickle for each request: the text of multiprocessing sends what torch shares."""

    def __init__(self, value, dumps=pickled):
        self.value = value
        self.dumps = dumps
        self.listener = connection.Listener(family="AF_UNIX")
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with self.listener.accept() as peer:
            try:
                while peer.recv_bytes():
                    peer.send_bytes(self.dumps(self.value))
            except EOFError:
                return


def is_installed(name):
    return importlib.util.find_spec(name) is not None


def tensors(n_columns, n_rows):
    """What torch.multiprocessing sends: descriptors of the memory of each."""
    import torch.multiprocessing

    torch.multiprocessing.set_sharing_strategy("file_descriptor")
    return [torch.arange(n_rows).share_memory_() for _ in range(n_columns)]


@contextlib.contextmanager
def in_ray(value):
    """A cluster whose store has the value; what another process needs to find it."""
    import ray

    @ray.remote(num_cpus=0)
    class Holder:
        def __init__(self, references):
            self.references = references

        def get(self):
            return self.references

    context = ray.init(
        num_cpus=1, include_dashboard=False, log_to_driver=False, namespace="sharing"
    )
    try:
        holder = Holder.options(name="holder").remote([ray.put(value)])
        ray.get(holder.get.remote())
        yield context.address_info["address"]
    finally:
        ray.shutdown()


def measure(n_columns, n_rows):
    """The median seconds of each way; None of one whose library is not installed."""
    value = batch(n_columns, n_rows)
    nbytes = 8 * n_columns * n_rows
    with contextlib.ExitStack() as stack:
        shared = stack.enter_context(ad.share(value))
        bare = Server(nbytes)
        block = shared_memory.SharedMemory(create=True, size=nbytes)
        stack.callback(block.unlink)
        stack.callback(block.close)
        places = {
            "text": str(shared),
            "bare": bare.name,
            "nbytes": nbytes,
            "block": block.name,
            "pickles": Pickles(value).listener.address,
            "key": bytes(current_process().authkey).hex(),
        }
        if is_installed("torch"):
            parts = tensors(n_columns, n_rows)
            places["torch"] = Pickles(parts, reduction.ForkingPickler.dumps).listener.address
        if is_installed("ray"):
            places["ray"] = stack.enter_context(in_ray(value))
        done = subprocess.run(
            [sys.executable, __file__, "--consumer", json.dumps(places)],
            stdout=subprocess.PIPE,
            check=True,
        )
    return json.loads(done.stdout.splitlines()[-1])


# --- the other one -------------------------------------------------------------------------------


def through(address, loads, read):
    """Ask for a pickle, load it and read a value."""
    peer = connection.Client(address, family="AF_UNIX")

    def way():
        peer.send_bytes(b"x")
        read(loads(peer.recv_bytes()))

    return way


def by_torch(address):
    if address is None:
        return None
    import torch.multiprocessing

    torch.multiprocessing.set_sharing_strategy("file_descriptor")
    return through(address, reduction.ForkingPickler.loads, lambda parts: parts[0][0].item())


def by_ray(address):
    if address is None:
        return None
    import ray

    ray.init(address=address, namespace="sharing", log_to_driver=False, logging_level="ERROR")
    (reference,) = ray.get(ray.get_actor("holder").get.remote())

    def get():
        ray.get(reference).field("c0").buffers[1]

    return get


def consume(places):
    text, bare, block = places["text"], places["bare"], places["block"]
    current_process().authkey = bytes.fromhex(places["key"])  # for the descriptors of torch

    def attach():
        ad.attach(text).field("c0").buffers[1]

    def attach_bare():
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            server.connect("\0" + bare)
            server.send(b"0" * 16)
            _, files, _, _ = socket.recv_fds(server, 100, 10)
            with mmap.mmap(files[0], places["nbytes"], prot=mmap.PROT_READ) as memory:
                memory[0]
            os.close(files[0])

    def open_block():
        memory = shared_memory.SharedMemory(block)
        # Else the tracker of this process removes what is the other's.
        resource_tracker.unregister(memory._name, "shared_memory")
        memory.buf[0]
        memory.close()

    ways = {
        "arrowdev": attach,
        "a bare SCM_RIGHTS and mmap": attach_bare,
        "multiprocessing.shared_memory": open_block,
        "torch.multiprocessing, file_descriptor": by_torch(places.get("torch")),
        "Ray's object store": by_ray(places.get("ray")),
        "pickle through a socket": through(places["pickles"], pickle.loads, len),
    }
    times = {name: [] for name, way in ways.items() if way is not None}
    for way in filter(None, ways.values()):
        way()  # imports what it needs
    for _ in range(ROUNDS):
        for name in times:
            way = ways[name]
            n = 1 if name.startswith("pickle") else CALLS
            started = perf_counter()
            for _ in range(n):
                way()
            times[name].append((perf_counter() - started) / n)
    medians = {name: statistics.median(each) for name, each in times.items()}
    print(json.dumps({name: medians.get(name) for name in ways}))


# --- the table -----------------------------------------------------------------------------------


def table(results):
    yield "| way | " + " | ".join(results) + " |"
    yield "|---|" + "---:|" * len(results)
    for name in next(iter(results.values())):
        cells = []
        for found in results.values():
            if found[name] is None:
                cells.append("not installed")
                continue
            times, ratio = 1e6 * found[name], found[name] / found["arrowdev"]
            cells.append(f"{times:,.0f} us" + (f", {ratio:.2f}x" if ratio != 1 else ""))
        yield f"| {name} | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--markdown", type=Path, help="write the table into this page")
    parser.add_argument("--consumer", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.consumer:
        consume(arguments.consumer)
        return
    results = {name: measure(*shape) for name, shape in ROWS.items()}
    text = "\n".join(table(results))
    print(text)
    if arguments.markdown:
        where = when_and_where(conditions(ROUNDS, 0))
        write_table(arguments.markdown, f"{text}\n\n{where}", MARKERS)


if __name__ == "__main__":
    main()
