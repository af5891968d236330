"""What every test shares: the software device, and the rule that, in CI, nothing is skipped
unnoticed.

A test may skip where a peer library, a tool or a device is missing, so that
`pytest` is useful on any machine. With ARROWDEV_NO_SKIPS=1 a skip is a
failure, unless its reason is in ALLOWED_SKIPS, or names a package listed in
ARROWDEV_MISSING (comma-separated), which states what a leg of CI leaves out or
can only have in an old version. ARROWDEV_HIDDEN does the same for packages that
are installed and must not be imported.
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

# Tests make up CUDA and ROCm memory: no driver must be handed that. The suites
# with a driver run in processes of their own (test_suites.py).
if "ARROWDEV_SUITE" not in os.environ:
    for runtime in ("CUDA", "HIP"):
        os.environ.setdefault(f"ARROWDEV_{runtime}_LIBRARY", "/nowhere/library.so")

# A busy machine is no failure of an example: pytest's own limit is enough.
if importlib.util.find_spec("hypothesis"):
    import hypothesis

    hypothesis.settings.register_profile("arrowdev", deadline=None)
    hypothesis.settings.load_profile("arrowdev")

ALLOWED_SKIPS = (
    r"needs a GPU\b",
    r"no stub library in this CUDA toolkit$",
    r"not measured under a sanitizer$",
)

NO_SKIPS = os.environ.get("ARROWDEV_NO_SKIPS", "0") not in ("", "0")
MISSING = [name for name in os.environ.get("ARROWDEV_MISSING", "").split(",") if name] + HIDDEN

for name in HIDDEN:
    sys.modules[name] = None  # as if it were not installed


def is_allowed(reason):
    if any(re.search(pattern, reason) for pattern in ALLOWED_SKIPS):
        return True
    # pytest.importorskip says: could not import 'NAME': ..., or, of one that
    # is too old: module 'NAME' has __version__ ...
    found = re.search(r"(?:could not import|module) '(\w+)", reason)
    return found is not None and found[1] in MISSING


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers(config):
    """Each worker imports every peer: more of them than this only start up."""
    return min(len(os.sched_getaffinity(0)), 8)


# What a test may import at its top without a word: where it is missing, the test is skipped.
OPTIONAL = {
    *("numpy", "ml_dtypes", "pyarrow", "nanoarrow", "pandas", "polars"),
    *("hypothesis", "anyio", "trio"),
}
TESTS = pathlib.Path(__file__).parent


def skip_what_is_missing(report, directory):
    """Make a skip of an import of an OPTIONAL library, if a file of the tests has it."""
    text = str(report.longrepr)
    # The second is what ARROWDEV_HIDDEN makes.
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
    """Make a failure of a skip that nobody foresaw."""
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
    source distribution that would be a package without its extension."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("current"))
    yield
    os.chdir(before)


@pytest.fixture(scope="module", autouse=True)
def quick_collections():
    """Tests that collect would spend their time on torch, jax and pytest's own reports: what is
    there before a module's tests is garbage now or never."""
    gc.collect()
    gc.freeze()


# arrowdev is imported late: a suite says before which drivers it finds.


@pytest.fixture
def software():
    """The software device, with ext_dev:0 and ext_dev:1."""
    from arrowdev.testing import software_device

    with software_device() as device:
        yield device


@pytest.fixture
def device(software):
    """The same, where no test has the name of a device as a parameter."""
    return software


@pytest.fixture
def world(software):
    """Data that are pending on a queue of it."""
    from order_world import World

    with contextlib.closing(World(software)) as world:
        yield world
