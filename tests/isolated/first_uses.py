"""Eight threads import arrowdev and use each part of it for the first time, all at once."""

import pickle

from at_once import run_at_once

try:
    import numpy as np
except ImportError:
    np = None


def in_numpy(ad):
    if np is None:
        return [7]
    assert ad.convert(bytearray([7]), np.ndarray).tolist() == [7]
    return ad.array(np.array([7])).to_pylist()


def refused(ad):
    try:
        ad.tensor(ad.array(bytearray(1), validity=bytearray(1)))
    except ad.ExchangeError as error:
        return [7] if error.reason == "nulls" else error
    return None


USES = [
    lambda ad: ad.array(bytearray([7])).to_pylist(),
    in_numpy,
    lambda ad: [7] * len(ad.devices()[:1]),
    lambda ad: pickle.loads(pickle.dumps(ad.array(bytearray([7])), 5)).to_pylist(),
    lambda ad: memoryview(ad.convert(ad.tensor(bytearray([7])), memoryview)).tolist(),
    lambda ad: eval(repr(ad.array(bytearray([7]))).rpartition(":")[2].rstrip(">")),
    refused,
    lambda ad: ad.array_stream([bytearray([7])]).read_all().to_pylist(),
    lambda ad: [7] if ad.aio.consumer()[0] is not None else None,
    lambda ad: [7] * (ad.schema("timestamp[us, UTC]").format == "tsu:UTC"),
]


def run(k):
    import arrowdev as ad
    import arrowdev.aio

    for i in range(len(USES)):
        use = (i + k) % len(USES)
        found = USES[use](ad)
        assert found == [7], (use, found)


run_at_once(8, run)
print("end of the script", flush=True)
