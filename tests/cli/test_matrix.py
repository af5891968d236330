"""``python -m arrowdev matrix``, run as a user runs it, and with injected faults."""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

import pytest

import arrowdev
from arrowdev import __main__ as command
from arrowdev._cli import device_libraries, libraries, matrix_text, pairs, terminal
from arrowdev._cli import matrix as matrix_command
from arrowdev._cli.frames import PEERS
from arrowdev._cli.libraries import Payload
from arrowdev.testing import software_device

OWN = "ad.Array,ad.Tensor,memoryview,bytes,ctypes,array.array"


def matrix_json(capsys, *arguments, device="cpu"):
    """The JSON of a run in this process, and its pairs by (producer, consumer)."""
    assert command.main(["matrix", "--json", "--device", device, *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    return found, {(pair["producer"], pair["consumer"]): pair for pair in found["pairs"]}


def matrix_lines(capsys, *arguments):
    """The lines of a run in host memory."""
    assert command.main(["matrix", "--device", "cpu", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def run_matrix(*peers, dtype="int64", length=20):
    matrix = pairs.run_matrix([peer() for peer in peers], Payload(dtype, length))
    return matrix, {(pair.producer, pair.consumer): pair for pair in matrix.pairs}


def run_peers(*peers, as_json=False):
    options = argparse.Namespace(
        only=peers, json=as_json, dtype="int64", device=None, times=False, html=None, svg=None
    )
    return matrix_command.run(options)


# --- output -----------------------------------------------------------------------


def test_matrix_without_libraries(capsys):
    found, pairs = matrix_json(capsys, "--only", OWN)
    producers = OWN.split(",")
    consumers = ["ad.Array", "ad.Tensor", "memoryview", "ctypes"]
    assert set(pairs) == {(p, c) for p in producers for c in consumers}
    assert found["arrowdev"] == arrowdev.__version__
    assert found["payload"] == {"dtype": "int64", "length": 1000}
    assert found["wrong"] == 0
    for (producer, consumer), pair in pairs.items():
        readonly = producer in ("ad.Array", "bytes")
        if consumer == "ctypes" and readonly:
            assert pair["through"]["result"] == "refused"
            assert "not writable" in pair["through"]["reason"]
            assert pair["through"]["ns"] is None
        else:
            assert pair["through"]["result"] == "zero-copy"
            assert pair["through"]["ns"] > 0
    assert pairs["array.array", "memoryview"]["best_direct"] == "memoryview(x)"
    # memoryview(x) is the producer's own export, no exchange between two libraries.
    assert pairs["array.array", "memoryview"]["ratio"] is None
    assert pairs["array.array", "ad.Array"]["direct"] == []
    assert pairs["array.array", "ad.Array"]["ratio"] is None


@pytest.mark.parametrize("dtype", list(libraries.CTYPES))
def test_every_dtype(dtype):
    _, pairs = run_matrix(*(cls for cls in PEERS if cls.module is None), dtype=dtype)
    for pair in pairs.values():
        expected = {"zero-copy", "refused"} if pair.consumer == "ctypes" else {"zero-copy"}
        assert pair.through.result in expected, pair


def test_numpy_and_pyarrow(capsys):
    pytest.importorskip("numpy")
    pytest.importorskip("pyarrow")
    found, pairs = matrix_json(capsys, "--only", "numpy,pyarrow,memoryview")
    assert {library["name"] for library in found["libraries"]} == {
        "memoryview",
        "numpy",
        "pyarrow",
    }
    versions = {library["name"]: library["version"] for library in found["libraries"]}
    assert versions["numpy"] == sys.modules["numpy"].__version__
    assert {pair["through"]["result"] for pair in pairs.values()} == {"zero-copy"}
    # pyarrow has no buffer protocol, and reads a memoryview element by element.
    assert pairs["pyarrow", "memoryview"]["direct"][0]["result"] == "refused"
    assert pairs["pyarrow", "memoryview"]["direct"][0]["reason"].startswith("TypeError: ")
    assert pairs["memoryview", "pyarrow"]["direct"][0]["result"] == "copy"
    assert "dlpack" in " ".join(found["libraries"][1]["protocols"])


@pytest.mark.parametrize("name", ["nanoarrow", "polars", "arro3", "tvm-ffi"])
def test_pure_python_libraries(capsys, name):
    [peer] = [cls for cls in PEERS if cls.name == name]
    pytest.importorskip(peer.module.split(".")[0])
    found, pairs = matrix_json(capsys, "--only", f"ad.Array,memoryview,{name}")
    assert [library["reason"] for library in found["libraries"]] == [None] * 3
    assert {pair["through"]["result"] for pair in pairs.values()} == {"zero-copy"}


def test_xarray(capsys):
    pytest.importorskip("xarray")
    found, pairs = matrix_json(capsys, "--only", "ad.Tensor,numpy,xarray")
    assert [library["reason"] for library in found["libraries"]] == [None] * 3
    assert {pair["through"]["result"] for pair in pairs.values()} == {"zero-copy"}
    assert pairs["xarray", "numpy"]["through"]["how"].endswith("with x = x.data")


@pytest.mark.slow
def test_tensorflow_is_tried_if_it_is_named(tmp_path):
    """In a process of its own: its import takes seconds."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("could not import 'tensorflow'")
    found = run_peers_apart("", "--only", "ad.Tensor,numpy,tensorflow", "--device", "cpu")
    assert [library["reason"] for library in found["libraries"]] == [None] * 3
    copied = [pair for pair in found["pairs"] if pair["through"]["result"] != "zero-copy"]
    # Its own tensors are read-only, and it has no flag for that.
    names = [(pair["producer"], pair["consumer"]) for pair in copied]
    assert names == [("tensorflow", "tensorflow")]
    assert copied[0]["through"]["result"] == "copy"


def test_libraries_that_are_slow_to_import_are_named(tmp_path):
    slow = {cls.name for cls in matrix_command.ALL_PEERS if not cls.by_default}
    assert slow >= {"tensorflow", "paddle", "warp", "datasets"}
    assert slow.isdisjoint(cls.name for cls in matrix_command.chosen_peers("numpy,torch,duckdb"))
    assert matrix_command.chosen_peers("all") == [*matrix_command.ALL_PEERS]
    done = in_fresh_process(tmp_path, "matrix", "--device", "cpu")
    assert not re.search("tensorflow", done.stdout, re.IGNORECASE)
    named = in_fresh_process(tmp_path, "matrix", "--only", "tensorflow,bytes")
    assert "pip install tensorflow" in named.stdout


def test_table_is_printed(capsys):
    lines = matrix_lines(capsys, "--only", OWN)
    assert max(map(len, lines)) <= terminal.WIDTH
    assert lines[:2] == [
        "through arrowdev: 22 zero-copy,  0 copies,  2 refused, of 24 pairs",
        "directly:         10 zero-copy,  0 copies,  2 refused, of 12 pairs that have a way of "
        "their own",
    ]
    assert lines[3].startswith(f"arrowdev {arrowdev.__version__}, ")
    [row] = [line for line in lines if line.startswith("bytes ")]
    assert row.split() == ["bytes", "=", "-", "=", "-", "=", "=", "x1", "x2"]
    reasons = [line.partition(" ")[2].strip() for line in lines if line.startswith(("x1 ", "x2 "))]
    assert reasons == [
        f"{call}: TypeError: underlying buffer is not writable"
        for call in ("from_buffer(arrowdev.tensor(x))", "ctypes from_buffer(x)")
    ]
    assert not any("anoseconds" in line or line.startswith("ratio") for line in lines)
    assert not any("pip install" in line for line in lines)


def test_versions_are_printed_beside_their_names(capsys):
    numpy = pytest.importorskip("numpy")
    text = "\n".join(matrix_lines(capsys, "--only", f"{OWN},numpy"))
    assert f"numpy {numpy.__version__}" in text and "xa0" not in text


def test_progress_is_on_stderr(capsys):
    assert command.main(["matrix", "--only", "memoryview", "--device", "cpu"]) == 0
    err = capsys.readouterr().err
    assert err.startswith("matrix: ") and err.count("\n") == 1


def test_times_are_a_table_of_their_own(capsys):
    pytest.importorskip("numpy")
    pytest.importorskip("pyarrow")
    lines = matrix_lines(capsys, "--only", "memoryview,numpy,pyarrow", "--times")
    start = lines.index("In host memory, nanoseconds:")
    rows = {line.split()[0]: line.split()[1:] for line in lines[start + 3 :] if line}
    assert lines.index("In host memory:") < start
    assert set(rows) >= {"memoryview", "numpy", "pyarrow", "direct", "ratio"}
    assert all(re.fullmatch(r"[\d.]+[kM]?", time) for time in rows["numpy"])
    # No ratio for memoryview, whose direct call is the producer's own.
    assert len(rows["ratio"]) == 2 and all(ratio.endswith("x") for ratio in rows["ratio"])


def test_the_text_says_where_directly_is_faster():
    """A ratio is the time through arrowdev by the direct time: above 1 it is a loss."""

    def pair(consumer, through, direct):
        return pairs.Pair(
            "one",
            consumer,
            pairs.Attempt("through", "zero-copy", ns=through),
            [pairs.Attempt("direct", "zero-copy", ns=direct)],
        )

    matrix = pairs.Matrix(None, [], [pair("slow", 500, 100), pair("fast", 100, 200)])
    assert [found.ratio for found in matrix.pairs] == [5, 0.5]
    assert matrix_text.faster_directly(matrix) == ["slow"]
    assert matrix_text.ratio_text(matrix.pairs[:1]) == "5.00x"


def test_no_ratio_within_a_library(capsys):
    pytest.importorskip("numpy")
    pytest.importorskip("pyarrow")
    _, pairs = matrix_json(capsys, "--only", "ad.Tensor,numpy,pyarrow")
    assert pairs["numpy", "pyarrow"]["ratio"] > 0 and pairs["pyarrow", "numpy"]["ratio"] > 0
    for pair in [("numpy", "numpy"), ("pyarrow", "pyarrow"), ("ad.Tensor", "numpy")]:
        assert pairs[pair]["direct"] and pairs[pair]["ratio"] is None


@pytest.mark.parametrize(
    ("environment", "is_terminal", "has_colours"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colours(monkeypatch, capsys, environment, is_terminal, has_colours):
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    coloured = matrix_lines(capsys, "--only", "memoryview,bytes,ctypes")
    assert any("\x1b[32m" in line for line in coloured) == has_colours
    assert any("\x1b[31mx1\x1b[0m" in line for line in coloured) == has_colours
    monkeypatch.setenv("NO_COLOR", "1")
    plain = matrix_lines(capsys, "--only", "memoryview,bytes,ctypes")
    assert [re.sub(r"\x1b\[[\d;]*m", "", line) for line in coloured] == plain


def test_wide_table_is_split_into_blocks():
    rows = [["", *["heading"] * 30], ["row", *["=123"] * 30]]
    lines = list(terminal.aligned(rows))
    assert max(map(len, lines)) <= terminal.WIDTH
    assert "".join(lines).count("=123") == 30
    assert [line for line in lines if line.startswith("row")] == [
        line for line in lines if "=123" in line
    ]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0.4, "0"),
        (87.4, "87"),
        (999.4, "999"),
        (999.6, "1.0k"),
        (9_940, "9.9k"),
        (9_960, "10k"),
        (999_400, "999k"),
        (999_600, "1.0M"),
        (4.2e9, "4200M"),
    ],
)
def test_times_are_formatted_short(ns, text):
    assert matrix_text.short_time(ns) == text


# --- wrong values -------------------------------------------------------------------


class Shifted(libraries.Memoryview):
    """A peer that exports other values than it was given."""

    name = "shifted"

    def through(self, payload):
        values = payload.aligned()
        values[3] += 1
        return "shift(x)", lambda x: memoryview(values).cast("B").cast(payload.letter)


class Shortened(Shifted):
    name = "shortened"

    def through(self, payload):
        return "shorten(x)", lambda x: memoryview(arrowdev.tensor(x))[:5]


class DirectlyWrong(Shifted):
    name = "directly"

    def direct(self, payload):
        _, function = super().through(payload)
        return {"memoryview(x)": memoryview, "shift(x)": function}

    def through(self, payload):
        return libraries.Memoryview.through(self, payload)


class OfAnotherKind(DirectlyWrong):
    name = "other"

    def direct(self, payload):
        return {"one(x)": lambda x: memoryview(b"1"), "list(x)": list}


class Copying(libraries.Memoryview):
    name = "copying"

    def through(self, payload):
        return "copy(x)", lambda x: memoryview(bytes(x)).cast(payload.letter)


def test_values_of_another_type_are_another_kind():
    """True == 1, but the consumer has not taken the numbers."""
    payload = Payload("int64", 3)

    class Bools(libraries.Memoryview):
        def values(self, obj):
            return [value == 0 for value in super().values(obj)]

    source = payload.aligned()
    result = pairs.attempt("x", lambda x: x, source, None, Bools(), payload, strict=False)
    assert result.result == "refused"
    assert result.reason == "it gives something else: values of type bool, not int"


@pytest.mark.parametrize(
    ("peer", "reason"),
    [
        (Shifted, "shifted to shifted by shift(x): value 3 is 4, not 3"),
        (Shortened, "shortened to shortened by shorten(x): it gives something else: 5 values"),
        (DirectlyWrong, "directly to directly by shift(x): value 3 is 4, not 3"),
    ],
)
def test_wrong_values_are_reported(capsys, peer, reason):
    assert run_peers(peer) == 1
    out = capsys.readouterr().out
    assert "!WRONG" in out
    assert f"!!   {reason}" in out
    assert run_peers(peer, as_json=True) == 1
    assert json.loads(capsys.readouterr().out)["wrong"] == 1


def test_constructor_result_of_wrong_type_is_a_refusal(capsys):
    assert run_peers(OfAnotherKind) == 0
    out = capsys.readouterr().out
    assert "one(x): it gives something else: 1 values, not 1000 (nor did list(x) do)" in out


def test_copy_is_not_zero_copy():
    _, pairs = run_matrix(Copying)
    pair = pairs["copying", "copying"]
    assert pair.through.result == "copy" and pair.through.ns > 0
    assert pair.best_direct.result == "zero-copy"
    assert pair.ratio is None


# --- missing libraries ----------------------------------------------------------------


class NotInstalled(libraries.Memoryview):
    name = "absent"
    module = "arrowdev_no_such_module"
    pip = "no-such-package"


def test_not_installed(capsys):
    assert run_peers(NotInstalled, libraries.Memoryview) == 0
    out = capsys.readouterr().out
    assert out.endswith("Not installed, each would add a row: pip install no-such-package\n")
    assert "Left out" not in out


def test_only_names_missing_libraries(capsys):
    assert run_peers(NotInstalled) == 0
    assert "pip install no-such-package" in capsys.readouterr().out


def test_only_names_missing_device_libraries(capsys, monkeypatch):
    """No device was found that they could use."""
    monkeypatch.setattr(device_libraries.Dpnp, "is_installed", lambda self: False)
    assert command.main(["matrix", "--only", "dpnp"]) == 0
    assert capsys.readouterr().out.endswith("\nNot installed: pip install dpnp\n")


@pytest.mark.parametrize("source", ["raise RuntimeError('no licence\\nat all')", "import no_such"])
def test_failing_import(capsys, tmp_path, monkeypatch, source):
    (tmp_path / "arrowdev_broken_module.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)

    class Broken(NotInstalled):
        name = "broken"
        module = "arrowdev_broken_module"

    assert run_peers(Broken) == 0
    [line] = [x for x in capsys.readouterr().out.splitlines() if x.startswith("Left out")]
    assert line in (
        "Left out: broken: RuntimeError: no licence",
        "Left out: broken: ModuleNotFoundError: No module named 'no_such'",
    )


def test_panic_is_a_refusal():
    class Panic(BaseException):  # pyo3 raises this for polars and arro3
        pass

    def panic(x):
        raise Panic("at the disco")

    class Panics(libraries.Memoryview):
        def direct(self, payload):
            return {"panic(x)": panic}

    _, pairs = run_matrix(Panics)
    [attempt] = pairs["memoryview", "memoryview"].direct
    assert (attempt.result, attempt.reason) == ("refused", "Panic: at the disco")


def test_interrupt_ends_the_run():
    def interrupt(x):
        raise KeyboardInterrupt

    class Interrupts(libraries.Memoryview):
        def direct(self, payload):
            return {"interrupt(x)": interrupt}

    with pytest.raises(KeyboardInterrupt):
        run_matrix(Interrupts)


# --- devices ----------------------------------------------------------------------------


@pytest.fixture
def devices():
    with software_device(devices=2, timeout=20) as device:
        yield device


def test_every_device_has_a_table(devices, capsys):
    only = ("--only", "ad.Array,ad.Tensor,memoryview")
    found, _ = matrix_json(capsys, *only, device="cpu,ext_dev")
    assert [d["device"] for d in found["devices"]] == ["ext_dev:0", "ext_dev:1"]
    pairs = [(p["device"], p["producer"], p["consumer"]) for p in found["pairs"]]
    own = ["ad.Array", "ad.Tensor"]
    assert [p for p in pairs if p[0] == "ext_dev:1"] == [
        ("ext_dev:1", x, y) for x in own for y in own
    ]
    assert {p["through"]["result"] for p in found["pairs"]} == {"zero-copy"}
    everywhere = ["cpu", "ext_dev:0", "ext_dev:1"]
    moves = {(m["device"], m["target"]): m for m in found["moves"]}
    assert set(moves) == {(x, y) for x in everywhere for y in everywhere if x != y}
    assert {m["through"]["result"] for m in moves.values()} == {"copy"}
    how = moves["cpu", "ext_dev:1"]["through"]["how"]
    assert how == "arrowdev.array(arrowdev.tensor(x).to('ext_dev:1'))"


@pytest.mark.parametrize(
    ("wanted", "tried"),
    [
        ("cpu", {"cpu"}),
        ("ext_dev", {"ext_dev:0", "ext_dev:1"}),
        ("EXT_DEV:1", {"ext_dev:1"}),
        ("cpu,ext_dev:0", {"cpu", "ext_dev:0"}),
    ],
)
def test_device_filter(devices, capsys, wanted, tried):
    found, _ = matrix_json(capsys, "--only", "ad.Array,bytes", device=wanted)
    assert {pair["device"] for pair in found["pairs"]} == tried


def test_host_filter_loads_no_runtime(tmp_path):
    then = "from arrowdev import _core; print('asked', sys.modules.keys() & {'dpctl', 'dpnp'})"
    done = in_fresh_process(tmp_path, "matrix", "--device", "cpu", then=then)
    assert "asked set()" in done.stdout
    assert "On " not in done.stdout and ".to()" not in done.stdout


@pytest.mark.parametrize("name", ["cuda:99", "vulkan", "cpu,vulkan"])
def test_device_that_is_not_there(capsys, name):
    assert command.main(["matrix", "--only", OWN, "--device", name]) == 1
    missing = name.rpartition(",")[2]
    assert f"matrix: no library works on {missing}; " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["gpu", ",", "cuda:x"])
def test_unknown_devices(capsys, name):
    with pytest.raises(SystemExit) as caught:
        command.main(["matrix", "--device", name])
    assert caught.value.code == 2
    assert "--device" in capsys.readouterr().err


class OnSoftware(device_libraries.OwnDeviceArray):
    """A device library with an injected fault."""

    name = "planted"
    module = "json"
    types = ("ext_dev",)

    def version(self):
        return "1"

    def places(self):
        return ["ext_dev:0"]


class WrongOnDevice(OnSoftware):
    def through(self, payload):
        values = payload.aligned()
        values[3] += 1
        return "shift(x)", lambda x: arrowdev.array(values).to(self.device)


class NoDeviceHere(OnSoftware):
    def places(self):
        raise device_libraries.NoDevice("the driver sleeps")


class CannotMake(OnSoftware):
    def make(self, payload):
        raise RuntimeError("out of memory\nsecond line")


class Missing(OnSoftware):
    module = "arrowdev_no_such_module"
    pip = "no-such-package"


def test_wrong_values_on_a_device(devices, capsys):
    assert run_peers(WrongOnDevice) == 1
    out = capsys.readouterr().out
    line = "!!   planted to planted on ext_dev:0 by shift(x): value 3 is 4, not 3"
    assert line in out.splitlines()


def test_wrong_values_after_move(devices, monkeypatch):
    monkeypatch.setattr(device_libraries.OwnDeviceArray, "values", lambda self, obj: [0] * 20)
    host, device = libraries.Memoryview(), device_libraries.OwnDeviceArray()
    payload = Payload(length=20)
    move = pairs.try_move(host, host.make(payload), device, payload, ("cpu", "ext_dev:0"))
    assert (move.through.result, move.through.reason) == ("wrong", "value 1 is 0, not 1")


def test_library_without_a_device(devices, capsys):
    assert run_peers(NoDeviceHere, device_libraries.OwnDeviceArray) == 0
    assert "\nNo device for planted 1: the driver sleeps\n" in capsys.readouterr().out


def test_library_whose_device_fails(devices, capsys):
    assert run_peers(CannotMake) == 0
    out = capsys.readouterr().out
    assert "Left out on ext_dev:0: planted 1: RuntimeError: out of memory\n" in out


def test_device_library_is_recommended_if_device_exists(devices, monkeypatch, capsys):
    monkeypatch.setattr(matrix_text, "DEVICE_PEERS", (Missing,))
    hint = "each would add a row: pip install no-such-package"
    assert run_peers(Missing) == 0
    assert hint not in capsys.readouterr().out  # no device was tried
    assert run_peers(Missing, device_libraries.OwnDeviceArray) == 0
    assert hint in capsys.readouterr().out


def run_peers_apart(code, *arguments, hide=False):
    """Runs the matrix in a new process, after `code`: a runtime lists its devices only once."""
    script = f"""
import sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent.parent / "helpers")!r})
{code}
from arrowdev.__main__ import main
status = main(["matrix", "--json", *{arguments!r}])
sys.stdout.flush()
raise SystemExit(status)
"""
    environment = dict(os.environ)
    if not hide:
        for runtime in ("CUDA", "HIP"):
            environment.pop(f"ARROWDEV_{runtime}_LIBRARY", None)  # of conftest.py
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == ("no library works on" in done.stderr), done.stderr
    return json.loads(done.stdout)


def slow_stand_in(face):
    """Work takes so long that values that are read without a wait are wrong."""
    return f"import fakegpu; fakegpu.load({face!r}).set_delay(5000)"


def results(found, kind):
    return {pair["through"]["result"] for pair in found[kind]}


def libraries_on(found, device):
    return {lib["name"] for lib in found["libraries"] if lib["device"] == device}


def test_oneapi():
    pytest.importorskip("dpnp")
    found = run_peers_apart("", "--only", "arrowdev,dpnp,dpctl", "--device", "oneapi")
    if not found["devices"]:
        pytest.skip("could not import 'intel_opencl_rt': SYCL has no device with USM")
    [device, *_] = [d["device"] for d in found["devices"]]
    assert libraries_on(found, device) == {"ad.Array", "ad.Tensor", "dpnp", "usm_ndarray"}
    assert results(found, "pairs") == {"zero-copy"}


def test_opencl():
    pytest.importorskip("pyopencl")
    found = run_peers_apart("", "--only", "arrowdev,pyopencl,memoryview", "--device", "cpu,opencl")
    if not any("cl.Buffer" in libraries_on(found, d["device"]) for d in found["devices"]):
        pytest.skip("could not import 'pocl': pyopencl has no device that arrowdev has")
    assert results(found, "pairs") == {"zero-copy"}
    assert results(found, "moves") == {"copy"}
    taken = [p for p in found["pairs"] if p["producer"] == "cl.Buffer"]
    assert len(taken) == 3 * len({p["device"] for p in taken})
    assert all("from_pointer" in p["through"]["how"] for p in taken)


def test_opencl_values_are_read_after_wait():
    pytest.importorskip("pyopencl")
    import peer_opencl as peer

    payload, template = Payload(length=20), device_libraries.PyOpenCL()
    template.load()
    library = template.on(peer.name(), template)
    library.make(payload)
    values = device_libraries.numpy_values(payload)
    context = library.own_queue.context
    queue, memory = peer.cl.CommandQueue(context), peer.buffer(context, values * 0)
    with peer.Gate(queue) as gate:
        peer.write_later(queue, memory, values)
        pending = arrowdev.Tensor.from_pointer(
            memory.int_ptr, values.shape, payload.dtype, peer.name(), owner=memory, stream=queue
        )
        taken = library.through(payload)[1](pending)
        opener = threading.Timer(0.2, gate.open)
        opener.start()
        found = library.values(taken)
        opener.join()
    assert found == payload.values


def test_cuda_libraries_on_the_stand_in_driver():
    pytest.importorskip("numba.cuda")
    pytest.importorskip("cuda.core")
    found = run_peers_apart(
        slow_stand_in("cuda"),
        *("--only", "arrowdev,numba-cuda,cuda-core", "--device", "cuda"),
    )
    assert [d["device"] for d in found["devices"]] == ["cuda:0", "cuda:1"]
    assert libraries_on(found, "cuda:1") == {"ad.Array", "ad.Tensor", "numba-cuda", "cuda-core"}
    assert len(found["pairs"]) == 2 * 4 * 4
    assert results(found, "pairs") == {"zero-copy"}
    assert results(found, "moves") == {"copy"}


def test_hip_python_on_the_stand_in_driver():
    pytest.importorskip("hip")
    found = run_peers_apart(
        slow_stand_in("hip"),
        *("--only", "arrowdev,hip-python", "--device", "rocm"),
    )
    assert [d["device"] for d in found["devices"]] == ["rocm:0", "rocm:1"]
    assert libraries_on(found, "rocm:1") == {"ad.Array", "ad.Tensor", "hip-python"}
    assert len(found["pairs"]) == 2 * 3 * 3
    assert results(found, "pairs") == {"zero-copy"}
    assert results(found, "moves") == {"copy"}


def test_device_unknown_to_arrowdev(monkeypatch):
    pytest.importorskip("numba.cuda")
    monkeypatch.setenv("ARROWDEV_CUDA_LIBRARY", "/nowhere/libcuda.so.1")
    found = run_peers_apart(
        "import fakegpu; fakegpu.load('cuda')",
        *("--only", "arrowdev,numba-cuda", "--device", "cuda:1"),
        hide=True,
    )
    [numba, *own] = found["libraries"]
    assert numba["reason"] is None
    assert [(lib["name"], lib["device"]) for lib in own] == [
        ("ad.Array", "cuda:1"),
        ("ad.Tensor", "cuda:1"),
    ]
    assert {lib["reason"].partition(";")[0] for lib in own} == {
        "arrowdev has no runtime of this device"
    }


def test_libraries_without_any_device(monkeypatch, tmp_path):
    """OpenCL and SYCL are installed but find no driver."""
    pytest.importorskip("pyopencl")
    pytest.importorskip("dpnp")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    only = ("--only", "dpnp,pyopencl,arrowdev,memoryview", "--device", "cpu,opencl,oneapi")
    found = run_peers_apart("", *only)
    reasons = {lib["name"]: lib["reason"] for lib in found["libraries"] if not lib["device"]}
    assert set(reasons) == {"dpnp", "usm_ndarray", "cl.Buffer"} and all(reasons.values())
    assert found["devices"] == [] and found["moves"] == []
    assert {pair["device"] for pair in found["pairs"]} == {"cpu"}


@pytest.mark.parametrize("name", ["numba-cuda", "cuda-core", "torch", "jax", "cupy"])
def test_gpu_library_without_a_gpu(name):
    found = run_peers_apart("", "--only", f"{name},ad.Array", "--device", "cuda")
    if found["devices"]:
        pytest.skip("could not import 'no_gpu': there is one")
    [library] = found["libraries"]
    assert library["device"] is None and library["reason"]
    assert library["missing"] == (library["version"] is None)
    assert found["pairs"] == []


# --- the command ------------------------------------------------------------------------


def in_fresh_process(tmp_path, *arguments, then=""):
    """Runs the command with only arrowdev and the standard library installed."""
    package = pathlib.Path(arrowdev.__file__).parent
    link = tmp_path / "arrowdev"
    if not link.exists():
        link.symlink_to(package)
    code = f"""
import runpy, sys
sys.path.insert(0, {str(tmp_path)!r})
sys.argv[1:] = {list(arguments)!r}
try:
    runpy.run_module("arrowdev", run_name="__main__", alter_sys=True)
finally:
    {then or "pass"}
"""
    # -S: without site-packages.
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=100
    )


def test_with_only_arrowdev_installed(tmp_path):
    done = in_fresh_process(tmp_path, "matrix", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "through arrowdev: 22 zero-copy,  0 copies,  2 refused, of 24 pairs" in done.stdout
    hint = done.stdout.split("Not installed, each would add a row: ")[1]
    wanted = ["pip", "install", *(cls.pip for cls in PEERS if cls.pip and cls.by_default)]
    assert hint.split() == wanted


def test_only_imports_named_libraries(tmp_path):
    """Modules with the names of libraries write to stderr when they are imported."""
    for name in ("numpy", "torch", "pyarrow", "tvm_ffi"):
        (tmp_path / f"{name}.py").write_text(f"import sys; print('HERE {name}', file=sys.stderr)")
    done = in_fresh_process(
        tmp_path, "matrix", "--only", "tvm_ffi,memoryview", "--json", "--device", "cpu"
    )
    assert done.returncode == 0, done.stderr
    assert re.findall("HERE (.*)", done.stderr) == ["tvm_ffi"]
    libraries = {library["name"]: library for library in json.loads(done.stdout)["libraries"]}
    assert list(libraries) == ["memoryview", "tvm-ffi"]
    assert libraries["tvm-ffi"]["reason"].startswith("AttributeError: ")


def test_run_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "arrowdev", "matrix", "--only", "memoryview,bytes", "--json"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    names = [library["name"] for library in json.loads(done.stdout)["libraries"]]
    assert names == ["memoryview", "bytes"]


@pytest.mark.parametrize("arguments", [["matrix", "--only", "nunpy"], ["matrix", "--only", ","]])
def test_unknown_names(capsys, arguments):
    with pytest.raises(SystemExit) as caught:
        command.main(arguments)
    assert caught.value.code == 2
    assert "choose from ad.Array, ad.Tensor, memoryview" in capsys.readouterr().err


def test_help(capsys):
    with pytest.raises(SystemExit) as caught:
        command.main(["matrix", "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    for option in ("--only", "--device", "--json", "--dtype", "--times", "--html", "--svg"):
        assert option in out
