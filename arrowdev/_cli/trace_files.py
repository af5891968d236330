"""Files of traces: read, and those of several processes put together."""

import json
import math
import pathlib

from arrowdev._cli.terminal import OutputError

MOST_LEVELS = 100
MOST_DIGITS = 300  # a float has the number, too


def read(names):
    """Return the trace of a file, or that of several files on one axis; raise OutputError."""
    traces = [_read(name) for name in names]
    return traces[0] if len(traces) == 1 else merged(traces, names)


def _read(name):
    try:
        text = pathlib.Path(name).read_text(encoding="utf-8")
        found = json.loads(text, parse_float=_float, parse_int=_int, parse_constant=_float)
        is_deep = _is_deep(found)
    except OSError as error:
        raise OutputError(str(error)) from error
    except ValueError as error:
        raise OutputError(f"{name} is not JSON: {error}") from error
    except RecursionError:
        is_deep = True
    if is_deep:
        raise OutputError(f"{name} is no trace: it is nested more than {MOST_LEVELS} levels deep")
    if isinstance(found, list):  # which the format allows, too
        found = {"traceEvents": found}
    if not isinstance(found, dict) or not isinstance(found.get("traceEvents"), list):
        raise OutputError(f"{name} is no trace: it has no list traceEvents")
    return found


def _float(text):
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is no finite number")
    return number


def _int(text):
    if len(text) > MOST_DIGITS:
        raise ValueError(f"{text[:20]}... is a number of {len(text):,} digits")
    return int(text)


def _is_deep(value):
    """Whether lists and objects are in each other beyond MOST_LEVELS."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MOST_LEVELS + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
    return bool(level)


def merged(traces, names):
    """Return one trace of those of several processes of a machine, which have one clock."""
    events, others = [], [_other(trace) for trace in traces]
    starts = [other.get("start_ns") for other in others]
    for name, start in zip(names, starts, strict=True):
        if not isinstance(start, int):
            raise OutputError(f"{name} does not say when it begins: otherData has no start_ns")
    first = min(starts)
    pids = {}
    for number, (trace, other, start) in enumerate(zip(traces, others, starts, strict=True)):
        shift = (start - first) / 1000
        for event in filter(_is_event, trace["traceEvents"]):
            pid = pids.setdefault((number, str(event.get("pid"))), len(pids))
            events.append(_moved(event, number, pid, other.get("pid"), shift))
    events += _arrows(events)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            **others[0],
            "pid": [other.get("pid") for other in others],
            "start_ns": first,
            **{
                key: sum(_number(other.get(key)) for other in others)
                for key in ("dropped", "lost")
            },
            **_race_search([other.get("race_search") for other in others]),
            "summary": _summary([other.get("summary") for other in others]),
        },
    }


def _other(trace):
    other = trace.get("otherData")
    return other if isinstance(other, dict) else {}


def _is_event(event):
    return isinstance(event, dict)


def _number(value):
    return value if isinstance(value, int) else 0


def _moved(event, number, pid, process, shift):
    """Return the event at its place among those of all processes."""
    moved = event | {"pid": pid}
    if event.get("ph") != "M" and isinstance(event.get("ts"), (int, float)):
        moved["ts"] = event["ts"] + shift
    if "id" in event:
        moved["id"] = f"{number}: {event['id']}"
    args = event.get("args")
    if event.get("name") == "process_name" and isinstance(args, dict):
        moved["args"] = args | {"name": f"{args.get('name')} (process {process})"}
    elif event.get("name") == "process_sort_index":
        moved["args"] = {"sort_index": pid}
    return moved


def _arrows(events):
    """Yield an arrow of memory from each call of share() to those of attach() with its text."""
    exchanges = {"export": {}, "import": {}}
    for event in events:
        args, of_kind = event.get("args"), exchanges.get(str(event.get("cat")))
        if of_kind is not None and isinstance(args, dict) and "shared" in args:
            of_kind.setdefault(str(args["shared"]), []).append(event)
    for shared, (first, *_) in exchanges["export"].items():
        for number, last in enumerate(exchanges["import"].get(shared, [])):
            about = {"name": "memory", "cat": "memory", "id": f"{shared}: {number}"}
            for ph, event in (("s", first), ("f", last)):
                place = {key: event.get(key) for key in ("pid", "tid", "ts")}
                yield {"ph": ph, "bp": "e", **about, **place}


def _race_search(found):
    """Return that of all processes: one that was not complete leaves all incomplete."""
    known = set(found) - {None}
    return {"race_search": known.pop() if len(known) == 1 else "incomplete"} if known else {}


def _summary(summaries):
    """Return the lists of all summaries, and the sums of their numbers."""
    result = {}
    for summary in summaries:
        for key, value in summary.items() if isinstance(summary, dict) else ():
            if isinstance(value, (list, int)):
                before = result.get(key)
                result[key] = before + value if isinstance(before, type(value)) else value
    return result
