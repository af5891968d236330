"""A check of Chrome's trace event format, as far as arrowdev writes it.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

import json
import numbers

KEYS = {
    "M": {"name", "pid", "tid", "ts", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "i": {"name", "cat", "pid", "tid", "ts", "s", "args"},
    "s": {"name", "cat", "pid", "tid", "ts", "id"},
    "f": {"name", "cat", "pid", "tid", "ts", "id", "bp"},
}


def check(data):
    """Raises AssertionError for what a viewer would not read, or would show wrongly."""
    data = json.loads(json.dumps(data, allow_nan=False))
    assert data["displayTimeUnit"] == "ns"
    about = data["otherData"]
    assert isinstance(about["pid"], int) and isinstance(about["command"], list)
    assert about["start_ns"] > 0
    assert about["dropped"] >= 0 and isinstance(about["summary"], dict)
    events = data["traceEvents"]
    rows = set()
    processes = set()
    for event in events:
        phase = event["ph"]
        is_arrow = phase == "i" and event["cat"] == "race" and "id" in event  # its flow's
        assert set(event) - {"ph"} == KEYS[phase] | ({"id"} if is_arrow else set()), event
        assert isinstance(event["name"], str) and isinstance(event["ts"], numbers.Real)
        if phase == "M":
            if event["name"] == "thread_name":
                rows.add((event["pid"], event["tid"]))
            else:
                processes.add(event["pid"])
        else:
            assert (event["pid"], event["tid"]) in rows, "a row without a name"
            assert event["pid"] in processes
            assert event["ts"] >= 0
        assert event.get("dur", 0) >= 0 and event.get("s", "t") == "t"
    check_flows(events)
    return events


def check_flows(events):
    """Every flow has a start and an end, of one category, in this order."""
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    n_flows = sum(event["ph"] in "sf" for event in events)
    assert set(starts) == set(ends) and n_flows == 2 * len(starts)
    for number, start in starts.items():
        end = ends[number]
        assert (start["cat"], start["name"]) == (end["cat"], end["name"])
        assert start["ts"] <= end["ts"] and end["bp"] == "e"


def slices(data, category):
    return [
        event for event in data["traceEvents"] if event["ph"] == "X" and event["cat"] == category
    ]


def instants(data, category):
    return [
        event for event in data["traceEvents"] if event["ph"] == "i" and event["cat"] == category
    ]
