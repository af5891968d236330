"""Shared functions of the tests with invalid structs and producers."""

import gc
import sys

import arrow_ctypes as ac
import pytest
from loops import looped

import arrowdev as ad

WAYS = {
    "host": (ac.Host, (ac.CPU, -1)),
    "device": (ac.OnDevice, (ac.CUDA, 3)),
    "host pair": (lambda tree: tree.host_pair(), (ac.CPU, -1)),
    "device pair": (lambda tree: tree.device_pair(), (ac.CUDA, 3)),
}

everywhere = looped("way", WAYS)


@pytest.fixture(autouse=True)
def freeze_kept_structs():
    """Excludes the objects that arrow_ctypes keeps from garbage collection."""
    yield
    gc.freeze()


def give(tree, way):
    make, tree.device_id = WAYS[way][0], WAYS[way][1][1]
    tree.device_type = WAYS[way][1][0]
    tree.device_pair()  # fills the device array
    return make(tree)


def nodes_of(node):
    yield node
    for child in node.children:
        yield from nodes_of(child)
    if node.dictionary is not None:
        yield from nodes_of(node.dictionary)


def releases(tree):
    return {node.released for part in (tree.schema, tree.array) for node in nodes_of(part)}


# --- exceptions that a producer may raise --------------------------------------


class OwnBase(BaseException):
    pass


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("not even that")


class Loud(Exception):
    def __str__(self):
        raise KeyboardInterrupt


def grouped():
    if sys.version_info < (3, 11):
        return RuntimeError("no groups")
    return ExceptionGroup("many", [MemoryError()])  # noqa: F821


REFUSALS = [
    ValueError("no"),
    TypeError("no"),
    RuntimeError(),
    StopIteration(3),
    BufferError("no"),
    AssertionError("no"),
    NotImplementedError("no"),
    OSError(5, "no"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"),
    ad.ExchangeError("no"),
    Mute("no"),
    grouped(),
    ValueError("x" * 1_000_000),
    ValueError("\ud800"),
]
FINAL = [
    KeyboardInterrupt(),
    SystemExit(3),
    GeneratorExit(),
    OwnBase("no"),
    MemoryError("no"),
    RecursionError("no"),
    ad.DeviceError("no"),
]


def name_of(error):
    return type(error).__name__
