"""ad.trace: what it records, its file, and its ends."""

import array
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from chrome_trace import check, instants, slices

import arrowdev as ad
from arrowdev import _trace, _trace_events, _trace_summary
from arrowdev.testing import software_device

np = pytest.importorskip("numpy")
STRIDES = "the tensor's strides have no equivalent in Arrow"


def copy_strided():
    return ad.array(np.arange(20.0)[::2])


def test_a_copy_has_bytes_reason_and_line(tmp_path):
    file = tmp_path / "t.json"
    with ad.trace(file) as t:
        start = time.monotonic_ns()
        copy_strided()
        took = (time.monotonic_ns() - start) / 1000
    check(t.data)
    assert json.loads(file.read_text()) == t.data
    [copy] = slices(t.data, "copy")
    args = copy["args"]
    assert copy["name"] == "copy 80 bytes" and 0 < copy["dur"] <= took
    assert (args["bytes"], args["why"]) == (80, STRIDES)
    assert (args["device"], args["target"]) == ("cpu", "cpu")
    assert args["bandwidth"] == pytest.approx(80 / copy["dur"] * 1e6)
    line = copy_strided.__code__.co_firstlineno + 1
    assert args["line"] == f"test_trace.py:{line} in copy_strided"


def test_a_wait_has_its_time():
    with software_device() as device, ad.trace() as t:
        queue = device.queue()
        queue.delay = 0.02
        there = ad.array(device.array(b"12345678", queue=queue))
        start = time.monotonic_ns()
        there.synchronize()
        took = (time.monotonic_ns() - start) / 1000
    check(t.data)
    waits = slices(t.data, "wait")
    assert [wait["name"] for wait in waits] == ["wait for work on ext_dev:0"]
    assert 0 < waits[0]["dur"] <= took
    assert "test_a_wait_has_its_time" in waits[0]["args"]["line"]


def test_a_refusal_has_its_message():
    with ad.trace() as t, pytest.raises(ad.ExchangeError) as raised:
        ad.array(np.arange(20.0)[::2], copy=False)
    [refusal] = instants(t.data, "refusal")
    assert refusal["name"] == "refusal (strides)"
    assert str(raised.value).startswith(refusal["args"]["message"][:100])


def test_a_long_message_is_cut_and_is_still_text():
    class Refuses:
        def __array_interface__(self):
            raise ValueError

        __array_interface__ = property(__array_interface__)

        @property
        def __dlpack__(self):
            raise ValueError("ä" * 1000)

    with ad.trace() as t, pytest.raises(ad.ExchangeError):
        ad.array(Refuses())
    check(t.data)
    assert all(len(event["args"]["message"]) < 1000 for event in instants(t.data, "refusal"))


def test_nothing_is_recorded_outside():
    with ad.trace():
        pass
    copy_strided()
    with ad.trace() as later:
        copy_strided()
    assert len(slices(later.data, "copy")) == 1


def test_a_full_ring_drops_the_oldest():
    with ad.trace(events=4) as t:
        for n in range(1, 8):
            ad.array(np.arange(2.0 * n)[::2])
    check(t.data)
    assert [copy["args"]["bytes"] for copy in slices(t.data, "copy")][-1] == 56
    events = [event for event in t.data["traceEvents"] if event["ph"] in "Xi"]
    assert t.data["otherData"]["dropped"] > 0 and len(events) <= 4
    assert "dropped" in t.summary()


def test_many_short_threads_take_little_room():
    """Each has a ring, which grows with its events: 400 of 32 MB would be 12.8 GB."""
    import resource

    def size():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()

    before = size()
    with ad.trace() as t:
        for _ in range(400):
            thread = threading.Thread(target=copy_strided)
            thread.start()
            thread.join()
        grown = size() - before
    assert len(slices(t.data, "copy")) == 400
    assert grown < 2 << 30


def test_what_was_lost_is_told():
    stopped = ([], 2, 3)
    data = _trace_events.chrome(stopped, _trace.Recorder(10), 0, 1)
    assert (data["otherData"]["dropped"], data["otherData"]["lost"]) == (2, 3)
    text = _trace_summary.text(data["otherData"]["summary"])
    assert "2 events dropped: the rings were full" in text
    assert "3 events lost: no memory was left for the rings" in text


def test_a_refused_start_can_be_tried_again():
    waiting = ad.trace()
    ad._core._trace_start(10, _trace._folders())
    try:
        with pytest.raises(RuntimeError, match="in another interpreter"):
            waiting.__enter__()
    finally:
        ad._core._trace_stop()
    with waiting as t:
        copy_strided()
    assert len(slices(t.data, "copy")) == 1


def test_each_thread_has_a_row():
    both = threading.Barrier(2)

    def work():
        for _ in range(100):
            copy_strided()
        both.wait()

    with ad.trace() as t:
        threads = [threading.Thread(target=work, name=f"worker {i}") for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    check(t.data)
    copies = slices(t.data, "copy")
    rows = {copy["tid"] for copy in copies}
    assert len(copies) == 200 and len(rows) == 2
    assert [sum(copy["tid"] == row for copy in copies) for row in rows] == [100, 100]


def test_a_thread_that_runs_on():
    """Its events of one trace do not get into the next one, and it may go on after the last."""
    stop = threading.Event()
    begun = threading.Event()

    def work():
        while not stop.is_set():
            copy_strided()
            begun.set()

    thread = threading.Thread(target=work, name="runs on")
    thread.start()
    try:
        assert begun.wait(60)
        for _ in range(20):
            start = time.monotonic_ns()
            with ad.trace(events=100) as t:
                copy_strided()
                for _ in range(2):  # the second copy of the thread began in this trace
                    begun.clear()
                    assert begun.wait(60)
            took = (time.monotonic_ns() - start) / 1000
            check(t.data)
            rows = [copy["tid"] for copy in slices(t.data, "copy")]
            assert rows.count(1) == 1 and 2 <= len(rows) <= 101
            assert all(copy["ts"] + copy["dur"] <= took for copy in slices(t.data, "copy"))
    finally:
        stop.set()
        thread.join()
    names = [event["args"].get("name") for event in t.data["traceEvents"] if event["ph"] == "M"]
    assert "MainThread" in names


def test_one_trace_at_a_time():
    with ad.trace() as t:
        with pytest.raises(RuntimeError, match="a trace is on already"), ad.trace():
            pass
        copy_strided()
    assert len(slices(t.data, "copy")) == 1
    with pytest.raises(RuntimeError, match="this trace has ended"):
        t.__enter__()


def test_the_core_has_one_trace_for_all_interpreters():
    with ad.trace(), pytest.raises(RuntimeError, match="on already, in another interpreter"):
        ad._core._trace_start(10, ())


def test_the_page_of_a_trace(tmp_path):
    page = tmp_path / "t.html"
    with ad.trace(html=page) as t:
        copy_strided()
    text = page.read_text(encoding="utf-8")
    assert text.lower().startswith("<!doctype html>") and STRIDES in text
    assert len(slices(t.data, "copy")) == 1


def test_wrong_arguments():
    for events in (0, -1, (1 << 24) + 1, (1 << 64) // 488 + 1):
        with pytest.raises(ValueError, match=f"from 1 to 16,777,216 events, not {events:,}"):
            ad.trace(events=events)
    for events in ("9", 1.5, None):
        with pytest.raises(TypeError, match="events must be an int, not "):
            ad.trace(events=events)
    with pytest.raises(RuntimeError, match="once its block has ended"):
        ad.trace().summary()


def test_the_file_is_written_after_an_exception(tmp_path):
    file = tmp_path / "t.json"
    with pytest.raises(KeyError), ad.trace(file):
        copy_strided()
        raise KeyError
    check(json.loads(file.read_text()))
    with ad.trace():
        pass


def test_a_copy_without_the_gil_has_its_line():
    """The rows of several arrays are joined while other threads may run Python."""
    parts = [ad.array(array.array("q", range(100))) for _ in range(2)]
    with ad.trace() as t:
        ad.concat(parts)
    lines = [event["args"]["line"] for event in slices(t.data, "copy")]
    assert lines and all("test_trace.py" in line for line in lines)


def test_a_file_that_cannot_be_written_does_not_hide_the_error_of_the_block(tmp_path):
    with pytest.warns(RuntimeWarning, match="the trace is lost"), pytest.raises(KeyError):
        with ad.trace(tmp_path / "missing" / "t.json"):
            raise KeyError
    with pytest.raises(FileNotFoundError), ad.trace(tmp_path / "missing" / "t.json"):
        pass


def test_a_class_whose_name_raises():
    class Hostile(type):
        __module__ = property(lambda cls: 1 / 0)

    class Odd(metaclass=Hostile):
        def __array_interface__(self):
            raise NotImplementedError

    with ad.trace() as t:
        with pytest.raises((TypeError, ad.ExchangeError)):
            ad.array(Odd())
    assert t.data["traceEvents"]


def test_a_forked_child_has_no_trace(tmp_path):
    file = tmp_path / "t.json"
    child_file = tmp_path / "child.json"
    with ad.trace(file) as t:
        copy_strided()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                t.end()
                code = 2 * file.exists() + 4 * (_trace.current() is not None)
                with ad.trace(child_file):
                    copy_strided()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(slices(t.data, "copy")) == 1
    assert len(slices(json.loads(child_file.read_text()), "copy")) == 1


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


COPY = "import numpy as np, arrowdev as ad; ad.array(np.arange(20.0)[::2])"


def test_the_environment_traces_the_process(tmp_path):
    file = tmp_path / "t.json"
    done = run(f"{COPY}; raise SystemExit(3)", ARROWDEV_TRACE=str(file))
    assert done.returncode == 3
    data = json.loads(file.read_text())
    check(data)
    [copy] = slices(data, "copy")
    assert copy["args"]["line"] == "<string>:1 in <module>"
    assert f"1 copy of 80 bytes, cpu -> cpu, because {STRIDES}" in done.stderr


def test_the_environment_names_a_file_for_each_process(tmp_path):
    code = (
        f"{COPY}; import os, subprocess, sys; print(os.getpid()); sys.stdout.flush(); "
        "subprocess.run([sys.executable, '-c', 'import os, arrowdev; print(os.getpid())'])"
    )
    done = run(code, ARROWDEV_TRACE=str(tmp_path / "t-{pid}.json"))
    files = {file.name for file in tmp_path.iterdir()}
    assert files == {f"t-{pid}.json" for pid in done.stdout.split()}
    assert len(files) == 2


def test_the_environment_names_a_file_that_cannot_be_written(tmp_path):
    done = run(COPY, ARROWDEV_TRACE=str(tmp_path / "none" / "t.json"))
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert "ARROWDEV_TRACE: the trace was not written" in done.stderr
    assert "1 copy of 80 bytes" in done.stderr


def test_the_environment_in_another_interpreter():
    """The trace is that of the interpreter that began it."""
    code = (
        "import warnings, arrowdev._trace as t, arrowdev as ad\n"
        "with ad.trace():\n"
        "    t._current = None\n"
        "    with warnings.catch_warnings(record=True) as found:\n"
        "        warnings.simplefilter('always')\n"
        "        import os; os.environ['ARROWDEV_TRACE'] = 'unused.json'\n"
        "        t.read_environment()\n"
        "    print(*[w.message for w in found])\n"
        "ad._core._trace_stop()\n"
    )
    done = run(code)
    assert "ARROWDEV_TRACE: a trace is on already, in another interpreter" in done.stdout


def test_daemon_threads_run_on_at_exit(tmp_path):
    """The rings of all threads are full of copies when the file is made."""
    file = tmp_path / "t.json"
    code = (
        "import threading, numpy as np, arrowdev as ad\n"
        "begun = threading.Semaphore(0)\n"
        "def work():\n"
        "    for n in range(10**9):\n"
        "        ad.array(np.arange(20.0)[::2])\n"
        "        n == 2000 and begun.release()\n"
        "for _ in range(2):\n"
        "    threading.Thread(target=work, daemon=True).start()\n"
        "for _ in range(2):\n"
        "    begun.acquire()\n"
    )
    done = run(code, ARROWDEV_TRACE=str(file))
    assert done.returncode == 0, done.stderr
    assert len(slices(json.loads(file.read_text()), "copy")) >= 4000


def test_the_summary_has_totals_and_advice():
    with ad.trace() as t:
        for _ in range(3):
            copy_strided()
    text = t.summary()
    assert f"3 copies of 240 bytes, cpu -> cpu, because {STRIDES}" in text
    advice = [line for line in text.splitlines() if line.startswith("  advice: 3 copies")]
    assert len(advice) == 1 and re.search(
        rf"because {STRIDES}, such as the one at test_trace\.py:\d+ in copy_strided; pass e",
        advice[0],
    )


def test_advice_about_a_copy_names_its_line():
    with ad.trace() as t:
        copy_strided()
    [advice] = t.data["otherData"]["summary"]["advice"]
    assert re.search(rf"because {STRIDES}, at test_trace\.py:\d+ in copy_strided; pass e", advice)
    with ad.trace() as t:
        without_a_line = threading.Thread(target=ad.array, args=[np.arange(20.0)[::2]])
        without_a_line.start()
        without_a_line.join()
    [advice] = t.data["otherData"]["summary"]["advice"]
    assert "; `copy=False` shows where; pass elements " in advice


def test_each_remedy_is_for_a_reason_of_a_copy():
    root = Path(__file__).resolve().parent.parent.parent
    sources = [*(root / "csrc").rglob("*.c"), root / "arrowdev" / "_given.py"]
    text = "".join(file.read_text(encoding="utf-8") for file in sources)
    text = re.sub(r'"\s*"', "", text)
    assert [why for why in _trace_summary.REMEDIES if why not in text] == []


def test_trace_and_its_page_are_two_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("t.json")
    for html in ("t.json", tmp_path / "t.json", "a/../t.json", "link"):
        with pytest.raises(ValueError, match=r"are one file, t\.json; name another one"):
            ad.trace("t.json", html=html)
    (tmp_path / "t.json").write_text("")
    (tmp_path / "hard").hardlink_to(tmp_path / "t.json")
    with pytest.raises(ValueError, match="are one file"):
        ad.trace("t.json", html="hard")


def test_python_code_records_too():
    assert _trace.current() is None
    with ad.trace() as t:
        recorder = _trace.current()
        now = time.monotonic_ns()
        queue = ("software device 0", "queue 1")
        here = ("host", threading.get_ident())
        recorder.race("x", [(here, now), (queue, now - 9)], {"message": "m"}, "", 0, 0)
        recorder.work(queue, "kernel", now - 9, now, now + 2000, {"bytes": 1})
        recorder.name_row(queue, "the first")
    events = check(t.data)
    [work] = slices(t.data, "work")
    assert (work["name"], work["dur"], work["args"]) == ("kernel", 2, {"bytes": 1})
    assert work["pid"] == 1 and instants(t.data, "race")[0]["pid"] == 1
    start = next(event for event in events if event["ph"] == "s")
    assert start["pid"] == 0 and start["ts"] == work["ts"]
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert "the first, queue 1" in names
