"""Without kernels bits are not converted and an error says why; other operations work."""

import numpy as np
import peer_oneapi as peer
import pyarrow as pa

import arrowdev as ad

values = np.arange(3000) % 3 == 0
there = ad.array(pa.array(values)).to(peer.NAME)
reason = None
try:
    ad.tensor(there)
except ad.ExchangeError as error:
    reason = error.reason
assert reason == "kernel", reason
assert there.to("cpu").to_pylist() == values.tolist()
print("end of the script")
