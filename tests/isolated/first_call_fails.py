"""The first call of a runtime in this process fails; the calls after it do not."""

import common
import pytest

from arrowdev.testing import software_device

with software_device() as device:
    column = common.ad.array(device.array([1, 2, 3]))
    for _ in range(2):
        device.fail_at(1)
        with pytest.raises(common.ad.DeviceError) as caught:
            column.to("cpu")
        assert caught.value.code == 14 and str(caught.value.device) == "ext_dev:0"
    assert column.to("cpu").to_pylist() == [1, 2, 3]
    assert {"ext_dev:0", "ext_dev:1"} <= {str(device) for device in common.ad.devices()}
common.end()
