"""docs/libraries: each refusal of the tables is provoked, with the reason that the page names."""

import re
import types
import warnings

import pytest

import arrowdev as ad
import compiler
from arrowdev.testing import software_device

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa

FOLDER = compiler.ROOT / "docs" / "libraries"
TABLE = re.compile(r"^\| what \| reason \| what to do \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", re.M)
ROW = re.compile(r"^\| (.*?) \| `(\w+)` \|", re.M)


def rows():
    """(page, what, reason) of the rows that name a reason."""
    for page in sorted(FOLDER.glob("*.md")):
        for table in TABLE.findall(page.read_text(encoding="utf-8")):
            for what, reason in ROW.findall(table):
                yield page.stem, what, reason


def library(name):
    return pytest.importorskip(name, minversion={"pandas": "3.0"}.get(name))


def class_of(module, name):
    return getattr(library(module), name)


def on_a_device(cls):
    with software_device() as device:
        column = ad.record_batch({"x": device.array([1, 2])})
        return (column if "Frame" in cls.__name__ else column["x"]).into(cls)


def chunked():
    return pa.chunked_array([[1, 2], [3]])


def without_x64():
    config = library("jax").config
    before = config.jax_enable_x64
    config.update("jax_enable_x64", False)
    try:
        ad.convert(np.arange(3), class_of("jax", "Array"))
    finally:
        config.update("jax_enable_x64", before)


def handed_over_twice():
    stream = ad.array_stream(library("duckdb").sql("select 1 as i"))
    stream.__arrow_c_stream__()
    next(stream)


def on_dpnp():
    import peer_oneapi  # noqa: F401

    return ad.tensor(library("dpnp").arange(3))


def jagged(lengths=None):
    torch = library("torch")
    return torch.nested.nested_tensor_from_jagged(
        torch.arange(4), torch.tensor([0, 2, 4]), lengths and torch.tensor(lengths)
    )


def strided_nested():
    torch = library("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch prefers the jagged layout
        return torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])


def of_awkward(values):
    return ad.array(class_of("awkward", "Array")(values))


def permuted():
    return np.ones((1, 2, 3)).transpose(0, 2, 1)


NULLS = pa.array([1, None])
TIMES = pa.array([1], pa.timestamp("s"))
WORDS = pa.array(["a", "b"])

CASES = {
    "numpy": {
        "structured elements": lambda: ad.array(np.zeros(2, [("a", "i4"), ("b", "f8")])),
        "text, Python objects": lambda: ad.array(np.array(["a"])),
        "`longdouble`": lambda: ad.array(np.ones(2, "longdouble")),
        "`datetime64` in other units": lambda: ad.array(np.array(["2024-02-29"], "M8[D]")),
        "strides with gaps, with `copy=False`": lambda: ad.array(np.arange(6)[::2], copy=False),
        "bfloat16 or float8 *to* NumPy": lambda: ad.convert(
            library("torch").ones(2, dtype=library("torch").bfloat16), np.ndarray
        ),
        "a column with nulls *to* NumPy by `convert`": lambda: ad.convert(NULLS, np.ndarray),
        "a batch *to* NumPy by `np.asarray`": lambda: np.asarray(ad.record_batch({"x": b"ab"})),
    },
    "pytorch": {
        "a tensor that requires a gradient": lambda: ad.array(
            library("torch").ones(2, requires_grad=True)
        ),
        "a tensor with the conjugate bit": lambda: ad.array(
            library("torch").ones(2, dtype=library("torch").complex64).conj()
        ),
        "a tensor with the negative bit": lambda: ad.array(
            library("torch").ones(2, dtype=library("torch").complex64).conj().imag
        ),
        "a jagged tensor with values between its lists": lambda: ad.array(jagged(lengths=[1, 1])),
        "a jagged tensor whose lists are not its dimension 1": lambda: ad.array(
            jagged().unsqueeze(-1).transpose(1, 2)
        ),
        "a nested tensor of the strided layout": lambda: ad.array(strided_nested()),
        "null lists, or nulls in them, *to* a jagged tensor": lambda: ad.convert(
            pa.array([[1], None]), type(jagged())
        ),
        "lists of a fixed size *to* a jagged tensor": lambda: ad.convert(
            pa.array([[1]], pa.list_(pa.int64(), 1)), type(jagged())
        ),
        "list views *to* a jagged tensor": lambda: ad.convert(
            pa.array([[1]], pa.list_view(pa.int64())), type(jagged())
        ),
        "nulls *to* PyTorch": lambda: ad.convert(NULLS, class_of("torch", "Tensor")),
        "negative strides *to* PyTorch with `copy=False`": lambda: ad.convert(
            np.arange(3)[::-1], class_of("torch", "Tensor"), copy=False
        ),
    },
    "jax": {
        "64-bit elements while JAX has them switched off": without_x64,
        "a copy that JAX made, with `copy=False`": lambda: ad.convert(
            np.arange(65, dtype="float32")[1:], class_of("jax", "Array"), copy=False
        ),
        "other strides, with `copy=False`": lambda: ad.convert(
            np.arange(6, dtype="float32")[::2], class_of("jax", "Array"), copy=False
        ),
        "nulls": lambda: ad.convert(NULLS, class_of("jax", "Array")),
    },
    "pyarrow": {
        "nulls *to* a tensor": lambda: ad.tensor(NULLS),
        "timestamps, dates, durations, decimals *to* a tensor": lambda: ad.tensor(TIMES),
        "dictionaries *to* a tensor": lambda: ad.tensor(WORDS.dictionary_encode()),
        "strings, binary, unions *to* a tensor": lambda: ad.tensor(WORDS),
        "bit-packed bools *to* a tensor, with `copy=False`": lambda: ad.tensor(
            pa.array([True]), copy=False
        ),
        "several chunks as one array, with `copy=False`": lambda: ad.array(chunked(), copy=False),
        "device memory *to* pyarrow": lambda: on_a_device(pa.Array),
    },
    "polars": {
        "any exchange *to* polars with `copy=False`": lambda: ad.convert(
            np.arange(3), class_of("polars", "Series"), copy=False
        ),
        "`decimal32` and `decimal64` in a frame or within nested types *to* polars": (
            lambda: ad.convert(
                pa.array([[1]], pa.list_(pa.decimal32(5))), class_of("polars", "Series")
            )
        ),
        "unions *to* polars": lambda: ad.convert(
            pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
            class_of("polars", "Series"),
        ),
        "`decimal256`, a negative scale, list views, run-end encoded data, intervals of months or "
        "days, binary and lists of size 0 *to* polars": lambda: ad.convert(
            pa.array([1, 2], pa.decimal256(50)), class_of("polars", "Series")
        ),
        "several chunks as one array, with `copy=False`": lambda: ad.array(
            library("polars").concat([library("polars").Series([1])] * 2, rechunk=False),
            copy=False,
        ),
        "device memory *to* polars": lambda: on_a_device(class_of("polars", "Series")),
    },
    "pandas": {
        "`copy=False` *to* a DataFrame": lambda: ad.convert(
            pa.record_batch({"x": [1]}), class_of("pandas", "DataFrame"), copy=False
        ),
        "a tensor of several dimensions as a Series": lambda: ad.tensor(np.ones((2, 2))).into(
            class_of("pandas", "Series")
        ),
        "pandas before 3": lambda: ad._libraries._from_arrow(
            types.SimpleNamespace(__version__="2.0", Series=object), "Series", ad.array(NULLS)
        ),
        "device memory *to* pandas": lambda: on_a_device(class_of("pandas", "DataFrame")),
    },
    "cupy": None,  # needs a GPU
    "duckdb": {
        "several chunks as one array, with `copy=False`": lambda: ad.array(chunked(), copy=False),
        "a stream that was handed over already": handed_over_twice,
        "elements that DuckDB does not know, as bfloat16, and rows of a tensor in another order, "
        "by `.into`": lambda: ad.array_stream([ad.record_batch({"x": permuted()})]).into(
            class_of("duckdb", "DuckDBPyRelation")
        ),
    },
    "dpnp": {
        "device memory to a host library": lambda: on_dpnp().into(np.ndarray),
    },
    "tvm_ffi": {
        "nulls": lambda: ad.convert(NULLS, class_of("tvm_ffi", "Tensor")),
        "types that are no numbers": lambda: ad.convert(WORDS, class_of("tvm_ffi", "Tensor")),
    },
    "others": {
        "names of records and other parameters, and tuples": lambda: of_awkward([(1, 2)]),
        "NaT, dates that 32 bits cannot hold, and times in multiples of a unit": (
            lambda: of_awkward(np.array(["NaT"], "M8[s]"))
        ),
        "another backend than that of the CPU": lambda: ad.array(
            library("awkward").to_backend([1], "typetracer")
        ),
        "what awkward does not export: complex numbers, strided NumPy arrays, times in hours": (
            lambda: of_awkward(np.array([1j]))
        ),
        "time zones, and times of day, *to* awkward": lambda: ad.convert(
            pa.array([1], pa.time32("s")), class_of("awkward", "Array")
        ),
        "`copy=False` *to* awkward": lambda: ad.convert(
            NULLS, class_of("awkward", "Array"), copy=False
        ),
    },
}


@pytest.mark.parametrize("name", [name for name, cases in CASES.items() if cases])
def test_refusals(name):
    reasons = {what: reason for page, what, reason in rows() if page == name}
    assert reasons.keys() == CASES[name].keys()
    for what, provoke in CASES[name].items():
        with pytest.raises(ad.ExchangeError) as caught:
            provoke()
        assert caught.value.reason == reasons[what], what


def test_every_table_is_provoked():
    assert {page for page, _, _ in rows()} == CASES.keys()
