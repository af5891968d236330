"""Every call of a runtime fails in turn."""

import arrowdev as ad

ERRORS = (ad.DeviceError, ad.ExchangeError, MemoryError)


def fail_every_call(fail_at, count_calls, run):
    """Calls run() with the first call of the runtime failing, then the second, and so on, until
    run() makes no call that could fail. Returns how often run() failed."""
    n_failed = 0
    for n in range(1, 1000):
        before = count_calls()
        fail_at(n)
        try:
            run()
        except ERRORS:
            n_failed += 1
        finally:
            n_made = count_calls() - before
            fail_at(0)
        if n_made < n:
            return n_failed
    raise AssertionError("it never got through")
