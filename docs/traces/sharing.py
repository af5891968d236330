"""An array that a second process reads without a copy. Each of the two writes a trace."""

import subprocess
import sys

import numpy as np

import arrowdev as ad

if len(sys.argv) == 1:
    with ad.trace("producer.json"):
        values = ad.device("cpu").empty(8_000_000, shared=True)
        np.frombuffer(values)[:] = 1
        shared = ad.share(np.frombuffer(values))
        subprocess.run([sys.executable, __file__, str(shared)], check=True)
else:
    with ad.trace("consumer.json"):
        values = np.asarray(ad.attach(sys.argv[1]))
        assert values.sum() == 1_000_000
