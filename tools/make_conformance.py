"""Writes the tables of docs/conformance.md anew: python tools/make_conformance.py

The objects and functions are those that the page has; versions and rules are what is found here.
Lists of rules come from arrowdev.testing. tests/testing/test_conformance.py compares the
page with both, tests/suites/test_page.py with the tests of other libraries.
"""

import importlib.metadata
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("testing", "suites", "helpers")]

import test_conformance as suite  # noqa: E402
import test_page as foreign  # noqa: E402

from arrowdev.testing._rules import CONSUMER_RULES, PRODUCER_RULES  # noqa: E402


def row(library, expression, read):
    name = suite.DISTRIBUTIONS.get(library, library)
    version = importlib.metadata.version(name).partition("+")[0]
    found = suite.findings_of(library)[expression, read]
    broken = ", ".join(f"`{id}`" for id in suite.RULES if id in found) or "none"
    cells = [f"{library} {version}", f"`{expression}`", *([f"`{read}`"] if read else []), broken]
    return f"| {' | '.join(cells)} |"


def peers(heading, head):
    body = []
    for case in suite.rows(heading):
        library, _, expression, read, *_ = case.values
        body.append(row(library, expression, read))
    return [head, "|---" * (head.count("|") - 1) + "|", *body]


def rules(table):
    yield "| rule | what it says | source |"
    yield "|---|---|---|"
    for rule in table.values():
        level = "" if rule.level == "must" else " (recommended)"
        yield f"| `{rule.id}` | {rule.text}{level} | {rule.source} |"


def main():
    tables = {
        "producers": peers("Producers", "| library | object | rules that are not kept |"),
        "consumers": peers(
            "Consumers",
            "| library | function | how its result is read | rules that are not kept |",
        ),
        "producer rules": rules(PRODUCER_RULES),
        "consumer rules": rules(CONSUMER_RULES),
    }
    tests = foreign.collected()
    tables |= {"suites": foreign.suites(tests), "differences": foreign.differences(tests)}
    page = suite.PAGE.read_text(encoding="utf-8")
    for mark, lines in tables.items():
        text = "\n".join(lines)
        pattern = rf"(<!-- {mark}: begin -->\n).*?(\n<!-- {mark}: end -->)"
        page = re.sub(pattern, lambda match, t=text: match[1] + t + match[2], page, flags=re.S)
    suite.PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
