"""An array of awkward where there is no pyarrow."""

import importlib
import sys

import pytest

import arrowdev as ad

sys.modules["pyarrow"] = None
ak = importlib.import_module("awkward")  # it would import pyarrow
with pytest.raises(ad.ExchangeError) as info:
    ad.array(ak.Array([[1], []]))
assert info.value.reason == "refused"
print(info.value)
print("end of the script")
