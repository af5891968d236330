"""A test for each rule of the specification.

``test_arrow = arrowdev_conformance("mylib.make")`` in a test module makes them. With ``pytest -p
arrowdev.testing.pytest_plugin`` rules that do not apply count as deselected, not as skipped, and
a test may be written by hand: one with the mark ``arrow_producer(factory, ...)`` or
``arrow_consumer(consume, ...)`` and the fixture ``arrow_rule`` runs once per rule. The marks take
the arguments of ``check_producer`` and ``check_consumer``.

Which rules apply is known only after the first of them has run, since fixtures may set up what the
factory needs.
"""

from __future__ import annotations

import pkgutil

import pytest

from arrowdev.testing import _conformance
from arrowdev.testing._report import ConformanceError, Report
from arrowdev.testing._rules import CONSUMER_RULES, PRODUCER_RULES, RULES, Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator
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


def arrowdev_conformance(
    factory: str | Callable[[], Any] | None = None,
    *,
    consumer: str | Callable[[Any], Any] | None = None,
    failing: str | Callable[[], Any] | None = None,
    read: str | Callable[[Any], Any] | None = None,
    ignore: Collection[str] = (),
    recommended: bool = False,
) -> Any:
    """Return a test for each rule that an object, or a consumer, can break.

    Parameters
    ----------
    factory, failing : str or callable
        As in ``check_producer``. A string is the name of a function, such as ``"mylib.make"``; it
        is imported when the first test runs.
    consumer, read : str or callable
        The arguments of ``check_consumer``, in place of a factory.
    ignore, recommended
        As in ``check_producer``.

    Examples
    --------
    >>> from arrowdev.testing.pytest_plugin import arrowdev_conformance
    >>> test_arrow = arrowdev_conformance("mylib.make")
    >>> test_import = arrowdev_conformance(consumer="mylib.from_arrow", read="mylib.to_list")
    """
    if (factory is None) == (consumer is None):
        raise TypeError("arrowdev_conformance() takes a factory or consumer=, one of them")
    if consumer is not None and failing is not None:
        raise TypeError("failing= goes with a factory, not with consumer=")
    if consumer is None and read is not None:
        raise TypeError("read= goes with consumer=, not with a factory")
    unknown = set(ignore) - set(RULES)
    if unknown:
        raise ValueError(f"no such rules: {', '.join(sorted(unknown))}")
    main, rules = (factory, PRODUCER_RULES) if consumer is None else (consumer, CONSUMER_RULES)

    def examine() -> Report:
        if consumer is None:
            return _conformance.producer_report(_resolved(main), failing=_resolved(failing))
        return _conformance.consumer_report(_resolved(main), read=_resolved(read))

    examined = _Examined(examine, ignore, recommended)
    cases = [ArrowRule(rule, examined) for rule in rules.values()]

    @pytest.mark.parametrize("rule", cases, ids=list(rules))
    def test(rule: ArrowRule) -> None:
        rule.check()

    return test


def _resolved(named: Any) -> Any:
    return pkgutil.resolve_name(named) if isinstance(named, str) else named


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
