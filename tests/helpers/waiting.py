"""Calls on threads of their own, and waits with a limit."""

import threading

import pytest

LIMIT = 60  # seconds


class Call:
    """A function that runs on its own thread; result() waits for its end."""

    def __init__(self, function):
        self._function = function
        self._result = self._error = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error

    def is_running(self):
        return self._thread.is_alive()

    def result(self):
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error
        return self._result


def wait_until(condition):
    for _ in range(LIMIT * 100):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail("it never came true")
