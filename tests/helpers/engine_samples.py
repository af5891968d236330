"""What is sent through Dask and Ray, and how to compare what arrives."""

import numpy as np
import pyarrow as pa

import arrowdev as ad


def samples():
    x = np.arange(1000.0)
    frozen = x.copy()
    frozen.flags.writeable = False
    words = pa.array(["a", None, "ccc"] * 100)
    return {
        "column": ad.array(x),
        "nulls": ad.array(pa.array([1, None, 3] * 100)),
        "slice of strings": ad.array(words)[7:100],
        "dictionary": ad.array(words.dictionary_encode()),
        "batch": ad.record_batch({"x": x[:300], "word": words}),
        "tensor": ad.tensor(np.asfortranarray(x.reshape(20, 50))),
        "read-only tensor": ad.tensor(frozen),
        "buffer": ad.array(x).buffers[1],
        "schema": ad.record_batch({"x": x}).schema,
        "list of batches": [ad.record_batch({"x": x[i : i + 10]}) for i in (0, 10)],
    }


def values(sample):
    """What can be compared with ==."""
    if isinstance(sample, list):
        return [values(x) for x in sample]
    if isinstance(sample, ad.Schema):
        return sample
    if isinstance(sample, ad.Array):
        return sample.schema, sample.to_pylist()
    if isinstance(sample, ad.Buffer):
        return bytes(sample)
    return sample.dtype, sample.strides, np.asarray(sample).tolist()
