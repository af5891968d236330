"""arrowdev.testing.check_producer reports no false fault for SYCL USM array interfaces."""

import peer_oneapi as peer
import pytest
from peer_oneapi import dpnp

import arrowdev as ad
from arrowdev.testing import check_producer


def numbers(*shape):
    array = dpnp.zeros(shape, sycl_queue=peer.queue())
    array.sycl_queue.wait()
    return array


@pytest.mark.parametrize(
    "make",
    [lambda: numbers(2, 3)[:, ::-1], lambda: numbers(0, 3), lambda: ad.tensor(numbers(2, 3))],
    ids=["dpnp", "dpnp, empty", "arrowdev"],
)
def test_sycl_usm_array_interface(make):
    report = check_producer(make)
    assert report.held >= {"interface.data", "interface.again", "sycl.syclobj"}
