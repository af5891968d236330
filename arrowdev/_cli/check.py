"""``python -m arrowdev check EXPR``: checks whether a library conforms to the specification."""

import argparse
import contextlib
import json
import os
import select
import signal
import sys
import time
from collections import defaultdict

from arrowdev._cli import check_reports, expression
from arrowdev._cli.terminal import put, write
from arrowdev.testing import _conformance
from arrowdev.testing._report import Report
from arrowdev.testing._rules import CONSUMER_RULES, PRODUCER_RULES, RULES

DESCRIPTION = """\
Try every rule that an object can break: of Arrow's C interfaces, DLPack, array interfaces.

EXPR is a Python expression for the object, evaluated anew for each rule; modules that it names
are imported. The object may be an async stream, too: one with __arrowdev_async_device_stream__,
or a function that takes the capsule of a handler.

  python -m arrowdev check "pyarrow.array([1, None])"
  python -m arrowdev check --consumer "polars.DataFrame" --read "lambda df: df['a'].to_list()"

The check runs in a child of this process. A library that crashes it breaks the rule
process.alive, and leaves a trace of where. The exit status is 1 where a rule is broken, 0 where
none is, and 2 where there is no object to check.
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
    parser.add_argument(
        "--ignore",
        metavar="RULE",
        type=known_rule,
        action="append",
        default=[],
        help="a rule that is known to be broken does not count; may be given again",
    )
    parser.add_argument(
        "--recommended", action="store_true", help="rules that are only recommended count, too"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument(
        "--junit", metavar="FILE", help="write JUnit XML as well, with a test case for each rule"
    )
    parser.add_argument(
        "--badge", metavar="FILE", help="write JSON for a badge of shields.io as well"
    )


def known_rule(text):
    if text not in RULES:
        raise argparse.ArgumentTypeError(f"no such rule: {text}")
    return text


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
    """Return what the child has told.

    The child tells each step, so that the report is complete up to a crash.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    source, target = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(source)
            be_child(arguments, target)
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:  # the caller of this function may be any program
            os._exit(status)
    os.close(target)
    told = Told(arguments.expression)
    try:
        ended = listen(source, told, child)
    finally:
        os.close(source)
    ended = os.waitpid(child, 0)[1] if ended is None else ended
    if not told.is_over:
        told.report.hold("process.alive", False, f"{how_it_ended(ended)} in {told.now}")
    return told


def be_child(arguments, target):
    sys.stdout = sys.stderr  # what a library prints is no report
    with contextlib.suppress(OSError):  # closed by the shell: 2>&-
        os.dup2(2, 1)
    try:
        with os.fdopen(target, "w", encoding="utf-8", buffering=1) as pipe:
            run_child(arguments, pipe)
    finally:
        sys.stderr.flush()


def run_child(arguments, pipe):
    def tell(name, *values):
        pipe.write(json.dumps([name, *values]) + "\n")

    tell("begin", f"the evaluation of {arguments.expression}")
    try:
        report, _ = examine(arguments, tell)
        tell("over", report.subject)
    except (*expression.ERRORS, TypeError) as error:
        tell("refused", type(error).__name__, expression.explanation(error))
    except KeyboardInterrupt:
        tell("interrupted")


class Told:
    """What the child has told.

    ``refusal``: class and text of the error that leaves no object to check, or None.
    ``seconds``: how long it took until a rule was decided, since what was told before.
    """

    def __init__(self, subject):
        self.report = Report(subject)
        self.now = "its start"
        self.is_over = False
        self.refusal = None
        self.seconds = defaultdict(float)
        self._last = time.monotonic()

    def take(self, line):
        name, *values = json.loads(line)
        passed, self._last = time.monotonic() - self._last, time.monotonic()
        if name == "begin":
            (self.now,) = values
        elif name == "over":
            (self.report.subject,) = values
            self.report.hold("process.alive", True, "")
            self.is_over = True
        elif name == "refused":
            self.refusal = values
            self.is_over = True
        elif name == "interrupted":
            raise KeyboardInterrupt
        else:
            self.seconds[values[0]] += passed
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


# --- the command --------------------------------------------------------------------------------


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
    told = examine_in_child(arguments)
    outcome = check_reports.Outcome(arguments, told)
    if told.refusal:
        print(told.refusal[1], file=sys.stderr, end="")
    elif arguments.json:
        put(json.dumps(check_reports.as_json(outcome), indent=2))
    else:
        put("\n".join(check_reports.as_text(outcome)))
    if arguments.junit is not None:
        write(arguments.junit, check_reports.as_junit(outcome))
    if arguments.badge is not None:
        write(arguments.badge, json.dumps(check_reports.as_badge(outcome)) + "\n")
    if told.refusal:
        return 2
    return 1 if outcome.failures else 0
