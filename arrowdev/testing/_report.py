"""The findings of a check."""

from __future__ import annotations

from dataclasses import dataclass, field

from arrowdev._core import _shown
from arrowdev._errors import described
from arrowdev.testing._rules import RULES, Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any


@dataclass(frozen=True)
class Finding:
    """A broken rule, and the fault."""

    rule: Rule
    what: str

    def __str__(self) -> str:
        word = "broken" if self.rule.level == "must" else "not followed"
        return f"{word}: {self.rule}: {self.what}"


class ConformanceError(AssertionError):
    """A library does not conform to the specification."""


@dataclass
class Report:
    """The findings of a check.

    ``untried``: ids of rules that this machine cannot check, and why. The others that are neither
    held nor broken did not apply.
    """

    subject: str
    held: set[str] = field(default_factory=set)
    findings: dict[str, Finding] = field(default_factory=dict)
    untried: dict[str, str] = field(default_factory=dict)
    observer: Callable[..., None] | None = field(default=None, repr=False, compare=False)
    """Called with the name and the arguments of ``hold``, ``untry`` and ``begin``."""
    rules: dict[str, Rule] = field(default_factory=lambda: RULES, repr=False, compare=False)

    def begin(self, what: str) -> None:
        """Say what is done next, in case that it ends the process."""
        self._tell("begin", what)

    def _tell(self, name: str, *arguments: Any) -> None:
        if self.observer is not None:
            self.observer(name, *arguments)

    def part(self) -> Report:
        """Return a report of the same object, for ``add``."""

        def begin(name: str, *arguments: Any) -> None:
            if name == "begin":
                self._tell(name, *arguments)

        return Report(self.subject, observer=begin, rules=self.rules)

    def hold(self, id: str, is_held: object, what: str) -> bool:
        """Record that a rule was checked; `what` describes the fault if the rule is broken."""
        self._tell("hold", id, bool(is_held), what)
        self.untried.pop(id, None)
        if is_held:
            if id not in self.findings:
                self.held.add(id)
        else:
            self.held.discard(id)
            self.findings.setdefault(id, Finding(self.rules[id], _shown(what)))
        return bool(is_held)

    def untry(self, id: str, why: str) -> None:
        """Record that a rule cannot be checked; no effect if it was checked elsewhere."""
        self._tell("untry", id, why)
        if id not in self.held and id not in self.findings:
            self.untried[id] = why

    def add(self, other: Report) -> None:
        """Add the contents of another report."""
        for id in other.held:
            self.hold(id, True, "")
        for id, finding in other.findings.items():
            self.hold(id, False, finding.what)
        for id, why in other.untried.items():
            self.untry(id, why)

    def attempt(self, id: str, call: Any, *arguments: Any, **keywords: Any) -> Any:
        """Return the result of the call; None, with a finding, if it raises."""
        try:
            return call(*arguments, **keywords)
        except Exception as error:
            self.hold(id, False, described(error))
            return None

    def guard(self, id: str, call: Any, *arguments: Any) -> Any:
        """Return the result of the call; None, with a finding, if its exception ends programs.

        This is a SystemExit, or the panic of a Rust library, but not the user's interrupt.
        """
        try:
            result = call(*arguments)
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.hold(id, False, described(error))
            return None
        self.hold(id, True, "")
        return result

    @property
    def broken(self) -> list[Finding]:
        """Findings of the level "must"."""
        return [f for f in self.findings.values() if f.rule.level == "must"]

    def failures(self, ignore: Collection[str] = (), recommended: bool = False) -> list[Finding]:
        """Return the findings that count: rules that are not ignored, of the wanted levels."""
        if isinstance(ignore, str) or not all(isinstance(id, str) for id in ignore):
            raise TypeError(f"ignore must be a collection of ids of rules, not {ignore!r}")
        unknown = set(ignore) - set(self.rules)
        if unknown:
            raise ValueError(f"no such rules: {', '.join(sorted(unknown))}")
        return [
            finding
            for finding in self.findings.values()
            if finding.rule.id not in ignore and (recommended or finding.rule.level == "must")
        ]

    def require(self, ignore: Collection[str] = (), recommended: bool = False) -> None:
        """Raise ConformanceError if a rule is broken and not ignored."""
        found = self.failures(ignore, recommended)
        if found:
            raise ConformanceError("\n".join([f"{self.subject}:", *lines(found)]))


def lines(findings: Iterable[Finding]) -> list[str]:
    return [f"  {finding}" for finding in findings]
