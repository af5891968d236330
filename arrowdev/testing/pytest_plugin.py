"""``pytest -p arrowdev.testing.pytest_plugin``: a test for each rule of the specification.

A test with the mark ``arrow_producer(factory, ...)`` or ``arrow_consumer(consume, ...)`` and the
fixture ``arrow_rule`` runs once per rule. The marks take the arguments of ``check_producer`` and
``check_consumer``. Rules that do not apply count as deselected: which they are is known only after
the first of them has run, since fixtures may set up what the factory needs.
"""

from __future__ import annotations

import pytest

from arrowdev.testing import _conformance
from arrowdev.testing._report import ConformanceError, Report
from arrowdev.testing._rules import CONSUMER_RULES, PRODUCER_RULES, Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

_MARKS = {
    "arrow_producer": (_conformance.producer_report, PRODUCER_RULES),
    "arrow_consumer": (_conformance.consumer_report, CONSUMER_RULES),
}


class _DoesNotApply(pytest.skip.Exception):  # type: ignore[misc,name-defined,unused-ignore]
    """The rule does not apply to the object."""


class _Examined:
    """The report that all rules of one test share, created for the first of them."""

    def __init__(self, make: Callable[[], Report], ignore: Any, recommended: bool) -> None:
        self.make, self.ignore, self.recommended = make, frozenset(ignore), recommended
        self.report: Report | None = None

    def result(self) -> Report:
        if self.report is None:
            self.report = self.make()
        return self.report


class ArrowRule:
    """The value of the fixture ``arrow_rule``: one rule and its result."""

    def __init__(self, rule: Rule, examined: _Examined) -> None:
        self.rule = rule
        self._examined = examined

    def __repr__(self) -> str:
        return self.rule.id

    def check(self) -> None:
        """Raise ConformanceError if the rule is broken; skip if it was not tried."""
        report = self._examined.result()
        finding = report.findings.get(self.rule.id)
        if finding is None:
            if self.rule.id in report.held:
                return
            if self.rule.id in report.untried:
                pytest.skip(f"not tried: {report.untried[self.rule.id]}")
            raise _DoesNotApply(f"{self.rule.id} does not apply to {report.subject}")
        if self.rule.id in self._examined.ignore:
            pytest.skip(f"ignored: {finding}")
        if self.rule.level == "should" and not self._examined.recommended:
            pytest.skip(f"recommended only: {finding}")
        raise ConformanceError(f"{report.subject}: {finding}")


def pytest_configure(config: pytest.Config) -> None:
    for name in _MARKS:
        config.addinivalue_line(
            "markers", f"{name}(...): see arrowdev.testing.check_{name.partition('_')[2]}"
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "arrow_rule" not in metafunc.fixturenames:
        return
    for name, (examine, rules) in _MARKS.items():
        mark = metafunc.definition.get_closest_marker(name)
        if mark is None:
            continue
        keywords = dict(mark.kwargs)
        ignore = keywords.pop("ignore", ())
        recommended = keywords.pop("recommended", False)
        examined = _Examined(
            lambda e=examine, a=mark.args, k=keywords: e(*a, **k),  # type: ignore[misc]
            ignore,
            recommended,
        )
        cases = [ArrowRule(rule, examined) for rule in rules.values()]
        metafunc.parametrize("arrow_rule", cases, ids=list(rules), indirect=True)
        return
    raise pytest.UsageError(
        f"{metafunc.definition.nodeid} uses arrow_rule, but has no mark "
        "arrow_producer(factory) or arrow_consumer(consume)"
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, None]:
    outcome = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, _DoesNotApply):
        outcome.get_result().arrow_rule_does_not_apply = True
        item.session.testscollected -= 1


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    does_not_apply = getattr(report, "arrow_rule_does_not_apply", False)
    return ("deselected", "", "") if does_not_apply else None


@pytest.fixture
def arrow_rule(request: pytest.FixtureRequest) -> ArrowRule:
    """Return one rule of the specification; ``arrow_rule.check()`` fails if it is broken."""
    rule: ArrowRule = request.param
    return rule
