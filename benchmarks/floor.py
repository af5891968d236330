"""The module of bare.c: what no implementation of an exchange can do without.

`array`, `take`, `into` and `Tensor` stand for arrowdev's functions in the statements of paths.py,
and only make the calls of CPython, malloc and the peer that these need. Needs a C compiler.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "helpers"))

import extension  # noqa: E402
import pytest  # noqa: E402

import compiler  # noqa: E402

try:
    built = extension.build(
        HERE / "bare.c", flags=["-Wall", "-Werror"], more=["-I", str(compiler.CSRC)]
    )
except pytest.skip.Exception as error:
    raise ImportError("no C compiler", name="a C compiler") from error
bare = extension.load(built)
