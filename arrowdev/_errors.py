"""Errors as the C core raises them: attributes set, the hint in the message."""

from __future__ import annotations

from arrowdev._core import ExchangeError, _log, _shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from arrowdev._core import Device


def described(error: BaseException) -> str:
    """Return ``"ValueError: its text"``; ``str()`` of some errors raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, which has no text"


def exchange_error(
    message: str, *, reason: str, hint: str, device: Device | None = None
) -> ExchangeError:
    """Return an ExchangeError: `message` has the found and expected values, `hint` the remedy."""
    error = ExchangeError(_shown(f"{message}; {hint}"))
    _log(f"refusal ({reason}): {error}")
    error.reason = reason
    error.hint = hint
    error.device = device
    return error
