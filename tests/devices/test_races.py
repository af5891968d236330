"""software_device(races=True): every planted race is found, whatever the speed of the queues."""

import contextlib
import ctypes
import gc
import pickle
import signal
import sys
import threading
import time
from functools import partial

import chrome_trace
import pytest
from waiting import wait_until

import arrowdev as ad
from arrowdev.testing import RaceError, _engine, _queue, _races, software_device

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the software device needs Linux"
)


@pytest.fixture
def device():
    with software_device(timeout=20, races=True) as device:
        yield device


def copied(device, column, queue):
    """A copy of the values, made on the queue."""
    memory = device.empty(8 * len(column))
    queue.copy(memory, column.buffers[1].data_ptr, memory.nbytes)
    return memory


# --- planted races -----------------------------------------------------------------------------

# Each is called with a device, the queue of a producer, and another one. It returns what has to
# live until the race is looked for, and gives the kinds of the races in its name.


def import_without_a_wait(device, theirs, ours):
    column = ad.array(device.array([1, 2, 3], queue=theirs))
    return copied(device, column, ours), column


def import_with_stream_minus_one(device, theirs, ours):
    column = ad.array(device.array([1, 2, 3], queue=theirs), stream=-1)
    return copied(device, column, ours), column


def export_with_stream_minus_one(device, theirs, ours):
    column = ad.array(device.array([1, 2, 3], queue=theirs))
    tensor = ad.tensor(column)
    capsule = tensor.__dlpack__(stream=-1)
    memory = device.empty(24)
    ours.copy(memory, tensor.data_ptr, 24)
    return memory, capsule, column


def export_to_another_queue(device, theirs, ours):
    tensor = ad.tensor(ad.array(device.array([1, 2, 3], queue=theirs)))
    capsule = tensor.__dlpack__(stream=device.queue().handle)
    memory = device.empty(24)
    ours.copy(memory, tensor.data_ptr, 24)
    return memory, capsule


def consumer_that_ignores_the_event(device, theirs, ours):
    return device.to_host(device.array([1, 2, 3], queue=theirs), queue=ours, wait=False)


def event_of_another_queue(device, theirs, ours):
    memory, target = device.empty(24), device.empty(24)
    theirs.fill(memory, 1)
    ours.wait(device.queue().record())
    ours.copy(target, memory)
    return memory, target


def event_recorded_too_early(device, theirs, ours):
    memory, target = device.empty(24), device.empty(24)
    theirs.fill(target, 0)
    event = theirs.record()
    theirs.fill(memory, 1)
    ours.wait(event)
    ours.copy(target, memory)
    return memory, target


def write_while_it_is_read(device, theirs, ours):
    memory, target = device.from_host(bytes(24)), device.empty(24)
    theirs.copy(target, memory)
    ours.fill(memory, 1)
    return memory, target


def write_while_it_is_written(device, theirs, ours):
    memory = device.empty(24)
    theirs.fill(memory, 1)
    ours.fill(memory, 2)
    return memory


def wait_of_the_wrong_queue(device, theirs, ours):
    memory = device.empty(24)
    theirs.fill(memory, 1)
    theirs.wait(ours)
    ours.fill(memory, 2)
    return memory


def release_before_it_is_read(device, theirs, ours):
    column = ad.array(device.array([1, 2, 3], queue=theirs))
    column.synchronize()
    return copied(device, column, ours)  # and the column is released


def free_before_it_is_read(device, theirs, ours):
    memory, target = device.from_host(bytes(24)), device.empty(24)
    ours.copy(target, memory)
    memory.free(theirs)
    return target


def free_on_the_host_before_it_is_written(device, theirs, ours):
    memory = device.empty(24)
    ours.fill(memory, 1)
    memory.free()


def read_after_an_ordered_release(device, theirs, ours):
    memory, target = device.from_host(bytes(24)), device.empty(24)
    address = memory.address
    memory.free(ours)
    with contextlib.suppress(ad.DeviceError):  # if the memory is gone already
        ours.copy(target, address, 24)
    return target


def read_after_a_release(device, theirs, ours):
    memory, target = device.from_host(bytes(24)), device.empty(24)
    address = memory.address
    memory.free()
    with pytest.raises(ad.DeviceError, match="INVALID_POINTER"):
        ours.copy(target, address, 24)
    return target


KINDS = {
    import_without_a_wait: "read not ordered after write",
    import_with_stream_minus_one: "read not ordered after write",
    export_with_stream_minus_one: "read not ordered after write",
    export_to_another_queue: "read not ordered after write",
    consumer_that_ignores_the_event: "read not ordered after write",
    event_of_another_queue: "read not ordered after write",
    event_recorded_too_early: "read not ordered after write",
    write_while_it_is_read: "write not ordered after read",
    write_while_it_is_written: "write not ordered after write",
    wait_of_the_wrong_queue: "write not ordered after write",
    release_before_it_is_read: "release not ordered after read",
    free_before_it_is_read: "release not ordered after read",
    free_on_the_host_before_it_is_written: "release not ordered after write",
    read_after_an_ordered_release: "read after release",
    read_after_a_release: "read after release",
}
WAIT = "; let it wait, before {second}, for one that {theirs} records after {first}"
ADVICE = {
    event_recorded_too_early: "; record that event after the write",
    release_before_it_is_read: "; keep the memory until the read is done",
    free_before_it_is_read: "; keep the memory until the read is done",
    free_on_the_host_before_it_is_written: "; keep the memory until the write is done",
    read_after_an_ordered_release: "; keep the memory until this read is done",
    read_after_a_release: "; keep the memory until this read is done",
}
# An array comes in without a wait, in the first line of the function.
IMPORTS = {
    import_without_a_wait,
    import_with_stream_minus_one,
    export_with_stream_minus_one,
    export_to_another_queue,
}
# All work that the consumer waits for would have to be done.
NEED_PROGRESS = (consumer_that_ignores_the_event, release_before_it_is_read)


@contextlib.contextmanager
def at_pace(pace, device, queues, monkeypatch):
    with contextlib.ExitStack() as stack:
        for queue in queues:
            if pace == "held":
                stack.enter_context(queue.held())
            if pace == "slow":
                queue.delay = 0.02
        if pace == "done":
            monkeypatch.setattr(
                _queue, "call", lambda *all: (_engine.call(*all), settle(device))[0]
            )
        yield


def settle(device):
    """All work is done, and the device does not know that anybody has seen it."""
    while device.live().pending:
        time.sleep(0.0001)


@pytest.mark.parametrize("pace", ["quick", "slow", "held", "done"])
@pytest.mark.parametrize("race", KINDS, ids=lambda race: race.__name__)
def test_planted_race_is_found(device, race, pace, monkeypatch):
    if pace == "held" and race in NEED_PROGRESS:
        pace = "slow"
    theirs, ours = device.queue(), device.queue()
    with at_pace(pace, device, [theirs, ours], monkeypatch):
        kept = race(device, theirs, ours)
        found = device.races()
    assert [race.kind for race in found] == [KINDS[race]]
    first, second = found[0].first, found[0].second
    assert all(f"test_races.py:{_line(access)} in " in access.line for access in (first, second))
    assert first.line in found[0].message and second.line in found[0].message
    advice = ADVICE.get(race, WAIT)
    advice = advice.format(first=first.line, second=second.line, theirs=first.queue)
    assert found[0].message.endswith(advice) and found[0].message.count(";") == 1
    del kept
    with contextlib.suppress(ad.DeviceError):
        device.synchronize()
    device.reset()
    device.races()


def _line(access):
    return int(access.line.split(":")[1].split()[0])


@pytest.mark.parametrize("race", KINDS, ids=lambda race: race.__name__)
def test_trace_names_the_import_that_has_no_stream(race):
    """Where it is known that one is the cause, and nowhere else."""
    gc.collect()  # as in test_races_are_raised_at_the_end_of_the_block
    with ad.trace() as trace, software_device(timeout=20, races=True) as device:
        kept = race(device, device.queue(), device.queue())
        found = device.races()
        del kept
        with contextlib.suppress(ad.DeviceError):
            device.synchronize()
        device.reset()
        device.races()
    told = [e["args"] for e in trace.data["traceEvents"] if e.get("cat") == "race" and "args" in e]
    [args] = [args for args in told if args["message"] == found[0].message]
    line = race.__code__.co_firstlineno + 1
    at = f"(test_races.py:{line} in {race.__name__})"
    advice = f"pass queue 2 as stream= where the array is imported {at}"
    assert args.get("advice") == (advice if race in IMPORTS else None)


def mended_import(device, theirs, ours):
    column = ad.array(device.array([1, 2, 3], queue=theirs), stream=ours)
    return copied(device, column, ours), column


def mended_export(device, theirs, ours):
    tensor = ad.tensor(ad.array(device.array([1, 2, 3], queue=theirs), stream=ours))
    capsule = tensor.__dlpack__(stream=-1)
    memory = device.empty(24)
    ours.copy(memory, tensor.data_ptr, 24)
    return memory, capsule


def mended_waits(device, theirs, ours):
    memory, target = device.empty(24), device.empty(24)
    theirs.fill(memory, 1)
    ours.wait(theirs.record())
    ours.copy(target, memory)
    theirs.wait(ours.record())
    theirs.fill(memory, 2)
    return memory, target


def mended_early_event(device, theirs, ours):
    memory, target = device.empty(24), device.empty(24)
    theirs.fill(target, 0)
    theirs.fill(memory, 1)
    ours.wait(theirs.record())
    ours.copy(target, memory)
    return memory, target


def mended_release(device, theirs, ours):
    memory, target = device.from_host(bytes(24)), device.empty(24)
    ours.copy(target, memory)
    ours.synchronize()
    memory.free(theirs)
    return target


@pytest.mark.parametrize(
    "mended",
    [mended_import, mended_export, mended_waits, mended_early_event, mended_release],
    ids=lambda mended: mended.__name__,
)
def test_what_is_advised_mends_the_race(device, mended):
    kept = mended(device, device.queue(), device.queue())
    assert device.races() == []
    device.synchronize()
    del kept
    assert device.races() == []


@pytest.mark.parametrize("delay", [0, 0.02])
def test_copy_to_the_host_that_nobody_waits_for_is_found(delay):
    target = ctypes.create_string_buffer(24)
    with pytest.raises(RaceError, match="the host never waits for it") as caught:
        with software_device(races=True) as device:
            queue = device.queue()
            queue.delay = delay
            source = device.from_host(bytes(24))
            queue.copy(ctypes.addressof(target), source, 24)
            settle(device)
    [found] = caught.value.races
    assert found.kind == "copy to the host that is not waited for"
    assert found.message.endswith(f" never waits for it; synchronize {found.first.queue} first")


def test_each_line_of_copies_that_nobody_waits_for_is_found():
    """However many copies one of them has made."""
    target = ctypes.create_string_buffer(24 * 80)
    with pytest.raises(RaceError) as caught:
        with software_device(races=True) as device:
            queue = device.queue()
            source = device.from_host(bytes(24))
            for i in range(79):
                queue.copy(ctypes.addressof(target) + 24 * i, source, 24)
            queue.copy(ctypes.addressof(target) + 24 * 79, source, 24)
            settle(device)
    assert len({_line(race.first) for race in caught.value.races}) == 2
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.races == caught.value.races and str(again) == str(caught.value)


# --- what is sound -----------------------------------------------------------------------------


def test_what_is_ordered_is_no_race(device):
    theirs, ours, third = (device.queue() for _ in range(3))
    theirs.delay = 0.002
    producer = device.array([1, 2, 3], queue=theirs)
    target = ctypes.create_string_buffer(24)
    for _ in range(3):
        first = copied(device, ad.array(producer, stream=ours), ours)
        third.wait(ours)  # also for what ours has waited for
        second = device.empty(24)
        third.copy(second, first)
        third.copy(ctypes.addressof(target), second, 24)
        third.record().synchronize()
        first.free()
        assert device.to_host(producer, queue=ours).to_pylist() == [1, 2, 3]
        assert ad.array(producer).to("cpu").to_pylist() == [1, 2, 3]
        column = ad.array(producer)
        column.synchronize()
        ours.copy(second, column.buffers[1].data_ptr, 24)
        ours.synchronize()
    assert device.races() == []


def test_bytes_side_by_side_are_no_race(device):
    memory, queues = device.empty(64), [device.queue() for _ in range(4)]
    for i, queue in enumerate(queues):
        queue.fill(memory.address + 16 * i, i, 16)
        queue.copy(memory.address + 16 * i + 8, memory.address + 16 * i, 8)
    assert device.races() == []
    queues[0].fill(memory.address + 31, 0, 2)  # the last byte of one, the first of another
    found = device.races()
    assert len(found) == 3  # with the writes of two queues, a copy from and a copy to
    assert "bytes 31 to 32 of the memory made at test_races.py:" in found[0].message
    device.synchronize()
    device.races()


def test_reads_are_no_race(device):
    memory, targets = device.from_host(bytes(8)), []
    for _ in range(4):
        targets.append(device.empty(8))
        device.queue().copy(targets[-1], memory)
    assert device.races() == []
    device.synchronize()


def test_what_the_host_has_seen_is_ordered(device):
    theirs, ours = device.queue(), device.queue()
    memory = device.empty(8)
    seen = [
        lambda event: event.synchronize(),
        lambda event: wait_until(event.is_ready),
        lambda event: wait_until(theirs.is_idle),
        lambda event: theirs.synchronize(),
        lambda event: device.synchronize(0),
        lambda event: ad.device("ext_dev:0").synchronize(),
    ]
    for see in seen:
        theirs.fill(memory, 1)
        see(theirs.record())
        ours.fill(memory, 2)
        ours.synchronize()
    assert device.races() == []


def test_work_behind_an_armed_event_is_left_out(device):
    theirs, ours, event = device.queue(), device.queue(), device.event()
    memory = device.empty(8)
    event.arm()
    ours.wait(event)
    ours.fill(memory, 2)
    theirs.fill(memory, 1)
    theirs.synchronize()
    event.fire()
    ours.synchronize()
    assert device.races() == []


def test_peek_is_no_use(device):
    memory, queue = device.empty(8), device.queue()
    queue.fill(memory, 1)
    device.peek(memory)
    queue.synchronize()
    assert device.peek(memory) == bytes([1] * 8)
    assert device.races() == []


# --- how it is told ----------------------------------------------------------------------------


def race(device):
    memory = device.empty(8)
    for _ in range(2):
        device.queue().fill(memory, 1)
    return memory


def test_races_are_raised_at_the_end_of_the_block():
    gc.collect()  # or it runs in the block: old memory is freed on a queue, which takes a number
    with pytest.raises(RaceError) as caught:
        with software_device(races=True) as device:
            kept = race(device)
    del kept
    [found] = caught.value.races
    assert found.kind == "write not ordered after write"
    assert found.first.queue == "queue 1" and found.second.queue == "queue 2"
    assert str(found) == found.message and found.message in str(caught.value)
    assert "queue 2 waits for no event that is recorded after it" in found.message


def test_another_error_takes_precedence():
    with pytest.raises(KeyError) as caught:
        with software_device(races=True) as device:
            race(device)
            raise KeyError("of the test")
    if sys.version_info >= (3, 11):
        assert "write not ordered" not in caught.value.__notes__[0]
        assert "a race was found" in caught.value.__notes__[0]


def test_what_comes_of_a_race_is_its_context():
    with pytest.raises(RaceError, match="the host releases the memory") as caught:
        with software_device(races=True) as device:
            queue, memory = device.queue(), device.empty(8)
            queue.hold()
            queue.fill(memory, 1)
            memory.free()
    assert isinstance(caught.value.__cause__, ad.DeviceError)


def test_races_are_told_once_for_a_pair_of_lines(device):
    memory, queues = device.empty(8), [device.queue() for _ in range(4)]
    for queue in queues:
        queue.fill(memory, 1)
    assert len(device.races()) == 1
    assert device.races() == []
    device.synchronize()


def test_races_are_off_unless_asked_for(monkeypatch):
    monkeypatch.delenv("ARROWDEV_RACES", raising=False)
    with software_device() as device:
        race(device)
        with pytest.raises(RuntimeError, match="races=True"):
            device.races()
    monkeypatch.setenv("ARROWDEV_RACES", "1")
    with software_device() as device:
        kept = race(device)
        assert len(device.races()) == 1
        del kept
    with software_device(races=False) as device:
        race(device)


@pytest.mark.parametrize("n_steps", [0, 1, 2])
def test_step_orders_what_was_done(n_steps):
    """The second operation is pending after one step."""
    with software_device(races=True) as device:
        queue, first, second = device.queue(), device.empty(8), device.empty(8)
        queue.hold()
        queue.fill(first, 1)
        queue.fill(second, 1)
        for _ in range(n_steps):
            assert queue.step()
        first.free()
        second.free()
        assert len(device.races()) == 2 - n_steps
        device.reset()
        with contextlib.suppress(ad.DeviceError):  # what follows from a race
            queue.synchronize()
        device.reset()


def test_step_orders_what_the_operation_was_behind():
    with software_device(races=True) as device:
        theirs, ours, memory = device.queue(), device.queue(), device.empty(8)
        ours.hold()
        with theirs.held():
            theirs.fill(memory, 1)
            ours.wait(theirs)
        wait_until(lambda: device.live().pending == 1)
        ours.fill(device.empty(8), 1)
        assert ours.step() and ours.step()
        memory.free()
        assert device.races() == []


def test_step_that_took_too_long_makes_up_no_race():
    with software_device(timeout=0.1, races=True) as device:
        theirs, ours = device.queue(), device.queue()
        memory, other = device.empty(8), device.empty(8)
        theirs.hold()
        theirs.fill(memory, 1)
        ours.wait(theirs)
        time.sleep(0.05)  # it has begun to wait
        ours.hold()
        ours.fill(other, 1)
        with pytest.raises(ad.DeviceError, match="TIMEOUT"):
            ours.step()
        theirs.release()
        assert ours.step()
        other.free()
        assert device.races() == []
        theirs.synchronize()


@pytest.mark.parametrize("is_dropped", [False, True])
def test_memory_behind_a_closed_queue_hides_no_race_with_other_memory(is_dropped):
    with software_device(races=True) as device:
        queue = device.queue()
        array = ad.array(device.array([1, 2, 3], queue=queue))
        memory = device.empty(8)
        queue.fill(memory, 1)
        queue.close()
        wait_until(lambda: device.live().pending == 0)
        if is_dropped:
            del array
        memory.free()
        assert [race.kind for race in device.races()] == ["release not ordered after write"]


def test_forgotten_accesses_are_told():
    warned = pytest.warns(RuntimeWarning, match=r"missed: 2048 accesses were forgotten")
    with warned, software_device(races=True) as device:
        memory, queue = device.empty(5000), device.queue()
        for i in range(4097):
            queue.fill(memory.address + i, 1, 1)


def test_same_access_of_the_same_line_is_kept_once(recwarn):
    with software_device(races=True) as device:
        memory, queue, other = device.empty(8), device.queue(), device.queue()
        for _ in range(5000):
            queue.fill(memory, 1)
            other.wait(queue)
            other.fill(memory, 1)
            queue.wait(other)
    assert not recwarn.list


# --- signals -----------------------------------------------------------------------------------


class Interrupted(Exception):
    """Raised by the handler of a signal."""


@pytest.fixture
def interrupt_in_here(monkeypatch):
    """Returns a function: the next n searches for a line are interrupted by a signal."""
    n_left, n_handled = [0], []
    here = _races.Lines.here

    def interrupted_here(lines):
        if n_left[0] > 0:
            n_left[0] -= 1
            signal.raise_signal(signal.SIGUSR1)
        return here(lines)

    def handler(number, frame):
        n_handled.append(number)
        raise Interrupted(len(n_handled))

    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    monkeypatch.setattr(_races.Lines, "here", interrupted_here)
    before = signal.signal(signal.SIGUSR1, handler)
    yield partial(n_left.__setitem__, 0)
    signal.signal(signal.SIGUSR1, before)
    assert not unraisable


def test_what_a_signal_handler_raises_is_raised(interrupt_in_here, device):
    memory, queue = device.empty(8), device.queue()
    column = ad.array(bytes(24))
    for work in (
        lambda: queue.fill(memory, 1),
        lambda: device.empty(8),
        lambda: column.to("ext_dev:0"),
    ):
        work()
        interrupt_in_here(1)
        with pytest.raises(Interrupted):
            work()
        work()
    device.synchronize()
    assert device.races() == []


def test_what_two_signal_handlers_raise_is_raised(interrupt_in_here, device):
    """The second exception comes behind the first one, where that is handled."""
    column, raised = ad.array(bytes(24)), set()

    def note(error):
        while error is not None:
            raised.add(error.args[0])
            error = error.__context__

    interrupt_in_here(2)  # in one call of C
    try:
        try:
            column.to("ext_dev:0")
        except Interrupted as error:
            note(error)
    except Interrupted as error:
        note(error)
    assert raised == {1, 2}


def test_error_in_a_thread_without_signals_is_reported(monkeypatch, device):
    gc.collect()  # or it runs in the block: it frees old memory by a call of the device
    memory, queue = device.empty(8), device.queue()
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: unraisable.append(args.exc_type))
    with monkeypatch.context() as patch:
        patch.setattr(_races._trace, "user_frame", lambda frame: 1 / 0)
        thread = threading.Thread(target=queue.fill, args=[memory, 1])
        thread.start()
        thread.join()
    wait_until(lambda: unraisable)
    assert unraisable == [ZeroDivisionError]


# --- in a trace --------------------------------------------------------------------------------


def test_trace_shows_races_and_the_work_of_queues():
    with ad.trace() as trace:
        with software_device(races=True) as device:
            memory, target = device.empty(24), device.empty(24)
            theirs, ours = device.queue(), device.queue()
            theirs.fill(memory, 1)
            ours.copy(target, memory)
            [found] = device.races()
    by_category = {}
    for event in trace.data["traceEvents"]:
        by_category.setdefault(event.get("cat"), []).append(event)
    [told] = [e for e in by_category["race"] if e["ph"] == "i"]
    assert told["name"] == "race: read not ordered after write"
    assert told["args"]["message"] == found.message
    assert told["args"]["first"]["line"] == found.first.line
    [start] = [e for e in by_category["race"] if e["ph"] == "s"]
    [end] = [e for e in by_category["race"] if e["ph"] == "f"]
    work = {e["name"]: e for e in by_category["work"]}
    assert set(work) == {"write 24 bytes", "copy 24 bytes"}
    rows = {row(work["write 24 bytes"]), row(work["copy 24 bytes"])}
    assert {row(start), row(end)} == rows and len(rows) == 2
    assert row(told) == row(work["copy 24 bytes"])
    assert work["copy 24 bytes"]["args"]["line"] == found.second.line
    assert work["copy 24 bytes"]["dur"] > 0
    # The arrow is between what ran, and the race is where it is, by its id.
    begins = {event["ts"] for event in work.values()}
    assert begins == {start["ts"], end["ts"]} and told["ts"] == work["copy 24 bytes"]["ts"]
    assert told["id"] == start["id"] == end["id"]
    assert trace.data["otherData"]["race_search"] == "complete"
    chrome_trace.check(trace.data)


def row(event):
    return event["pid"], event["tid"]


def test_trace_shows_the_work_of_queues_without_a_search():
    with ad.trace() as trace:
        with software_device(races=False) as device:
            queue, memory = device.queue(), device.empty(8)
            queue.fill(memory, 1)
            memory.free(queue)
    names = [e["name"] for e in trace.data["traceEvents"] if e.get("cat") == "work"]
    assert names == ["write 8 bytes", "release 8 bytes"]
    assert trace.data["otherData"]["race_search"] == "off"


@pytest.mark.parametrize("searches", [[False, True], [True, False], [True, False, True]])
def test_search_in_some_blocks_is_not_complete(searches):
    with ad.trace() as trace:
        for races in searches:
            with software_device(races=races) as device:
                device.queue().fill(device.empty(8), 1)
    assert trace.data["otherData"]["race_search"] == "incomplete"


def names_of_rows(trace):
    events = [e for e in trace.data["traceEvents"] if e["name"] == "thread_name"]
    return [event["args"]["name"] for event in events if event["pid"] != 0]


def test_rows_of_a_search_have_the_numbers_of_its_queues():
    with ad.trace() as trace, software_device(races=True) as device:
        queues = [device.queue() for _ in range(70)]
        memory = device.empty(80)
        for i, queue in enumerate(queues):
            queue.fill(memory.address + i, 1, 1)
        device.synchronize()
        column = ad.array(bytes(24)).to("ext_dev:0")
        column.synchronize()
    names = names_of_rows(trace)
    for i in range(70):
        assert sum(name.startswith(f"queue {i + 1}, stream 0x") for name in names) == 1
    assert any(name.startswith("arrowdev's queue ") for name in names)


def test_search_that_has_forgotten_something_is_not_complete():
    warned = pytest.warns(RuntimeWarning, match="missed")
    with ad.trace() as trace, warned, software_device(races=True) as device:
        memory, queue = device.empty(5000), device.queue()
        for i in range(4097):
            queue.fill(memory.address + i, 1, 1)
    assert trace.data["otherData"]["race_search"] == "incomplete"
    with ad.trace(events=3) as trace, software_device(races=True) as device:
        kept = race(device)
        assert len(device.races()) == 1
        for _ in range(4):
            device.from_host(bytes(8))
        device.synchronize()
        del kept
    assert trace.data["otherData"]["race_search"] == "incomplete"


def test_races_behind_an_error_of_the_block_are_in_the_trace():
    with pytest.raises(KeyError), ad.trace() as trace, software_device(races=True) as device:
        race(device)
        raise KeyError("of the test")
    races = [e["name"] for e in trace.data["traceEvents"] if e.get("cat") == "race"]
    assert "race: write not ordered after write" in races
