"""Files of traces that are read, and put together on one axis."""

import json
import subprocess
import sys

import made_trace
import pytest

import arrowdev as ad
from arrowdev import __main__ as command
from arrowdev._cli import trace_files
from arrowdev._cli.terminal import OutputError
from arrowdev._pages import trace_page


def written(folder, name, content):
    file = folder / name
    file.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return str(file)


def process(pid, start_ns):
    made = made_trace.MadeTrace().name(0, "host", main="main thread").name(1, "cuda:0", s="stream")
    made.slice((0, 0), 1, 2, "import", "import").slice((1, 0), 4, 1, "copy", "copy")
    made.flow("event", 1, ((0, 0), 1), ((1, 0), 4))
    trace = made.whole(copies=[{"count": pid}], refusals=2, ns=pid)
    trace["otherData"] |= {"pid": pid, "start_ns": start_ns, "dropped": pid}
    return trace


def test_one_file_is_as_it_is(tmp_path):
    trace = made_trace.with_a_race()
    assert trace_files.read([written(tmp_path, "a.json", trace)]) == trace
    events = trace["traceEvents"]
    assert trace_files.read([written(tmp_path, "b.json", events)]) == {"traceEvents": events}


def test_processes_are_beside_each_other_on_one_clock(tmp_path):
    files = [
        written(tmp_path, "a.json", process(41, 9_000_000)),
        written(tmp_path, "b.json", process(42, 8_000_000)),
    ]
    trace = trace_files.read(files)
    events = trace["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {
        0: "host (process 41)",
        1: "cuda:0 (process 41)",
        2: "host (process 42)",
        3: "cuda:0 (process 42)",
    }
    order = [e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"]
    assert order == [0, 1, 2, 3]
    times = {e["pid"]: e["ts"] - made_trace.ORIGIN for e in events if e["ph"] == "X"}
    assert times == {0: 1001, 1: 1004, 2: 1, 3: 4}
    flows = {(e["id"], e["pid"]) for e in events if e["ph"] in "sf"}
    assert flows == {("0: 1", 0), ("0: 1", 1), ("1: 1", 2), ("1: 1", 3)}
    other = trace["otherData"]
    assert (other["pid"], other["dropped"]) == ([41, 42], 83)
    assert "race_search" not in other
    assert other["summary"] == {"copies": [{"count": 41}, {"count": 42}], "refusals": 4, "ns": 83}


@pytest.mark.parametrize(
    ("searches", "merged"),
    [
        (("complete", None), "complete"),
        ((None, "off"), "off"),
        (("off", "complete"), "incomplete"),
        (("complete", "complete"), "complete"),
        (("complete", "incomplete"), "incomplete"),
    ],
)
def test_search_for_races_is_that_of_all_processes(tmp_path, searches, merged):
    files = []
    for number, found in enumerate(searches):
        trace = process(number, 0)
        trace["otherData"] |= {"race_search": found} if found else {}
        files.append(written(tmp_path, f"{number}.json", trace))
    assert trace_files.read(files)["otherData"].get("race_search") == merged


def test_arrow_leads_from_share_to_attach_in_another_process(tmp_path):
    files = [str(tmp_path / "producer.json"), str(tmp_path / "consumer.json")]
    with ad.trace(files[0]):
        shared = ad.share(bytearray(b"abc"))
    code = "import sys, arrowdev as ad\nwith ad.trace(sys.argv[1]):\n    ad.attach(sys.argv[2])"
    subprocess.run([sys.executable, "-c", code, files[1], str(shared)], check=True, timeout=60)
    events = trace_files.read(files)["traceEvents"]
    ends = {e["name"]: e for e in events if e["ph"] == "X" and e["name"] in ("share", "attach")}
    share, attach = ends["share"], ends["attach"]
    assert share["args"]["shared"] == attach["args"]["shared"] not in str(shared)
    assert share["args"]["from"] == "bytearray" and attach["args"]["to"] == "arrowdev.Tensor"
    assert share["args"]["how"] == ["copied into a memory file"]
    assert share["args"]["line"].startswith("test_trace_files.py:")
    assert attach["args"]["line"] == "<string>:3 in <module>"
    places = [(e["ph"], e["pid"], e["ts"]) for e in events if str(e.get("id")).endswith(": 0")]
    assert places == [("s", share["pid"], share["ts"]), ("f", attach["pid"], attach["ts"])]
    assert share["pid"] != attach["pid"] and share["ts"] + share["dur"] < attach["ts"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "bad.json is not JSON: Expecting"),
        ('"text"', "bad.json is no trace: it has no list traceEvents"),
        ({"traceEvents": 3}, "bad.json is no trace: it has no list traceEvents"),
    ],
)
def test_file_that_is_no_trace_is_refused(tmp_path, content, message):
    with pytest.raises(OutputError, match=message):
        trace_files.read([written(tmp_path, "bad.json", content)])


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ("1e400", "is not JSON: 1e400 is no finite number"),
        ("NaN", "is not JSON: NaN is no finite number"),
        ("-Infinity", "is not JSON: -Infinity is no finite number"),
        ("9" * 5000, r"is not JSON: 9{20}\.\.\. is a number of 5,000 digits"),
        ("-" + "9" * 400, r"is a number of 401 digits"),
        ("[" * 200 + "]" * 200, "is no trace: it is nested more than 100 levels deep"),
        ("[" * 10**6 + "]" * 10**6, "is no trace: it is nested more than 100 levels deep"),
        ('{"a":' * 200 + "1" + "}" * 200, "nested more than 100 levels deep"),
    ],
    ids=["1e400", "nan", "infinity", "5000 digits", "400 digits", "list", "long list", "object"],
)
def test_what_no_trace_has_is_refused_wherever_it_is(tmp_path, number, message):
    target = str(tmp_path / "page.html")
    text = json.dumps(process(1, 0))
    good = written(tmp_path, "good.json", text)
    for place in ('"ts": ', '"dur": ', '"pid": ', '"start_ns": ', '"args": '):
        bad = written(tmp_path, "bad.json", text.replace(place, f'{place}{number}, "y": '))
        for files in ([bad], [good, bad]):
            with pytest.raises(OutputError, match=message):
                trace_files.read(files)
    words = ["--from", bad, "--html", target]
    assert command.main(["trace", *words]) == 1 and not (tmp_path / "page.html").exists()


def test_largest_numbers_of_a_trace_make_a_page(tmp_path):
    text = json.dumps(process(1, 0))
    for place in ('"ts": ', '"dur": ', '"start_ns": '):
        large = text.replace(place, f'"x": {"9" * 300}, {place}{"9" * 300}, "y": ')
        files = [written(tmp_path, "a.json", large), written(tmp_path, "b.json", text)]
        trace = trace_files.read(files)
        assert trace_page.page(trace) and len(trace["traceEvents"]) == 20


@pytest.mark.parametrize(
    ("events", "summaries"),
    [
        ([{"ph": "X", "cat": ["export"], "args": {"shared": "x"}}], [{}, {}]),
        ([{"ph": "X", "cat": {}, "args": {"shared": "x"}}], [{}, {}]),
        ([], [{"copies": 2}, {"copies": [2]}]),
        ([], [{"copies": []}, {"copies": 1}]),
    ],
)
def test_values_that_no_trace_has_are_put_together(tmp_path, events, summaries):
    files = []
    for number, summary in enumerate(summaries):
        other = {"start_ns": number, "pid": number, "summary": summary}
        content = {"traceEvents": events, "otherData": other}
        files.append(written(tmp_path, f"{number}.json", content))
    trace = trace_files.read(files)
    assert len(trace["traceEvents"]) == 2 * len(events)
    assert trace_page.page(trace)


def test_file_that_is_missing_or_has_no_clock_is_refused(tmp_path):
    missing = str(tmp_path / "missing.json")
    with pytest.raises(OutputError, match=r"No such file or directory: .*missing\.json"):
        trace_files.read([missing])
    good = written(tmp_path, "good.json", process(1, 1))
    bad = written(tmp_path, "bad.json", made_trace.with_a_race())
    with pytest.raises(OutputError, match=r"bad\.json does not say when it begins"):
        trace_files.read([good, bad])


def test_command_makes_a_page_of_files(tmp_path, capsys):
    files = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    for file in files:
        with ad.trace(file):
            ad.array(memoryview(bytes(16)).cast("q")[::-1])  # copied
    target = tmp_path / "page.html"
    sources = [word for file in files for word in ("--from", file)]
    assert command.main(["trace", *sources, "--html", str(target)]) == 0
    text = target.read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>") and text.count('"copy 16 bytes"') == 2
    assert text.index("host (process ") < text.rindex("host (process ")
    other = str(tmp_path / "other.html")
    assert command.main(["trace", "--from", str(target), "--html", other]) == 1
    assert "page.html is not JSON" in capsys.readouterr().err
    assert command.main(["trace", "--from", files[0], "--html", str(tmp_path)]) == 1
    assert "Is a directory" in capsys.readouterr().err


def test_a_process_may_have_any_number(tmp_path):
    odd = process(1, 0)
    for pid, event in zip(([], {"a": 1}, None), odd["traceEvents"], strict=False):
        event["pid"] = pid
    names = [written(tmp_path, "a.json", odd), written(tmp_path, "b.json", process(2, 0))]
    pids = [event["pid"] for event in trace_files.read(names)["traceEvents"]]
    assert all(isinstance(pid, int) for pid in pids)
    assert len(set(pids[:3])) == 3
