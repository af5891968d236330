"""pyarrow's tests of the Arrow capsules, which arrowdev exports from pyarrow's objects."""

import foreign_suite
import pytest

pytest.importorskip("pyarrow")
from arrow_through import METHODS, through

globals().update(
    foreign_suite.load(
        "pyarrow.tests.test_cffi",
        foreign_suite.Rewriting(through=through, methods=METHODS),
        only=["capsule"],
    )
)
