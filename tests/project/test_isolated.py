"""Scripts in separate processes: exits, forks, failing allocations, other interpreters."""

import importlib.util
import os
import re
import sys

import c_library
import extension
import pytest
from isolation import FOLDER, run
from lifetimes import skip_if_sanitized

import compiler

pytestmark = pytest.mark.slow

PLACES = ["globals", "cycle", "builtins", "thread", "destructor", "atexit", "modules"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "way", ["return", "sys.exit", "os._exit", "exception", "import", "release"]
)
def test_exit_with_everything_alive(place, way):
    failed = way == "exception"
    run("exit_alive", place, way, code=int(failed), allowed="as asked for" if failed else "")


@pytest.mark.parametrize("mode", c_library.MODES)
def test_daemon_threads_release(mode):
    for _ in range(3):
        run("daemon_release", c_library.build("lifetime"), mode)


def test_first_call_of_a_runtime_fails():
    run("first_call_fails")


def test_owners_alive_at_exit_are_released():
    said = run("owner_at_exit")
    for what in ("a tensor", "an array", "an exported array"):
        assert f"the owner of {what} was released\n" in said


def test_foreign_thread_releases_during_exit():
    """ARROWDEV_EXAMPLES runs more of them; a run that aborts was one in five."""
    library = c_library.build("release_thread", "c++")
    for _ in range(int(os.environ.get("ARROWDEV_EXAMPLES", "10"))):
        run("release_thread", library)


@pytest.mark.parametrize("kind", ["array", "schema", "stream", "foreign"])
@pytest.mark.parametrize("when", ["at exit", "thread at exit", "0", "5", "20"])
def test_release_after_finalization(when, kind):
    said = run("release_after_finalization", c_library.build("lifetime"), when, kind)
    if "at exit" in when:
        assert said.endswith("after finalization\nreleased\n")


@pytest.mark.parametrize("way", ["os._exit", "sys.exit"])
def test_fork(way):
    run("fork", way)


@pytest.mark.parametrize("when", ["unused", "used"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method, when):
    """`used`: the parent has a runtime with pending work when the children start."""
    run("processes", method, when)


def test_rounds_of_signals():
    """ARROWDEV_EXAMPLES runs more of them. The exception of a handler was lost in one of five."""
    run("signals", os.environ.get("ARROWDEV_EXAMPLES", "600"))


CHAINS = [
    "owner=",
    "pyarrow",
    "capsules",
    "memoryview",
    "numpy",
    "dlpack",
    "memoryview and owner=",
    "slice and pyarrow",
    "columns",
    "groups",
    "schema",
    "rechunk",
    "generators",
    "readers",
    "used",
]


@pytest.mark.parametrize("kind", CHAINS)
def test_chains_of_owners_are_released(kind):
    """ARROWDEV_EXAMPLES makes them longer: 1,000,000 links passed."""
    run("chains", kind, os.environ.get("ARROWDEV_EXAMPLES", "100000"), 0)
    run("chains", kind, 20_000, 256 << 10)


@pytest.mark.parametrize("kind", ["read rechunk", "read readers"])
def test_chains_of_streams_are_read_or_refused(kind):
    assert "read\n" in run("chains", kind, 60, 0)
    assert "refused\n" in run("chains", kind, 30_000, 0)
    assert "refused\n" in run("chains", kind, 2_000, 256 << 10)


needs_interpreters = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="for CPython 3.12 and later"
)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="for CPython 3.11 and earlier")
def test_sub_interpreters_are_refused():
    assert "refused" in run("interpreter_refused")


@needs_interpreters
def test_sub_interpreters_exchange():
    """ARROWDEV_EXAMPLES runs more of them."""
    for _ in range(int(os.environ.get("ARROWDEV_EXAMPLES", "1"))):
        run("interpreters", "exchange")


@needs_interpreters
def test_release_of_what_another_interpreter_owns():
    said = run("interpreters", "outlives")
    assert "what lives was released" in said and "what has ended" not in said


@needs_interpreters
def test_foreign_thread_releases_while_its_interpreter_ends():
    run("interpreters", "foreign_thread", c_library.build("release_thread", "c++"))


@needs_interpreters
def test_sub_interpreter_ends_during_a_push():
    run("interpreters", "pump")


@needs_interpreters
def test_each_interpreter_has_its_own_logger():
    run("interpreters", "logger")


@needs_interpreters
def test_a_trace_in_each_interpreter():
    run("interpreters", "trace_in_each")


@needs_interpreters
def test_a_sub_interpreter_leaves_its_trace_open():
    run("interpreters", "trace_left_open")


@needs_interpreters
def test_software_device_is_for_the_main_interpreter():
    run("interpreters", "testing")


@pytest.mark.parametrize("way", ["reload", "again", "first dies", "exchange"])
def test_imported_twice(way):
    run("import_twice", way)


def operation_names():
    text = (FOLDER / "operations.py").read_text(encoding="utf-8")
    return re.findall(r'^    "([^"]+)": lambda c:', text, re.MULTILINE)


def helpers_in_c():
    """For operations.py: the paths of what is written in C."""
    capi = extension.build(FOLDER.parent / "c_helpers" / "capi.c")
    return {"ARROWDEV_LIFETIME": str(c_library.build("lifetime")), "ARROWDEV_CAPI": str(capi)}


@pytest.mark.parametrize("name", operation_names())
def test_python_has_no_memory(name):
    if importlib.util.find_spec("_testcapi") is None:
        pytest.skip("this Python was built without _testcapi")
    run("no_memory", name, environment=helpers_in_c())


@pytest.mark.parametrize("name", operation_names())
def test_malloc_has_no_memory(name):
    skip_if_sanitized()
    library = str(c_library.build("failing_malloc"))
    environment = {"LD_PRELOAD": library} | helpers_in_c()
    run("no_malloc", name, library, environment=environment)


def test_a_release_without_memory_loses_no_device_memory():
    skip_if_sanitized()
    library = str(c_library.build("failing_malloc"))
    run("free_without_memory", library, environment={"LD_PRELOAD": library})


def test_a_watch_without_memory_begins_nothing():
    skip_if_sanitized()
    library = str(c_library.build("failing_malloc"))
    run("watch_without_memory", library, environment={"LD_PRELOAD": library})


@pytest.mark.parametrize("what", ["operations", "planted"])
def test_leak_sanitizer(what):
    """It finds what arrays and owners do not count, such as messages; and a planted leak."""
    skip_if_sanitized()
    found = compiler.run([*compiler.command(), "-print-file-name=liblsan.so"]).stdout.strip()
    if not os.path.isabs(found):
        pytest.skip("no LeakSanitizer found")
    environment = {
        "LD_PRELOAD": found,
        "LSAN_OPTIONS": "leak_check_at_exit=0",
        "PYTHONMALLOC": "malloc",
    }
    environment |= helpers_in_c()
    run("leaks", what, environment=environment)


def test_lasting_lack_of_memory_loses_no_device_memory():
    skip_if_sanitized()
    library = str(c_library.build("failing_malloc"))
    run("no_malloc_at_all", library, environment={"LD_PRELOAD": library})
