"""arrowdev.testing.check_producer on CUDA Array Interfaces: no false positives."""

import numpy as np
import pytest

import arrowdev as ad
from arrowdev.testing import check_producer

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
