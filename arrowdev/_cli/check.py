"""``python -m arrowdev check EXPR``: checks whether a library conforms to the specification."""

import json
import sys

from arrowdev._cli import expression
from arrowdev._cli.machine import FORMAT
from arrowdev._cli.terminal import put, wrapped
from arrowdev.testing import _conformance
from arrowdev.testing._rules import CONSUMER_RULES, PRODUCER_RULES

DESCRIPTION = """\
Try every rule that an object can break: of Arrow's C interfaces, DLPack, array interfaces.

EXPR is a Python expression for the object, evaluated anew for each rule; modules that it names
are imported. The object may be an async stream, too: one with __arrowdev_async_device_stream__,
or a function that takes the capsule of a handler.

  python -m arrowdev check "pyarrow.array([1, None])"
  python -m arrowdev check --consumer "polars.DataFrame" --read "lambda df: df['a'].to_list()"

The exit status is 1 where a rule is broken, 0 where none is. A library that crashes leaves a
trace of where.
"""


def add_arguments(parser):
    parser.add_argument("expression", metavar="EXPR")
    parser.add_argument(
        "--consumer",
        action="store_true",
        help="EXPR is a function that takes arrays of others, and the rules are those for it",
    )
    parser.add_argument(
        "--read",
        metavar="EXPR",
        help="with --consumer: a function that makes a list of what the other returns",
    )
    parser.add_argument(
        "--failing",
        metavar="EXPR",
        help="an object whose stream fails, for the rules about errors",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def examine(arguments):
    make = expression.compiled(arguments.expression)
    if arguments.consumer:
        read = expression.compiled(arguments.read)() if arguments.read else None
        if read is not None and not callable(read):
            raise TypeError(f"--read is of type {type(read).__name__}, expected a function")
        return _conformance.consumer_report(make(), read=read), CONSUMER_RULES
    failing = expression.compiled(arguments.failing) if arguments.failing else None
    return _conformance.producer_report(make, failing=failing), PRODUCER_RULES


def as_json(report):
    findings = [
        {
            "rule": finding.rule.id,
            "level": finding.rule.level,
            "source": finding.rule.source,
            "text": finding.rule.text,
            "found": finding.what,
        }
        for finding in report.findings.values()
    ]
    return {
        "format": FORMAT,
        "subject": report.subject,
        "held": sorted(report.held),
        "findings": findings,
        "untried": report.untried,
    }


def report_lines(report, rules):
    yield report.subject
    for word, level in (("BROKEN", "must"), ("not followed", "should")):
        for finding in report.findings.values():
            if finding.rule.level == level:
                yield from paragraph(word, finding.rule, f"found: {finding.what}")
    for rule, why in report.untried.items():
        yield from paragraph("not tried", rules[rule], why)
    yield ""
    n = len(report.held) + len(report.findings)
    n_others = len(rules) - len(report.held | set(report.findings) | set(report.untried))
    yield f"{len(report.held)} of {n} rules held; {n_others} others do not apply"


def paragraph(word, rule, what):
    yield ""
    yield f"{word}: {rule.id}"
    for text in (f"{rule.text} ({rule.source})", what):
        yield from wrapped(text, "  ", "  ")


def misused_option(arguments):
    """Return the error of an option that the other options leave without effect, or None."""
    if arguments.read is not None and not arguments.consumer:
        return "--read needs --consumer: it reads what a consumer returns"
    if arguments.failing is not None and arguments.consumer:
        return "--failing is an object of a producer, and does not go with --consumer"
    return None


def run(arguments):
    misuse = misused_option(arguments)
    if misuse:
        print(f"check: {misuse}", file=sys.stderr)
        return 2
    try:
        report, rules = examine(arguments)
    except (*expression.ERRORS, TypeError) as error:
        expression.explain(error)
        return 2
    if arguments.json:
        put(json.dumps(as_json(report), indent=2))
    else:
        put("\n".join(report_lines(report, rules)))
    return 1 if report.broken else 0
