"""The type table on the device, without kernels: the stand-in has no compiler."""

import pytest
from type_checks import check_permuted, check_refusals, check_tensors


@pytest.mark.parametrize("check", [check_tensors, check_permuted, check_refusals])
def test_on_the_device(check):
    check("rocm:0")
