"""The documentation is correct: examples run, links resolve, lists are complete."""

import ast
import contextlib
import doctest
import importlib
import importlib.metadata
import os
import re
import subprocess
import sys

import pytest
from doc_examples import BLOCK, PAGES, ROOT, STARTS_PROCESSES, compiled

import compiler

IS_REAL = os.environ.get("ARROWDEV_GPU", "0") not in ("", "0")
DEVICES = {"GPU", "CUDA"}
# Modules that make the devices of a library known, or skip if there are none.
SETUP = {"dpnp": "peer_oneapi", "pyopencl": "peer_opencl"}
for setup in SETUP.values():  # now, because the first use of a runtime is final
    with contextlib.suppress(pytest.skip.Exception, ImportError):
        importlib.import_module(setup)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def is_installed_as_needed(needs):
    """True if "pandas>=3" holds, or if the library is missing: then its test skips."""
    for requirement in {*(needs or "").split()} - DEVICES:
        name, _, least = requirement.partition(">=")
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if int(found.split(".")[0]) < int(least):
            return False
    return True


def examples():
    """(page, line, code, needs) of each example. The id has file, nearest heading and line."""
    for page in PAGES:
        if page.parent.name == "upstream":
            continue  # reproducers of faults: test_upstream.py
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            if not is_installed_as_needed(block["needs"]):
                continue
            line = text.count("\n", 0, block.start("code"))
            headings = re.findall(r"^#+ (.*)$", text[: block.start()], re.M)
            name = f"{page.relative_to(ROOT)}:{line}-{headings[-1] if headings else ''}"
            needs = DEVICES & {*(block["needs"] or "").split()}
            marks = [pytest.mark.slow] if STARTS_PROCESSES.search(block["code"]) else []
            yield pytest.param(
                page, line, block["code"], needs, id=name.replace(" ", "_"), marks=marks
            )


def imported_libraries(code):
    """Top-level names that the example imports, without the standard library."""
    names = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module)
    return [n for n in names if n.partition(".")[0] not in {*sys.stdlib_module_names, "arrowdev"}]


def run_on_cuda(page, line, code):
    """Runs in a separate process, with a real driver or the stand-in driver."""
    driver = "" if IS_REAL else "import fakegpu; fakegpu.load('cuda')"
    script = f"import sys; sys.path.insert(0, {str(ROOT / 'tests' / 'helpers')!r}); {driver}\n"
    script += "\n" * (line - 1) + code
    names = {"ARROWDEV_CUDA_LIBRARY", "ARROWDEV_HIP_LIBRARY"}  # from conftest.py
    environment = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, f"{page}: {done.stderr}"


def test_example_without_its_error_fails():
    code = "try:\n    {}\nexcept KeyError as error:\n    assert error.args == (1,)\n"
    exec(compiled(3, code.format("{}[1]"), "page"))
    with pytest.raises(AssertionError, match="no error"):
        exec(compiled(3, code.format("{1: 2}[1]"), "page"))


@pytest.mark.parametrize(("page", "line", "code", "needs"), list(examples()))
def test_example_runs(page, line, code, needs):
    if "GPU" in needs and not IS_REAL:
        pytest.skip("needs a GPU")
    for name in imported_libraries(code):
        pytest.importorskip(name)
        if name in SETUP:
            importlib.import_module(SETUP[name])
    if needs:
        run_on_cuda(page, line, code)
        return
    is_script = 'if __name__ == "__main__":' in code
    names = {"__name__": "__main__" if is_script else "example"}
    exec(compiled(line, code, page), names)
    for test in [value for name, value in names.items() if name.startswith("test_")]:
        test()


BLOCK_OF_SESSION = re.compile(r"^```pycon\n(.*?)^```$", re.M | re.S)


def sessions():
    """(page, text) of each session: it begins with a block that imports, and others go on."""
    for page in PAGES:
        texts = []
        for block in BLOCK_OF_SESSION.findall(page.read_text(encoding="utf-8")):
            if block.startswith(">>> import arrowdev") or not texts:
                texts.append("")
            texts[-1] += block
        for number, text in enumerate(texts, 1):
            yield pytest.param(page, text, id=f"{page.relative_to(ROOT)}-{number}")


@pytest.mark.parametrize(("page", "text"), list(sessions()))
def test_session_prints_what_the_page_says(page, text):
    names = {"__name__": "__main__"}
    test = doctest.DocTestParser().get_doctest(text, names, page.name, str(page), 0)
    for name in imported_libraries("".join(example.source for example in test.examples)):
        pytest.importorskip(name)
    runner = doctest.DocTestRunner(verbose=False)
    assert test.examples
    assert runner.run(test).failed == 0


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="not a checkout")
def test_landing_page_has_the_figures_of_the_matrix():
    page = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    picture = (ROOT / "docs/matrix.svg").read_text(encoding="utf-8")
    through, directly = (
        [int(n) for n in re.findall(r"\d+", line)]
        for line in re.findall(r">(\d+ zero-copy, [^<]*)<", picture)
    )
    n_pairs = sum(through)
    assert f"Of {n_pairs} pairs of producers and consumers, {through[0]} share memory" in page
    assert f"By their own functions {directly[0]} do" in page


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="not a checkout")
def test_backend_of_the_walk_through_compiles():
    page = ROOT / "docs/internals/add_a_backend.md"
    [code] = re.findall(r"^```c\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    compiler.check(code, *compiler.STRICT)


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="not a checkout")
def test_table_of_slots_is_complete():
    page = (ROOT / "docs/internals/add_a_backend.md").read_text(encoding="utf-8")
    table = re.search(r"^\| slots \|.*?\n\n", page, re.M | re.S)[0]
    first_cells = " ".join(re.findall(r"^\|(.*?)\|", table, re.M))
    named = set(re.findall(r"`(\w+)`", first_cells))
    contract = (compiler.CSRC / "device/backend.h").read_text(encoding="utf-8")
    slots = re.search(r"^struct ad_backend \{\n(.*?)^\};", contract, re.M | re.S)[1]
    members = set(re.findall(r"^    \w+ \(\*(\w+)\)\(", slots, re.M))
    assert len(members) > 25
    assert named - {"name", "device_types", "capabilities"} == members


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="not a checkout")
def test_protocol_of_the_walk_through_compiles():
    page = ROOT / "docs/internals/add_a_protocol.md"
    blocks = re.findall(r"^```c\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    name = "-DAD_STR_foo_memory=AD_STR_mask"  # the line in strings.def generates this name
    include = (compiler.CSRC, compiler.PYTHON_INCLUDE)
    compiler.check(blocks[-1], name, *compiler.STRICT, include=include)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    targets = [target for target in LINK.findall(text) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="not a checkout")
class TestCompleteness:
    def test_every_example_of_a_library_has_an_assertion(self):
        pages = [path.read_text(encoding="utf-8") for path in ROOT.glob("docs/libraries/*.md")]
        codes = [found for page in pages for found in BLOCK.findall(page)]
        assert len(codes) > 20
        assert [code for _, code in codes if "assert " not in code] == []

    def test_every_reason_is_explained(self):
        sources = [path.read_text(encoding="utf-8") for path in ROOT.glob("csrc/**/*.c")]
        raised = re.compile(
            r'(?:AD_ERR_EXCHANGE,|ad_raise_exchange\(\s*state,(?:\s*\w+ \?)?)\s*"(\w+)"'
        )
        reasons = {word for source in sources for word in raised.findall(source)}
        assert len(reasons) > 15
        text = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
        explained = set(re.findall(r"^\| `(\w+)` \|", text, re.M))
        assert reasons - explained == set()
