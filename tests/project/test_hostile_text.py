"""Names and errors of foreign origin are shown with escapes, wherever a person reads them.

Written as they are, they could move the cursor of a terminal, forge lines, or
reverse the order of the text after them.
"""

import argparse
import logging

import pytest
from arrow_ctypes import SchemaNode, Stream, metadata

import arrowdev as ad
from arrowdev import _core, testing
from arrowdev._cli import (
    check,
    check_reports,
    doctor,
    expression,
    inspect,
    matrix_text,
    pairs,
    terminal,
)
from arrowdev._pages import page
from arrowdev.testing import _conformance

np = pytest.importorskip("numpy")

# A terminal's escape, a forged line, bidi controls, C1, DEL, a line separator.
HOSTILE = "a\x1b[31m\n  forged: 1\r\t\u202eb\u2066\x85\x7f\u2028"
SHOWN = r"a\x1b[31m\n  forged: 1\r\t\u202eb\u2066\x85\x7f\u2028"


def is_safe(text, keeps_lines=False):
    return all(c.isprintable() or (c == "\n" and keeps_lines) for c in text)


def batch(name=HOSTILE):
    return ad.record_batch({name: np.arange(2)})


def test_escapes():
    assert _core._shown(HOSTILE) == SHOWN
    assert _core._shown(SHOWN) == SHOWN
    assert _core._shown(HOSTILE, True) == SHOWN.replace(r"\n", "\n")
    for text in ("", "plain", "größe: 10 µm", "価格", 'a "quoted" \\ name', "\N{GRINNING FACE}"):
        assert _core._shown(text) is text
    assert _core._shown("\udcff \U000e0041 \xa0") == r"\udcff \U000e0041 \xa0"
    with pytest.raises(TypeError):
        _core._shown(b"bytes")


SHOWERS = {
    "repr": repr,
    "str of the schema": lambda x: str(x.schema),
    "repr of the schema": lambda x: repr(x.schema),
    "repr of the field": lambda x: repr(x.schema.children[0]),
    "repr of the stream": lambda x: repr(ad.array_stream([x])),
    "HTML": lambda x: x._repr_html_(),
    "HTML of the schema": lambda x: x.schema._repr_html_(),
}


@pytest.mark.parametrize("what", SHOWERS)
def test_name(what):
    x = batch()
    text = SHOWERS[what](x)
    assert SHOWN in text and is_safe(text, keeps_lines=True)
    assert "\n  forged" not in text
    assert x.schema.children[0].name == HOSTILE  # which is data


def test_bytes_that_are_no_text():
    node = SchemaNode("+s", children=[SchemaNode("l", name=b"a\xff\x1b")])
    schema = ad.array_stream(Stream(node, [])).schema
    assert r"a\udcff\x1b: int64" in str(schema)


def test_names_of_extensions_and_time_zones():
    extension = metadata((b"ARROW:extension:name", b"\x1b[2J"))
    for node in (SchemaNode("l", metadata=extension), SchemaNode("tsu:\x1b[2J")):
        schema = ad.array_stream(Stream(node, [])).schema
        assert r"\x1b[2J" in str(schema) and is_safe(str(schema)) and is_safe(repr(schema))


class Refusing:
    def __arrow_c_array__(self, requested_schema=None):
        raise ValueError(HOSTILE)


def failing():
    yield np.arange(2)
    raise ValueError(HOSTILE)


ERRORS = {
    "a column without an equivalent": lambda: ad.tensor(ad.record_batch({HOSTILE: TEXT})),
    "a column that is no array": lambda: ad.record_batch({HOSTILE: [1]}),
    "another type": lambda: ad.array(batch(), "int64"),
    "no such field": lambda: batch()["\x1b[31m"],
    "no such type": lambda: ad.schema("\x1b[31m"),
    "no such device": lambda: batch().to("\x1b[31m"),
    "a producer that refuses": lambda: ad.array(Refusing()),
    "batches of two types": lambda: list(ad.array_stream([batch(), np.arange(2)])),
}
TEXT = ad.Array.from_buffers("utf8", 1, [None, np.array([0, 1], "i4"), b"a"])


@pytest.mark.parametrize("what", ERRORS)
def test_errors(what):
    with pytest.raises((ad.ExchangeError, LookupError, TypeError, ValueError)) as caught:
        ERRORS[what]()
    error = caught.value
    assert is_safe(str(error)), str(error)
    assert is_safe(getattr(error, "hint", None) or "")
    assert is_safe(getattr(error, "dtype", None) or "")


@pytest.mark.parametrize("n", [1, 100])
def test_error_of_a_foreign_stream(n):
    """Its lines stay."""
    text = f"line 1\n  line 2 \x1b[31m\u202e{'x' * 10 * n}"
    stream = ad.array_stream(Stream(SchemaNode("l"), [], next_code=5, message=text))
    with pytest.raises(ad.ExchangeError, match=r"line 1\n  line 2 \\x1b\[31m\\u202exx") as caught:
        next(stream)
    assert is_safe(str(caught.value), keeps_lines=True)


def test_error_of_a_generator():
    stream = ad.array_stream(failing())
    next(stream)
    with pytest.raises(ad.ExchangeError, match="forged") as caught:
        next(stream)
    assert is_safe(str(caught.value))


def test_log(caplog):
    with caplog.at_level(logging.DEBUG, "arrowdev"):
        for what in ERRORS:
            with pytest.raises((ad.ExchangeError, LookupError, TypeError, ValueError)):
                ERRORS[what]()
        _core._log(HOSTILE)
    messages = [record.getMessage() for record in caplog.records]
    assert SHOWN in messages
    assert sum("forged" in message for message in messages) > 3
    assert all(map(is_safe, messages))


class Hostile:
    """Names and texts are hostile in every protocol."""

    __array_interface__ = {HOSTILE: HOSTILE, "shape": HOSTILE}

    def __arrow_c_schema__(self):
        return batch().schema.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema=None):
        raise ValueError(HOSTILE)


Hostile.__qualname__ = HOSTILE


def test_inspect():
    text = "\n".join(inspect.report(inspect.examine(Hostile())))
    assert is_safe(text, keeps_lines=True) and "\n  forged" not in text
    # The class, the name of a field, an error, a key and two values.
    assert text.count(SHOWN) == 6


def test_check():
    report = _conformance.producer_report(Hostile)
    assert any(SHOWN in finding.what for finding in report.findings.values())
    options = {"consumer": False, "expression": HOSTILE, "ignore": [], "recommended": False}
    told = check.Told("")
    told.report = report
    outcome = check_reports.Outcome(argparse.Namespace(**options), told)
    lines = list(check_reports.as_text(outcome))
    assert is_safe(check_reports.as_junit(outcome), keeps_lines=True)
    assert all(map(is_safe, lines))
    with pytest.raises(testing.ConformanceError) as caught:
        report.require()
    assert is_safe(str(caught.value), keeps_lines=True) and "\n  forged" not in str(caught.value)


def test_expression_that_fails(capsys):
    arguments = argparse.Namespace(expression=f"{{}}[{HOSTILE!r}].x", json=False)
    assert inspect.run(arguments) == 2
    expression.explain(ImportError(HOSTILE))
    assert is_safe(capsys.readouterr().err, keeps_lines=True)


def test_matrix_and_doctor():
    error = ValueError(HOSTILE)
    assert is_safe(pairs.describe_error(error)) and r"\x1b[31m" in pairs.describe_error(error)
    reasons = matrix_text.Reasons()
    reasons.number(HOSTILE)
    assert all(map(is_safe, reasons.lines()))
    assert all(map(is_safe, terminal.wrapped(HOSTILE)))
    assert all(
        map(is_safe, doctor.section("Devices", [("cuda:0", (HOSTILE,), True)], lambda _, x: x))
    )
    for element in (page.cell(HOSTILE), page.paragraph(HOSTILE), page.heading(HOSTILE)):
        assert is_safe(element, keeps_lines=True)
