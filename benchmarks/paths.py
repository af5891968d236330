"""What run.py measures: one HotPath per row, as statements that timeit would take.

A statement is timed as it stands, with the names that `setup` made. Every
row can be repeated by hand, from this folder:

    python -m timeit -s "SETUP" "STATEMENT"
"""

import os
import re
import shutil
from dataclasses import dataclass
from functools import cache


class DeviceOnly:
    """Shows only one method of `array`, so that no consumer can take a short cut.

    pyarrow would see a pyarrow array for what it is and import nothing.
    """

    __slots__ = ("array",)

    def __init__(self, array):
        self.array = array

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        return self.array.__arrow_c_device_array__(requested_schema, **kwargs)


class Ready:
    """Gives out pairs of capsules that were made before, one per call."""

    __slots__ = ("pop",)

    def __init__(self, array, count):
        self.pop = [array.__arrow_c_device_array__() for _ in range(count)].pop

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        return self.pop()


def columns(count):
    """A pyarrow record batch of `count` int64 columns."""
    import pyarrow as pa

    column = pa.array([1, 2])
    return pa.record_batch([column] * count, names=[f"c{i}" for i in range(count)])


def rows_of(kind):
    """A pyarrow array of 10,000 rows for to_pylist()."""
    import pyarrow as pa

    n = range(10_000)
    return pa.array(
        {
            "int64": lambda: [i << 20 for i in n],
            "float64": lambda: [i / 7 for i in n],
            "bool": lambda: [i % 3 == 0 for i in n],
            "strings": lambda: [f"word {i}" for i in n],
            "lists of int64": lambda: [list(range(i % 5)) for i in n],
            "structs": lambda: [{"a": i, "b": f"x{i}"} for i in n],
        }[kind]()
    )


@dataclass(frozen=True)
class Case:
    """One statement and who runs it."""

    label: str
    statement: str
    setup: str = ""  # after the row's own, for this case alone
    prepare: str = "pass"  # before each repeat, not timed; sees the count as `number`
    number: int = 0  # executions per repeat; 0: as many as fill the time
    loop: str = ""  # instead of the statement: an object with Timer's timeit()


@dataclass(frozen=True)
class Goal:
    """`factor`: times faster than the first peer; `at_most`: the largest figure."""

    factor: float | None = None
    at_most: float | None = None

    def __str__(self):
        if self.factor is not None:
            return "faster" if self.factor == 1 else f">= {self.factor:g}x"
        return f"<= {self.at_most:g}"

    def met(self, value):
        if self.factor == 1:
            return value > 1
        return value >= self.factor if self.factor is not None else value <= self.at_most


@dataclass(frozen=True)
class HotPath:
    """A row: arrowdev's case, and the cases that take turns with it.

    `overhead`: the row's figure is what arrowdev takes beyond the first peer,
    which is then a part of its own work, and not a ratio. `per`: times are
    divided by this count of `item`s. `nbytes`: read and written, where that is
    what takes the time. `floor`: the calls of CPython, malloc and the peer that
    no implementation can do without (floor.py). It meets a goal, too, to be within
    NEAR of it.
    """

    name: str
    group: str
    ours: Case
    peers: tuple[Case, ...] = ()
    setup: str = ""
    goal: Goal | None = None
    per: int = 1
    item: str = "column"
    overhead: bool = False
    nbytes: int = 0
    floor: Case | None = None

    @property
    def unit(self):
        return "ns" if self.per == 1 else f"ns per {self.item}"


AD = "import arrowdev as ad"
PA = "import pyarrow as pa"
NA = "import nanoarrow.device"
TORCH = "import torch"
NUMPY = f"{AD}; import numpy as np; x = np.arange(1000)"
TVM = "import tvm_ffi; nop = tvm_ffi.get_global_func('testing.nop')"
COLUMN = f"{AD}; {PA}; from paths import DeviceOnly; array = pa.array(range(1000))"
OBJ = f"{COLUMN}; obj = DeviceOnly(array)"

PAIR = ".__arrow_c_device_array__()"
GOALS = "goals"
MORE = "more"
VALUES = "values"
KERNELS = "kernels"  # kernels.py has their rows
SCALE = "per column"


NEAR = 1.3  # of the floor
BARE = "from floor import bare"


def made_and_consumed(name, cases, setup, goal, floor):
    """Two rows: the pair dropped, and the pair moved out and released.

    The consumer is ad.array(pair) for all; its time is in every figure.
    """
    ours, *peers = cases
    yield HotPath(f"{name}, made and dropped", GOALS, ours, tuple(peers), setup, goal, floor=floor)
    ours, *peers = (Case(case.label, f"consume({case.statement})", case.setup) for case in cases)
    yield HotPath(
        f"{name}, moved and released", GOALS, ours, tuple(peers), f"{setup}; consume = ad.array"
    )


def numpy_to_capsules():
    cases = (
        Case("arrowdev", f"ad.array(x){PAIR}"),
        Case("pyarrow", f"pa.array(x){PAIR}", PA),
        Case("nanoarrow", f"nanoarrow.device.c_device_array(x){PAIR}", NA),
    )
    floor = Case("floor", f"bare.array(x){PAIR}", BARE)
    yield from made_and_consumed("numpy -> capsules", cases, NUMPY, Goal(factor=10), floor)


def torch_to_capsules():
    for name, tensor, factor, take in (
        ("int64", "torch.arange(1000)", 13, "take"),
        ("float32", "torch.rand(1000)", 8, "take_checked"),
    ):
        cases = (
            Case("arrowdev", f"ad.array(t){PAIR}"),
            Case("pyarrow", f"pa.array(t.numpy()){PAIR}", PA),
        )
        setup = f"{AD}; {TORCH}; t = {tensor}"
        floor = Case("floor", f"bare.{take}(t){PAIR}", f"{BARE}; bare.use(torch.Tensor)")
        yield from made_and_consumed(
            f"torch {name} -> capsules", cases, setup, Goal(factor=factor), floor
        )


def capsules_to_tensors():
    """From capsules that pyarrow makes: first made before, then made in the statement.

    The floor drops the capsules, which releases the data, and makes an object of the consumer.
    """
    rows = (
        ("torch", "ad.array(obj).into(torch.Tensor)", "torch.from_dlpack(pa.array(obj))", 3,
         "bare.into()"),
        ("numpy", "np.from_dlpack(ad.array(obj))", "pa.array(obj).to_numpy()", 2.4,
         "np.from_dlpack(tensor)"),
    )  # fmt: skip
    libraries = f"{TORCH}; import numpy as np"
    ready = {"prepare": "obj = Ready(array, number)", "number": 5_000}
    bare = f"{BARE}; bare.use(torch.Tensor); tensor = bare.Tensor()"
    for name, ours, theirs, factor, least in rows:
        yield HotPath(
            f"device capsules -> {name}",
            GOALS,
            Case("arrowdev", ours, **ready),
            (Case("pyarrow", theirs, **ready),),
            f"{COLUMN}; from paths import Ready; {libraries}",
            Goal(factor=factor),
            floor=Case("floor", f"obj{PAIR}; {least}", bare, **ready),
        )
        yield HotPath(
            f"pyarrow array -> device capsules -> {name}",
            MORE,
            Case("arrowdev", ours),
            (Case("pyarrow", theirs), Case("making the capsules alone", f"obj{PAIR}")),
            f"{OBJ}; {libraries}",
        )


def reexport():
    for name, source, factor in (
        ("a column", "pa.array(range(1000))", 3),
        ("1,000 columns", "columns(1000)", 20),
    ):
        setup = f"{AD}; {PA}; from paths import columns; source = {source}"
        cases = (
            Case("arrowdev", f"imported{PAIR}", "imported = ad.array(source)"),
            Case(
                "nanoarrow",
                f"imported{PAIR}",
                f"{NA}; imported = nanoarrow.device.c_device_array(source)",
            ),
        )
        floor = Case("floor", f"array{PAIR}", f"{BARE}; array = bare.array(None)")
        yield from made_and_consumed(
            f"re-export of {name}", cases, setup, Goal(factor=factor),
            floor if name == "a column" else None,
        )  # fmt: skip


def import_of_a_batch():
    setup = f"{AD}; {PA}; from paths import DeviceOnly, columns; obj = DeviceOnly(columns(1000))"
    ours = Case("arrowdev", "ad.record_batch(obj)")
    peer = Case("pyarrow", "pa.record_batch(obj)")
    yield HotPath("import of 1,000 columns", GOALS, ours, (peer,), setup, Goal(factor=2.5))
    yield HotPath(
        "import of 1,000 columns, beyond the producer",
        GOALS,
        ours,
        (Case("producer alone", f"obj{PAIR}"),),
        setup,
        Goal(at_most=20),
        per=1000,
        overhead=True,
    )


def tensor_to_tvm():
    yield HotPath(
        "Tensor -> tvm-ffi, argument of a call",
        GOALS,
        Case("arrowdev", "nop(tensor)", "tensor = ad.tensor(x)"),
        (Case("torch", "nop(t)", f"{TORCH}; t = torch.arange(1000)"), Case("numpy", "nop(x)")),
        f"{NUMPY}; {TVM}",
        Goal(factor=1),
    )
    yield HotPath(
        "Tensor -> tvm_ffi.from_dlpack",
        GOALS,
        Case("arrowdev", "take(tensor)", "tensor = ad.tensor(x)"),
        (Case("torch", "take(t)", f"{TORCH}; t = torch.arange(1000)"), Case("numpy", "take(x)")),
        f"{NUMPY}; import tvm_ffi; take = tvm_ffi.from_dlpack",
        Goal(factor=1),
    )


def per_column():
    for count in (10, 1_000, 100_000):
        setup = f"{AD}; from paths import columns; source = columns({count})"
        number = max(1, 10_000 // count)
        yield HotPath(
            f"import of {count:,} columns, pairs made before",
            SCALE,
            Case(
                "arrowdev",
                "keep(take(pop()))",
                prepare=f"pop = [source{PAIR} for _ in range(number)].pop; keep = [].append; "
                "take = ad.array",
                number=number,
            ),
            setup=setup,
            per=count,
        )
        yield HotPath(
            f"export of {count:,} columns",
            SCALE,
            Case("arrowdev", f"batch{PAIR}", "batch = ad.array(source)"),
            setup=setup,
            per=count,
        )


def single_steps():
    def row(name, ours, *peers, setup=NUMPY):
        return HotPath(
            name, MORE, Case("arrowdev", ours), peers, f"{setup}; tensor = ad.tensor(x)"
        )

    yield row("numpy -> ad.array", "ad.array(x)", Case("pyarrow", "pa.array(x)", PA))
    yield row("numpy -> ad.tensor", "ad.tensor(x)")
    yield row("Tensor.__dlpack__()", "tensor.__dlpack__()", Case("numpy", "x.__dlpack__()"))
    yield row(
        "Tensor.__dlpack__(max_version=(1, 0))",
        "tensor.__dlpack__(max_version=(1, 0))",
        Case("numpy", "x.__dlpack__(max_version=(1, 0))"),
    )
    yield row(
        "Tensor -> np.from_dlpack", "np.from_dlpack(tensor)", Case("numpy", "np.from_dlpack(x)")
    )
    yield row("memoryview(Tensor)", "memoryview(tensor)", Case("numpy", "memoryview(x)"))
    yield row(
        "Tensor -> torch by .into",
        "tensor.into(torch.Tensor)",
        Case("torch.from_numpy", "torch.from_numpy(x)"),
        setup=f"{NUMPY}; {TORCH}",
    )
    yield row(
        "Tensor -> torch.from_dlpack",
        "torch.from_dlpack(tensor)",
        Case("numpy", "torch.from_dlpack(x)"),
        setup=f"{NUMPY}; {TORCH}",
    )
    yield row(
        "ad.array -> pa.array",
        "pa.array(array)",
        Case("numpy", "pa.array(x)"),
        setup=f"{NUMPY}; {PA}; array = ad.array(x)",
    )


MILLION = 10**6


@cache
def columns_to_validate():
    """One sound column of a million rows per rule that reads them."""
    import numpy as np
    import pyarrow as pa

    chance = np.random.default_rng(0)
    ends = np.cumsum(chance.integers(0, 4, MILLION))
    offsets = np.concatenate([[0], ends]).astype("int32")
    items = pa.array(np.arange(offsets[-1]))
    indices = chance.integers(0, 100, MILLION).astype("int32")
    values = pa.array([f"value {i}" for i in range(100)])
    ids = (indices % 2).astype("int8")
    positions = np.where(ids, np.cumsum(ids) - 1, np.cumsum(1 - ids) - 1).astype("int32")
    words = ["", "word", "two words", "a sentence of several words"]
    letters = ["äöü", "日本語", "plain", "ß"]
    whole = pa.array(np.arange(MILLION))
    return {
        "int64 with nulls": pa.array(np.arange(MILLION), mask=chance.random(MILLION) < 0.1),
        "utf8, ASCII": pa.array(words * (MILLION // 4)),
        "utf8, other letters": pa.array(letters * (MILLION // 4)),
        "large_utf8": pa.array(words * (MILLION // 4), pa.large_string()),
        "utf8_view": pa.array(words * (MILLION // 4), pa.string_view()),
        "binary": pa.array(words * (MILLION // 4), pa.binary()),
        "list": pa.ListArray.from_arrays(offsets, items),
        "list_view": pa.ListViewArray.from_arrays(offsets[:-1], np.diff(offsets), items),
        "dictionary, int32": pa.DictionaryArray.from_arrays(indices, values),
        "dense_union": pa.UnionArray.from_dense(pa.array(ids), pa.array(positions), [whole] * 2),
        "run_end_encoded": pa.RunEndEncodedArray.from_arrays(
            pa.array(np.arange(1, MILLION + 1).astype("int32")), whole
        ),
        "decimal128": whole.cast(pa.decimal128(20, 0)),
        "date64": pa.array(indices.astype("int64") * 86_400_000).view(pa.date64()),
        "time32[s]": pa.array(indices).view(pa.time32("s")),
    }


def validation():
    for name in (
        "int64 with nulls", "utf8, ASCII", "utf8, other letters", "large_utf8", "utf8_view",
        "binary", "list", "list_view", "dictionary, int32", "dense_union", "run_end_encoded",
        "decimal128", "date64", "time32[s]",
    ):  # fmt: skip
        yield HotPath(
            f"every row of 10^6 validated, {name}",
            KERNELS,
            Case("arrowdev", 'array.validate("full")', "array = ad.array(column)"),
            (Case("pyarrow", "column.validate(full=True)"),),
            f"{AD}; from paths import columns_to_validate as made; column = made()[{name!r}]",
            Goal(factor=1),
        )


def through_c():
    """A column of a producer in C becomes an Array and goes out again, without capsules."""
    if os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc"):
        yield HotPath(
            "export + import of a column from C, beyond the producer",
            GOALS,
            Case("arrowdev", "pass_on.timeit(1)", loop="pass_on"),
            (Case("producer alone", "produce.timeit(1)", loop="produce"),),
            "from from_c import pass_on, produce",
            Goal(at_most=60),
            overhead=True,
        )


def values_as_objects():
    """The collector is off, as timeit has it, but for lists it is on in a row of its own."""
    kinds = ("int64", "float64", "bool", "strings", "lists of int64", "structs")
    on = {"prepare": "gc.enable()"}
    for kind, options in [*((kind, {}) for kind in kinds), ("lists of int64", on)]:
        yield HotPath(
            f"to_pylist() of {kind}{', with garbage collection' if options else ''}",
            VALUES,
            Case("arrowdev", "column.to_pylist()", "column = ad.array(source)", **options),
            (Case("pyarrow", "source.to_pylist()", **options),),
            f"{AD}; import gc; from paths import rows_of; source = rows_of({kind!r})",
            Goal(factor=1),
            per=10_000,
            item="row",
        )


def all_paths(only=""):
    makers = (
        numpy_to_capsules,
        torch_to_capsules,
        capsules_to_tensors,
        reexport,
        import_of_a_batch,
        tensor_to_tvm,
        through_c,
        per_column,
        single_steps,
        values_as_objects,
    )
    paths = (path for maker in makers for path in maker())
    return [path for path in paths if re.search(only, path.name)]
