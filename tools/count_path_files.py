"""Prints the sources of csrc that the three paths of docs/internals/architecture.md pass.

    python tools/count_path_files.py [numpy] [cuda] [stream]

Callgrind counts 100 executions of a path after 100 others. A source counts if an instruction of
it was executed in arrowdev's extension, on any thread. CUDA is the stand-in driver of
tests/fakedriver, a library of its own. Needs valgrind, a C compiler, and an
in-place build with ARROWDEV_DEBUG=1, which names the sources.
"""

import gc
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIMES = 100
MARK = "getppid"  # callgrind writes its counts out, and begins anew, before each call of it

# Set-up, statement.
PATHS = {
    "numpy": (
        "import numpy as np, arrowdev as ad; x = np.arange(1000)",
        "ad.array(x).__arrow_c_device_array__()",
    ),
    "cuda": (
        "from standin import *; import arrowdev as ad; t = Table()",
        "ad.array(t).__dlpack__(stream=CONSUMER)",
    ),
    "stream": (
        "import standin, numpy as np, arrowdev as ad, pyarrow as pa\n"
        "batch = pa.record_batch({'a': np.arange(1000)})\n"
        "reader = pa.RecordBatchReader.from_batches(batch.schema, (batch for _ in range(1000)))\n"
        "batches = iter(ad.array_stream(reader).to('cuda:0', prefetch=2))",
        "next(batches)",
    ),
}


def execute(name):
    """Runs in the process that callgrind watches."""
    setup, statement = PATHS[name]
    names = {}
    exec(setup, names)
    exec(f"def loop():\n    for _ in range({TIMES}):\n        {statement}\n", names)
    gc.disable()
    names["loop"]()
    os.getppid()
    names["loop"]()
    os.getppid()


def executed_files(text):
    """(library, source) of the instructions in a file of callgrind.

    ob= is the library; fl= begins a function, fi= and fe= switch to another source within it; a c
    before them describes a callee. Names are abbreviated: "(3) path" the first time, "(3)" later.
    The line after calls= has the cost of the callee.
    """
    names, found, is_callee = {}, set(), False
    library = source = ""
    for line in text.splitlines():
        if match := re.match(r"(c?)(ob|f[lie])=\((\d+)\)(?: (.*))?$", line):
            of_callee, kind, number, name = match.groups()
            key = (kind == "ob", number)
            names[key] = name or names[key]
            if not of_callee and kind == "ob":
                library = names[key]
            elif not of_callee:
                source = names[key]
        elif line.startswith("calls="):
            is_callee = True
        elif re.match(r"[-+*\d]", line):
            if not is_callee:
                found.add((library, source))
            is_callee = False
    return found


def files_of(name):
    helpers = [ROOT, ROOT / "benchmarks", ROOT / "tests" / "helpers"]
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        command += [f"--dump-before={MARK}", sys.executable, __file__, "--execute", name]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, helpers))}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        text = Path(folder, "out.2").read_text(encoding="utf-8")  # between the two marks
    sources = (path for library, path in executed_files(text) if "/_core." in library)
    files = {match[1] for path in sources if (match := re.search(r"csrc/(.*\.c)$", path))}
    if not files:
        raise SystemExit("the extension names no sources: build it with ARROWDEV_DEBUG=1")
    return sorted(files)


def main(names):
    for name in names or PATHS:
        files = files_of(name)
        print(f"{name}: {len(files)} files")
        print("".join(f"    {path}\n" for path in files), end="")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--execute"]:
        execute(sys.argv[2])
    else:
        main(sys.argv[1:])
