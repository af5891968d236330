"""Threads that begin at the same time. Imports nothing of arrowdev."""

import threading


def run_at_once(n, run, patience=60):
    """Calls run(k) for k < n on a thread each, and raises the first exception of one."""
    start = threading.Barrier(n)
    failures = []

    def begin(k):
        try:
            start.wait(patience)
            run(k)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=begin, args=(k,)) for k in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
