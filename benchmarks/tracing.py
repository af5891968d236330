"""What a trace adds to an exchange while it is on: python benchmarks/tracing.py.

Each path is timed off and on in turns, in this process, and the least of each counts. A path of
one exchange has one event of it, and, where memory is released, one more.
"""

import timeit

import numpy as np

import arrowdev as ad

TURNS = 15
LOOPS = 2000


def measured(function):
    """Nanoseconds of a call, off and on."""
    off, on = [], []
    for _ in range(TURNS):
        off.append(timeit.timeit(function, number=LOOPS))
        with ad.trace(events=1 << 12):
            on.append(timeit.timeit(function, number=LOOPS))
    return min(off) / LOOPS * 1e9, min(on) / LOOPS * 1e9


def main():
    x = np.arange(1000)
    array, tensor = ad.array(x), ad.tensor(x)
    calls = {
        "numpy -> ad.array, and its release": lambda: ad.array(x),
        "numpy -> ad.tensor, and its release": lambda: ad.tensor(x),
        "Array -> capsules, and their release": lambda: array.__arrow_c_device_array__(),
        "Tensor.__dlpack__(), and its release": lambda: tensor.__dlpack__(),
        "memoryview(Tensor)": lambda: memoryview(tensor),
    }
    for name, call in calls.items():
        off, on = measured(call)
        print(f"{name:40}{off:7.0f} ns off {on:7.0f} ns on  +{on - off:.0f} ns  {on / off:.1f}x")


if __name__ == "__main__":
    main()
