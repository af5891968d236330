"""docs/reference: every public object is there, with its types and a link to its source."""

import importlib
import inspect
import re
import sys

import pytest
from loops import looped

import compiler

FOLDER = compiler.ROOT / "docs"
if not FOLDER.exists():
    pytest.skip("not a checkout", allow_module_level=True)
sys.path.insert(0, str(FOLDER / "extensions"))
definitions = importlib.import_module("definitions")
definition_of, members_of = definitions.definition_of, definitions.members_of
place_of = definitions.place_of

PAGES = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("reference/*.md")}
NAME = re.compile(r"^(?:\.\. api:: |         )(arrowdev\.[\w.]+)$", re.M)
DATA = re.compile(r"^\.\. py:data:: (\w+)$", re.M)
DESCRIBED = [name for text in PAGES.values() for name in NAME.findall(text)]
OVERVIEW = (FOLDER / "reference.md").read_text(encoding="utf-8")


def described_with_members():
    for name in DESCRIBED:
        definition = definition_of(name)
        yield definition
        if definition.kind in ("class", "exception"):
            yield from members_of(definition)


@looped("module", ["arrowdev", "arrowdev.aio", "arrowdev.testing", "arrowdev.typing"])
def test_every_public_name_is_described(module):
    names = {name.removeprefix("arrowdev.aio.").rpartition(".")[2] for name in DESCRIBED}
    names |= {name for text in PAGES.values() for name in DATA.findall(text)}
    public = {*importlib.import_module(module).__all__} - {"__version__", "aio", "step"}
    assert public - names == set()


def test_nothing_is_described_twice():
    assert len(DESCRIBED) == len({*DESCRIBED})


def test_overview_has_every_function_and_class():
    tables = re.findall(r"^\.\. summary:: ([^.`]+(?:\.[^.`]+)*?)\n(?:\n|```)", OVERVIEW, re.M)
    listed = {*" ".join(tables).split()}
    apart = ("arrowdev.testing", "arrowdev.typing")
    assert {name for name in DESCRIBED if not name.startswith(apart)} == listed


def test_every_object_has_a_source_that_defines_it():
    places = {}
    for definition in described_with_members():
        path, number = place_of(definition.module, definition.name)
        line = (compiler.ROOT / path).read_text(encoding="utf-8").splitlines()[number - 1]
        is_function_of_c = path.endswith(".c") and re.match(
            r"\w+\(PyObject \*|(?:static )?AD_ENTRY\(", line
        )
        name = re.search(rf"\b{definition.short_name}\b", line)
        assert is_function_of_c or name, f"{definition.name}: {path}:{number}: {line}"
        places[definition.name] = path
    assert places["convert"] == "csrc/python/functions/convert.c"
    assert places["Array.to"] == "csrc/python/types/common_getters.c"
    assert places["Array.__dlpack__"] == "csrc/protocol/dlpack.c"
    assert places["Tensor.shape"] == "csrc/python/types/tensor_type.c"
    assert places["produce"] == "arrowdev/aio.py"


def test_line_of_python_is_that_of_inspect():
    function = definition_of("arrowdev.share")
    assert place_of("arrowdev", "share")[1] == inspect.getsourcelines(function.object)[1]


def test_types_are_those_of_the_stub():
    [(parameters, result)] = definition_of("arrowdev.validate").signatures()
    assert parameters.replace(" ", "") == (
        "(obj:arrowdev.typing.ArrayLike,level:Literal['structure','full']='structure')"
    )
    assert result == "tuple[str, ...]"
    members = {m.short_name: m for m in members_of(definition_of("arrowdev.Array"))}
    assert members["null_count"].annotation() == "int | None"
    assert members["__dlpack__"].kind == "method"  # though it is there in some states only
    assert members["from_buffers"].is_classmethod
    into = {m.short_name: m for m in members_of(definition_of("arrowdev.ArrayStream"))}["into"]
    assert len(into.signatures()) == 4


def test_no_private_name_is_shown():
    shown = [
        text
        for definition in described_with_members()
        if definition.kind in ("function", "method")
        for pair in definition.signatures()
        for text in pair
    ]
    assert len(shown) > 200
    assert [text for text in shown if re.search(r"(?<![\w.])_[A-Za-z]", text)] == []
