"""Errors as the C core raises them: attributes set, the hint in the message."""

from __future__ import annotations

from arrowdev._core import DeviceType, ExchangeError, _log, _shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from arrowdev._core import Array, Device


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


def require_host(wrapped: Array, what: str) -> None:
    """Raise ExchangeError unless the host can read the memory of an Array now."""
    try:
        wrapped.__arrow_c_array__  # noqa: B018
    except AttributeError as refusal:
        why = str(refusal).partition(": ")[2]
        found = f"found memory of {wrapped.device}"
        raise exchange_error(
            f"{what} needs host memory, " + (found if why.startswith("its memory is on") else why),
            reason="event" if wrapped.device_type == DeviceType.CPU else "device",
            hint='bring the data to the host with .to("cpu")',
            device=wrapped.device,
        ) from None
