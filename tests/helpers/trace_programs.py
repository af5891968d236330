"""The programs of docs/traces, and what their traces have."""

import os
import pathlib
import subprocess
import sys

from arrowdev._cli import trace_files

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "traces"
NAMES = ("prefetch", "race", "sharing")

# What is selected in the picture, as JavaScript in the page.
SELECTED = {
    "prefetch": "shown.trace.items.find(item => item.name === 'wait for an event')",
    "race": "shown.trace.races[0]",
    "sharing": "shown.trace.items.find(item => item.name === 'attach')",
}


def trace_of(name, folder):
    """Run a program, which writes into `folder`; return its trace, or that of its processes."""
    program = FOLDER / name / "app.py" if (FOLDER / name).is_dir() else FOLDER / f"{name}.py"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    if name != "sharing":  # which says itself what is traced
        environment["ARROWDEV_TRACE"] = str(folder / "trace.json")
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    files = sorted(folder.glob("*.json"), reverse=True)  # the producer first
    assert files, done.stderr
    trace = trace_files.read(list(map(str, files)))
    command = trace["otherData"]["command"]
    trace["otherData"]["command"] = [pathlib.Path(word).name for word in command]
    return trace
