"""docs/conformance.md lists the tests of other libraries that run here, and what differs.

`tools/make_conformance.py` writes both tables.
"""

import importlib.metadata
import re
import subprocess
import sys
from collections import Counter

import deviations
import pytest

import compiler

FOLDER = compiler.ROOT / "tests" / "suites"
PAGE = compiler.ROOT / "docs" / "conformance.md"


def modules():
    """{test file: module of a library}"""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("test_*.py")}
    found = {file: re.search(r'load\(\s*"([\w.]+)"', text) for file, text in texts.items()}
    return {file: match[1] for file, match in sorted(found.items()) if match is not None}


def collected():
    """(test file, name of the test) of all tests of other libraries."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q",
         "-m", "", "-c", str(compiler.ROOT / "pyproject.toml"), str(FOLDER)],
        capture_output=True,
        text=True,
        timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    names = re.findall(r"^\S*?(\w+)\.py::(\S.*)$", done.stdout, re.M)
    ours = {"test_numbers_go_through_a_tensor"}
    return [(file, name) for file, name in names if file in modules() and name not in ours]


def suites(tests):
    """The rows of the first table: one for each test file."""
    yield "| tests of | module | tests | that differ |"
    yield "|---|---|---|---|"
    n_tests = Counter(file for file, _ in tests)
    n_other = Counter(file for file, test in tests if deviations.reason_of(file, test))
    for file, module in modules().items():
        library = module.partition(".")[0]
        version = deviations.VERSIONS[library]
        yield f"| {library} {version} | `{module}` | {n_tests[file]} | {n_other[file]} |"


def short(names):
    """The names of the tests; of more than ten with parameters the function only."""
    names = [name.rpartition("::")[2] for name in names]
    if len(names) > 10:
        names = dict.fromkeys(name.partition("[")[0] for name in names)
    return names


def differences(tests):
    """The rows of the second table: one for each reason."""
    yield "| tests of | what differs | tests |"
    yield "|---|---|---|"
    for file in modules():
        library = file.split("_")[1]
        for reason, names in deviations.DEVIATIONS.get(file, {}).items():
            n_tests = sum(
                deviations.reason_of(*test) == reason for test in tests if test[0] == file
            )
            listed = ", ".join(f"`{name}`" for name in short(names))
            yield f"| {library} | {reason} | {n_tests}: {listed} |"


def of_page(mark):
    text = PAGE.read_text(encoding="utf-8")
    return text.partition(f"<!-- {mark}: begin -->\n")[2].partition(f"\n<!-- {mark}: end -->")[0]


@pytest.fixture(scope="module")
def tests():
    for library, version in deviations.VERSIONS.items():
        pytest.importorskip(library)
        if importlib.metadata.version(library) != version:
            pytest.skip(f"module '{library}' has __version__ other than {version}")
    return collected()


@pytest.mark.slow
def test_the_page_lists_the_suites(tests):
    assert of_page("suites") == "\n".join(suites(tests))


@pytest.mark.slow
def test_the_page_lists_the_differences(tests):
    assert of_page("differences") == "\n".join(differences(tests))


@pytest.mark.slow
def test_each_deviation_names_a_test(tests):
    names = {(file, name) for file, test in tests for name in (test, test.partition("[")[0])}
    listed = {
        (file, name)
        for file, reasons in deviations.DEVIATIONS.items()
        for tests in reasons.values()
        for name in tests
    }
    assert listed - names == set()
