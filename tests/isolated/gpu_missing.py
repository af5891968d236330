"""Prints the error of an unusable GPU runtime. Argument: a device."""

import json
import sys

import arrowdev as ad

said = []
for _ in range(2):
    try:
        ad.device(sys.argv[1]).synchronize()
    except ad.ExchangeError as error:
        device = str(error.device) if error.device is not None else None
        said.append([str(error), error.reason, error.hint, device])
assert len(said) == 2, "nothing was raised"
assert said[0] == said[1], "the reason is kept"
kinds = {ad.DeviceType.CUDA, ad.DeviceType.ROCM}
assert not [device for device in ad.devices() if device.type in kinds]
print(json.dumps(said[0]))
print("end of the script")
