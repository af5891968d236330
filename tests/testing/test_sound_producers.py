"""The kit accuses no sound producer: those of arrowdev, of the tests, of the documentation and of
other libraries, whose deviations docs/conformance_libraries.md names.

ARROWDEV_EXAMPLES sets how often each is checked.
"""

import functools
import gc
import os
import time

import broken_ends as broken
import interface_dicts
import numpy as np
import pytest
from broken_devices import Numbers
from broken_ends import Host, OnDevice, Stream, Tensor
from doc_examples import BLOCK, ROOT, STARTS_PROCESSES, compiled
from test_conformance import OURS, STANDING
from waiting import wait_until

import arrowdev as ad
from arrowdev import aio
from arrowdev._cli import expression
from arrowdev.testing import (
    ScriptedAsyncProducer,
    ScriptedStream,
    _check_async,
    _conformance,
    software_device,
)
from arrowdev.testing._software import SoftwareDevice

pytestmark = pytest.mark.timeout(3600)  # with many examples
EXAMPLES = int(os.environ.get("ARROWDEV_EXAMPLES", "1"))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No long waits for what does not happen."""
    monkeypatch.setattr(_check_async, "PATIENCE", 0.001)
    monkeypatch.setattr(_check_async, "LINGER", 0.001)


@pytest.fixture(scope="module", autouse=True)
def devices_are_loaded_first():
    """PoCL ends the process if it is loaded after TensorFlow: docs/libraries/runtimes.md."""
    ad.devices()


@pytest.fixture(scope="module", autouse=True)
def examples_on_a_device():
    """Runs the example that has a device of its own, of which it leaves nothing to later tests."""
    names = vars(defined("testing.md", "Numbers"))["__init__"].__globals__
    for name in ("numbers", "queue", "device"):
        del names[name]
    yield
    gc.unfreeze()  # see find()
    gc.collect()


def find(make):
    gc.freeze()  # what checks keep for good is not collected again and again
    with software_device():
        return _conformance.producer_report(make)


def check_often(make, known=(), n=EXAMPLES):
    start = time.monotonic()
    for _ in range(n):
        report = find(make)
        accusations = [one for one in report.broken if one.rule.id not in known]
        assert not accusations, report
    print(f"{n} runs, {time.monotonic() - start:.0f} s: {report.subject}")


# --- of arrowdev, and of the tests ----------------------------------------------------


@functools.cache
def defined(page, name):
    """A class or function that an example of a page defines."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        if f"class {name}" in block["code"] or f"def {name}" in block["code"]:
            line = text.count("\n", 0, block.start("code"))
            names = {"__name__": "example"}
            exec(compiled(line, block["code"], page), names)
            return names[name]
    raise LookupError(name)


def from_docs(page, name, *arguments):
    return lambda: defined(page, name)(*arguments)


def current():
    return SoftwareDevice._current


def numbers_of_docs():
    """The producer of the tutorial, on the device that runs."""
    return defined("testing.md", "Numbers")(current(), [1, 2, 3], current().queue())


async def arrays_on_a_device():
    for i in range(3):
        yield ad.array(np.arange(i + 1)).to("ext_dev:0")


SOUND = {
    "a device array, at once": Numbers,
    "a device array behind a delay": lambda: Numbers(delay=0.001),
    "a producer of the software device": lambda: current().array([1, None]),
    "the same without an event": lambda: current().array([1, 2], with_event=False),
    "strings of the software device": lambda: current().array(["a", None, "bc"]),
    "a batch of the software device": lambda: current().array({"a": [1, None], "b": ["x", "y"]}),
    "a tensor copied to a device": lambda: ad.tensor(np.arange(5)).to("ext_dev:0"),
    "a column copied to a device": lambda: ad.array(np.arange(5)).to("ext_dev:1"),
    "a stream on a device": lambda: ad.array_stream([ad.array(np.arange(5)).to("ext_dev:0")]),
    "an async stream on a device": lambda: (
        lambda handler: aio.produce(handler, arrays_on_a_device())
    ),
    "a host array": lambda: ad.array(np.arange(5), copy=True),
    "a host tensor": lambda: ad.tensor(np.arange(6).reshape(2, 3)),
    "a host stream": lambda: ad.array_stream([np.arange(2), np.arange(3)]),
    "a schema": lambda: ad.schema("int8"),
    "a scripted array": Host,
    "a scripted device array": OnDevice,
    "a scripted stream": Stream,
    "a scripted device stream": broken.DeviceStream,
    "a scripted stream of arrowdev.testing": lambda: ScriptedStream([{"a": [1, 2]}, {"a": [3]}]),
    "a scripted async stream": lambda: ScriptedAsyncProducer.of([[1, 2], [3]]),
    "a scripted tensor": Tensor,
    "one schema for all arrays": broken.SharesSchemas,
    "the last schemas in a cache": broken.CachesSchemas,
    "an interface alone": lambda: interface_dicts.OnlyInterface(np.arange(3)),
    "the producer of testing.md": numbers_of_docs,
    "the class of python.md": from_docs("libraries/python.md", "MyColumn", np.arange(3.0)),
    "the mask of nulls.md": from_docs(
        "nulls.md", "Masked", np.arange(3.0), np.array([True, False, True])
    ),
    "the interface of errors.md": from_docs("errors.md", "Fragile"),
    "the batches of conformance.md": lambda: (
        lambda handler: aio.produce(handler, defined("conformance.md", "numbers")())
    ),
}
SOUND |= {f"{name}, scripted": make for name, make in STANDING.items()}
SOUND |= {f"{name}, of arrowdev": make for name, make in OURS.items()}
# Refuses in DLPack with another error than BufferError, as its page says.
KNOWN = {"the interface of errors.md": {"dlpack.device", "dlpack.refusal", "exports.usable"}}
# Their host waits while the queues are held, which takes GRACE seconds each time.
WAITING = {"the same without an event"}


@pytest.mark.parametrize("name", SOUND)
def test_sound_producer_is_not_accused(name):
    n = EXAMPLES if name not in WAITING else min(EXAMPLES, 100)
    check_often(SOUND[name], KNOWN.get(name, ()), n)


@pytest.mark.parametrize(
    "name",
    ["a device array behind a delay", "a tensor copied to a device", "the producer of testing.md"],
)
def test_order_and_lifetime_are_tried_on_the_device(name):
    report = find(SOUND[name])
    assert {"device.order", "device.memory", "release.lifetime"} <= report.held
    assert not report.untried


class TooLarge(Tensor):
    """A tensor for one of whose exports there is too little memory, as for a broadcast array."""

    def __init__(self, copy):
        super().__init__()
        self.copy = copy

    def __dlpack__(self, *, copy=None, **keywords):
        if copy is self.copy:
            raise MemoryError("8.00 TiB")
        return super().__dlpack__(copy=copy, **keywords)


def test_array_that_is_too_large_for_a_copy_is_not_accused():
    report = find(lambda: TooLarge(copy=True))
    assert not report.broken
    assert report.untried["dlpack.copy_true"] == "MemoryError: 8.00 TiB"


def test_array_that_is_too_large_to_be_shared_is_accused():
    report = find(lambda: TooLarge(copy=False))
    assert report.findings["dlpack.copy_false"].what.endswith("MemoryError: 8.00 TiB")


@pytest.mark.parametrize("name", ["a host array", "a scripted device array"])
def test_order_of_host_memory_is_not_tried(name):
    report = find(SOUND[name])
    assert "nothing tells when host memory is written" in report.untried["device.order"]


@pytest.mark.parametrize("name", ["a tensor copied to a device", "a column copied to a device"])
def test_a_check_leaves_no_memory_on_the_device(name):
    with software_device() as device:
        before = device.live().allocations
    find(SOUND[name])
    gc.unfreeze()
    gc.collect()
    with software_device() as device:
        wait_until(lambda: device.live().allocations <= before)


# --- of other libraries ---------------------------------------------------------------

# Pillow's Arrow array has the rows of an image behind one another.
FLAT = {"exports.same"}
FURTHER = [
    "numpy.arange(6)[::2]",
    "numpy.ma.masked_array([1, 2], [True, False])",
    "pyarrow.chunked_array([[1, 2], [3]])",
    "pyarrow.array(['a', None])",
    "pyarrow.array(['a', 'b', 'a']).dictionary_encode()",
    "pyarrow.RecordBatchReader.from_batches(pyarrow.schema({'a': 'int64'}), "
    "[pyarrow.record_batch({'a': [1, 2]})])",
    "pyarrow.schema({'a': pyarrow.int64()})",
    "polars.Series(['a', None])",
    "polars.concat([polars.Series([1]), polars.Series([2])], rechunk=False)",
    "pandas.DataFrame({'a': [1, 2], 'b': ['x', None]})",
    "pandas.Series([1.0, 2.0])",
    "arro3.core.ChunkedArray([arro3.core.Array([1], arro3.core.DataType.int64())])",
    "nanoarrow.c_schema(nanoarrow.int32())",
    "nanoarrow.ArrayStream([1, 2], nanoarrow.int32())",
    "torch.arange(6).reshape(2, 3).T",
    "jax.numpy.ones((2, 3))",
    "tvm_ffi.from_dlpack(numpy.ones((2, 3)))",
    "datafusion.SessionContext().from_pydict({'a': [1, 2]})",
    "PIL.Image.new('L', (2, 3))",
]


def read_table():
    """{expression: rules that it breaks or does not follow}, of those that begin with a module."""
    text = (ROOT / "docs/conformance_libraries.md").read_text(encoding="utf-8")
    section = text.partition("\n## Producers\n")[2].partition("\n## ")[0]
    head, _, *table = [line[2:-2].split(" | ") for line in section.splitlines() if line[:1] == "|"]
    rules = [cell.strip("`") for cell in head]
    return {
        cells[-1].strip("`"): {
            rule for rule, cell in zip(rules, cells, strict=True) if cell.strip() in ("✗", "○")
        }
        for cells in table
        if cells[-1].strip("`").partition(".")[0].isidentifier()
    }


PRODUCERS = read_table()
# What ends the process is tried in a child only: tests/libraries/test_conformance_table.py.
ALIVE = [text for text, broken in PRODUCERS.items() if "process.alive" not in broken]


def known_of(library):
    """The deviations of any object of the library."""
    if library == "pandas":  # exports by pyarrow
        library = "pyarrow"
    known = {
        rule
        for text, broken in PRODUCERS.items()
        if text.partition(".")[0] == library
        for rule in broken
    }
    return known | FLAT if library == "PIL" else known


# The oldest releases for which the pages are written.
NEWEST = {"pyarrow": "26.0", "pandas": "3.0"}


@pytest.mark.slow  # imports them all
@pytest.mark.parametrize("text", ALIVE + FURTHER, ids=lambda text: text)
def test_sound_producer_of_a_library(text):
    library = text.partition(".")[0]
    pytest.importorskip(library, NEWEST.get(library))
    check_often(expression.compiled(text), known_of(library))


# --- of the examples in the documentation ---------------------------------------------

PROTOCOLS = (
    *_conformance.ARRAYS, *_conformance.STREAMS, _conformance.ASYNC, "__dlpack__",
    "__arrow_c_schema__", *_conformance.INTERFACES,
)  # fmt: skip
PAGES = [
    "README.md",
    *(f"docs/{path.relative_to(ROOT / 'docs')}" for path in sorted(ROOT.glob("docs/*.md"))),
    *(f"docs/libraries/{path.name}" for path in sorted(ROOT.glob("docs/libraries/*.md"))),
]


def is_producer(value):
    """Whether a value exports. A script may fail on purpose, and a stream may be over."""
    if isinstance(value, (type, ScriptedStream, ScriptedAsyncProducer)):
        return False
    if type(value).__name__ == "NestedTensor":  # it has DLPack's methods, which refuse
        return False
    return any(_conformance.is_shown(value, name) for name in PROTOCOLS) and not is_over(value)


def is_over(value):
    if not isinstance(value, ad.ArrayStream):
        return False
    try:
        value.__arrow_c_stream__()
    except ad.ExchangeError:
        return True
    return False


def examples_of(page):
    """(line, code) of the examples that need no device, and start nothing."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        code = block["code"]
        is_apart = STARTS_PROCESSES.search(code) or '"__main__"' in code or "dpnp" in code
        if not block["needs"] and not is_apart and "software_device" not in code:
            line = text.count("\n", 0, block.start("code"))
            yield line, compiled(line, code, page)


def run(code):
    names = {"__name__": "example"}
    exec(code, names)
    return names


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_producers_of_the_examples(page):
    """Each object that an example makes; the example runs anew for a new one."""
    for library, version in NEWEST.items():
        pytest.importorskip(library, version)
    seen = set()
    for line, code in examples_of(page):
        try:
            names = run(code)
        except (ImportError, pytest.skip.Exception):
            continue  # a library that is not here
        for name, value in names.items():
            if not is_producer(value):
                continue
            kind = type(value), str(getattr(value, "schema", getattr(value, "dtype", "")))
            if kind in seen:
                continue
            seen.add(kind)
            known = known_of(kind[0].__module__.partition(".")[0])
            report = find(lambda code=code, name=name: run(code)[name])
            accusations = [one for one in report.broken if one.rule.id not in known]
            assert not accusations, f"{page}:{line} {name}: {report}"
    print(f"{len(seen)} kinds: {page}")
