"""pandas' tests of its Arrow interface, with an arrowdev stream between pandas and pyarrow."""

import foreign_suite
import pytest

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
from arrow_through import METHODS, through
from pandas.conftest import using_infer_string  # noqa: F401

globals().update(
    foreign_suite.load(
        "pandas.tests.frame.test_arrow_interface",
        foreign_suite.Rewriting(
            through=through,
            methods=METHODS,
            arguments=frozenset({"table", "chunked_array", "from_stream", "from_arrow"}),
        ),
    )
)
