"""Signals that come while the host waits."""

import contextlib
import faulthandler
import signal
import sys

import pytest


class Interrupted(Exception):
    """Raised by the handler of a signal."""


@contextlib.contextmanager
def signals(action, every=0.1):
    """`action` is called in the main thread, now and then: however long it takes to get there,
    one signal comes during the wait."""
    # pytest's timeout is a timer, too, and rests meanwhile.
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
    """Call `wait`, which is to be ended by a signal."""
    is_waiting = [True]
    with signals(raise_once(is_waiting)), pytest.raises(Interrupted):
        wait()
    assert not is_waiting
