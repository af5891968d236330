"""A stream whose batches are copied to the device two ahead of the queue that uses them."""

import numpy as np

import arrowdev as ad
from arrowdev.testing import software_device

ROWS = 100_000

with software_device() as device:
    ours = device.queue()
    result = device.empty(8 * ROWS)
    source = ad.array_stream([np.full(ROWS, i, "float64") for i in range(6)])
    with ad.use_stream(ours):
        for batch in source.to("ext_dev:0", prefetch=2):
            ours.copy(result, batch.buffers[1].data_ptr, result.nbytes)
    ours.synchronize()
