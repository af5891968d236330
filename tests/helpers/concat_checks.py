"""concat() of every type, sliced at any row, on any device; pyarrow is the oracle."""

import numpy as np
import pyarrow as pa
from arrow_samples import ROWS, SAMPLES, text, with_nulls

import arrowdev as ad

CUTS = [(0, ROWS), (3, 9), (5, 0), (8, 13), (20, 1)]
WORDS = pa.array(with_nulls(text), pa.string_view())


def _runs(values, type="int32"):
    """ROWS rows in runs of 1, 2, 3 ... rows."""
    ends = np.minimum(np.cumsum(np.arange(1, 7)), ROWS)
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends, type), values[: len(ends)])


def _union():
    ids = pa.array([2 * (i % 2) for i in range(ROWS)], pa.int8())
    offsets = pa.array([i // 2 for i in range(ROWS)], pa.int32())
    children = [WORDS[:11], _runs(WORDS)[:11]]
    return pa.UnionArray.from_dense(ids, offsets, children, ["w", "r"], [0, 2])


def _lists(values):
    offsets = pa.array([min(i, ROWS - 3) for i in range(ROWS + 1)], pa.int32())
    return pa.ListArray.from_arrays(offsets, values)


# Types with offsets or references, nested within each other.
NESTED = {
    "list of views": _lists(WORDS),
    "list of unions": _lists(_union()),
    "struct of runs": pa.StructArray.from_arrays([_runs(WORDS), _union()], ["r", "u"]),
    "runs of lists": _runs(_lists(WORDS), "int64"),
    "union of views and runs": _union(),
    "dictionary of views": pa.DictionaryArray.from_arrays(
        pa.array(with_nulls(lambda i: i // 2)), pa.array([text(i) for i in range(11)], WORDS.type)
    ),
    "views without data": pa.array(["short"] * ROWS, WORDS.type),
}
ALL = SAMPLES | NESTED


def pieces(sample, device="cpu"):
    whole = ad.array(sample).to(device)
    return [whole[first : first + n] for first, n in CUTS]


def expected(sample):
    return [row for first, n in CUTS for row in sample.slice(first, n).to_pylist()]


def check_on_device(name, device):
    arrays = pieces(ALL[name], device)
    joined = ad.concat(arrays)
    assert str(joined.device) == device
    found = pa.array(joined.to("cpu"))
    assert found.to_pylist() == expected(ALL[name])
    if name != "dense_union":  # the sample's offsets go backwards
        found.validate(full=True)
    part = joined[7:33].compact().to("cpu")
    assert part.offset == 0 and part.to_pylist() == expected(ALL[name])[7:33]
