"""concat() of every type, cut anywhere, on any device; pyarrow is the oracle."""

import pyarrow as pa
import pytest
from arrow_samples import ROWS, SAMPLES

import arrowdev as ad

CUTS = [(0, ROWS), (3, 9), (5, 0), (8, 13), (20, 1)]
# What a device cannot do: it would have to look at every row.
HOST_ONLY = ("string_view", "binary_view", "dense_union", "run_end_encoded")


def pieces(sample, device="cpu"):
    whole = ad.array(sample).to(device)
    return [whole[first : first + n] for first, n in CUTS]


def expected(sample):
    return [row for first, n in CUTS for row in sample.slice(first, n).to_pylist()]


def check_on_device(name, device):
    arrays = pieces(SAMPLES[name], device)
    if name in HOST_ONLY:
        with pytest.raises(ad.ExchangeError, match="look at every row") as info:
            ad.concat(arrays)
        assert info.value.reason == "dtype" and '.to("cpu")' in info.value.hint
        return
    joined = ad.concat(arrays)
    assert str(joined.device) == device
    found = pa.array(joined.to("cpu"))
    assert found.to_pylist() == expected(SAMPLES[name])
    found.validate(full=True)
