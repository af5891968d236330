"""SYCL is loaded into the process after arrowdev looked for it."""

import arrowdev as ad

# Not ad.devices(), which would make the OpenCL runtime load its drivers before
# the next import announces Intel's.
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
