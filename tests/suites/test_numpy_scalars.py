"""NumPy's tests of the buffers of its scalars, with an arrowdev tensor in between."""

import foreign_suite
import pytest

pytest.importorskip("numpy")
from numpy_through import through

globals().update(
    foreign_suite.load(
        "numpy._core.tests.test_scalarbuffer",
        foreign_suite.Rewriting(
            # A scalar has an __array_interface__ too, of a copy that may be written.
            through=lambda scalar: through(memoryview(scalar)),
            arguments=frozenset({"memoryview"}),
        ),
    )
)
