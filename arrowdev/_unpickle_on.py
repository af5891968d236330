"""unpickle_on(), apart from _pickle.py, which imports pickle and is loaded on first use."""

from __future__ import annotations

import os
from contextvars import ContextVar

from arrowdev._core import device as _as_device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextvars import Token

    from typing_extensions import Self

    from arrowdev._core import Device
    from arrowdev.typing import DeviceLike

# The device of a process, for one that unpickles outside of its user's code, as workers do.
VARIABLE = "ARROWDEV_UNPICKLE_ON"

_scope: ContextVar[Device | None] = ContextVar("arrowdev.unpickle_on", default=None)


def current_target() -> Device | None:
    """The device of the innermost unpickle_on(), or else the one of the process, if any."""
    target = _scope.get()
    name = os.environ.get(VARIABLE) if target is None else None
    if not name:
        return target
    try:
        return _as_device(name)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{VARIABLE}={name!r} names no device: {error}") from error


class unpickle_on:
    """Put what is unpickled on `device`, inside ``with``.

    Without it, memory comes back on the device that it was pickled on, which has to be there.
    ``with arrowdev.unpickle_on("cpu"):`` leaves all memory on the host. The device is in a context
    variable: it holds on this thread, or in this asyncio task and the tasks that it creates.
    Elsewhere the environment variable ``ARROWDEV_UNPICKLE_ON`` names the device. It is read
    whenever something is unpickled.
    """

    def __init__(self, device: DeviceLike) -> None:
        self._device = _as_device(device)
        self._tokens: list[Token[Device | None]] = []

    def __repr__(self) -> str:
        return f"arrowdev.unpickle_on({str(self._device)!r})"

    def __enter__(self) -> Self:
        self._tokens.append(_scope.set(self._device))
        return self

    def __exit__(self, *args: object) -> None:
        _scope.reset(self._tokens.pop())
