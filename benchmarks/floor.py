"""The module of floor.c: what no implementation of an exchange can do without.

Needs a C compiler. `array`, `take`, `into` and `Tensor` stand for arrowdev's functions in the
statements of paths.py, and only make the calls of CPython, malloc and the peer that these need.
"""

import importlib.util
import sys
import tempfile
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "helpers"))

import compiler  # noqa: E402


def load():
    """It is small: there is nothing to keep for the next time."""
    with tempfile.TemporaryDirectory() as folder:
        target = str(Path(folder, "bare.so"))
        include = [f"-I{compiler.CSRC}", f"-I{compiler.PYTHON_INCLUDE}"]
        done = compiler.run(
            [*compiler.command(), *compiler.STRICT, "-O2", "-fPIC", "-shared", *include,
             str(HERE / "floor.c"), "-o", target]
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(done.stderr)
        loader = ExtensionFileLoader("bare", target)
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bare", loader))
        loader.exec_module(module)
    return module


try:
    bare = load()
except BaseException as error:  # pytest.skip() of the helper, where there is no compiler
    raise ImportError("a C compiler", name="a C compiler") from error
