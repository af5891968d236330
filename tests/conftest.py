"""Shared fixtures: the software device, and the rule that a skip fails in CI.

A test may skip where a peer library, a tool or a device is missing, so that
`pytest` is useful on any machine. With ARROWDEV_NO_SKIPS=1 a skip is a
failure, unless its reason is in ALLOWED_SKIPS or names a package listed in
ARROWDEV_MISSING (comma-separated). That variable states which packages a CI
job leaves out or has only in an old version. ARROWDEV_HIDDEN does the same for
packages that are installed and must not be imported.
"""

import contextlib
import gc
import importlib.util
import os
import pathlib
import re
import sys

import pocl_environment  # noqa: F401
import pytest
from hidden import HIDDEN

# Tests use made-up CUDA and ROCm addresses, which must never reach a driver. The suites
# with a driver run in separate processes (test_suites.py).
if "ARROWDEV_SUITE" not in os.environ:
    for runtime in ("CUDA", "HIP"):
        os.environ.setdefault(f"ARROWDEV_{runtime}_LIBRARY", "/nowhere/library.so")

# Ray reports to its makers unless told not to.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

# On a busy machine examples are slow; pytest's own timeout is enough.
if importlib.util.find_spec("hypothesis"):
    import hypothesis

    hypothesis.settings.register_profile("arrowdev", deadline=None)
    hypothesis.settings.load_profile("arrowdev")

ALLOWED_SKIPS = (
    r"needs a GPU\b",
    r"could not import 'pyarrow\.cuda'",
    r"Queue could not be created$",
    r"no stub library in this CUDA toolkit$",
    r"not measured under a sanitizer$",
    r"for CPython 3\.\d+ and (later|earlier)$",
    r"the page is about \S+$",  # docs/upstream: the library has a newer version
)
# On a GPU there is no stand-in to control, and there may be one device.
if os.environ.get("ARROWDEV_GPU", "0") not in ("", "0"):
    ALLOWED_SKIPS += (r"needs the stand-in driver$", r"needs two devices$")

NO_SKIPS = os.environ.get("ARROWDEV_NO_SKIPS", "0") not in ("", "0")
MISSING = [name for name in os.environ.get("ARROWDEV_MISSING", "").split(",") if name] + HIDDEN

for name in HIDDEN:
    sys.modules[name] = None  # as if it were not installed


def is_allowed(reason):
    if any(re.search(pattern, reason) for pattern in ALLOWED_SKIPS):
        return True
    # The message of pytest.importorskip is "could not import 'NAME': ..." or, for a version
    # that is too old, "module 'NAME' has __version__ ...".
    found = re.search(r"(?:could not import|module) '(\w+)", reason)
    return found is not None and found[1] in MISSING


@pytest.hookimpl(optionalhook=True)  # a hook of pytest-xdist
def pytest_xdist_auto_num_workers(config):
    """Each worker imports every peer, so more workers only add start-up time."""
    return min(len(os.sched_getaffinity(0)), 8)


# Libraries that a test file may import at its top. A missing one skips the file.
OPTIONAL = {
    *("numpy", "ml_dtypes", "pyarrow", "nanoarrow", "pandas", "polars"),
    *("hypothesis", "anyio", "trio"),
}
TESTS = pathlib.Path(__file__).parent


def skip_what_is_missing(report, directory):
    """Turns an import error for an OPTIONAL library into a skip if a test file imports it."""
    text = str(report.longrepr)
    # The second form is the error raised for a package in ARROWDEV_HIDDEN.
    missing = re.search(
        r"^E +ModuleNotFoundError: (?:No module named '|import of )(\w+)", text, re.M
    )
    places = re.findall(r"^(\S+\.py):(\d+): ", text, re.M)
    if report.failed and missing is not None and missing[1] in OPTIONAL and places:
        file, line = places[-1]
        file = directory / file
        if TESTS in file.parents:
            report.outcome = "skipped"
            report.longrepr = (str(file), int(line), f"Skipped: could not import '{missing[1]}'")
    return report


def refuse_skip(report):
    """Turns an unexpected skip into a failure."""
    if not NO_SKIPS or not report.skipped or hasattr(report, "wasxfail"):
        return report
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not is_allowed(reason):
        report.outcome = "failed"
        report.longrepr = f"ARROWDEV_NO_SKIPS: this test may not be skipped.\n{reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return refuse_skip(skip_what_is_missing((yield), item.config.invocation_params.dir))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return refuse_skip(skip_what_is_missing((yield), collector.config.invocation_params.dir))


@pytest.fixture(scope="session", autouse=True)
def outside_of_the_source(tmp_path_factory):
    """`python -c` and `python -m` look for packages in the current folder first. In an unpacked
    source distribution they would find a package without its extension."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("current"))
    yield
    os.chdir(before)


@pytest.fixture(scope="module", autouse=True)
def quick_collections():
    """Keeps garbage collections in tests fast. The objects of torch, jax and pytest that exist
    before a module's tests are excluded from later collections."""
    gc.collect()
    gc.freeze()


# arrowdev is imported late, because a suite first chooses the drivers that it finds.


@pytest.fixture
def software():
    """The software device, with ext_dev:0 and ext_dev:1."""
    from arrowdev.testing import software_device

    with software_device() as device:
        yield device


@pytest.fixture
def device(software):
    """The software device, for tests without a parameter named after a device."""
    return software


@pytest.fixture
def world(software):
    """Data that are pending on a queue of the software device."""
    from order_world import World

    with contextlib.closing(World(software)) as world:
        yield world
