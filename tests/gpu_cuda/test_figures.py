"""Bandwidth and latency, printed and written as JSON. Nothing is asserted about a time.

The file is named by ARROWDEV_FIGURES. `python benchmarks/gpu.py` measures more, and longer.
"""

import json
import os
import subprocess
import sys

import gpu
import pytest

import compiler


@pytest.mark.timeout(300)
def test_figures(tmp_path, capsys):
    compiler.command()
    file = os.environ.get("ARROWDEV_FIGURES") or tmp_path / "gpu.json"
    benchmark = compiler.ROOT / "benchmarks" / "gpu.py"
    done = subprocess.run(
        [sys.executable, str(benchmark), "--quick", "--json", str(file)]
        + ([] if gpu.IS_REAL else ["--standin"]),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if gpu.IS_REAL:
        with capsys.disabled():
            print(f"\n{done.stdout}")
    with open(file, encoding="utf-8") as text:
        report = json.load(text)
    measured = [row for row in report["paths"] if "ours" in row]
    assert len(measured) >= 16 and report["conditions"]["device"]
    assert all(row["ours"]["median"] > 0 for row in measured)
