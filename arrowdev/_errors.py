"""Errors as the C core raises them: attributes set, the hint in the message."""

from arrowdev._core import ExchangeError


def exchange_error(message, *, reason, hint, device=None):
    error = ExchangeError(f"{message}; {hint}")
    error.reason = reason
    error.hint = hint
    error.device = device
    return error


def require_host(wrapped, what):
    """ExchangeError unless the host can read the memory of an Array now."""
    try:
        wrapped.__arrow_c_array__  # noqa: B018
    except AttributeError as refusal:
        raise exchange_error(
            f"{what} needs host memory: {str(refusal).partition(': ')[2]}",
            reason="device" if wrapped.sync_event is None else "event",
            hint="bring the data to the host in the library that made them",
            device=wrapped.device,
        ) from None
