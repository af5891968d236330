"""Backends that others register: the one of docs/examples on a device type without a runtime."""

import ctypes
import gc
import re
import threading
from functools import partial
from importlib.metadata import EntryPoint

import numpy as np
import pytest
import registered
from arrow_samples import SAMPLES
from failing_calls import copy_everything, fail_every_call, same
from registered import HERE, PLAIN, THERE, TYPE, failing, run

import arrowdev as ad
from arrowdev import _backends

pa = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module", autouse=True)
def both_registered():
    registered.register()
    registered.register_plain()
    failing().set_devices(1)


@pytest.fixture
def stream():
    """A stream of the first device that does nothing until `hold(stream, False)`."""
    hold = registered.example().hold
    stream = registered.example().new_stream(0)
    hold(stream, True)
    yield stream
    hold(stream, False)
    ad.device(HERE).synchronize()


def go_on(stream):
    registered.example().hold(stream, False)


# --- what a registered backend can do -----------------------------------------------------------


def test_devices_are_listed():
    found = [device for device in ad.devices() if device.type == TYPE]
    assert [device.id for device in found] == [0, 1]
    assert found[1].name == "threads 1"


@pytest.mark.parametrize("name", ["list", "struct", "string_view", "bool", "dictionary"])
def test_arrays_round_trip(name):
    there = ad.array(SAMPLES[name]).to(HERE)
    assert there.device == ad.device(HERE)
    assert same(there.to("cpu"), SAMPLES[name])
    assert same(there.slice(2, 5).to(THERE).to("cpu"), SAMPLES[name].slice(2, 5))


def test_rows_are_copied_one_by_one():
    tensor = np.arange(60).reshape(6, 10)[:, ::2]
    assert np.array_equal(np.asarray(ad.tensor(tensor).to(HERE).to("cpu")), tensor)
    half = ad.tensor(np.arange(60).reshape(6, 10)).to(HERE)[:, :5]
    assert np.asarray(half.to("cpu")).tolist() == np.arange(60).reshape(6, 10)[:, :5].tolist()


def test_kernels_run():
    flags = ad.array(pa.array([True, False, None] * 30)).to(HERE)
    assert flags.slice(1, 70).count_nulls() == 23
    filled = ad.tensor(flags, nulls="fill", fill_value=True).to("cpu")
    assert np.asarray(filled)[:3].tolist() == [True, False, True]


def test_events_order_the_work(stream):
    pending = ad.tensor(np.full(1000, 7)).to(HERE, stream=stream)
    other = registered.example().new_stream(0)
    assert not pending.is_ready()
    # Whoever does not wait finds other values.
    early = ad.Tensor.from_pointer(pending.data_ptr, (1000,), "int64", HERE)
    assert not np.array_equal(np.asarray(early.to("cpu")), np.full(1000, 7))
    pending.wait(other)
    copied = pending.to(THERE)
    assert not copied.is_ready()
    timer = threading.Timer(0.05, go_on, [stream])
    timer.start()
    assert np.array_equal(np.asarray(copied.to("cpu")), np.full(1000, 7))
    timer.join()
    assert pending.is_ready()


def test_event_of_an_arrow_array(stream):
    array = ad.array(pa.array(range(1000))).to(HERE, stream=stream)
    again = ad.array(array)
    assert again.sync_event is not None
    assert not again.is_ready()
    go_on(stream)
    again.synchronize()
    assert array.is_ready()


def test_wait_without_event_wait(stream):
    """A query is repeated."""
    pending = ad.tensor(np.arange(10)).to(HERE, stream=stream)
    timer = threading.Timer(0.05, go_on, [stream])
    timer.start()
    pending.synchronize()
    timer.join()
    assert pending.is_ready()


def test_memory_is_freed_after_the_work(stream):
    there = ad.tensor(np.full(1000, 3)).to(HERE)
    there.synchronize()
    copied = there.to(THERE, stream=registered.example().new_stream(1))
    found = ad.tensor(there, copy=True, stream=stream)
    del there
    gc.collect()
    ad.tensor(np.full(1000, 4)).to(HERE).synchronize()
    go_on(stream)
    assert np.asarray(found.to("cpu")).tolist() == [3] * 1000
    assert np.asarray(copied.to("cpu")).tolist() == [3] * 1000


def test_stream_of_another_device_is_refused(stream):
    with pytest.raises(ad.ExchangeError, match=r"device\(30\):1") as info:
        ad.tensor(np.arange(3)).to(THERE, stream=stream)
    assert info.value.reason == "stream"


def test_use_stream_finds_the_device(stream):
    with ad.use_stream(stream, device=HERE):
        pending = ad.tensor(np.arange(3)).to(HERE)
        assert not pending.is_ready()
    go_on(stream)
    assert np.asarray(pending.to("cpu")).tolist() == [0, 1, 2]


def test_device_that_is_not_there():
    with pytest.raises(ad.ExchangeError, match="threads has 2 devices") as info:
        ad.device((TYPE, 2)).empty(8)
    assert info.value.reason == "device"


def test_memory_that_the_runtime_does_not_know():
    tensor = ad.Tensor.from_pointer(64, (3,), "int8", HERE)
    with pytest.raises(ad.ExchangeError, match="does not know it") as info:
        tensor.to("cpu")
    assert info.value.reason == "device"


def test_sharing_is_refused():
    with pytest.raises(ad.ExchangeError) as info:
        ad.share(ad.tensor(np.arange(3)).to(HERE))
    assert info.value.reason == "share"


# --- a runtime without streams and events -------------------------------------------------------


def test_calls_that_have_done_their_work():
    there = ad.array(pa.array([1, None, 3])).to((PLAIN, 0))
    assert there.is_ready()
    assert there.to("cpu").to_pylist() == [1, None, 3]
    ad.device((PLAIN, 0)).synchronize()
    assert ad.array(there, copy=True).to("cpu").to_pylist() == [1, None, 3]
    matrix = ad.tensor(np.arange(60).reshape(6, 10)[:, :5]).to((PLAIN, 0))
    assert np.asarray(matrix.to("cpu")).tolist() == np.arange(60).reshape(6, 10)[:, :5].tolist()
    bools = ad.array(pa.array([True, None])).to((PLAIN, 0))
    with pytest.raises(ad.ExchangeError, match="plain runtime cannot run kernels") as info:
        ad.tensor(bools, nulls="ignore")
    assert info.value.reason == "kernel"


def test_events_of_others_are_not_taken_for_done():
    event = (np.zeros(8)).ctypes.data
    from arrow_ctypes import ArrayNode, OnDevice, SchemaNode, Tree

    there = ad.array(pa.array([1, 2, 3])).to((PLAIN, 0))
    node = ArrayNode(3, [None, there.buffers[1].data_ptr])
    array = ad.array(OnDevice(Tree(SchemaNode("l"), node, device=(PLAIN, 0), event=event)))
    for use in (array.is_ready, array.synchronize, lambda: array.to("cpu")):
        with pytest.raises(ad.ExchangeError) as info:
            use()
        assert info.value.reason == "event"


def test_devices_may_come_later():
    failing().set_devices(0)
    script = """if True:
        import arrowdev as ad, pytest, registered
        registered.register_plain()
        with pytest.raises(ad.ExchangeError, match="but has no device"):
            ad.device((29, 0)).empty(8)
        registered.failing().set_devices(1)
        ad.device((29, 0)).empty(8)
        with pytest.raises(ad.ExchangeError, match="plain has 1 device"):
            ad.device((29, 1)).empty(8)
        registered.failing().set_devices(2)
        ad.device((29, 1)).empty(8)
        """
    failing().set_devices(1)
    run(script)


@pytest.mark.parametrize(
    ("n", "message"), [(-1, "a negative number"), (2**40, "more devices than")]
)
def test_number_of_devices_that_cannot_be(n, message):
    run(f"""if True:
        import arrowdev as ad, pytest, registered
        registered.register_plain()
        registered.failing().set_devices({n})
        with pytest.raises(ad.DeviceError, match="{message}"):
            ad.device((29, 0)).empty(8)
        assert [each for each in ad.devices() if each.type == 29] == []
        """)


# --- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("in_a_thread", [False, True])
@pytest.mark.parametrize("stay", [False, True])
@pytest.mark.parametrize("name", ["list", "struct", "bool"])
def test_failure_at_every_call(name, stay, in_a_thread):
    tensor = np.arange(60).reshape(6, 10)[:, ::2]
    run_it = partial(copy_everything, SAMPLES[name], tensor, HERE, THERE)
    run_it()
    n_failed = []

    def fail():
        fail_at = lambda n: failing().fail_at(n, 1, stay)  # noqa: E731
        n_failed.append(fail_every_call(fail_at, lambda: failing().counts()[0], run_it))

    if in_a_thread:
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
    else:
        fail()
    assert n_failed[0] > 10
    for place in (HERE, THERE):
        ad.device(place).synchronize()
    run_it()


@pytest.mark.parametrize(
    ("result", "error", "text"),
    [
        (1, ad.DeviceError, r"inner_\w+ on device\(30\)\S* failed: AN_ERROR \(42\); h+$"),
        (2, MemoryError, r"inner_\w+ on .*no memory is left: AN_ERROR"),
        (3, ad.ExchangeError, r"AN_ERROR \(\w+ of the threads backend, on device\(30\)"),
        (77, ad.DeviceError, r"a result that arrowdev_backend.h does not have \(77\)"),
        (-5, ad.DeviceError, r"a result that arrowdev_backend.h does not have \(-5\)"),
    ],
)
def test_results_of_a_function(result, error, text):
    there = ad.tensor(np.arange(3)).to(HERE)
    for n in range(1, 4):
        failing().fail_at(n, result, True)
        try:
            with pytest.raises(error, match=text) as info:
                there.to("cpu")
        finally:
            failing().fail_at(0, 1, False)
        if error is ad.DeviceError:
            assert info.value.code == (42 if result == 1 else result)
        if error is ad.ExchangeError:
            assert info.value.reason in ("device", "event", "runtime")
    assert np.asarray(there.to("cpu")).tolist() == [0, 1, 2]


def test_texts_without_an_end():
    runtimes = {runtime[0]: runtime for runtime in ad._core._runtimes()}
    assert set(runtimes["threads"][3]) == {"d"}


# --- tables that are refused --------------------------------------------------------------------

SIZE = int(failing().size())

TOGETHER = (
    *("stream_create", "stream_destroy", "stream_wait", "synchronize"),
    *("event_record", "event_query", "event_destroy"),
)
SHARING = (
    *("device_uuid", "memory_export", "memory_open", "memory_close"),
    *("event_export", "event_open"),
)
BAD = {
    "short": ({"size": 8}, f"size of the arrowdev_backend is 8, expected {SIZE}"),
    "huge": (
        {"size": 1 << 20},
        f"size of the arrowdev_backend is 1048576, expected {SIZE} to 4096",
    ),
    "no version": ({"version": 0}, "version of the arrowdev_backend is 0"),
    "newer version": ({"version": 2}, "knows 1 to 1; upgrade arrowdev"),
    "newer function": ({"size": SIZE + 8, "newer": 1}, f"byte {SIZE} of the arrowdev_backend"),
    "newer capability": ({"capabilities": 1 << 20}, "capabilities that this arrowdev does not"),
    "no name": ({"name": None}, "no usable name"),
    "empty name": ({"name": ""}, "no usable name"),
    "odd name": ({"name": "My Backend"}, "no usable name"),
    "long name": ({"name": "a" * 32}, "no usable name"),
    "no count": ({"device_count": None}, "threads has no device_count"),
    "memory": ({"deallocate": None}, "has allocate, and its deallocate is NULL"),
    **{name: ({name: None}, f"and its {name} is NULL") for name in TOGETHER},
    **{name: ({"sharing": 1, name: None}, f"and its {name} is NULL") for name in SHARING},
}


@pytest.mark.parametrize(("members", "text"), BAD.values(), ids=BAD.keys())
def test_bad_table(members, text):
    capsule = failing().changed(registered.example().backend(28), 28, members)
    for register in (ad.register_backend, partial(failing().register, type=28)):
        with pytest.raises(ValueError, match=text):
            register(capsule)
    with pytest.raises(ad.ExchangeError, match="no runtime for it"):
        ad.device((28, 0)).empty(8)


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (TYPE, r"cannot serve device\(30\): its backend is threads"),
        (1, "its backend is cpu"),
        (2, "its backend is cuda"),
        (3, "cannot serve cuda_host: its backend is cuda"),
        (4, "its backend is opencl"),
        (14, "its backend is oneapi"),
        (0, "no such type"),
        (-3, "no such type"),
        (32, "no such type"),
    ],
)
def test_type_that_is_not_free(type, text):
    capsule = registered.example().backend(type)
    for register in (ad.register_backend, partial(failing().register, type=type)):
        with pytest.raises(ad.ExchangeError, match=text) as info:
            register(capsule)
        assert info.value.reason == "runtime" and info.value.hint


def test_what_is_no_capsule():
    with pytest.raises(TypeError, match="not int"):
        ad.register_backend(3)
    with pytest.raises(TypeError, match=r'PyCapsule "arrowdev._C_API"'):
        ad.register_backend(ad._core._C_API)
    with pytest.raises(SystemError):
        failing().register(None, 28)
    hostile = type("A\x1b[31m\n", (), {})()
    with pytest.raises(TypeError, match=r"not A\\x1b\[31m\\n$"):
        ad.register_backend(hostile)


@pytest.mark.parametrize("type", [2**32 + 28, -(2**31) - 1])
def test_capsule_of_no_device_type(type):
    """The lower half is the number of a type."""
    capsule = registered.example().backend(28)
    set_context = ctypes.pythonapi.PyCapsule_SetContext
    set_context(ctypes.py_object(capsule), ctypes.c_void_p(type))
    with pytest.raises(ValueError, match=f"device type {type} is out of range"):
        ad.register_backend(capsule)


def test_device_opens_once():
    ad.device(HERE).synchronize()
    ad.device(THERE).synchronize()
    assert failing().counts()[1:] == (2, 0)


# --- processes ----------------------------------------------------------------------------------


def test_forked_child():
    run("""if True:
        import os
        import arrowdev as ad, registered
        registered.register()
        pending = ad.tensor(bytearray(1000)).to((30, 0))
        child = os.fork()
        if child == 0:
            try:
                pending.to("cpu")
            except ad.ExchangeError as error:
                del pending
                os._exit(0 if error.reason == "runtime" else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert bytes(memoryview(pending.to("cpu"))) == bytes(1000)
        """)


def test_forked_child_after_a_load_that_failed():
    """The table is not called in the child."""
    run("""if True:
        import os
        import arrowdev as ad, registered
        from registered import failing
        registered.register()
        failing().fail_at(1, 1, False)
        try:
            ad.device((30, 0)).synchronize()
        except ad.DeviceError:
            pass
        failing().fail_at(0, 1, False)
        child = os.fork()
        if child == 0:
            try:
                ad.device((30, 0)).synchronize()
            except ad.ExchangeError as error:
                os._exit(0 if error.reason == "runtime" else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        """)


def test_end_with_pending_work_and_other_threads():
    run("""if True:
        import threading
        import arrowdev as ad, registered
        registered.register()
        kept = [ad.tensor(bytearray(1 << 20)).to((30, 0)) for _ in range(20)]
        def use():
            while True:
                ad.tensor(bytearray(1 << 16)).to((30, 1)).to("cpu")
        for _ in range(3):
            threading.Thread(target=use, daemon=True).start()
        """)


POINTS = {
    "sound": "hexagon = thread_backend:backend",
    "number": "16 = thread_backend:backend",
    "of another type": "vpi = thread_backend:backend",
    "not there": "hexagon = thread_backend:nothing",
    "no module": "hexagon = no_such_module:backend",
    "no capsule": "hexagon = os:getpid",
}


def install(folder, line):
    """A package whose entry point gives the backend of docs/examples."""
    path = registered.path_of_example()
    (folder / path.name).symlink_to(path)
    info = folder / "thread_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thread-backend\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[arrowdev.backends]\n{line}\n")


@pytest.mark.parametrize("name", ["sound", "number"])
def test_entry_point_is_loaded_on_first_need(tmp_path, name):
    install(tmp_path, POINTS[name])
    run(
        """if True:
        import sys
        import arrowdev as ad
        ad.tensor(bytearray(3)), ad.array(b"abc"), ad.device("hexagon:0").type
        assert "thread_backend" not in sys.modules
        assert "importlib.metadata" not in sys.modules
        there = ad.tensor(bytearray(b"abc")).to("hexagon:1")
        assert "thread_backend" in sys.modules
        assert bytes(memoryview(there.to("cpu"))) == b"abc"
        assert [d.id for d in ad.devices() if d.type == ad.DeviceType.HEXAGON] == [0, 1]
        """,
        tmp_path,
    )


def test_devices_ask_all_entry_points(tmp_path):
    install(tmp_path, POINTS["sound"])
    script = "import arrowdev as ad; print(*ad.devices())"
    assert "hexagon:0 hexagon:1" in run(script, tmp_path).stdout


@pytest.mark.parametrize("from_thread", [False, True])
def test_memory_that_comes_in_first(tmp_path, from_thread):
    """The first need may be an import."""
    install(tmp_path, POINTS["sound"])
    run(
        f"""if True:
        import threading
        import arrowdev as ad
        def use():
            array = ad.Tensor.from_pointer(64, (3,), "int8", "hexagon:0")
            try:
                array.to("cpu")
            except ad.ExchangeError as error:
                assert "does not know it" in str(error), error
                done.append(1)
        done = []
        threads = [threading.Thread(target=use) for _ in range(8)] if {from_thread} else []
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        use()
        assert len(done) == len(threads) + 1
        """,
        tmp_path,
    )


def refusals(folder, type):
    """What two attempts to use a type are told, as (reason, hint, message)."""
    said = run(
        f"""if True:
        import arrowdev as ad
        for _ in range(2):
            try:
                ad.tensor(bytearray(3)).to("{type}:0")
            except ad.ExchangeError as error:
                print(error.reason, "|", error.hint, "|", error)
        """,
        folder,
    ).stdout.splitlines()
    assert len(said) == 2
    return [line.split(" | ", 2) for line in said]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("of another type", "it gives a backend for the device type 16, not 9"),
        ("not there", "AttributeError: .*nothing"),
        ("no module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("no capsule", "TypeError: capsule must be"),
    ],
)
def test_entry_point_that_fails(tmp_path, name, text):
    install(tmp_path, POINTS[name])
    for reason, hint, message in refusals(tmp_path, POINTS[name].split()[0]):
        assert reason == "runtime" and "repair the package" in hint
        assert "its runtime could not be loaded: the entry point" in message
        assert re.search(text, message), message


RAISES = {
    "an exit": ("import sys; sys.exit(3)", "(SystemExit: 3)"),
    "a text that fails": (
        "class Odd(Exception):\n def __str__(self): raise SystemExit\nraise Odd",
        "(Odd: <exception str() failed>)",
    ),
    "surrogates": (r"raise OSError('\udcff\x1b[31m\n\0')", r"(OSError: \udcff\x1b[31m\n\x00)"),
    "an odd name": (
        r"raise type('A\u202e\x1b', (Exception,), {})('b')",
        r"(A\u202e\x1b: b)",
    ),
}


@pytest.mark.parametrize("at_import", [False, True])
@pytest.mark.parametrize(("code", "text"), RAISES.values(), ids=RAISES.keys())
def test_entry_point_that_raises(tmp_path, code, text, at_import):
    install(tmp_path, "hexagon = raising:backend")
    body = code if at_import else "def backend():\n " + code.replace("\n", "\n ")
    (tmp_path / "raising.py").write_text(body)
    for reason, hint, message in refusals(tmp_path, "hexagon"):
        assert reason == "runtime" and "repair the package" in hint
        assert f"the entry point hexagon = raising:backend of arrowdev.backends failed {text}" in (
            message
        )


def test_entry_points_that_cannot_be_read(tmp_path):
    install(tmp_path, "")
    info = tmp_path / "thread_backend-1.0.dist-info"
    (info / "entry_points.txt").write_bytes(b"[arrowdev.backends]\n\xff = a:b\n")
    for reason, _, message in refusals(tmp_path, "hexagon"):
        assert reason == "runtime"
        assert "entry points of arrowdev.backends cannot be read (UnicodeDecodeError:" in message


def test_entry_points_with_surrogates(monkeypatch):
    """A finder of another package may give any text."""
    points = [EntryPoint(name, "no\udcff:a", _backends.GROUP) for name in ("\udcff", "hexagon")]
    monkeypatch.setattr(_backends, "_points", points)
    why = _backends.find(ad.DeviceType.HEXAGON)
    assert r"the entry point hexagon = no\udcff:a of arrowdev.backends failed (" in why
    assert why.isprintable()


def test_interrupt_passes_an_entry_point(tmp_path):
    """And the next attempt asks it again."""
    install(tmp_path, "hexagon = raising:backend")
    (tmp_path / "raising.py").write_text(
        "import os, signal, thread_backend\nn = 0\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it\n"
        "def backend():\n global n\n n += 1\n"
        " if n == 1: os.kill(os.getpid(), signal.SIGINT)\n"
        " return thread_backend.backend(16)\n"
    )
    run(
        """if True:
        import arrowdev as ad
        try:
            try:
                ad.tensor(bytearray(3)).to("hexagon:0")
            finally:
                for _ in range(1000): pass
        except KeyboardInterrupt:
            there = ad.tensor(bytearray(b"abc")).to("hexagon:0")
        assert bytes(memoryview(there.to("cpu"))) == b"abc"
        """,
        tmp_path,
    )
