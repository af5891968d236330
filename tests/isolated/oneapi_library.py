"""A library that cannot be used is reported, and data pass through unchanged.

Arguments: words of the message.
"""

import sys

import peer_oneapi as peer

import arrowdev as ad

said, reason = "", None
try:
    ad.device("oneapi:0").empty(8)
except (ad.ExchangeError, ad.DeviceError) as error:
    said = str(error)
assert sys.argv[1] in said, said
assert all(device.type != 14 for device in ad.devices())

source = peer.dpnp.arange(10)
tensor = ad.tensor(source)
try:
    tensor.__arrow_c_device_array__()
except ad.ExchangeError as error:
    reason = error.reason
assert reason == "event", reason
assert tensor.__sycl_usm_array_interface__["syclobj"] == source.sycl_queue
print("end of the script")
