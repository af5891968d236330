"""Libraries of frames, and engines, in ``python -m arrowdev matrix``: tables of one column."""

import importlib  # for pyarrow, which has no stubs

import arrowdev
from arrowdev._cli.libraries import ARRAYS, Peer, arrow_address


def column_of(table):
    """Return the column of a table by Arrow."""
    return arrowdev.record_batch(table)["x"]


class Frame(Peer):
    """A library whose objects are tables: arrowdev takes the column, and makes a batch for it."""

    def own_table(self, payload):
        """Return the values as a table of pyarrow, for libraries that take one."""
        pyarrow = importlib.import_module("pyarrow")
        dtype = getattr(pyarrow, payload.dtype)()
        return pyarrow.table({"x": pyarrow.array(payload.values, dtype)})

    def make(self, payload):
        _, take = self.taken()
        return take(self.own_table(payload))

    def taken(self):
        """Return (how, function): the library's own function that takes a table."""
        raise NotImplementedError

    def shown(self, payload):
        return 'arrowdev.record_batch(x)["x"]', column_of

    def through(self, payload):
        how, take = self.taken()
        return (
            how.replace("(x", '(arrowdev.record_batch({"x": x})', 1),
            lambda x: take(arrowdev.record_batch({"x": x})),
        )

    def direct(self, payload):
        how, take = self.taken()
        return {how: take}

    def pointer(self, obj):
        return arrow_address(column_of(obj))

    def values(self, obj):
        return column_of(obj).to_pylist()


class DuckDB(Frame):
    name = module = pip = "duckdb"

    def taken(self):
        return "duckdb.from_arrow(x)", self.lib.from_arrow

    def values(self, obj):
        return [value for (value,) in obj.fetchall()]


class DataFusion(Frame):
    name = module = pip = "datafusion"
    heading = "data-/fusion"

    def load(self):
        super().load()
        self.context = self.lib.SessionContext()

    def taken(self):
        return "datafusion.SessionContext().from_arrow(x)", self.context.from_arrow

    def values(self, obj):
        return obj.to_pydict()["x"]


class Narwhals(Frame):
    name = module = pip = "narwhals"

    def taken(self):
        how = 'narwhals.from_arrow(x, backend="pyarrow")'
        return how, lambda x: self.lib.from_arrow(x, backend="pyarrow")

    def values(self, obj):
        return obj["x"].to_list()


class Daft(Peer):
    """A column of it. Its import takes a second."""

    name = module = pip = "daft"
    by_default = False

    def make(self, payload):
        pyarrow = importlib.import_module("pyarrow")

        dtype = getattr(pyarrow, payload.dtype)()
        return self.lib.Series.from_arrow(pyarrow.array(payload.values, dtype))

    def through(self, payload):
        pyarrow = importlib.import_module("pyarrow")

        take = self.lib.Series.from_arrow
        how = "daft.Series.from_arrow(arrowdev.convert(x, pyarrow.Array))"
        return how, lambda x: take(arrowdev.convert(x, pyarrow.Array))

    def direct(self, payload):
        return {"daft.Series.from_arrow(x)": self.lib.Series.from_arrow}

    def pointer(self, obj):
        return arrow_address(obj)

    def values(self, obj):
        return obj.to_pylist()


class Ibis(Frame):
    """Each look at its values runs a query of DuckDB."""

    name = module = "ibis"
    pip = "ibis-framework"
    by_default = False
    queried = None, None  # the last table, and its result

    def result_of(self, obj):
        if self.queried[0] is not obj:
            self.queried = obj, obj.to_pyarrow()
        return self.queried[1]

    def taken(self):
        return "ibis.memtable(x)", self.lib.memtable

    def pointer(self, obj):
        return arrow_address(column_of(self.result_of(obj)))

    def values(self, obj):
        return self.result_of(obj)["x"].to_pylist()


class SedonaDB(Frame):
    name = module = pip = "sedonadb"
    heading = "sedona-/db"
    by_default = False

    def load(self):
        super().load()
        self.connection = self.lib.connect()

    def taken(self):
        # A stream that was no memtable could be read once.
        make = self.connection.create_data_frame
        how = "sedonadb.connect().create_data_frame(x).to_memtable()"
        return how, lambda x: make(x).to_memtable()

    def values(self, obj):
        return obj.to_arrow_table()["x"].to_pylist()


class Datasets(Frame):
    """Hugging Face's. Its import takes seconds."""

    name = module = pip = "datasets"
    by_default = False

    def taken(self):
        def take(x):
            pyarrow = importlib.import_module("pyarrow")

            return self.lib.Dataset(pyarrow.table(x))

        return "datasets.Dataset(pyarrow.table(x))", take

    def shown(self, payload):
        how = 'arrowdev.record_batch(x.with_format("arrow")[:])["x"]'
        return how, lambda x: column_of(x.with_format("arrow")[:])

    def pointer(self, obj):
        return arrow_address(column_of(obj.with_format("arrow")[:]))

    def values(self, obj):
        return obj["x"][:]


# All libraries that exchange host memory.
PEERS = (*ARRAYS, DuckDB, DataFusion, Narwhals, Daft, Ibis, SedonaDB, Datasets)
