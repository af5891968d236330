"""pyarrow's tests of DLPack, with an arrowdev tensor between the data and each consumer."""

import foreign_suite
import pytest

import arrowdev as ad

pytest.importorskip("pyarrow")
pytest.importorskip("numpy")
globals().update(
    foreign_suite.load(
        "pyarrow.tests.test_dlpack",
        foreign_suite.Rewriting(
            through=ad.tensor,
            methods=frozenset({"__dlpack__", "__dlpack_device__"}),
            arguments=frozenset({"from_dlpack"}),
        ),
    )
)
