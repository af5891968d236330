"""docs/conformance_libraries.md: what the check finds in the libraries, as the page says.

A row describes one version, and is skipped with another one. `tools/make_conformance.py` writes
the page.
"""

import importlib.metadata
import json
import re
import subprocess
import sys

import pytest
from conformance_objects import CONSUMERS, PRODUCERS
from distributions import DISTRIBUTIONS

import compiler
from arrowdev.testing._rules import CONSUMER_RULES, PRODUCER_RULES

PAGE = compiler.ROOT / "docs" / "conformance_libraries.md"
ROWS = [*((*row, None) for row in PRODUCERS), *CONSUMERS]
KEPT, BROKEN, NOT_FOLLOWED, NOT_TRIED = "✓", "✗", "○", "?"


def checked(program, expression, read):
    """The JSON of the command; the last line of its error where there is no protocol."""
    options = [expression] if read is None else ["--consumer", expression, "--read", read]
    done = subprocess.run(
        [program, "-W", "ignore", "-m", "arrowdev", "check", *options, "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=compiler.ROOT / "tests" / "helpers",
    )
    if done.returncode == 2:
        return done.stderr.strip().rpartition("\n")[2]
    return json.loads(done.stdout)


def marks(found):
    """{rule: mark} of a report."""
    kept = dict.fromkeys(found["held"], KEPT)
    broken = {
        finding["rule"]: BROKEN if finding["level"] == "must" else NOT_FOLLOWED
        for finding in found["findings"]
    }
    return {**kept, **broken, **dict.fromkeys(found["untried"], NOT_TRIED)}


def distribution(module):
    return DISTRIBUTIONS.get(module, module.replace("_", "-"))


def installed(module):
    return importlib.metadata.version(distribution(module)).partition("+")[0]


def line(module, version, expression, read, found, columns):
    """The row of the page, or the item of the list of objects without a protocol."""
    library = f"{distribution(module)} {version}"
    if isinstance(found, str):
        return f"* {library}: `{expression}`"
    n = f"{len(found['held'])} of {len(found['held']) + len(found['findings'])}"
    cells = [n, *(marks(found).get(rule, "") for rule in columns)]
    if read is None:  # many columns: the long one is the last
        cells = [library, f"`{found['subject'].rpartition('.')[2]}`", *cells, f"`{expression}`"]
    else:
        cells = [library, f"`{expression}`, read by `{read}`", *cells]
    return f"| {' | '.join(cells)} |"


def section(read):
    heading = "Producers" if read is None else "Consumers"
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    return text.partition("\n## ")[0]


@pytest.mark.slow
@pytest.mark.timeout(320)
@pytest.mark.parametrize(
    ("module", "expression", "read"), ROWS, ids=[f"{row[0]}: {row[1]}" for row in ROWS]
)
def test_library(module, expression, read):
    for name in {module, *re.findall(r"\b(numpy|pyarrow|shapely|polars)\.", expression)}:
        pytest.importorskip(name)
    text, version = section(read), installed(module)
    name = re.escape(distribution(module))
    (described,) = set(re.findall(rf"^[|*] {name} (\S+?):? ", text, re.M))
    if version != described:
        pytest.skip(f"{name} {version} is installed, the page is about {described}")
    columns = re.findall(r"`([a-z_.]+)`", re.search(r"^\| library.*$", text, re.M)[0])
    found = checked(sys.executable, expression, read)
    assert line(module, version, expression, read, found, columns) in text.splitlines()
    if not isinstance(found, str):
        broken = {finding["rule"] for finding in found["findings"]}
        assert broken <= set(columns)


def test_page_has_every_row():
    for module, expression, read in ROWS:
        assert f"`{expression}`" in section(read), (module, expression)
    listed = section(None) + section("")
    assert listed.count("\n| ") + listed.count("\n* ") == len(ROWS) + 2  # two heads
    assert len({row[0] for row in ROWS}) >= 30


def test_columns_are_rules_that_one_breaks():
    for read, rules in ((None, PRODUCER_RULES), ("", CONSUMER_RULES)):
        head, _, *rows = re.findall(r"^\|.*\|$", section(read), re.M)
        columns = re.findall(r"`([a-z_.]+)`", head)
        assert columns == [rule for rule in rules if rule in columns]
        for i, rule in enumerate(columns, 3):
            found = {row.split(" | ")[i].strip(" |") for row in map(unbarred, rows)}
            assert found & {BROKEN, NOT_FOLLOWED}, rule
            assert found <= {BROKEN, NOT_FOLLOWED, KEPT, NOT_TRIED, ""}


def unbarred(row):
    """The row without what a bar may be part of."""
    return re.sub(r"`[^`]*`", "", row)
