"""Moves an array to CUDA. Argument: "refused" or "served"."""

import sys

import numpy as np
import pytest

import arrowdev as ad

array = ad.array(np.arange(3))
if sys.argv[1] == "refused":
    with pytest.raises(ad.ExchangeError) as caught:
        array.to("cuda:0")
    assert caught.value.reason == "runtime"
    assert caught.value.hint == "correct or unset ARROWDEV_CUDA_LIBRARY"
else:
    there = array.to("cuda:0")
    assert str(there.device) == "cuda:0" and there.to("cpu").to_pylist() == [0, 1, 2]
print("end of the script")
