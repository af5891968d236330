"""dpnp's tests of its tensors' DLPack, with an arrowdev tensor before each consumer."""

import foreign_suite
import pytest

import arrowdev as ad

peer_oneapi = pytest.importorskip("peer_oneapi")  # finds the devices
globals().update(
    foreign_suite.load(
        "dpnp.tests.tensor.test_usm_ndarray_dlpack",
        foreign_suite.Rewriting(
            through=ad.tensor,
            methods=frozenset({"__dlpack__", "__dlpack_device__"}),
            arguments=frozenset({"from_dlpack"}),
        ),
    )
)
del test_copy_via_host  # noqa: F821 - allocates on PoCL's devices, too, which have no USM


@pytest.fixture
def all_root_devices():
    """dpnp's own fixture lists PoCL's devices, too, which have no USM."""
    return peer_oneapi.WITH_USM[:2]
