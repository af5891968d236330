"""The interpreter ends in the middle of async streams: no crash, no hang, no words."""

import errno

import c_library
import pytest
from test_isolated import run

SITUATIONS = [
    "pushed",
    "read",
    "waiting",
    "bridge",
    "bridge without credit",
    "produce",
    "pulled",
    "run",
]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", ["os._exit", "sys.exit"])
def test_fork(way):
    run("aio_fork", c_library.build("async_peer"), way)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", ["return", "sys.exit", "os._exit"])
@pytest.mark.parametrize("what", SITUATIONS)
def test_exit(what, way):
    said = run("aio_exit", c_library.build("async_peer"), what, way)
    if what.startswith("bridge") and way != "os._exit":
        assert f"the consumer was told: 0 {errno.ECANCELED} " in said
