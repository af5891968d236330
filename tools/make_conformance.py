"""Writes the tables of docs/conformance.md and docs/conformance_libraries.md anew:
python tools/make_conformance.py [PYTHON...]

Lists of rules come from arrowdev.testing, libraries from tests/libraries/conformance_objects.py.
Each library is checked by the first interpreter that has it, this one or PYTHON. Tests compare the
pages with what they find: tests/testing/test_conformance.py, tests/suites/test_page.py,
tests/libraries/test_conformance_table.py.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("testing", "suites", "libraries", "helpers")
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in FOLDERS]

import conformance_objects as objects  # noqa: E402
import test_conformance as suite  # noqa: E402
import test_conformance_table as libraries  # noqa: E402
import test_page as foreign  # noqa: E402

from arrowdev.testing._rules import CONSUMER_RULES, PRODUCER_RULES  # noqa: E402


def version(program, module):
    """The version of a library in an interpreter, None if it has none."""
    code = (
        "import importlib.util, importlib.metadata, sys\n"
        "if importlib.util.find_spec(sys.argv[1]):\n"
        "    print(importlib.metadata.version(sys.argv[2]).partition('+')[0])"
    )
    name = libraries.distribution(module)
    done = subprocess.run(
        [program, "-c", code, module, name], capture_output=True, text=True, check=True
    )
    return done.stdout.strip() or None


def find(programs, module):
    """(interpreter, version) of a library."""
    for program in programs:
        found = version(program, module)
        if found:
            return program, found
    raise SystemExit(f"{module} is in none of: {', '.join(programs)}")


def table(rows, rules, programs):
    """The rows of a table, with a column for each rule that a library breaks."""
    results = []
    for module, expression, *read in rows:
        program, number = find(programs, module)
        how = (module, number, expression, *(read or [None]))
        results.append((how, libraries.checked(program, expression, how[3])))
        print(*how[:3], file=sys.stderr)
    reports = [found for _, found in results if not isinstance(found, str)]
    broken = {finding["rule"] for found in reports for finding in found["findings"]}
    columns = [rule for rule in rules if rule in broken]
    names = [f"`{rule}`" for rule in columns]
    if rules is PRODUCER_RULES:
        head = ["library", "class", "rules held", *names, "object"]
    else:
        head = ["library", "function", "rules held", *names]
    below = [
        "---",
        "---",
        "--:",
        *(":-:" for _ in columns),
        *("---" for _ in head[3 + len(names) :]),
    ]
    lines = [libraries.line(*how, found, columns) for how, found in results]
    in_table = [line for line in lines if line.startswith("|")]
    others = [line for line in lines if not line.startswith("|")]
    return [f"| {' | '.join(head)} |", f"|{'|'.join(below)}|", *in_table], others


def rules(table):
    yield "| rule | what it says | source |"
    yield "|---|---|---|"
    for rule in table.values():
        yield f"| `{rule.id}` | {suite.in_markdown(rule)} |"


def write(path, tables):
    """Put the lines between the marks of a page."""
    page = path.read_text(encoding="utf-8")
    for mark, lines in tables.items():
        text = "\n".join([f"<!-- {mark}: begin -->", *lines, f"<!-- {mark}: end -->"])
        pattern = f"<!-- {mark}: begin -->\n.*?<!-- {mark}: end -->"
        page, n = re.subn(pattern, lambda _, text=text: text, page, flags=re.S)
        assert n == 1, mark
    path.write_text(page, encoding="utf-8")


def main(programs):
    tests = foreign.collected()
    write(
        suite.PAGE,
        {
            "producer rules": rules(PRODUCER_RULES),
            "consumer rules": rules(CONSUMER_RULES),
            "suites": foreign.suites(tests),
            "differences": foreign.differences(tests),
        },
    )
    producers, without = table(objects.PRODUCERS, PRODUCER_RULES, programs)
    consumers, refuse = table(objects.CONSUMERS, CONSUMER_RULES, programs)
    write(
        libraries.PAGE,
        {
            "producers": producers,
            "without": without,
            "consumers": consumers,
        },
    )
    if refuse:
        raise SystemExit("not consumers:\n" + "\n".join(refuse))


if __name__ == "__main__":
    main([sys.executable, *sys.argv[1:]])
