"""The type table and the nulls on the device: the checks that run on every device."""

import concat_checks
import null_checks
import pytest
import type_checks


@pytest.mark.parametrize("check", type_checks.ALL + null_checks.DEVICE)
def test_on_the_device(check):
    check("cuda:0")


@pytest.mark.parametrize("name", concat_checks.ALL)
def test_concat(name):
    concat_checks.check_on_device(name, "cuda:0")
