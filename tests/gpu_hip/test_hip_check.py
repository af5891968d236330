"""arrowdev.testing.check_backend on HIP: the backend breaks no rule."""

from test_hip_exchange import Stream
from test_hip_share import START

import arrowdev as ad
from arrowdev.testing import check_backend
from arrowdev.testing._rules import BACKEND_RULES


def test_backend(standin):
    streams = []

    def new_stream(device):
        assert device == ad.device("rocm:0")  # which is current
        streams.append(Stream())
        return streams[-1].handle

    report = check_backend(
        ad.DeviceType.ROCM, stream=new_stream, hold=standin.held, setup="import sys" + START
    )
    assert report.untried == {"backend.kernels": "the backend has no kernels"}
    assert report.held == set(BACKEND_RULES) - {"backend.kernels"}
