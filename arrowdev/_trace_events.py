"""The events of a trace in Chrome's trace event format."""

from __future__ import annotations

import json
import os
import sys
import threading

import arrowdev
from arrowdev import _core
from arrowdev._trace import ends_of, line_of
from arrowdev._trace_summary import counted, summary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from arrowdev._trace import Recorder, Row

HOST = "host"


class Writer:
    """Rows and the events on them, with times from the start of the trace."""

    def __init__(self, start: int, row_names: dict[Row, dict[str, None]]) -> None:
        self.start = start
        self.row_names = row_names  # beside those of the rows themselves
        self.events: list[dict[str, Any]] = []
        self.pids: dict[str, int] = {HOST: 0}
        self.tids: dict[Row, int] = {}
        self.n_flows = 0
        # Where an event was recorded last, and memory was handed out: (row, time).
        self.recorded: dict[int, tuple[Row, int]] = {}
        self.handed_out: dict[int, tuple[Row, int]] = {}
        self.pending: set[int] = set()  # events that were not seen complete
        self.imports: list[dict[str, Any]] = []
        self.begun: dict[tuple[Row, int], int] = {}  # when work that was enqueued then began

    def place(self, row: Row, ns: int) -> dict[str, Any]:
        pid = self.pids.setdefault(row[0], len(self.pids))
        if row not in self.tids:
            self.tids[row] = 1 + sum(other[0] == row[0] for other in self.tids)
        return {"pid": pid, "tid": self.tids[row], "ts": (ns - self.start) / 1000}

    def slice(
        self, row: Row, name: str, category: str, start: int, end: int, args: dict[str, Any]
    ) -> None:
        place = self.place(row, start)
        duration = (end - start) / 1000
        self.events.append(
            {"ph": "X", "name": name, "cat": category, **place, "dur": duration, "args": args}
        )

    def instant(self, row: Row, name: str, category: str, ns: int, args: dict[str, Any]) -> None:
        place = self.place(row, ns)
        self.events.append(
            {"ph": "i", "s": "t", "name": name, "cat": category, **place, "args": args}
        )

    def flow(self, category: str, from_row: Row, start: int, to_row: Row, end: int) -> None:
        self.n_flows += 1
        common = {"name": category, "cat": category, "id": self.n_flows}
        self.events.append({"ph": "s", **common, **self.place(from_row, start)})
        self.events.append({"ph": "f", "bp": "e", **common, **self.place(to_row, end)})

    def work(
        self, row: Row, name: str, enqueued: int, start: int, end: int, args: dict[str, Any]
    ) -> None:
        self.slice(row, name, "work", start, end, args)
        self.begun[row, enqueued] = start

    def race(
        self,
        kind: str,
        accesses: Sequence[tuple[Row, int]],
        args: dict[str, Any],
        waiter: str,
        recorded: int,
        recorded_by: int,
    ) -> None:
        """An instant at the last access, and an arrow from what began first, with its id."""
        line = self.line_of_import(recorded, recorded_by, accesses[-1][1]) if waiter else None
        if line:
            args["advice"] = f"pass {waiter} as stream= where the array is imported ({line})"
        ends = [(row, self.begun.get((row, ns), ns)) for row, ns in accesses]
        if ends[-1][1] < ends[0][1]:
            args["run"] = "the second access began first"
        self.instant(ends[-1][0], f"race: {kind}", "race", ends[-1][1], args)
        if len(ends) == 2:
            race = self.events[-1]
            (row, start), (to_row, end) = sorted(ends, key=lambda place: place[1])
            self.flow("race", row, start, to_row, end)
            race["id"] = self.n_flows

    def line_of_import(self, recorded: int, thread: int, before: int) -> str | None:
        """The line of the array() or tensor() in which the thread recorded an event at a time.

        None where the import ended after `before`, or may be of a call that takes no stream=.
        """
        for event in self.imports:
            is_its = event["thread"] == thread
            if is_its and event["start"] <= recorded <= event["end"] <= before:
                of_array = event["to"] is arrowdev.Array and not event["type"].startswith("struct")
                of_tensor = event["to"] is arrowdev.Tensor and event["name"] != "__dlpack__"
                return line_of(event) if of_array or of_tensor else None
        return None

    def arrow_to_wait(self, event: dict[str, Any], row: Row) -> None:
        """The arrow to a wait from where its event was recorded."""
        if event["event"] in self.recorded:
            source, start = self.recorded[event["event"]]
            self.flow("event", source, start, row, max(start, event["start"]))

    def metadata(self) -> list[dict[str, Any]]:
        names: dict[object, str] = {thread.ident: thread.name for thread in threading.enumerate()}
        result = []
        for name, pid in self.pids.items():
            about: dict[str, Any] = {"ph": "M", "pid": pid, "tid": 0, "ts": 0}
            result.append({**about, "name": "process_name", "args": {"name": name}})
            result.append({**about, "name": "process_sort_index", "args": {"sort_index": pid}})
        for row, tid in self.tids.items():
            label = names.get(row[1], f"thread {tid}") if row[0] == HOST else str(row[1])
            label = ", ".join([*self.row_names.get(row, ()), label])
            result.append(
                {
                    "ph": "M",
                    "pid": self.pids[row[0]],
                    "tid": tid,
                    "ts": 0,
                    "name": "thread_name",
                    "args": {"name": label},
                }
            )
        return result


def known(**args: Any) -> dict[str, Any]:
    """The arguments that are known, by their names in the file."""
    return {name: value for name, value in args.items() if value not in (None, "", [])}


def host_row(event: dict[str, Any]) -> Row:
    return (HOST, event["thread"])


def add_copy(writer: Writer, event: dict[str, Any]) -> None:
    seconds = (event["end"] - event["start"]) / 1e9
    on_host = event["device"] == event["target"] == "cpu"
    writer.slice(
        host_row(event),
        f"copy {counted(event['bytes'], 'byte')}",
        "copy",
        event["start"],
        event["end"],
        known(
            bytes=event["bytes"],
            device=event["device"],
            target=event["target"],
            why=event["why"],
            bandwidth=event["bytes"] / seconds if on_host and seconds else None,
            line=line_of(event),
        ),
    )


def add_wait(writer: Writer, event: dict[str, Any]) -> None:
    writer.slice(
        host_row(event),
        f"wait for work on {event['device']}",
        "wait",
        event["start"],
        event["end"],
        known(device=event["device"], why=event["why"], line=line_of(event)),
    )
    writer.arrow_to_wait(event, host_row(event))


def add_refusal(writer: Writer, event: dict[str, Any]) -> None:
    writer.instant(
        host_row(event),
        event["type"],
        "refusal",
        event["start"],
        known(message=event["why"], line=line_of(event)),
    )


FUNCTIONS = {"array", "tensor", "array_stream", "record_batch", "convert", "into"}


def add_exchange(writer: Writer, event: dict[str, Any]) -> None:
    """An import, an export or a conversion."""
    kind = event["kind"]
    protocol = event["name"]
    source, target = ends_of(event)
    label = {
        "import": f"import {source or 'a batch'}",
        "export": f"export {protocol}",
        "convert": f"convert to {target}" if event["to"] else protocol,
    }[kind]
    args = known(
        **{"from": source, "to": target},
        protocol=None if protocol in FUNCTIONS else protocol,
        type=event["type"],
        shape=event["shape"],
        bytes=event["bytes"] or None,
        address=hex(event["address"]) if event["address"] else None,
        device=event["device"],
        allocation=event["memory"] or None,
        line=line_of(event),
        failed=None if event["is_done"] else True,
    )
    writer.slice(host_row(event), label, kind, event["start"], event["end"], args)
    if kind == "import":
        writer.imports.append(event)
    if event["memory"]:
        writer.handed_out[event["memory"]] = (host_row(event), event["start"])


def add_release(writer: Writer, event: dict[str, Any]) -> None:
    writer.slice(
        host_row(event),
        f"release of {event['name']} memory",
        "release",
        event["start"],
        event["end"],
        known(allocation=event["memory"]),
    )
    if event["memory"] in writer.handed_out:
        row, start = writer.handed_out.pop(event["memory"])
        writer.flow("memory", row, start, host_row(event), event["start"])


def name_of_stream(handle: int) -> str:
    """The row of a stream. These handles are default streams, or the only queue."""
    names = {0: "default stream", 1: "legacy default stream", 2: "per-thread default stream"}
    return names.get(handle, f"stream {handle:#x}")


def device_row(event: dict[str, Any]) -> Row:
    return (event["device"], name_of_stream(event["stream"]))


def add_stream_wait(writer: Writer, event: dict[str, Any]) -> None:
    row = device_row(event)
    args = known(device=event["device"], stream=row[1], why=event["why"], line=line_of(event))
    writer.slice(row, "wait for an event", "wait", event["start"], event["end"], args)
    writer.arrow_to_wait(event, row)


def add_event_recorded(writer: Writer, event: dict[str, Any]) -> None:
    row = device_row(event)
    args = known(device=event["device"], stream=row[1], event=hex(event["event"]))
    writer.instant(row, "event recorded", "event", event["start"], args)
    writer.recorded[event["event"]] = (row, event["start"])
    writer.pending.add(event["event"])


def add_complete(writer: Writer, event: dict[str, Any]) -> None:
    """An event is seen complete once, on the row where it was recorded."""
    handle = event["event"]
    if handle not in writer.pending:
        return
    writer.pending.remove(handle)
    row, start = writer.recorded[handle]
    time = max(event["start"], start)
    writer.instant(row, "event complete", "event", time, known(event=hex(handle)))


def add_deferred(writer: Writer, event: dict[str, Any]) -> None:
    writer.slice(
        (event["device"], "deferred releases"),
        "deferred release",
        "deferred release",
        event["start"],
        event["end"],
        known(device=event["device"]),
    )


KINDS = {
    "stream wait": add_stream_wait,
    "event recorded": add_event_recorded,
    "event complete": add_complete,
    "deferred release": add_deferred,
    "import": add_exchange,
    "export": add_exchange,
    "convert": add_exchange,
    "release": add_release,
    "copy": add_copy,
    "wait": add_wait,
    "refusal": add_refusal,
}


def chrome(
    stopped: tuple[list[dict[str, Any]], int, int], recorder: Recorder, start: int, end: int
) -> dict[str, Any]:
    """The trace as it is written to its file; `stopped` is what _trace_stop() gave."""
    writer = Writer(start, recorder.row_names)
    found, dropped, lost = stopped
    # What began in the trace before this one is of neither.
    events = [event for event in found if event["start"] >= start]
    writer.place((HOST, threading.main_thread().ident or 0), start)
    for event in sorted(events, key=lambda event: event["start"]):
        KINDS[event["kind"]](writer, event)
    # Races last: they are between what has run.
    for kind, *entry in sorted(recorder.entries.copy(), key=lambda entry: entry[0] == "race"):
        getattr(writer, kind)(*entry)
    # Threads count without a lock.
    n_unrecorded = max(0, recorder.n_added - len(recorder.entries))
    if n_unrecorded and recorder.race_search == "complete":
        recorder.race_search = "incomplete"
    return {
        "traceEvents": writer.metadata() + sorted(writer.events, key=lambda event: event["ts"]),
        "displayTimeUnit": "ns",
        "otherData": {
            "arrowdev": arrowdev.__version__,
            "pid": os.getpid(),
            "start_ns": start,  # of CLOCK_MONOTONIC, which all processes share
            "command": [_core._shown(word) for word in sys.orig_argv],
            "dropped": dropped + n_unrecorded,
            "lost": lost,
            **known(race_search=recorder.race_search),
            "summary": summary(events, dropped + n_unrecorded, lost, end - start),
        },
    }


def write_page(data: dict[str, Any], file: str) -> None:
    from arrowdev._pages import trace_page

    with open(file, "w", encoding="utf-8") as out:
        out.write(trace_page.page(data))


def write(data: dict[str, Any], file: str) -> None:
    with open(file, "w", encoding="utf-8") as out:
        out.write(json.dumps(data))  # dump() takes twice as long
