"""The HTML timeline of a trace: what it holds, and how it behaves in headless Chromium."""

import contextlib
import ctypes
import json
import math
import re
import sys
import time

import made_trace
import pytest
from waiting import wait_until

import arrowdev as ad
from arrowdev._pages import trace_page
from arrowdev.testing import RaceError, software_device

WIDTHS = (400, 1000, 1400)
HOSTILE = '</script><script>document.title = "taken"</script><b>&'


on_software_device = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the software device needs Linux"
)


@pytest.fixture
def shown(browser, tmp_path):
    """Open the page of a trace."""

    def show(trace, width=1400, scheme="light"):
        file = tmp_path / "page.html"
        file.write_text(trace_page.page(trace), encoding="utf-8")
        browser.errors.clear()
        browser.size(width, 900, scheme)
        browser.open(file)
        return browser

    yield show
    assert browser.errors == []


def data_of(text):
    [found] = re.findall(r'<script id="trace" type="application/json">(.*?)</script>', text, re.S)
    return json.loads(found)


def selected(tab):
    return tab.run("shown.timeline.selected?.name ?? null")


def text_of(tab, name):
    return tab.run(f"document.getElementById({name!r}).innerText")


def point_of(tab, name):
    """Where the middle of a slice is on the screen."""
    return tab.run(
        "(() => { const {trace, timeline} = shown, box = timeline.canvas.getBoundingClientRect();"
        f"const item = trace.items.find(one => one.name === {name!r});"
        "return [box.left + timeline.x((item.start + item.end) / 2),"
        " box.top + TOP - timeline.scroll + item.row.y + item.lane * LANE + BAR / 2]; })()"
    )


def pixels(tab):
    """The number of colours in the rows of the timeline."""
    return tab.run(
        "(() => { const {canvas, paint, scale} = shown.timeline; const top = TOP * scale;"
        "const data = new Uint32Array(paint.getImageData(0, top, canvas.width,"
        " canvas.height - top).data.buffer); return new Set(data).size; })()"
    )


# --- the file ---------------------------------------------------------------------


def test_page_needs_nothing_beside_it():
    text = trace_page.page(made_trace.with_a_race())
    assert re.findall(r"(?:src|href)=|@import|url\(|fetch\(|https?://", text) == []
    assert text.count("<script") == text.count("</script>") == 5


def test_trace_in_the_page_is_the_trace():
    trace = made_trace.with_a_race()
    assert data_of(trace_page.page(trace)) == trace


def test_foreign_text_ends_no_element_and_what_json_lacks_is_null():
    made = made_trace.MadeTrace().slice((0, 0), 0, math.nan, HOSTILE, "import", x=math.inf)
    made.slice((0, 0), 0, 1, "a\x1b[31m\u202eb\udcff", "import", x={1: (object, 2)})
    trace = made.whole(advice=[HOSTILE])
    trace["otherData"]["command"] = [HOSTILE]
    text = trace_page.page(trace)
    assert "<script>document.title" not in text and text.count("</script>") == 5
    first, second = data_of(text)["traceEvents"]
    assert (first["dur"], first["args"], first["name"]) == (None, {"x": None}, HOSTILE)
    assert second["name"] == r"a\x1b[31m\u202eb\udcff"
    assert second["args"] == {"x": {"1": ["<class 'object'>", 2]}}
    text.encode("utf-8")


# --- the page in a browser --------------------------------------------------------


def test_slices_are_drawn_in_both_schemes(shown):
    for scheme in ("light", "dark"):
        tab = shown(made_trace.with_a_race(), scheme=scheme)
        assert pixels(tab) > 20
        back = tab.run("getComputedStyle(document.body).backgroundColor")
        assert back == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[scheme]


def test_rows_are_grouped_by_process(shown):
    tab = shown(made_trace.with_a_race())
    rows = tab.run("shown.trace.processes.map(p => [p.name, p.rows.map(r => r.name)])")
    assert rows == [["host", ["main thread"]], ["software device 0", ["queue 1", "queue 2"]]]
    assert tab.run("shown.trace.processes[0].rows[0].lanes.map(l => l.items.length)") == [3, 1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_screen(shown, width, scheme):
    long = "library." + "Name" * 60
    trace = made_trace.with_a_race()
    for event in trace["traceEvents"]:
        if event["name"].startswith("import"):
            event["args"]["from"] = long
    trace["otherData"] |= {
        "command": [long],
        "summary": {"advice": [long], "pairs": [{long: long}]},
    }
    tab = shown(trace, width, scheme)
    tab.run("shown.timeline.select(shown.trace.items.find(i => i.args.from?.length > 99))")
    tab.run("document.getElementById('keys').open = true")
    tab.drawn()
    assert tab.run("document.documentElement.scrollWidth") <= width
    cut = tab.run(
        "[...document.querySelectorAll('body *:not(.visually-hidden)')].filter(e =>"
        " e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline'"
        " && e.clientWidth).map(e => e.outerHTML.slice(0, 80))"
    )
    assert cut == []


def test_race_is_listed_with_both_ends_and_leads_to_its_place(shown):
    tab = shown(made_trace.with_a_race())
    text = text_of(tab, "races")
    for part in (
        *("A race was found", "Read not ordered after write", "no event was waited for"),
        *("write, by queue 1", "produce.py:40 in column"),
        *("read, by queue 2", "app.py:12 in main"),
    ):
        assert part in text
    tab.run("shown.timeline.show(40, 41)")
    tab.run("document.querySelector('#race-list button').click()")
    tab.drawn()
    assert selected(tab) == "race: read not ordered after write"
    assert tab.run("document.activeElement.id") == "canvas"
    details = text_of(tab, "details")
    advice = "pass queue 2 as stream= where the array is imported (app.py:12 in main)"
    assert f"What to do: {advice}" in text and f"What to do\n{advice}" in details
    assert "Begins later: read 8,000 bytes" in details
    assert "Begins earlier: write 8,000 bytes" in details
    # Both accesses are in view, and the arrow between them.
    assert tab.run(
        "(({timeline, trace}) => trace.races[0].flows.every(({from, to}) =>"
        " [from, to].every(end => timeline.x(end.start) > timeline.gutter"
        " && timeline.x(end.start) < timeline.width)))(shown)"
    )
    assert tab.run("shown.trace.races[0].flows.map(flow => flow.category)") == ["race"]


AT_ENDS = """(({timeline, trace}) => trace.races.flatMap(race => race.ends.map(end => {
    const y = timeline.yOf(end) - timeline.scroll, x = timeline.x(end.start);
    return {name: end.item?.name ?? null, category: end.item?.category ?? null,
      line: end.item?.args.line ?? null, row: end.row.name, isOpen: end.row.isShown,
      inside: x >= timeline.x(end.item?.start ?? end.start) - 1e-6
        && x <= timeline.x(end.item?.end ?? end.start) + 1e-6,
      inView: x > timeline.gutter && x < timeline.width && y >= 0 && y <= timeline.height - TOP};
  })))(shown)"""


def zoomed_to_a_race(tab):
    """The ends of the arrows of all races, once the first one is zoomed to."""
    tab.run("shown.timeline.select(shown.trace.races[0])")
    tab.run(
        "[...shown.trace.processes].forEach(one => one.isOpen && shown.timeline.toggle(one)),"
        "shown.timeline.show(0, 0.01)"
    )
    tab.run(
        "[...document.querySelectorAll('#details button')]"
        ".find(one => one.innerText === 'Zoom to it').click()"
    )
    tab.drawn()
    return tab.run(AT_ENDS)


def planted(plant, **options):
    """The trace of a race that is planted on the software device."""
    with ad.trace() as trace, software_device(races=True, **options) as device:
        kept = plant(device, *(device.queue() for _ in range(2)))
        found = device.races()
        device.synchronize()
        del kept
        device.races()
    return trace.data, found


@on_software_device
@pytest.mark.parametrize("is_reversed", [False, True])
def test_race_that_went_the_other_way_round_says_so(shown, is_reversed):
    def plant(device, theirs, ours):
        memory, target = device.empty(24), device.empty(24)
        with theirs.held() if is_reversed else contextlib.nullcontext():
            theirs.fill(memory, 1)
            wait_until(lambda: device.live().pending == is_reversed)
            ours.copy(target, memory)
            wait_until(lambda: device.live().pending == is_reversed)
        return memory, target

    data, races = planted(plant)
    assert [race.kind for race in races] == ["read not ordered after write"]
    text = text_of(shown(data), "race-list")
    assert ("In this run: the second access began first" in text) == is_reversed


@on_software_device
def test_both_accesses_of_a_race_are_in_view_once_it_is_zoomed_to(shown):
    """They are what the queues ran, long after the calls."""

    def plant(device, theirs, ours):
        memory, target = device.empty(24), device.empty(24)
        with theirs.held():
            theirs.fill(memory, 1)
            ours.copy(target, memory)
            while device.live().pending > 1:
                time.sleep(0.001)
        return memory, target

    data, [race] = planted(plant)
    first, second = zoomed_to_a_race(shown(data))
    # The copy was called later, and ran first.
    assert (first["name"], second["name"]) == ("copy 24 bytes", "write 24 bytes")
    assert first["row"].startswith("queue 2, stream 0x")
    assert second["row"].startswith("queue 1, stream 0x")
    assert (first["line"], second["line"]) == (race.second.line, race.first.line)
    for end in (first, second):
        assert end["category"] == "work" and end["inside"] and end["inView"] and end["isOpen"]


@on_software_device
def test_race_with_the_host_leads_to_its_instant(shown):
    def plant(device, theirs, ours):
        memory = device.empty(24)
        ours.fill(memory, 1)
        while device.live().pending:
            time.sleep(0.001)
        memory.free()

    data, [race] = planted(plant)
    by_row = {end["row"]: end for end in zoomed_to_a_race(shown(data))}
    assert race.second.queue == "the host" and set(by_row) > {"MainThread"}
    assert all(end["inView"] for end in by_row.values())
    [work] = [end for row, end in by_row.items() if row != "MainThread"]
    assert work["name"] == "write 24 bytes" and work["row"].startswith("queue 2, stream 0x")


@on_software_device
def test_races_at_one_slice_have_arrows_of_their_own(shown):
    def plant(device, theirs, ours):
        memory = device.empty(48)
        theirs.fill(memory, 1, 24)
        device.queue().fill(memory.address + 24, 2, 24)
        ours.fill(memory, 3)
        return memory

    data, races = planted(plant)
    assert len(races) == 2
    tab = shown(data)
    lines = tab.run(
        "shown.trace.races.map(race => [race.args.first.line, race.args.second.line,"
        " ...race.ends.map(end => end.item.args.line)].sort())"
    )
    assert lines == [sorted([one.first.line, one.second.line] * 2) for one in races]
    assert tab.run("shown.trace.races.map(race => race.flows.length)") == [1, 1]


@on_software_device
def test_copy_that_nobody_waits_for_leads_to_what_ran(shown):
    target = ctypes.create_string_buffer(24)
    with ad.trace() as trace, pytest.raises(RaceError), software_device(races=True) as device:
        device.queue().copy(ctypes.addressof(target), device.from_host(bytes(24)), 24)
    [end] = zoomed_to_a_race(shown(trace.data))
    assert end["name"] == "copy 24 bytes" and end["inView"] and end["isOpen"]


@on_software_device
def test_search_without_a_race_says_so_and_its_queues_keep_their_numbers(shown):
    def plant(device, theirs, ours):
        memory = device.empty(24)
        theirs.fill(memory, 1)
        ours.wait(theirs)
        ours.fill(memory, 1)
        return memory

    data, races = planted(plant)
    assert races == []
    tab = shown(data)
    assert text_of(tab, "facts").split("\n")[0] == "0 races"
    assert tab.run("document.getElementById('races').hidden")
    rows = tab.run("shown.trace.processes.at(-1).rows.map(row => row.name.split(', ')[0])")
    assert {"queue 1", "queue 2"} <= set(rows)
    data["otherData"]["race_search"] = "incomplete"
    facts = text_of(shown(data), "facts")
    assert facts.startswith("0 races, and some may have been missed\n")
    data["otherData"]["race_search"] = "off"
    facts = text_of(shown(data), "facts")
    assert facts.startswith("races not searched for: set ARROWDEV_RACES=1\n")


def test_trace_without_a_search_lists_no_races(shown):
    tab = shown(made_trace.large(40))
    assert tab.run("document.getElementById('races').hidden")
    assert "race" not in text_of(tab, "facts")


def test_search_highlights_and_steps(shown):
    tab = shown(made_trace.with_a_race())
    tab.run("document.getElementById('canvas').focus()")
    tab.press("/", *"8,000")
    assert text_of(tab, "found") == "4 found"
    tab.press("Enter")
    assert text_of(tab, "found") == "1 of 4"
    names = [selected(tab)]
    for _ in range(3):
        tab.press("Enter")
        names.append(selected(tab))
    assert len(set(names)) == 4 and "copy 8,000 bytes" in names
    tab.press("Shift+Enter")
    assert text_of(tab, "found") == "3 of 4"
    assert tab.run("shown.timeline.hits.size") == 4
    tab.press("Escape")
    assert tab.run("[shown.timeline.hits.size, document.activeElement.id]") == [0, "canvas"]
    tab.press("/", *"no such text", "Enter")
    assert text_of(tab, "found") == "nothing found"


def test_details_begin_with_the_line_of_the_user(shown):
    tab = shown(made_trace.with_a_race())
    tab.click(*point_of(tab, "import produce.Column"))
    assert selected(tab) == "import produce.Column"
    details = text_of(tab, "details").split("\n")
    assert details[:3] == ["import produce.Column", "Your line", "app.py:12 in main"]
    assert "From" in details and "produce.Column" in details and "9 \u00b5s" in details
    tab.click(*point_of(tab, "copy 8,000 bytes"))
    details = text_of(tab, "details")
    for part in ("Why\ncopy=True was asked for", "8 KB (8,000 bytes)", "0.66 GB/s"):
        assert part in details
    assert "Waited for by: wait for queue 1" in details


def test_arrow_of_memory_is_that_of_what_is_selected(shown):
    tab = shown(made_trace.with_a_race())
    tab.run(
        "(() => { const {timeline} = shown, stroke = timeline.strokeArrows; timeline.drawn = [];"
        "timeline.strokeArrows = (arrows, colour, width) => {"
        " arrows.forEach(() => timeline.drawn.push(width));"
        " stroke.call(timeline, arrows, colour, width); }; })()"
    )
    drawn = "(shown.timeline.drawn = [], shown.timeline.drawNow(), shown.timeline.drawn)"
    event, race, own = 1.1, 1.8, 2.2
    assert tab.run(drawn) == [event, race]
    tab.click(*point_of(tab, "release"))
    assert tab.run(drawn) == [event, race, own]
    assert "Memory from: export __arrow_c_device_array__" in text_of(tab, "details")
    tab.click(*point_of(tab, "wait for queue 1"))
    assert tab.run(drawn) == [race, own]


def test_keyboard(shown):
    tab = shown(made_trace.with_a_race())
    tab.run("document.getElementById('canvas').focus()")
    view = "[shown.timeline.left, shown.timeline.right]"
    tab.press("Tab")
    assert selected(tab) == "export __arrow_c_device_array__"
    tab.press("Tab", "Tab")
    assert selected(tab) == "event recorded"
    tab.press("Shift+Tab")
    assert selected(tab) == "write 8,000 bytes"
    tab.press("ArrowUp")
    assert tab.run("shown.timeline.selected.row.name") == "main thread"
    tab.press("ArrowDown", "ArrowDown")
    assert tab.run("shown.timeline.selected.row.name") == "queue 2"
    for zoom_in, zoom_out in ("ws", "+-"):
        left, right = tab.run(view)
        tab.press(zoom_in)
        near, far = tab.run(view)
        assert near > left and far < right
        for back, forth in (("a", "d"), ("ArrowLeft", "ArrowRight")):
            tab.press(forth)
            assert tab.run(view)[0] > near
            tab.press(back)
            assert tab.run(view)[0] == pytest.approx(near)
        tab.press(zoom_out)
        assert tab.run(view) == pytest.approx([left, right])
    tab.press("Enter")
    assert tab.run("document.activeElement.id") == "details"
    tab.press("Escape")
    assert tab.run("document.activeElement.id") == "canvas"
    tab.press("r")
    assert selected(tab) == "race: read not ordered after write"
    tab.press("Escape")
    assert selected(tab) is None
    tab.press("Tab")  # is no trap
    assert selected(tab) is None and tab.run("document.activeElement.id") != "canvas"


def test_wheel_drag_and_fit(shown):
    tab = shown(made_trace.with_a_race())
    view = "[shown.timeline.left, shown.timeline.right]"
    whole = tab.run(view)
    x, y = point_of(tab, "write 8,000 bytes")
    at = f"shown.timeline.timeAt({x} - shown.timeline.canvas.getBoundingClientRect().left)"
    before = tab.run(at)
    tab.mouse("mouseWheel", x, y, deltaX=0, deltaY=-50)
    tab.drawn()
    left, right = tab.run(view)
    assert right - left < whole[1] - whole[0]
    assert tab.run(at) == pytest.approx(before, abs=0.1)
    tab.mouse("mousePressed", x, y, button="left", clickCount=1)
    tab.mouse("mouseMoved", x - 40, y, button="left")
    tab.mouse("mouseReleased", x - 40, y, button="left", clickCount=1)
    assert tab.run(view)[0] > left and selected(tab) is None
    tab.run("document.getElementById('fit').click()")
    assert tab.run(view) == whole


def test_two_fingers_zoom(shown):
    tab = shown(made_trace.with_a_race(), 400)
    left, right = tab.run("[shown.timeline.left, shown.timeline.right]")
    x, y = point_of(tab, "write 8,000 bytes")
    for kind, distance in (("touchStart", 20), ("touchMove", 40), ("touchMove", 60)):
        fingers = [{"x": x + side * distance, "y": y, "id": side} for side in (-1, 1)]
        tab.call("Input.dispatchTouchEvent", type=kind, touchPoints=fingers)
    tab.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    tab.drawn()
    near, far = tab.run("[shown.timeline.left, shown.timeline.right]")
    assert (right - left) / (far - near) == pytest.approx(3, rel=0.2)
    assert selected(tab) is None


def test_idle_time_is_short_until_it_is_asked_for(shown):
    tab = shown(made_trace.with_a_race())
    length = "shown.timeline.axis.size"
    assert tab.run("shown.trace.end") == 4002 and tab.run(length) < 100
    tab.run("document.getElementById('short').click()")
    assert tab.run(length) == 4002
    tab.run("document.getElementById('short').click()")
    for at in (0, 20, 48, 300, 3900, 4001):
        assert tab.run(
            f"shown.timeline.axis.timeOf(shown.timeline.axis.placeOf({at}))"
        ) == pytest.approx(at)


def test_process_closes_and_opens(shown):
    tab = shown(made_trace.with_a_race())
    high = tab.run("shown.timeline.content")
    x, y = tab.run(
        "(box => [box.left + 30, box.top + TOP + 8])"
        "(shown.timeline.canvas.getBoundingClientRect())"
    )
    tab.click(x, y)
    assert tab.run("shown.timeline.content") < high
    assert tab.run("shown.trace.processes[0].isOpen") is False
    tab.run("shown.timeline.select(shown.trace.items[0])")  # which opens it
    assert tab.run("shown.timeline.content") == high


def test_empty_trace_says_so(shown):
    for trace in ({}, made_trace.MadeTrace().whole(), {"traceEvents": None, "otherData": 3}):
        tab = shown(trace)
        assert "nothing was exchanged" in text_of(tab, "empty")
        assert tab.run("document.getElementById('whole').hidden")


def test_strange_events_break_nothing(shown):
    made = made_trace.MadeTrace()
    made.slice((0, 0), 0, math.nan, HOSTILE, HOSTILE, line=HOSTILE, shape=HOSTILE, bytes="many")
    made.slice((None, HOSTILE), 3, -5, "", "wait", first=3)
    made.slice((0, 0), 4, 1e15, "long", "copy", bandwidth=None, shape=[])
    made.instant((0, 0), 2, "race", "race")
    made.instant((0, 0), 2, "race", "race", first=[], second={"queue": 1}, message=None)
    made.flow("event", 1, ((0, 0), 1), ((5, 5), 2)).flow("unknown", 2, ((0, 0), 1), ((0, 0), 2))
    trace = made.whole(pairs={HOSTILE: [HOSTILE]}, advice=HOSTILE, nothing=[])
    del trace["traceEvents"][0]["args"]
    trace["traceEvents"] += [
        *(None, 3, [], {}, {"ph": "X"}, {"ph": "X", "ts": math.nan}, {"ph": "i", "ts": 5e6}),
        *({"ph": "M"}, {"ph": "M", "name": "thread_name", "args": {"name": HOSTILE}}),
        *({"ph": "B", "ts": 5e6}, {"ph": "s", "ts": 5e6, "cat": "event", "id": 9}),
    ]
    tab = shown(trace)
    assert tab.run("shown.trace.items.length") == 6
    assert tab.run("document.title") == "Trace of app.py"
    assert tab.run("document.querySelectorAll('b, body script:not(#trace)').length") == 4
    assert "9 entries not shown" in text_of(tab, "facts")
    tab.run("document.getElementById('canvas').focus()")
    for _ in range(7):
        tab.press("Tab")
    assert "2 races were found" in text_of(tab, "races")
    assert HOSTILE in tab.run("(shown.timeline.select(shown.trace.items.find(item =>"
                              " item.category.includes('script'))),"
                              " document.getElementById('details').innerText)")  # fmt: skip


def test_dropped_events_are_counted(shown):
    trace = made_trace.with_a_race()
    trace["otherData"]["dropped"] = 1234
    assert "1,234 events dropped" in text_of(shown(trace), "facts")


def test_many_events_are_drawn_by_what_is_in_view(shown):
    """The work of a frame is counted: rectangles and texts, not time."""
    tab = shown(made_trace.large(20_000))
    assert tab.run("shown.trace.items.length") == 20_000
    tab.run(
        "['fillRect', 'fillText', 'stroke'].forEach(name => { const paint = shown.timeline.paint,"
        " draw = paint[name]; paint.count = 0; paint[name] = function (...args) {"
        " paint.count++; return draw.apply(paint, args); }; })"
    )
    work = "(shown.timeline.paint.count = 0, shown.timeline.drawNow(), shown.timeline.paint.count)"
    columns = tab.run("shown.timeline.plot * shown.trace.byKey.size")
    assert 1000 < tab.run(work) < 6 * columns
    tab.run("shown.timeline.show(7000, 7040)")
    assert 20 < tab.run(work) < 4000
    assert tab.run("shown.trace.find('slice 1999').length") == 12
