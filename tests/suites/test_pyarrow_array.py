"""pyarrow's tests of the protocol methods that it reads, which arrowdev answers."""

import foreign_suite
import pytest

pytest.importorskip("pyarrow")
from arrow_through import METHODS, through

globals().update(
    foreign_suite.load(
        "pyarrow.tests.test_array",
        foreign_suite.Rewriting(through=through, methods=METHODS),
        only=["c_array_protocol"],
    )
)
