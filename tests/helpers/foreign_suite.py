"""Runs a test module that another library ships in its wheel, with arrowdev in between.

The module is read from the installed library, rewritten in memory and executed: each call that
exchanges data gets an arrowdev object made of the library's. Nothing of the module is copied into
the repository. The text and the class of an error are the library's own: where a test expects an
error, any text and an ExchangeError are accepted too.
"""

import ast
import contextlib
import importlib
import importlib.util
import types
from dataclasses import dataclass
from pathlib import Path

import pytest

import arrowdev as ad

config = None  # pytest's, set by tests/suites/conftest.py


@dataclass(frozen=True)
class Rewriting:
    """Which calls get an arrowdev object: `through` makes it of the library's.

    methods: `x.method(...)` becomes `through(x).method(...)`.
    arguments: `function(x, ...)`, of any module, becomes `function(through(x), ...)`.
    """

    through: object
    methods: frozenset = frozenset()
    arguments: frozenset = frozenset()


class Rewriter(ast.NodeTransformer):
    def __init__(self, methods, arguments):
        self.methods, self.arguments, self.n_calls, self.marks = methods, arguments, 0, set()

    def through(self, node):
        self.n_calls += 1
        call = ast.Call(ast.Name("_through_arrowdev", ast.Load()), [node], [])
        return ast.copy_location(call, node)

    def visit_Attribute(self, node):
        self.generic_visit(node)
        of = node.value  # unparsing each would take seconds
        if (
            isinstance(of, ast.Attribute)
            and of.attr == "mark"
            and ast.unparse(of) == "pytest.mark"
        ):
            self.marks.add(node.attr)
        return node

    def visit_Call(self, node):
        self.generic_visit(node)
        called = node.func
        is_method = isinstance(called, ast.Attribute) and called.attr in self.methods
        # `super()` in the class body of a wrapper is that of the library.
        if is_method and ast.unparse(called.value) != "super()":
            called.value = self.through(called.value)
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)
        if name in self.arguments and node.args:
            node.args[0] = self.through(node.args[0])
        if name in ("raises", "assert_raises"):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "match"]
            wanted = ast.Call(ast.Name("_or_exchange_error", ast.Load()), [node.args[0]], [])
            node.args[0] = ast.copy_location(wanted, node.args[0])
        if name == "warns" and ast.unparse(node.args[0]) == "DeprecationWarning":
            node.func = ast.Name("_no_warning_is_due", ast.Load())
        return node


def or_exchange_error(wanted):
    return (*(wanted if isinstance(wanted, tuple) else (wanted,)), ad.ExchangeError)


def is_left_out(name, only):
    """Whether this is the name of a test, without any part of `only`."""
    return (
        only is not None
        and name.lower().startswith("test")
        and not any(part in name for part in only)
    )


def is_wanted(name, value):
    is_fixture = type(value).__name__ == "FixtureFunctionDefinition"
    return is_fixture or name.lower().startswith("test")


@contextlib.contextmanager
def numpy_testing_kept():
    """dpnp's tests replace the functions of numpy.testing for the whole process."""
    testing = importlib.import_module("numpy.testing")
    before = dict(vars(testing))
    yield
    vars(testing).update(before)


@numpy_testing_kept()
def load(module, rewriting, *, only=None):
    """What a test file needs of `module` among its globals: tests, and the fixtures that they use.

    only: part of the names of the tests; None takes all.
    """
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None:  # some distributions leave the tests out
        pytest.skip(f"could not import '{module}'", allow_module_level=True)
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    # Rewriting what is not run takes seconds.
    tree.body = [node for node in tree.body if not is_left_out(getattr(node, "name", ""), only)]
    rewriter = Rewriter(rewriting.methods, rewriting.arguments)
    tree = ast.fix_missing_locations(rewriter.visit(tree))
    assert rewriter.n_calls, f"no call of {module} was rewritten"
    for mark in rewriter.marks:  # pyproject.toml has --strict-markers
        config.addinivalue_line("markers", f"{mark}: of another library")
    made = types.ModuleType(module)
    made.__file__ = spec.origin
    made.__package__ = module.rpartition(".")[0]
    made._through_arrowdev = rewriting.through
    made._or_exchange_error = or_exchange_error
    made._no_warning_is_due = lambda *_, **__: contextlib.nullcontext()
    exec(compile(tree, spec.origin, "exec"), made.__dict__)
    return {
        name: value
        for name, value in vars(made).items()
        if is_wanted(name, value) and not is_left_out(name, only)
    }
