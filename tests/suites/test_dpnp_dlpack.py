"""dpnp's tests of DLPack, with an arrowdev tensor between the array and each consumer."""

import foreign_suite
import pytest

import arrowdev as ad

pytest.importorskip("peer_oneapi")  # finds the devices
globals().update(
    foreign_suite.load(
        "dpnp.tests.test_dlpack",
        foreign_suite.Rewriting(
            through=ad.tensor,
            methods=frozenset({"__dlpack__", "__dlpack_device__"}),
            arguments=frozenset({"from_dlpack"}),
        ),
    )
)
