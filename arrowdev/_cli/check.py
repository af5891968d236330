"""``python -m arrowdev check EXPR``: checks whether a library conforms to the specification."""

import json
import os
import select
import signal
import sys

from arrowdev._cli import expression
from arrowdev._cli.machine import FORMAT
from arrowdev._cli.terminal import put, wrapped
from arrowdev.testing import _conformance
from arrowdev.testing._report import Report
from arrowdev.testing._rules import CONSUMER_RULES, PRODUCER_RULES

DESCRIPTION = """\
Try every rule that an object can break: of Arrow's C interfaces, DLPack, array interfaces.

EXPR is a Python expression for the object, evaluated anew for each rule; modules that it names
are imported. The object may be an async stream, too: one with __arrowdev_async_device_stream__,
or a function that takes the capsule of a handler.

  python -m arrowdev check "pyarrow.array([1, None])"
  python -m arrowdev check --consumer "polars.DataFrame" --read "lambda df: df['a'].to_list()"

The check runs in a child of this process. A library that crashes it breaks the rule
process.alive, and leaves a trace of where. The exit status is 1 where a rule is broken, 0 where
none is.
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


def examine(arguments, observer=None):
    """Return the report and the rules that it is about."""
    make = expression.compiled(arguments.expression)
    if arguments.consumer:
        read = expression.compiled(arguments.read)() if arguments.read else None
        if read is not None and not callable(read):
            raise TypeError(f"--read is of type {type(read).__name__}, expected a function")
        return _conformance.consumer_report(make(), read=read, observer=observer), CONSUMER_RULES
    failing = expression.compiled(arguments.failing) if arguments.failing else None
    report = _conformance.producer_report(make, failing=failing, observer=observer)
    return report, PRODUCER_RULES


# --- the child ----------------------------------------------------------------------------------


def examine_in_child(arguments):
    """Return the report, None if the child has said why there is none.

    The child tells each step, so that the report is complete up to a crash.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    source, target = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        with os.fdopen(target, "w", encoding="utf-8", buffering=1) as pipe:
            run_child(arguments, pipe)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    os.close(target)
    told = Told(arguments.expression)
    try:
        ended = listen(source, told, child)
    finally:
        os.close(source)
    ended = os.waitpid(child, 0)[1] if ended is None else ended
    if not told.is_over:
        told.report.hold("process.alive", False, f"{how_it_ended(ended)} in {told.now}")
    return told.report if not told.is_refused else None


def run_child(arguments, pipe):
    def tell(name, *values):
        pipe.write(json.dumps([name, *values]) + "\n")

    tell("begin", f"the evaluation of {arguments.expression}")
    try:
        report, _ = examine(arguments, tell)
        tell("over", report.subject)
    except (*expression.ERRORS, TypeError) as error:
        expression.explain(error)
        tell("refused")
    except KeyboardInterrupt:
        tell("interrupted")


class Told:
    """What the child has told."""

    def __init__(self, subject):
        self.report = Report(subject)
        self.now = "its start"
        self.is_over = self.is_refused = False

    def take(self, line):
        name, *values = json.loads(line)
        if name == "begin":
            (self.now,) = values
        elif name == "over":
            (self.report.subject,) = values
            self.report.hold("process.alive", True, "")
            self.is_over = True
        elif name == "refused":
            self.is_over = self.is_refused = True
        elif name == "interrupted":
            raise KeyboardInterrupt
        else:
            getattr(self.report, name)(*values)


def listen(source, told, child):
    """Take lines until the last one. Return the status of a child that ended before, or None.

    A process that the child has left behind may keep the pipe open.
    """
    ended, rest = None, b""
    while not told.is_over:
        if not select.select([source], [], [], 0.1)[0]:
            if ended is not None:
                break
            pid, status = os.waitpid(child, os.WNOHANG)
            ended = status if pid else None
            continue
        found = os.read(source, 1 << 16)
        if not found:
            break
        *lines, rest = (rest + found).split(b"\n")
        for line in lines:
            told.take(line)
    return ended


def how_it_ended(status):
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"the process ended with the status {code}"
    return f"the process ended by signal {-code} ({signal.strsignal(-code)})"


# --- the report ---------------------------------------------------------------------------------


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
    rules = CONSUMER_RULES if arguments.consumer else PRODUCER_RULES
    report = examine_in_child(arguments)
    if report is None:
        return 2
    if arguments.json:
        put(json.dumps(as_json(report), indent=2))
    else:
        put("\n".join(report_lines(report, rules)))
    return 1 if report.broken else 0
