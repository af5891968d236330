"""What docs/trace.md says under its pictures is in traces of the same programs."""

import re

import chrome_trace
import pytest
import trace_programs

PAGE = (trace_programs.ROOT / "docs" / "trace.md").read_text("utf-8")

pytest.importorskip("numpy")


def arrows(trace, category):
    """(start, end) of each arrow."""
    ends = {}
    for event in trace["traceEvents"]:
        if event["ph"] in "sf" and event["cat"] == category:
            ends.setdefault(event["id"], {})[event["ph"]] = event
    return [(both["s"], both["f"]) for both in ends.values()]


def processes(trace):
    events = (e for e in trace["traceEvents"] if e["name"] == "process_name")
    return {event["pid"]: event["args"]["name"] for event in events}


def row_of(event):
    return event["pid"], event["tid"]


def test_each_picture_is_on_the_page_with_a_text_in_both_schemes():
    for name in trace_programs.NAMES:
        for scheme in ("light", "dark"):
            picture = f"traces/{name}-{scheme}.webp"
            assert (trace_programs.ROOT / "docs" / picture).stat().st_size > 5000
            assert re.search(
                rf"```{{image}} {picture}\n:class: only-{scheme}\n:alt: \S.+\n```", PAGE
            )


def test_prefetch(tmp_path):
    trace = trace_programs.trace_of("prefetch", tmp_path)
    chrome_trace.check(trace)
    copies = chrome_trace.slices(trace, "copy")
    assert [copy["name"] for copy in copies] == ["copy 800,000 bytes"] * 6
    batches = [e for e in chrome_trace.slices(trace, "import") if e["name"] == "import a batch"]
    assert len(batches) == 6
    # The first batch is given out when three copies have begun: its own and two ahead.
    assert sum(copy["ts"] < batches[0]["ts"] + batches[0]["dur"] for copy in copies) == 3
    # An arrow leads from the event of a copy to the queue that waits for it.
    devices = [pid for pid, name in processes(trace).items() if name == "ext_dev:0"]
    led = [(a, b) for a, b in arrows(trace, "event") if a["pid"] == b["pid"] == devices[0]]
    assert any(row_of(start) != row_of(end) for start, end in led)


def test_race(tmp_path):
    trace = trace_programs.trace_of("race", tmp_path)
    [race] = [e for e in trace["traceEvents"] if e["ph"] == "i" and e["cat"] == "race"]
    assert race["name"] == "race: read not ordered after write"
    first, second = race["args"]["first"], race["args"]["second"]
    assert (first["queue"], first["access"]) == ("queue 1", "write")
    assert first["line"].startswith("paint.py:") and second["line"].startswith("frame.py:")
    assert (second["queue"], second["access"]) == ("queue 2", "read")
    assert re.fullmatch(
        r"pass queue 2 as stream= where the array is imported \(frame\.py:\d+ in __init__\)",
        race["args"]["advice"],
    )
    [(start, end)] = arrows(trace, "race")
    work = {e["name"]: (row_of(e), e["ts"]) for e in chrome_trace.slices(trace, "work")}
    assert set(work) == {"write 8,000 bytes", "copy 8,000 bytes"}
    assert sorted(work.values()) == sorted((row_of(e), e["ts"]) for e in (start, end))
    assert row_of(race) == work["copy 8,000 bytes"][0] != work["write 8,000 bytes"][0]


def test_sharing(tmp_path):
    trace = trace_programs.trace_of("sharing", tmp_path)
    names = list(processes(trace).values())
    assert len(names) == 2 and all(name.startswith("host (process ") for name in names)
    events = {e["name"]: e for e in trace["traceEvents"] if e["ph"] == "X"}
    share, attach = events["share"], events["attach"]
    assert share["args"]["how"] == ["memory file"] and share["pid"] != attach["pid"]
    places = [(a["pid"], a["ts"], b["pid"], b["ts"]) for a, b in arrows(trace, "memory")]
    assert (share["pid"], share["ts"], attach["pid"], attach["ts"]) in places
    assert chrome_trace.slices(trace, "copy") == []
