"""The backend of docs/examples, behind a table whose calls can be made to fail.

It serves device type 30, which nobody else uses, and stays registered for the rest of the process.
"""

import contextlib
import functools
import os
import subprocess
import sys
from pathlib import Path

import extension

import arrowdev as ad

TESTS = Path(__file__).resolve().parent.parent
EXAMPLE = TESTS.parent / "docs" / "examples" / "thread_backend.c"
FLAGS = [*extension.FLAGS, "-Wno-unused-parameter"]
TYPE, PLAIN = 30, 29
HERE, THERE = (TYPE, 0), (TYPE, 1)


def path_of_example():
    return extension.build(EXAMPLE, flags=FLAGS)


@functools.cache
def example():
    return extension.load(path_of_example())


@functools.cache
def failing():
    """What makes calls fail, with nothing registered."""
    return extension.load(extension.build(TESTS / "c_helpers" / "failing_backend.c"))


@functools.cache
def register():
    ad.register_backend(failing().wrap(example().backend(TYPE), TYPE))


@functools.cache
def register_plain():
    """A runtime without streams and events."""
    ad.register_backend(failing().plain(PLAIN))


def new_stream(device):
    """For check_backend()."""
    return example().new_stream(device.id)


@contextlib.contextmanager
def hold(stream):
    """Lets the stream begin no work."""
    example().hold(stream, True)
    try:
        yield
    finally:
        example().hold(stream, False)


def run(script, folder=None):
    """Runs a script that imports this module, and what the folder has."""
    path = [str(folder)] if folder else []
    path += [str(TESTS / "helpers"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done
