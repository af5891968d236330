"""The interpreter exits during async streams: no crash, no hang, no output."""

import errno

import c_library
import pytest
from isolation import run

pytestmark = pytest.mark.slow

SITUATIONS = [
    "pushed",
    "read",
    "waiting",
    "bridge",
    "bridge without credit",
    "produce",
    "pulled",
    "run",
    "endless",
]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", ["os._exit", "sys.exit"])
def test_fork(way):
    run("aio_fork", c_library.build("async_peer"), way)


@pytest.mark.timeout(400)
def test_fork_in_a_handler():
    """At its exit, the child too waits for C threads that call Python."""
    said = run("fork_in_a_handler", c_library.build("async_peer"))
    assert "the iterable was called to its end" in said


@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", ["return", "sys.exit", "os._exit"])
@pytest.mark.parametrize("what", SITUATIONS)
def test_exit(what, way):
    said = run("aio_exit", c_library.build("async_peer"), what, way)
    if what.startswith("bridge") and way != "os._exit":
        assert f"the consumer was told: 0 {errno.ECANCELED} " in said
    if what == "endless" and way != "os._exit":
        assert "the reader was told: Python is about to exit" in said
