"""tools/gpu_first_day.py with the stand-in as the system's driver."""

import importlib.util
import os
import subprocess
import sys

import pytest

import compiler

TOOL = compiler.ROOT / "tools" / "gpu_first_day.py"
PAGE = compiler.ROOT / "docs" / "internals" / "gpu_first_day.md"


def load():
    spec = importlib.util.spec_from_file_location("gpu_first_day", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_of_the_suite_runs():
    tool = load()
    files = {path.stem.removeprefix("test_") for path in tool.SUITE.glob("test_*.py")}
    found = tool.files_of_the_suite("")
    assert found[: len(tool.FIRST)] == list(tool.FIRST)
    assert {*found} == files and len(found) == len({*found})


def test_page_names_every_step():
    text = PAGE.read_text(encoding="utf-8")
    assert [step for step in load().STEPS if f"`{step}`" not in text] == []


def run(out, *arguments):
    fakegpu = pytest.importorskip("fakegpu")
    folder = os.path.dirname(fakegpu.build("cuda"))
    environment = {**os.environ, "LD_LIBRARY_PATH": folder, "ARROWDEV_NO_SKIPS": "0"}
    for name in ("ARROWDEV_CUDA_LIBRARY", "ARROWDEV_HIP_LIBRARY"):  # from tests/conftest.py
        environment.pop(name, None)
    return subprocess.run(
        [sys.executable, str(TOOL), str(out), "--installed", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_report(tmp_path):
    pytest.importorskip("cuda.bindings")
    compiler.command()
    done = run(tmp_path, "--only", "build,machine,suite", "--files", "^(check|masks)$")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert done.stdout == (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "suite, masks: ok" in said and ", 0 failed, 0 errors" in said
    assert said.endswith("all is well\n")
    assert "=== suite, check: 0" in (tmp_path / "suite.log").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_steps_without_time_are_named(tmp_path):
    done = run(tmp_path, "--only", "suite", "--files", "^masks$", "--minutes", "0.01")
    assert done.returncode == 1
    assert "suite, masks: LEFT OUT, no time" in done.stdout
    assert done.stdout.endswith("NOT ALL IS WELL\n")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_build_with_an_older_setuptools(tmp_path, monkeypatch):
    """It reads no license as text, so a copy without one is built."""
    compiler.command()
    tool = load()
    monkeypatch.setattr(tool, "knows_licenses", lambda: False)
    (tmp_path / "out").mkdir()
    kit = tool.Run(tmp_path / "out", 280)
    tool.build(kit, type("Arguments", (), {"installed": False}))
    assert kit.is_good, kit.lines
    code = "import arrowdev; print(arrowdev.__file__)"
    _, output = kit.call("import", [sys.executable, "-c", code], "build.log", 30)
    assert output.strip() == str(tmp_path / "out" / "source" / "arrowdev" / "__init__.py")
    assert "license" not in (tmp_path / "out" / "source" / "pyproject.toml").read_text("utf-8")
