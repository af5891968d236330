"""The rules of the specification that a stream's ends can break, and how a broken one is told."""

from __future__ import annotations

from typing import NamedTuple

from arrowdev.testing._conformance_rules import Rule

_DATA = "Arrow C data interface, Released structure"
_PULL = "Device Stream Interface"
_STREAM = f"{_PULL}, The ArrowDeviceArrayStream structure"
_ASYNC = "Async Device Stream Interface"
_HANDLER = f"{_ASYNC}, The ArrowAsyncDeviceStreamHandler structure"
_TASK = f"{_ASYNC}, The ArrowAsyncTask structure"
_PRODUCER = f"{_ASYNC}, The ArrowAsyncProducer structure"

_TEXTS = {
    # --- every struct
    "released-once": ("whoever holds a struct releases it exactly once", _DATA),
    "release-marks": ("release sets the struct's release to NULL", _DATA),
    "mandatory": ("no mandatory member is NULL", f"{_PULL} and {_ASYNC}, Structure definition"),
    "valid-array": ("a batch is a valid array of the stream's schema", f"{_PULL}, Semantics"),
    "device-type": ("every batch is on the device type that was announced", _STREAM),
    # --- pull streams
    "not-after-release": ("nothing is called on a released stream", _STREAM),
    "error-before-last-error": ("get_last_error follows a call that failed", _STREAM),
    "error-text": ("get_last_error gives UTF-8 or NULL", _STREAM),
    "one-schema": ("the schema is the same whenever it is asked for", f"{_PULL}, Semantics"),
    "end-stays": ("after the end of the stream there is no batch", _STREAM),
    "one-at-a-time": ("calls of a stream are serialized", f"{_PULL}, Thread safety"),
    # --- async streams: the consumer's
    "request-positive": ("request is called with a number above 0", _PRODUCER),
    "producer-alive": (
        "the producer is called after on_schema began and before release",
        f"{_ASYNC}, ArrowAsyncProducer Lifetime",
    ),
    "producer-untouched": ("on_error and release call nothing of the producer", _HANDLER),
    "schema-moved": (
        "on_schema moves the schema out, or releases it",
        f"{_ASYNC}, Result lifetimes",
    ),
    "task-copied": ("a task that is used after on_next_task was copied in it", _HANDLER),
    "extract-once": ("extract_data is called exactly once for every task", _TASK),
    # --- async streams: the producer's
    "producer-populated": ("handler->producer is set before on_schema", _HANDLER),
    "schema-first": ("on_schema comes once, before anything but on_error", _HANDLER),
    "requested": ("no more tasks come than were requested", _PRODUCER),
    "only-release-follows": (
        "after the end, an error or a refusal only release follows",
        f"{_HANDLER}; Error Handling",
    ),
    "release-last": ("release is called exactly once, as the last call", _HANDLER),
    "serialized": ("calls of the handler are serialized", f"{_ASYNC}, Thread safety"),
    "not-reentrant": ("request calls neither on_next_task nor on_error", _PRODUCER),
    "cancel-quiet": ("cancel calls nothing of the handler but on_error", _PRODUCER),
    "cancel-no-error": ("a cancel that succeeds leads to no on_error", _PRODUCER),
    "request-refused": ("request(n) with n <= 0 leads to on_error", _PRODUCER),
    "extract-error": ("after extract_data failed, on_error comes", _TASK),
}

RULES: dict[str, Rule] = {name: Rule(name, *row) for name, row in _TEXTS.items()}


class Broken(NamedTuple):
    """One rule that was broken: its name in RULES, and how."""

    rule: str
    what: str

    def __str__(self) -> str:
        rule = RULES[self.rule]
        return f"{self.what}\n    rule {self.rule!r}: {rule.text} ({rule.source})"


class BrokenRule(AssertionError):
    """A stream's end broke rules of the specification; ``broken`` lists them."""

    def __init__(self, broken: list[Broken]) -> None:
        super().__init__("\n".join(str(one) for one in broken))
        self.broken = broken
