"""Signals during a wait of the host."""

import contextlib
import faulthandler
import signal
import sys

import pytest


class Interrupted(Exception):
    """Raised by the handler of a signal."""


@contextlib.contextmanager
def signals(action, every=0.1):
    """Calls `action` in the main thread repeatedly, so that at least one signal comes during
    the wait, however late it starts."""
    # pytest's timeout is a timer, too, and is suspended meanwhile.
    faulthandler.dump_traceback_later(100, file=sys.__stderr__, exit=True)
    before = signal.signal(signal.SIGALRM, lambda number, frame: action())
    timer = signal.setitimer(signal.ITIMER_REAL, every, every)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)
        faulthandler.cancel_dump_traceback_later()


def raise_once(is_waiting):
    def handler():
        if is_waiting:
            is_waiting.clear()
            raise Interrupted

    return handler


def interrupt(wait):
    """Calls `wait` and expects that a signal ends it."""
    is_waiting = [True]
    with signals(raise_once(is_waiting)), pytest.raises(Interrupted):
        wait()
    assert not is_waiting
