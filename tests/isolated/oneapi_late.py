"""SYCL that comes into the process after it was looked for."""

import arrowdev as ad

# Not ad.devices(): the OpenCL runtime would be asked for drivers, before the
# next import tells it of Intel's.
reason = None
try:
    ad.device("oneapi:0").empty(8)
except ad.ExchangeError as error:
    reason = error.reason
assert reason == "runtime", reason

import peer_oneapi as peer  # noqa: E402

queue = peer.queue()
tensor = ad.tensor(peer.dpnp.arange(10, sycl_queue=queue))
tensor.synchronize()
assert tensor.to("cpu").shape == (10,)
assert peer.ID in [device.id for device in ad.devices() if device.type == 14]
print("end of the script")
