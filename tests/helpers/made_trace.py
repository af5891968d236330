"""Traces that are made up, in the format that docs/trace.md states."""

ORIGIN = 5_000_000.0  # microseconds of the clock at the first event


class MadeTrace:
    """Events on the rows of a host thread and of queues."""

    def __init__(self):
        self.events = []
        self.other = {"arrowdev": "0.1.0", "pid": 41, "command": ["app.py"], "dropped": 0}

    def name(self, pid, process, **threads):
        self._meta("process_name", pid, 0, name=process)
        self._meta("process_sort_index", pid, 0, sort_index=pid)
        for number, thread in enumerate(threads.values()):
            self._meta("thread_name", pid, number, name=thread)
        return self

    def _meta(self, name, pid, tid, /, **args):
        self.events.append({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args})

    def slice(self, row, start, duration, name, category, **args):
        self.events.append(self._event("X", row, start, name, category, args) | {"dur": duration})
        return self

    def instant(self, row, time, name, category, **args):
        self.events.append(self._event("i", row, time, name, category, args) | {"s": "t"})
        return self

    def race(self, number, start, end, kind, **args):
        """An arrow between two accesses, and the race at the last one."""
        self.flow("race", number, start, end).instant(*end, f"race: {kind}", "race", **args)
        self.events[-1]["id"] = number
        return self

    def flow(self, category, number, start, end):
        for ph, (row, time) in (("s", start), ("f", end)):
            event = self._event(ph, row, time, category, category, {})
            self.events.append(event | {"id": number, "bp": "e"})
        return self

    def _event(self, ph, row, time, name, category, args):
        place = dict(zip(("pid", "tid"), row, strict=True), ts=ORIGIN + time)
        return {"ph": ph, **place, "name": name, "cat": category, "args": args}

    def whole(self, **summary):
        other = self.other | {"summary": summary}
        return {"traceEvents": self.events, "displayTimeUnit": "ns", "otherData": other}


HOST, TWO, ONE = (0, 0), (1, 0), (1, 1)


def with_a_race():
    """A column that one library writes on queue 1, and another one reads on queue 2."""
    made = MadeTrace()
    made.name(0, "host", main="main thread").name(1, "software device 0", a="queue 2", b="queue 1")
    producer, consumer = "produce.Column", "consume.Frame"
    made.slice(
        HOST,
        0,
        4,
        "export __arrow_c_device_array__",
        "export",
        line="app.py:11 in main",
        to=consumer,
        **{"from": producer},
        bytes=8000,
        type="float64",
        shape=[1000],
    )
    made.slice(
        HOST,
        6,
        9,
        "import produce.Column",
        "import",
        line="app.py:12 in main",
        protocol="__arrow_c_device_array__",
        to="arrowdev.Array",
        **{"from": producer},
    )
    made.slice(
        HOST,
        8,
        3,
        "wait for work on software device 0",
        "wait",
        why="the consumer reads on the host",
        line="app.py:12 in main",
    )
    made.instant(ONE, 5, "event recorded", "event")
    made.instant(ONE, 27, "event complete", "event")
    made.instant(HOST, 3900, "refusal", "refusal", why="the device has no such memory")
    made.slice(ONE, 5, 22, "write 8,000 bytes", "work", allocation=1)
    made.slice(
        ONE,
        30,
        12,
        "copy 8,000 bytes",
        "copy",
        bytes=8000,
        bandwidth=6.6e8,
        why="copy=True was asked for",
        line="app.py:14 in main",
    )
    made.slice(TWO, 14, 8, "read 8,000 bytes", "work", allocation=1)
    made.slice(TWO, 45, 3, "wait for queue 1", "wait", why="the event of the copy")
    made.slice(HOST, 4000, 2, "release", "release", line="app.py:30 in main")
    made.flow("event", 1, (ONE, 41), (TWO, 46))
    made.flow("memory", 2, (HOST, 2), (HOST, 4001))
    made.race(
        3, (ONE, 5), (TWO, 14), "read not ordered after write", allocation=1,
        message="queue 2 reads 8,000 bytes while the write of queue 1 is not ordered before: "
        "no event was waited for",
        advice="pass queue 2 as stream= where the array is imported (app.py:12 in main)",
        first={"queue": "queue 1", "access": "write", "line": "produce.py:40 in column"},
        second={"queue": "queue 2", "access": "read", "line": "app.py:12 in main"},
    )  # fmt: skip
    return made.whole(
        exchanges=[{"from": producer, "to": consumer, "count": 1, "bytes": 8000}],
        copies=[
            {
                "why": "copy=True was asked for",
                "device": "ext_dev:0",
                "target": "ext_dev:0",
                "count": 1,
                "bytes": 8000,
                "line": "app.py:14 in main",
            }
        ],
        waits=[
            {
                "why": "the consumer reads on the host",
                "device": "ext_dev:0",
                "count": 1,
                "ns": 3000,
                "line": "app.py:12 in main",
            }
        ],
        advice=["1 copy of 8,000 bytes because copy=True was asked for"],
    )


def large(count):
    """Many slices on 20 rows, with an arrow for every tenth of them."""
    made = MadeTrace().name(0, "host", main="main thread")
    made.name(1, "software device 0", **{f"q{n}": f"queue {n}" for n in range(19)})
    categories = ("import", "export", "copy", "wait", "work")
    for n in range(count):
        row = (0, 0) if n % 20 == 0 else (1, n % 20 - 1)
        made.slice(row, n * 0.7, 0.3 + n % 13, f"slice {n}", categories[n % 5],
                   line=f"app.py:{n} in main", bytes=n)  # fmt: skip
        if n % 10 == 0:
            made.flow("event", n, (row, n * 0.7 + 0.1), ((1, (n + 5) % 19), n * 0.7 + 9))
    return made.whole()
