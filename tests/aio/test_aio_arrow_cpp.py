"""arrowdev.aio with Arrow C++, from the library inside pyarrow's wheel, in both directions.

The scenarios are functions of tests/isolated/aio_arrow_cpp.py. Each runs in a separate
process, so that a hang in a peer does not hang the test run.
"""

import re

import pytest
from isolation import FOLDER as SCRIPTS
from isolation import run
from test_async_arrow_cpp import FOLDER, library_of, run_checked

import compiler

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    """tests/cpp/arrow_peer.cpp as a library for ctypes."""
    library = library_of(pytest.importorskip("pyarrow", "25"))
    target = tmp_path_factory.mktemp("aio_arrow_cpp") / "arrow_peer.so"
    flags = ["-std=c++20", "-O1", "-g", "-fPIC", "-shared", f"-I{compiler.CSRC}"]
    headers = ["-isystem", library.parent / "include"]
    link = [library, f"-Wl,-rpath,{library.parent}", "-lpthread"]
    source = FOLDER / "arrow_peer.cpp"
    run_checked([*compiler.command("c++"), *flags, *headers, source, *link, "-o", target])
    return target


def scenarios():
    text = (SCRIPTS / "aio_arrow_cpp.py").read_text(encoding="utf-8")
    return re.findall(r"^async def ((?:import|export)_\w+)", text, re.MULTILINE)


@pytest.mark.timeout(600)  # the first test compiles Arrow's headers
@pytest.mark.parametrize("name", scenarios())
def test_exchange(peer, name):
    run("aio_arrow_cpp", peer, name)
