"""Values for repr() and notebooks: a few rows, each of them cut.

The time and the length of the result have limits that do not depend on the
data, which nobody may have validated: what a row refers to is checked before
it is read, and a value that cannot be read becomes "?". The caller has found
that the host can read the memory without waiting.
"""

from __future__ import annotations

import html
import struct

from arrowdev import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from arrowdev._core import Array, Schema, Tensor

EDGE = 5  # rows at either end of a column
EDGE_WIDE = 2  # where those are more than a line
LINE = 80  # characters
EDGE_BELOW = 3  # values at either end of a list within a row, and of a dimension
MAX_VALUES = 100  # in one repr
MAX_CHARACTERS = 32  # of one string
MAX_DEPTH = 5
MAX_COLUMNS = 20
MAX_NAME = 60  # of a column, in HTML
MAX_FIELDS = 6  # of a struct within a row

UNREADABLE = "?"
MORE = "..."

# What indexing raises for rows that are malformed or have no Python value.
_FAILURES = (ArithmeticError, BufferError, LookupError, NotImplementedError, ValueError)

# The struct codes of integers: indices of dictionaries, and run ends.
_INTEGERS = {
    "c": "b", "C": "B", "s": "h", "S": "H", "i": "i", "I": "I", "l": "q", "L": "Q",
}  # fmt: skip
_STRINGS = {"u": "i", "U": "q", "z": "i", "Z": "q"}
_LISTS = {"+l": "i", "+m": "i", "+L": "q"}
_LIST_VIEWS = {"+vl": "i", "+vL": "q"}
_SHORT_FLOATS = {"e": "e", "f": "f", "float16": "e", "float32": "f", "bfloat16": "f"}
_NUMBERS = {*_INTEGERS, *_SHORT_FLOATS, "g"}
_UNITS = {"s": "s", "m": "ms", "u": "us", "n": "ns"}


class _Budget:
    """How many more values a repr shows. A list or struct is one, and so is each of its values."""

    def __init__(self, n: int = MAX_VALUES) -> None:
        self.n = n


# --- rows of an array ---------------------------------------------------------


def _edges(start: int, stop: int, edge: int) -> list[int | None]:
    """Return the rows to show of a range, with None for those between them."""
    if stop - start <= 2 * edge:
        return list(range(start, stop))
    return [*range(start, start + edge), None, *range(stop - edge, stop)]


def _column(array: Array, start: int, stop: int) -> str:
    """Return the first and last rows of a column on one line, if they are short."""
    for edge in (EDGE, EDGE_WIDE):
        text = _sequence(array, start, stop, edge, 0, _Budget())
        if len(text) <= LINE:
            break
    return text


def _sequence(
    array: Array,
    start: int,
    stop: int,
    edge: int,
    depth: int,
    budget: _Budget,
    show: Callable[[Array, int, int, _Budget], str] | None = None,
) -> str:
    """Return the first and last rows of a range, each by `show`."""
    texts = []
    for row in _edges(start, stop, edge):
        if row is None or budget.n <= 0:
            texts.append(MORE)
            if row is not None:
                break
        else:
            texts.append((show or _row)(array, row, depth, budget))
    return f"[{', '.join(texts)}]"


def _row(array: Array, row: int, depth: int, budget: _Budget) -> str:
    """Return the text of a row, which may hold anything."""
    budget.n -= 1
    try:
        if not 0 <= row < len(array):
            return UNREADABLE
        one = array.slice(row, 1)
        if not _is_valid(one):
            return "None"
        return _value(one, depth, budget)
    except _FAILURES:
        return UNREADABLE


def _is_valid(one: Array) -> bool:
    validity = one.validity
    return one.schema.format != "n" and (validity is None or validity[0])


def _value(one: Array, depth: int, budget: _Budget) -> str:
    """Return the text of the only row of `one`, which is not null."""
    kind = one.schema.format
    dictionary = one.dictionary
    if dictionary is not None:
        [index] = _fixed(one, _INTEGERS[kind])
        return _row(dictionary, index, depth, budget)
    if kind.startswith("+"):
        return _nested(one, kind, depth, budget) if depth < MAX_DEPTH else MORE
    return _leaf(one, kind)


# --- reading ------------------------------------------------------------------


def _view(one: Array, index: int) -> memoryview:
    """Return the bytes of buffer `index`; empty if it is NULL."""
    buffer = one.buffers[index]
    return memoryview(b"" if buffer is None else buffer).cast("B")


def _fixed(one: Array, code: str, buffer: int = 1, extra: int = 0) -> tuple[int, ...]:
    """Return the number of the row, stored as the struct code, and `extra` more behind it."""
    format = f"={1 + extra}{code}"
    start = one.offset * struct.calcsize("=" + code)
    return struct.unpack_from(format, _view(one, buffer), start)


def _bytes_of_view(one: Array) -> memoryview | None:
    """Return the bytes of a 16-byte view: up to 12 are inline. None if they are not there."""
    views, start = _view(one, 1), 16 * one.offset
    length, _, index, begin = struct.unpack_from("=iiii", views, start)
    if 0 <= length <= 12:
        return views[start + 4 : start + 4 + length]
    # Behind validity and views, before the sizes.
    if length < 0 or not 0 <= index < len(one.buffers) - 3:
        return None
    data = _view(one, 2 + index)
    return data[begin : begin + length] if 0 <= begin <= len(data) - length else None


# --- nested values ------------------------------------------------------------


def _list(
    child: Array,
    start: int,
    stop: int,
    depth: int,
    budget: _Budget,
    show: Callable[[Array, int, int, _Budget], str] | None = None,
) -> str:
    if not 0 <= start <= stop <= len(child):
        return UNREADABLE
    return _sequence(child, start, stop, EDGE_BELOW, depth + 1, budget, show)


def _entry(entries: Array, row: int, depth: int, budget: _Budget) -> str:
    """Return the key and the value of an entry of a map."""
    row += entries.offset
    key, value = (_row(child, row, depth, budget) for child in entries.children)
    return f"({key}, {value})"


def _nested(one: Array, kind: str, depth: int, budget: _Budget) -> str:
    if kind in _LISTS:
        start, stop = _fixed(one, _LISTS[kind], extra=1)
        return _list(one.children[0], start, stop, depth, budget, _entry if kind == "+m" else None)
    if kind in _LIST_VIEWS:
        [start] = _fixed(one, _LIST_VIEWS[kind])
        [size] = _fixed(one, _LIST_VIEWS[kind], buffer=2)
        return _list(one.children[0], start, start + size, depth, budget)
    if kind.startswith("+w:"):
        size = int(kind[3:])
        dtype, _, _ = _core._extension(one.schema)
        if dtype is not None:  # one element, which lanes or a pair of floats make up
            return repr(one[0]) if size <= 16 else UNREADABLE
        start = size * one.offset
        return _list(one.children[0], start, start + size, depth, budget)
    if kind == "+s":
        return _struct(one, depth, budget)
    if kind == "+r":
        return _run(one, depth, budget)
    return _union(one, kind, depth, budget)


def _struct(one: Array, depth: int, budget: _Budget) -> str:
    texts: list[str] = []
    for child in _core._first_children(one, MAX_FIELDS + 1)[0]:
        if len(texts) == MAX_FIELDS or budget.n <= 0:
            texts.append(MORE)
            break
        text = _row(child, one.offset, depth + 1, budget)
        texts.append(f"{_cut_text(child.schema.name)}: {text}")
    return "{" + ", ".join(texts) + "}"


def _union(one: Array, kind: str, depth: int, budget: _Budget) -> str:
    [type_id] = _fixed(one, "b", buffer=0)
    row = _fixed(one, "i", buffer=1)[0] if kind.startswith("+ud") else one.offset
    ids = kind.partition(":")[2].split(",")
    return _row(one.children[ids.index(str(type_id))], row, depth + 1, budget)


def _run(one: Array, depth: int, budget: _Budget) -> str:
    """Find the run of the row by bisection, which cannot leave the run ends."""
    ends, values = one.children
    code = _INTEGERS[ends.schema.format]
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if _fixed(ends.slice(middle, 1), code)[0] > one.offset:
            high = middle
        else:
            low = middle + 1
    return _row(values, low, depth, budget)


# --- values without children --------------------------------------------------


def _leaf(one: Array, kind: str) -> str:
    if kind in _STRINGS:
        start, stop = _fixed(one, _STRINGS[kind], extra=1)
        data = _view(one, 2)
        is_within = 0 <= start <= stop <= len(data)
        return _cut_bytes(data[start:stop], kind in "uU") if is_within else UNREADABLE
    if kind in ("vu", "vz"):
        found = _bytes_of_view(one)
        return UNREADABLE if found is None else _cut_bytes(found, kind == "vu")
    dtype, _, _ = _core._extension(one.schema)
    if kind.startswith("w:") and dtype is None:
        width = int(kind[2:])
        return _cut_bytes(_view(one, 1)[width * one.offset :][:width], False)
    if kind.startswith("tD"):  # str() of a timedelta has a comma
        return _in_units(one, kind)
    try:
        value = one[0]
    except (ArithmeticError, ValueError):
        if kind[:2] not in ("ts", "tt"):
            raise
        return _in_units(one, kind)
    short = _SHORT_FLOATS.get(dtype or kind)
    if short is not None:
        return _short_float(value, short)
    # Numbers as Python writes them; dates, times and decimals without their class.
    return repr(value) if kind[0] not in "td" or kind.startswith("ti") else str(value)


def _in_units(one: Array, kind: str) -> str:
    """Return a time as it is stored: datetime has no nanoseconds, and not every year."""
    [number] = _fixed(one, "i" if kind in ("tts", "ttm") else "q")
    return f"{number} {_UNITS[kind[2]]}"


def _cut_bytes(data: memoryview | bytes, is_text: bool) -> str:
    """Return the repr of the first bytes."""
    head = bytes(data[: 4 * MAX_CHARACTERS])  # a character has 4 bytes at most
    if not is_text:
        cut = repr(head[:MAX_CHARACTERS])
        return cut + MORE if len(data) > MAX_CHARACTERS else cut
    is_cut = len(data) > len(head)
    # The last character may be cut as well.
    text = head.decode(errors="replace")
    return _cut_text(text, is_cut)


def _cut_text(text: str, is_cut: bool = False) -> str:
    cut = repr(text[:MAX_CHARACTERS])
    return cut + MORE if is_cut or len(text) > MAX_CHARACTERS else cut


def _short_float(value: float, code: str) -> str:
    """Return the shortest decimal that a float of 16 or 32 bits is read from."""
    if value - value != 0:  # infinite or NaN
        return repr(value)
    for digits in range(1, 10):
        text = float(f"{value:.{digits}g}")
        try:
            if struct.unpack(code, struct.pack(code, text))[0] == value:
                return repr(text)
        except OverflowError:  # rounded up, past the largest number
            continue
    return repr(value)


# --- what the types call ------------------------------------------------------


def of_array(array: Array) -> str:
    """Return the values of an Array as text: one line, or a line for each column."""
    rows = [row for row in _edges(0, len(array), EDGE) if row is not None]
    columns, n_columns = _core._first_children(array, MAX_COLUMNS)
    is_batch = array.schema.format == "+s" and columns
    if not is_batch or not all(_is_valid(array.slice(row, 1)) for row in rows):
        return f": {_column(array, 0, len(array))}"
    lines = []
    for child in columns:
        stop = array.offset + len(array)
        column = _column(child, array.offset, stop)
        lines.append(f"\n  {_cut_text(child.schema.name)}: {column}")
    if n_columns > len(columns):
        lines.append(f"\n  {MORE} and {n_columns - len(columns)} more")
    return ":" + "".join(lines)


def of_tensor(tensor: Tensor) -> str:
    """Return the elements of a Tensor as text."""
    budget = _Budget()
    try:
        text = _block(tensor, budget, indent=3)
    except _FAILURES:  # elements within a byte, or of a type that Arrow has no column for
        return ""
    if UNREADABLE in text:
        return ""
    return f": {text}" if tensor.ndim < 2 else f":\n  {text}"


def _block(tensor: Tensor, budget: _Budget, indent: int) -> str:
    """Return nested brackets; the elements of each row are on one line."""
    if tensor.ndim == 0:
        return _row(_core.array(tensor[None]), 0, 0, budget)
    budget.n -= 1
    texts = []
    for i in _edges(0, len(tensor), EDGE if tensor.ndim == 1 else EDGE_BELOW):
        if i is None or budget.n <= 0:
            texts.append(MORE)
            if i is not None:
                break
        elif tensor.ndim == 1:
            texts.append(_row(_core.array(tensor[i : i + 1]), 0, 0, budget))
        else:
            texts.append(_block(tensor[i], budget, indent + 1))
    separator = ", " if tensor.ndim == 1 else ",\n" + " " * indent
    return f"[{separator.join(texts)}]"


BATCH_ATTRIBUTES = frozenset(
    {"shape", "num_rows", "num_columns", "column_names", "columns", "select", "to_pydict"}
)


def names_of_array(array: Array) -> list[str]:
    """Return what dir() lists."""
    names = list(object.__dir__(array))
    if array.schema.format == "+s":
        return names
    return [name for name in names if name not in BATCH_ATTRIBUTES]


# --- HTML ---------------------------------------------------------------------


def _table(caption: str, head: list[list[str]], rows: list[list[str]], sides: list[str]) -> str:
    """Return an HTML table, whose texts are escaped here; the first row of `head` is bold.

    The styles hold in notebooks that align all cells to the right and drop style sheets. Colours
    are those of the notebook. The caption is above what scrolls: a caption of the table itself is
    as narrow or as wide as the columns.
    """

    def line(cells: list[str], tag: str) -> str:
        styles = (f"text-align:{side};max-width:20em" for side in sides)
        parts = zip(cells, styles, strict=True)
        return "".join(f'<{tag} style="{s}">{html.escape(cell)}</{tag}>' for cell, s in parts)

    heads = "".join(f"<tr>{line(cells, 'td' if i else 'th')}</tr>" for i, cells in enumerate(head))
    body = "".join(f"<tr>{line(cells, 'td')}</tr>" for cells in rows)
    return (
        f"<div><div>{html.escape(caption)}</div>"
        f'<div style="overflow-x:auto"><table style="margin-left:0">'
        f"<thead>{heads}</thead><tbody>{body}</tbody></table></div></div>"
    )


def _cut(text: str, n: int = MAX_NAME) -> str:
    return text if len(text) <= n else text[:n] + MORE


def _name(field: Schema) -> str:
    return _cut(_core._shown(field.name[: MAX_NAME + 1]), MAX_NAME)


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _is_number(field: Schema) -> bool:
    kind = field.format
    return field.dictionary is None and (kind in _NUMBERS or kind.startswith("d:"))


def _short_type(field: Schema) -> str:
    """Return the type for the head of a column: of a dictionary that of its values."""
    values = field.dictionary
    return _cut(str(field) if values is None else f"dictionary<{values}>")


def _rounded(text: str) -> str:
    """Return a float as a person reads it: 6 decimals, or 7 digits where these are too few."""
    try:
        value = float(text)
    except ValueError:  # null, cut or unreadable
        return text
    if value - value != 0 or value == 0:  # infinite or NaN
        return text
    if 1e-3 <= abs(value) < 1e15:
        return repr(round(value, 6))
    return f"{value:.7g}"


def html_of_batch(batch: Array, can_show: bool) -> str:
    """Return a record batch as a table: the names and types, and the first and last rows."""
    children, n_columns = _core._first_children(batch, MAX_COLUMNS)
    n = len(batch)
    rows_by_columns = f"{_counted(n, 'row')} x {_counted(n_columns, 'column')}"
    caption = f"arrowdev.Array, {rows_by_columns}, on {batch.device}"
    if not can_show:
        caption += "; the host cannot read the values without waiting or copying"
    more = [MORE] if n_columns > len(children) else []
    schemas = [child.schema for child in children]
    head = [
        [_name(schema) for schema in schemas] + more,
        [_short_type(schema) for schema in schemas] + more,
    ]
    sides = ["right" if _is_number(schema) else "left" for schema in schemas] + ["left"] * len(
        more
    )
    are_floats = [schema.format in _SHORT_FLOATS or schema.format == "g" for schema in schemas]
    rows = []
    for row in _edges(0, n, EDGE) if can_show and children else []:
        if row is None:
            rows.append([MORE] * len(head[0]))
            continue
        is_valid = _is_valid(batch.slice(row, 1))
        cells = [
            _row(child, batch.offset + row, 0, _Budget(MAX_VALUES // 4)) if is_valid else "None"
            for child in children
        ]
        pairs = zip(cells, are_floats, strict=True)
        rows.append([_rounded(text) if is_float else text for text, is_float in pairs] + more)
    return _table(caption, head, rows, sides)


def html_of_schema(schema: Schema, caption: str) -> str:
    """Return a Schema as a table: a row for each column, or for the type itself."""
    fields, n_fields = (
        _core._first_children(schema, MAX_VALUES) if schema.format == "+s" else ((schema,), 1)
    )
    rows = [
        [_name(field), _cut(str(field)), "" if field.nullable else "not null"] for field in fields
    ]
    if n_fields > len(rows):
        rows.append([f"{MORE} and {n_fields - len(rows)} more", "", ""])
    return _table(caption, [["name", "type", ""]], rows, ["left"] * 3)
