"""The logger "arrowdev", for messages of the core (csrc/base/log.h).

The core imports this module when the first message might be wanted, not `import arrowdev`:
logging takes milliseconds to import.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings

from arrowdev import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

LOGGER = logging.getLogger("arrowdev")


def is_on() -> bool:
    """Whether the level lets messages pass. Logger.debug() asks again, also for `disabled`."""
    return LOGGER.getEffectiveLevel() <= logging.DEBUG and LOGGER.manager.disable < logging.DEBUG


class _Levels(dict[int, bool]):
    """Logger._cache. logging has no callback for a change of levels, but it clears this then."""

    def clear(self) -> None:
        super().clear()
        _core._log_turn(is_on())


def connect() -> bool:
    """Let the core know now, and with every change of a level, whether messages are on.

    If Logger has no such cache, the core goes on asking here before each message.
    """
    if isinstance(vars(LOGGER).get("_cache"), dict):
        vars(LOGGER)["_cache"] = _Levels()
        told = None
        while told is not is_on():  # again if another thread has changed a level meanwhile
            told = is_on()
            _core._log_turn(told)
    return is_on()


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "arrowdev"


def write(line: str) -> None:
    """Log a line as of the code that called arrowdev."""
    stacklevel = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
        stacklevel += 1
    LOGGER.debug(line, stacklevel=stacklevel)


def read_environment() -> None:
    """ARROWDEV_LOG=debug writes the messages to stderr."""
    value = os.environ["ARROWDEV_LOG"]
    if value.lower() != "debug":
        warnings.warn(
            f"ARROWDEV_LOG is {value!r}, expected 'debug': no messages are written",
            RuntimeWarning,
            stacklevel=3,
        )
        return
    if not any(handler.name == "ARROWDEV_LOG" for handler in LOGGER.handlers):
        handler = logging.StreamHandler()
        handler.name = "ARROWDEV_LOG"
        handler.setFormatter(logging.Formatter("%(filename)s:%(lineno)d: arrowdev: %(message)s"))
        LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)
    connect()
