"""The type table and the nulls on the device: the checks that every device passes."""

import null_checks
import pytest
import type_checks


@pytest.mark.parametrize("check", type_checks.ALL + null_checks.DEVICE)
def test_on_the_device(check):
    check("cuda:0")
