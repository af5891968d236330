"""NumPy's tests of buffers and of __array_interface__, with an arrowdev tensor on both sides."""

import foreign_suite
import pytest

import arrowdev as ad

np = pytest.importorskip("numpy")
from numpy_through import through  # noqa: E402

globals().update(
    foreign_suite.load(
        "numpy._core.tests.test_multiarray",
        foreign_suite.Rewriting(
            through=through,
            arguments=frozenset({"memoryview", "array", "asarray", "frombuffer"}),
        ),
        only=["BufferProtocol", "ArrayInterface", "_interface_", "FromBuffer"],
    )
)


@pytest.fixture(autouse=True)
def own_types(monkeypatch):
    """ml_dtypes, which jax imports, adds types to NumPy's table that have no buffer format."""
    own = {key: kind for key, kind in np._core.sctypeDict.items() if kind.__module__ == "numpy"}
    monkeypatch.setattr(np._core, "sctypeDict", own)


def test_numbers_go_through_a_tensor():
    for code in "?bhilqBHILQefdFD":
        array = np.zeros((2, 3), code)
        assert isinstance(through(array), ad.Tensor), code
        assert isinstance(through(memoryview(array)), ad.Tensor), code
