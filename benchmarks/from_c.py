"""What an extension in C pays for arrowdev.h: the loops of c_loops.c. Needs a C compiler."""

import sys
from pathlib import Path
from time import perf_counter

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "helpers"))

import extension  # noqa: E402


class Loop:
    """A loop in C, with the method of timeit.Timer."""

    def __init__(self, function):
        self.function = function

    def timeit(self, number):
        start = perf_counter()
        self.function(number)
        return perf_counter() - start


MODULE = extension.load(extension.build(HERE / "c_loops.c"))
produce, pass_on = Loop(MODULE.produce), Loop(MODULE.pass_on)
