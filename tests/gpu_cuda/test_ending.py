"""The end of a process with a running kernel, and after a kernel that failed."""

import re
import subprocess
import sys

import gpu
import libraries
import pytest
from isolation import CRASH

# After a fault, the producer's own destructors may say what the driver told them.
AFTER_A_FAULT = re.compile(r"Fatal Python error|Segmentation|SystemError|arrowdev\.")
PRODUCERS = ["interface", "numba", "torch", "cupy"]


@pytest.mark.parametrize("how", ["held", "dropped", "faulted"])
@pytest.mark.parametrize("name", PRODUCERS)
def test_process_ends_cleanly(name, how):
    libraries.get(name)
    if how == "faulted" and gpu.IS_REAL and gpu.kernels() is None:
        pytest.skip("needs a GPU that takes the tests' kernels")
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(gpu.FOLDER / "ending.py"), name, how],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
    )
    said = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0 and done.stdout.split() == ["end"], said
    wrong = AFTER_A_FAULT if how == "faulted" else CRASH
    assert wrong.search(done.stderr) is None, said
