"""The checks of arrowdev.testing: CUDA's backend and CUDA Array Interfaces break no rule."""

import gpu
import numpy as np
import pytest
from test_cuda_share import START

import arrowdev as ad
from arrowdev.testing import check_backend, check_producer
from arrowdev.testing._rules import BACKEND_RULES

RULES = {"interface.dict", "interface.shape", "interface.data", "interface.again", "cuda.stream"}


def test_own_tensor():
    report = check_producer(lambda: ad.tensor(np.arange(6)).to("cuda:0"))
    assert report.held >= RULES
    report = check_producer(lambda: ad.tensor(np.empty((0, 3))).to("cuda:0"))
    assert report.held >= {"cuda.zero_size"}


def test_own_masked_array():
    array = ad.array(np.ma.array([1, 2, 3], mask=[False, True, False])).to("cuda:0")
    assert "interface.mask" in check_producer(lambda: array).held


def test_numba():
    cuda = pytest.importorskip("numba.cuda")
    report = check_producer(lambda: cuda.to_device(np.arange(6).reshape(2, 3)))
    assert report.held >= RULES


@pytest.mark.usefixtures("two_devices")
def test_backend():
    report = check_backend(
        ad.DeviceType.CUDA,
        stream=lambda device: gpu.Stream(),  # on device 0, which is current
        hold=lambda stream: gpu.Gate(stream.handle),
        setup="import sys" + START,
    )
    assert report.held == set(BACKEND_RULES) and not report.untried


def test_type_that_devices_does_not_list():
    with pytest.raises(
        TypeError, match="lists no device of the type 3; pass a type that it lists"
    ):
        check_backend(ad.DeviceType.CUDA_HOST)
