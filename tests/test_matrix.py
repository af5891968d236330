"""``python -m arrowdev matrix``, run as a user would, and with planted faults."""

import argparse
import json
import pathlib
import re
import subprocess
import sys

import pytest

import arrowdev
from arrowdev import __main__ as command
from arrowdev import _matrix, _matrix_peers
from arrowdev._matrix_peers import PEERS, Payload

OWN = "ad.Array,ad.Tensor,memoryview,bytes,ctypes,array.array"


def matrix_json(capsys, *arguments, status=0):
    """The JSON of a run in this process, its pairs by (producer, consumer)."""
    assert command.main(["matrix", "--json", *arguments]) == status
    found = json.loads(capsys.readouterr().out)
    return found, {(pair["producer"], pair["consumer"]): pair for pair in found["pairs"]}


def run_matrix(*peers, dtype="int64", length=20):
    matrix = _matrix.run_matrix([peer() for peer in peers], Payload(dtype, length))
    return matrix, {(pair.producer, pair.consumer): pair for pair in matrix.pairs}


def run_peers(*peers, as_json=False):
    return _matrix.run(argparse.Namespace(only=peers, json=as_json, dtype="int64"))


# --- what comes out ---------------------------------------------------------------


def test_without_any_library(capsys):
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
    assert pairs["array.array", "memoryview"]["ratio"] > 0
    assert pairs["array.array", "ad.Array"]["direct"] == []
    assert pairs["array.array", "ad.Array"]["ratio"] is None


@pytest.mark.parametrize("dtype", list(_matrix_peers.CTYPES))
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
    # pyarrow has no buffer protocol, and takes a memoryview number by number.
    assert pairs["pyarrow", "memoryview"]["direct"][0]["result"] == "refused"
    assert pairs["pyarrow", "memoryview"]["direct"][0]["reason"].startswith("TypeError: ")
    assert pairs["memoryview", "pyarrow"]["direct"][0]["result"] == "copy"
    assert "dlpack" in " ".join(found["libraries"][1]["protocols"])


@pytest.mark.parametrize("name", ["nanoarrow", "polars", "arro3", "tvm-ffi"])
def test_light_libraries(capsys, name):
    [peer] = [cls for cls in PEERS if cls.name == name]
    pytest.importorskip(peer.module.split(".")[0])
    found, pairs = matrix_json(capsys, "--only", f"ad.Array,memoryview,{name}")
    assert [library["reason"] for library in found["libraries"]] == [None] * 3
    assert {pair["through"]["result"] for pair in pairs.values()} == {"zero-copy"}


def test_the_table(capsys):
    assert command.main(["matrix", "--only", OWN]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert max(map(len, lines)) <= _matrix.WIDTH
    assert lines[0].startswith(f"arrowdev {arrowdev.__version__}, ")
    [row] = [line for line in lines if line.startswith("bytes ")]
    assert re.fullmatch(r"bytes +(=[\d.]+[kM]? +){3}x1", row)
    [reason] = [line for line in lines if line.startswith("x1 ")]
    assert reason.endswith(
        "from_buffer(arrowdev.tensor(x)): TypeError: underlying buffer is not writable"
    )
    assert "zero-copy, 2 refused, of 24 pairs" in out
    assert "pip install" not in out
    assert err.startswith("matrix: ") and err.count("\n") == 1


def test_a_wide_table_is_cut_into_blocks():
    rows = [["", *["heading"] * 30], ["row", *["=123"] * 30]]
    lines = list(_matrix.aligned_text(rows))
    assert max(map(len, lines)) <= _matrix.WIDTH
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
def test_times_are_short(ns, text):
    assert _matrix.short_time(ns) == text


# --- what is wrong ------------------------------------------------------------------


class Shifted(_matrix_peers.Memoryview):
    """A way through that hands over other values."""

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
        return _matrix_peers.Memoryview.through(self, payload)


class OfAnotherKind(DirectlyWrong):
    name = "other"

    def direct(self, payload):
        return {"one(x)": lambda x: memoryview(b"1"), "list(x)": list}


class Copying(_matrix_peers.Memoryview):
    name = "copying"

    def through(self, payload):
        return "copy(x)", lambda x: memoryview(bytes(x)).cast(payload.letter)


@pytest.mark.parametrize(
    ("peer", "reason"),
    [
        (Shifted, "shifted to shifted by shift(x): value 3 is 4, not 3"),
        (Shortened, "shortened to shortened by shorten(x): it gives something else: 5 values"),
        (DirectlyWrong, "directly to directly by shift(x): value 3 is 4, not 3"),
    ],
)
def test_wrong_values_are_loud(capsys, peer, reason):
    assert run_peers(peer) == 1
    out = capsys.readouterr().out
    assert "!WRONG" in out
    assert f"!!   {reason}" in out
    assert run_peers(peer, as_json=True) == 1
    assert json.loads(capsys.readouterr().out)["wrong"] == 1


def test_a_constructor_that_makes_something_else_refuses(capsys):
    assert run_peers(OfAnotherKind) == 0
    out = capsys.readouterr().out
    assert "one(x): it gives something else: 1 values, not 1000 (nor did list(x) do)" in out


def test_a_copy_is_no_zero_copy():
    _, pairs = run_matrix(Copying)
    pair = pairs["copying", "copying"]
    assert pair.through.result == "copy" and pair.through.ns > 0
    assert pair.best_direct.result == "zero-copy"
    assert pair.ratio is None


# --- what is missing ------------------------------------------------------------------


class NotInstalled(_matrix_peers.Memoryview):
    name = "absent"
    module = "arrowdev_no_such_module"
    pip = "no-such-package"


def test_not_installed(capsys):
    assert run_peers(NotInstalled, _matrix_peers.Memoryview) == 0
    out = capsys.readouterr().out
    assert out.endswith("Not installed, each would add a row: pip install no-such-package\n")
    assert "Left out" not in out


def test_only_libraries_that_are_not_installed(capsys):
    assert run_peers(NotInstalled) == 0
    assert "pip install no-such-package" in capsys.readouterr().out


@pytest.mark.parametrize("source", ["raise RuntimeError('no licence\\nat all')", "import no_such"])
def test_an_import_that_fails(capsys, tmp_path, monkeypatch, source):
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


def test_a_panic_is_a_refusal():
    class Panic(BaseException):  # as pyo3 raises, for polars and arro3
        pass

    def panic(x):
        raise Panic("at the disco")

    class Panics(_matrix_peers.Memoryview):
        def direct(self, payload):
            return {"panic(x)": panic}

    _, pairs = run_matrix(Panics)
    [attempt] = pairs["memoryview", "memoryview"].direct
    assert (attempt.result, attempt.reason) == ("refused", "Panic: at the disco")


def test_an_interrupt_ends_the_run():
    def interrupt(x):
        raise KeyboardInterrupt

    class Interrupts(_matrix_peers.Memoryview):
        def direct(self, payload):
            return {"interrupt(x)": interrupt}

    with pytest.raises(KeyboardInterrupt):
        run_matrix(Interrupts)


# --- the command ------------------------------------------------------------------------


def in_fresh_process(tmp_path, *arguments, then=""):
    """Run the command where nothing but arrowdev and the standard library is installed."""
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


def test_with_nothing_but_arrowdev(tmp_path):
    done = in_fresh_process(tmp_path, "matrix")
    assert done.returncode == 0, done.stderr
    assert "22 zero-copy, 2 refused, of 24 pairs" in done.stdout
    hint = done.stdout.split("Not installed, each would add a row: ")[1]
    wanted = ["pip", "install", *(cls.pip for cls in PEERS if cls.pip)]
    assert hint.split() == wanted


def test_only_imports_nothing_else(tmp_path):
    """Modules of the names of libraries, which tell on stderr that they are imported."""
    for name in ("numpy", "torch", "pyarrow", "tvm_ffi"):
        (tmp_path / f"{name}.py").write_text(f"import sys; print('HERE {name}', file=sys.stderr)")
    done = in_fresh_process(tmp_path, "matrix", "--only", "tvm_ffi,memoryview", "--json")
    assert done.returncode == 0, done.stderr
    assert re.findall("HERE (.*)", done.stderr) == ["tvm_ffi"]
    libraries = {library["name"]: library for library in json.loads(done.stdout)["libraries"]}
    assert list(libraries) == ["memoryview", "tvm-ffi"]
    assert libraries["tvm-ffi"]["reason"].startswith("AttributeError: ")


def test_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "arrowdev", "matrix", "--only", "arrowdev", "--json"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    names = [library["name"] for library in json.loads(done.stdout)["libraries"]]
    assert names == ["ad.Array", "ad.Tensor"]


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
    for option in ("--only", "--json", "--dtype"):
        assert option in out
