"""unpickle_on(), apart from _pickle.py, which imports pickle and is loaded on first use."""

from __future__ import annotations

import os
from contextvars import ContextVar

from arrowdev._core import device as _as_device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Self

    from arrowdev._core import Device
    from arrowdev.typing import DeviceLike

# The device of a process, for one that unpickles outside of its user's code, as workers do.
VARIABLE = "ARROWDEV_UNPICKLE_ON"

# The devices of the active scopes, the innermost last. A scope itself has no state: several
# threads and tasks may enter one at the same time.
_targets: ContextVar[tuple[Device, ...]] = ContextVar("arrowdev.unpickle_on", default=())


def current_target() -> Device | None:
    """The device of the innermost unpickle_on(), or else the one of the process, if any."""
    targets = _targets.get()
    if targets:
        return targets[-1]
    name = os.environ.get(VARIABLE)
    if not name:
        return None
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

    def __repr__(self) -> str:
        return f"arrowdev.unpickle_on({str(self._device)!r})"

    def __enter__(self) -> Self:
        _targets.set((*_targets.get(), self._device))
        return self

    def __exit__(self, *args: object) -> None:
        _targets.set(_targets.get()[:-1])
