"""Runs the scripts of tests/isolated, each in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

HELPERS = Path(__file__).resolve().parent
FOLDER = HELPERS.parent / "isolated"
CRASH = re.compile(
    r"Fatal Python error|Segmentation|AddressSanitizer|runtime error|SystemError|"
    r"Exception ignored|Traceback"
)


# CPython 3.15 warns of its own module when a child of multiprocessing prints a traceback.
WARNINGS = ["-W", "error", "-W", "ignore:Module globals is missing:DeprecationWarning"]


def run(script, *arguments, code=0, allowed="", environment=None):
    """Runs a script to its end and returns its output."""
    path = [str(HELPERS), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", *WARNINGS, str(FOLDER / f"{script}.py")]
        + [str(argument) for argument in arguments],
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, **(environment or {}), "PYTHONPATH": os.pathsep.join(path)},
        timeout=300,
    )
    said = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == code, said
    assert "end of the script" in done.stdout, said
    found = CRASH.search(done.stderr)
    assert found is None or (allowed and allowed in done.stderr), said
    return done.stdout
