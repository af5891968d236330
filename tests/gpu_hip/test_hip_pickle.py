"""Pickles of ROCm memory."""

import copy
import pickle

import numpy as np
import pytest

import arrowdev as ad


@pytest.mark.parametrize("kind", ["rocm:0", "rocm_host:0"])
def test_memory_comes_back_to_its_kind(kind):
    there = ad.array(np.arange(1000)).to(kind)
    for found in (pickle.loads(pickle.dumps(there[10:20])), copy.deepcopy(there[10:20])):
        assert str(found.device) == kind
        assert found.to("cpu").to_pylist() == list(range(10, 20))
