"""What ``python -m arrowdev check`` found: as text, as JSON, as JUnit XML, and on a badge."""

import datetime
import platform
import xml.etree.ElementTree as xml

from arrowdev._cli.machine import machine
from arrowdev._cli.terminal import wrapped
from arrowdev._core import _shown
from arrowdev.testing._rules import CONSUMER_RULES, PRODUCER_RULES


class Outcome:
    """A report, and what of it counts by the options of the command."""

    def __init__(self, arguments, told):
        self.expression = arguments.expression
        self.kind = "consumer" if arguments.consumer else "producer"
        self.rules = CONSUMER_RULES if arguments.consumer else PRODUCER_RULES
        self.report, self.seconds, self.refusal = told.report, told.seconds, told.refusal
        self.ignored = arguments.ignore
        self.failures = self.report.failures(arguments.ignore, arguments.recommended)

    @property
    def others(self):
        """Ids of the rules that do not apply."""
        report = self.report
        return [
            id
            for id in self.rules
            if id not in report.held and id not in report.findings and id not in report.untried
        ]


# --- text ---------------------------------------------------------------------------------------


def as_text(outcome):
    report = outcome.report
    yield report.subject
    for word, level in (("BROKEN", "must"), ("not followed", "should")):
        for finding in report.findings.values():
            if finding.rule.level == level:
                ignored = ", ignored" if finding.rule.id in outcome.ignored else ""
                yield from paragraph(word + ignored, finding.rule, f"found: {finding.what}")
    for id, why in report.untried.items():
        yield from paragraph("not tried", outcome.rules[id], why)
    yield ""
    n = len(report.held) + len(report.findings)
    yield f"{len(report.held)} of {n} rules held; {len(outcome.others)} others do not apply"


def paragraph(word, rule, what):
    yield ""
    yield f"{word}: {rule.id}"
    for text in (f"{rule.text} ({rule.source})", what):
        yield from wrapped(text, "  ", "  ")


# --- JSON ---------------------------------------------------------------------------------------


def as_json(outcome):
    """Return what docs/_static/check.schema.json describes."""
    report = outcome.report
    findings = [
        {
            "rule": finding.rule.id,
            "level": finding.rule.level,
            "source": finding.rule.source,
            "text": finding.rule.text,
            "found": finding.what,
            "counts": finding in outcome.failures,
        }
        for finding in report.findings.values()
    ]
    return {
        **machine(),
        "kind": outcome.kind,
        "expression": outcome.expression,
        "subject": report.subject,
        "conforms": not outcome.failures,
        "held": sorted(report.held),
        "findings": findings,
        "untried": report.untried,
        "not_applicable": outcome.others,
    }


def as_badge(outcome):
    """Return what the badge "endpoint" of shields.io shows."""
    report, failures = outcome.report, outcome.failures
    n = len(report.held) + len(report.findings)
    if outcome.refusal:
        message, color = "not checked", "lightgrey"
    elif failures:
        message, color = f"{len(failures)} of {n} rules broken", "red"
    else:
        message, color = f"{len(report.held)} of {n} rules held", "brightgreen"
    badge = {"schemaVersion": 1, "label": "Arrow and DLPack", "message": message, "color": color}
    return {**badge, "isError": True} if outcome.refusal else badge


# --- JUnit XML ----------------------------------------------------------------------------------


def as_junit(outcome):
    """Return JUnit XML: a test case for each rule that applies.

    The order of elements and the attributes are those that Ant, Jenkins, GitLab and the actions
    of GitHub accept.
    """
    cases = list(junit_cases(outcome))
    n_of = {kind: str(sum(case.find(kind) is not None for case in cases)) for kind in COUNTED}
    took = f"{sum(outcome.seconds.values()):.3f}"
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    counts = {
        "name": _shown(f"arrowdev check {outcome.expression}"),
        "tests": str(len(cases)),
        **{COUNTED[kind]: n for kind, n in n_of.items()},
        "time": took,
    }
    top = xml.Element("testsuites", counts)
    suite = xml.SubElement(
        top, "testsuite", {**counts, "timestamp": now, "hostname": platform.node() or "localhost"}
    )
    properties = xml.SubElement(suite, "properties")
    for name, value in machine().items():
        xml.SubElement(properties, "property", {"name": name, "value": str(value)})
    suite.extend(cases)
    xml.indent(top)
    return xml.tostring(top, encoding="unicode", xml_declaration=True) + "\n"


# The element of a test case that did not pass, and the attribute that counts it.
COUNTED = {"failure": "failures", "error": "errors", "skipped": "skipped"}


def junit_cases(outcome):
    report = outcome.report
    if outcome.refusal:
        kind, text = outcome.refusal
        case = junit_case(outcome, "object")
        last_line = text.strip().rpartition("\n")[2]
        xml.SubElement(case, "error", {"type": kind, "message": last_line}).text = text
        yield case
        return
    for rule in outcome.rules.values():
        finding = report.findings.get(rule.id)
        if finding is None and rule.id not in report.held and rule.id not in report.untried:
            continue
        case = junit_case(outcome, rule.id)
        if finding in outcome.failures:
            said = {"type": rule.level, "message": finding.what}
            xml.SubElement(case, "failure", said).text = str(finding)
        elif finding is not None:
            why = "ignored" if rule.id in outcome.ignored else "recommended only"
            xml.SubElement(case, "skipped", {"message": f"{why}: {finding}"})
        elif rule.id in report.untried:
            why = _shown(report.untried[rule.id])
            xml.SubElement(case, "skipped", {"message": f"not tried: {why}"})
        yield case


def junit_case(outcome, name):
    took = f"{outcome.seconds.get(name, 0):.3f}"
    return xml.Element(
        "testcase", {"classname": _shown(outcome.report.subject), "name": name, "time": took}
    )
