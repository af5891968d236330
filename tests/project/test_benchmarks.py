"""The benchmarks run and report their rows. No time is asserted."""

import html
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).resolve().parent.parent.parent / "benchmarks"


def load(name):
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module by name
    spec.loader.exec_module(module)
    return module


def run(*arguments, cwd=None, **environment):
    return subprocess.run(
        [sys.executable, str(FOLDER / "run.py"), *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | environment,
    )


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmarks")
    page = folder / "page.md"
    page.write_text("before\n<!-- table: begin -->\nold\n<!-- table: end -->\nafter\n")
    done = run("--quick", "--only", "^(?!.*100,000)", "--json", "r.json", "--markdown", "page.md",
               cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "r.json").read_text()), page.read_text()


def test_every_row_of_the_speed_table_is_there(quick):
    _, report, _ = quick
    goals = {row["name"] for row in report["paths"] if row["group"] == "goals" and row["goal"]}
    assert len(goals) == 13
    assert {row["group"] for row in report["paths"]} == {"goals", "per column", "more", "values"}


def test_figures_are_plausible(quick):
    _, report, _ = quick
    for row in report["paths"]:
        if "not_measured" in row or "ours" not in row:
            continue
        for figures in (row["ours"], *row["peers"]):
            if "not_measured" in figures:
                assert figures["not_measured"].startswith("pip install ")
                continue
            assert 0 < figures["minimum"] <= figures["median"]
            assert figures["statement"] and figures["number"] >= 1


def test_goals_compare_medians(quick):
    _, report, _ = quick
    for row in report["paths"]:
        if row["met"] is None or "ratio" not in (row["peers"] or [{}])[0]:
            continue
        ratio = row["peers"][0]["median"] / row["ours"]["median"]
        assert row["value"] == pytest.approx(ratio)
        goal = row["goal"]
        needed = 1 if goal == "faster" else float(goal.strip(">= x"))
        assert row["met"] == (ratio > needed if goal == "faster" else ratio >= needed)


def test_table_goes_between_the_markers(quick):
    output, _, page = quick
    assert "goals met" in output
    assert page.startswith("before\n<!-- table: begin -->\n| path |")
    assert page.endswith("<!-- table: end -->\nafter\n")
    assert "old" not in page
    # A browser would break a line within "->".
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert any(line.startswith("| numpy → capsules") for line in rows)
    assert not any("->" in line for line in rows)


@pytest.fixture(scope="module")
def devices(tmp_path_factory):
    import compiler

    compiler.command()  # skips without a device
    folder = tmp_path_factory.mktemp("devices")
    page = folder / "page.md"
    page.write_text(
        "<!-- devices: begin -->\nold\n<!-- devices: end -->\nafter\n"
        "<!-- gpu: begin -->\nkept\n<!-- gpu: end -->\n"
    )
    done = run("--quick", "--devices", "--only", "^(?!.*16 MiB)", "--json", "r.json",
               "--markdown", "page.md", cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "r.json").read_text()), page.read_text()


def test_device_rows(devices):
    report, page = devices
    groups = {row["group"] for row in report["paths"]}
    assert groups == {"devices", "copies", "gpu"}
    assert page.startswith("<!-- devices: begin -->\n| path |")
    assert page.partition("after\n")[2] == "<!-- gpu: begin -->\nkept\n<!-- gpu: end -->\n"
    for row in report["paths"]:
        if "not_measured" in row:
            assert row["group"] != "devices", row["not_measured"]
            continue
        assert row["ours"]["median"] > 0
        if row["group"] == "copies":
            assert row["peers"][0]["ratio"] > 0


def test_overhead_is_relative_to_required_calls(devices):
    report, _ = devices
    rows = {row["name"]: row for row in report["paths"] if row["group"] == "devices"}
    assert sum(row["goal"] is not None for row in rows.values()) == 6
    for row in rows.values():
        if "overhead" not in row["peers"][0]:
            continue
        needed = row["peers"][0]
        made = next((p for p in row["peers"] if p["label"].startswith("all its")), row["ours"])
        assert needed["statement"].startswith("bare")
        # No exchange works without the calls that it needs.
        assert made["minimum"] >= 0.5 * needed["minimum"]


def test_stream_rows(tmp_path):
    import compiler

    compiler.command()  # skips without a device
    page = tmp_path / "page.md"
    groups = ("streams", "training")
    tables = [f"<!-- {group}: begin -->\nold\n<!-- {group}: end -->\n" for group in groups]
    page.write_text(f"{''.join(tables)}after\n")
    done = run("--quick", "--streams", "--json", "r.json", "--markdown", "page.md", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "r.json").read_text())["paths"]
    assert {row["group"] for row in rows} == {*groups}
    assert sum(row["goal"] is not None for row in rows) == 12
    for row in rows:
        if "not_measured" not in row:
            assert row["goal"] is None or row["met"] in (True, False)
            assert "ours" not in row or row["ours"]["median"] > 0
    assert page.read_text().startswith("<!-- streams: begin -->\n| path |")


def test_async_streams():
    import compiler

    compiler.command()  # skips without a device
    command = [sys.executable, str(FOLDER / "async_streams.py"), "--batches=2000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    rates = re.findall(r"^(.*\w) +([\d,]+) batches/s", done.stdout, re.M)
    assert len(rates) == 8
    (most,) = re.findall(r"at most (\d+) alive", done.stdout)
    assert int(most) <= 1024


@pytest.mark.timeout(600)
def test_gpu_rows(tmp_path):
    import compiler

    pytest.importorskip("cuda.bindings")
    compiler.command()
    command = [sys.executable, str(FOLDER / "gpu.py"), "--quick", "--standin", "--json=r.json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert sum("ours" in row for row in report["paths"]) >= 16 and report["conditions"]["device"]


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_engines(engine, tmp_path):
    pytest.importorskip({"dask": "distributed"}.get(engine, engine))
    pytest.importorskip("pyarrow")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- engines: begin -->\nold\n<!-- engines: end -->\nafter\n")
    options = [f"--engines={engine}", "--mib=4", "--repeats=1", "--json=r.json"]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "engines.py"), *options, "--markdown=page.md"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert len(rows) == 10 and {row["library"] for row in rows} == {"arrowdev", "pyarrow", "numpy"}
    assert all(row["seconds"] > 0 for row in rows)
    text = page.read_text()
    assert text.startswith("before\n<!-- engines: begin -->\n| through |") and "old" not in text


def test_one_table_at_a_time():
    done = run("--devices", "--kernels")
    assert done.returncode == 2 and "not allowed with argument --devices" in done.stderr


def test_missing_peers_are_named_with_their_install(tmp_path):
    for name in ("pyarrow", "nanoarrow", "torch", "tvm_ffi"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('', name={name!r})\n")
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = run("--quick", "--only", "made and dropped|tvm", PYTHONPATH=os.pathsep.join(path))
    assert done.returncode == 0, done.stderr
    for package in ("pyarrow", "nanoarrow", "torch", "apache-tvm-ffi"):
        assert f"pip install {package}" in done.stdout
    assert "0 of 0 goals met" in done.stdout


def test_plot(quick, tmp_path):
    pytest.importorskip("matplotlib")
    done = run("--quick", "--only", "__dlpack__", "--plot", str(tmp_path / "plot.svg"))
    assert done.returncode == 0, done.stderr
    bars = json.loads((tmp_path / "plot.json").read_text())["bars"]
    picture = (tmp_path / "plot.svg").read_text()
    assert bars
    for bar in bars:  # the libraries are in a legend
        assert html.escape(bar["name"], quote=False) in picture
        assert f">{bar['peer'].partition('.')[0]}<" in picture


class TestBudget:
    """The comparison of instruction counts. CI runs valgrind itself."""

    @pytest.fixture
    def module(self):
        return load("instructions")

    def budget(self, module, **versions):
        return {"versions": module.versions() | versions, "counts": {"a": 100.0}}

    def test_within(self, module):
        assert not list(module.complaints({"a": 104.9}, self.budget(module)))

    def test_over(self, module):
        (line,) = module.complaints({"a": 106.0}, self.budget(module))
        assert line.startswith("a: 106.0 instructions, +6.0% over")

    def test_row_without_a_budget(self, module):
        (line,) = module.complaints({"b": 1.0}, self.budget(module))
        assert "no budget" in line

    def test_other_versions_allow_more(self, module):
        budget = self.budget(module, numpy="0.1")
        assert not list(module.complaints({"a": 114.0}, budget))
        assert list(module.complaints({"a": 116.0}, budget))

    def test_every_row_has_a_budget(self, module):
        assert set(module.read_budget()["counts"]) == {row.name for row in module.ROWS}


def test_kernels():
    pytest.importorskip("pyarrow")
    done = subprocess.run(
        [sys.executable, str(FOLDER / "kernels.py"), "--sizes", "1000", "--only", "bits to bytes"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    row = done.stdout.splitlines()[1]
    assert row.startswith("bits to bytes") and "numpy" in row and "pyarrow" in row
