"""Python expressions of the command line, whose modules need no import statement."""

import ast
import builtins
import importlib
import sys
import traceback
import types

from arrowdev._core import _shown


class EvaluationError(Exception):
    """The expression failed; its exception is the cause."""

    def __str__(self):
        return f"{type(self.__cause__).__name__}: {self.__cause__}"

    def traceback(self):
        """Return the traceback without the frames that evaluate the expression."""
        cause = self.__cause__
        return "".join(traceback.format_exception(type(cause), cause, cause.__traceback__.tb_next))


# The exceptions that run() of a command passes to explain().
ERRORS = (SyntaxError, ImportError, EvaluationError)


def explanation(error):
    """Return why there is no object."""
    text = f"{type(error).__name__}: {error}\n"
    if isinstance(error, EvaluationError):
        text = error.traceback()
    return _shown(text, True)


def explain(error):
    """Print why there is no object."""
    print(explanation(error), file=sys.stderr, end="")


def dotted_names(tree):
    """Return every bare name and chain of attributes (`a.b.c`) in an expression."""
    inner = set()
    for node in ast.walk(tree):
        parts = []
        at = node
        while isinstance(at, ast.Attribute):
            parts.insert(0, at.attr)
            inner.add(id(at.value))
            at = at.value
        if isinstance(at, ast.Name) and isinstance(at.ctx, ast.Load) and id(node) not in inner:
            yield [at.id, *parts]


def bound_names(tree):
    """Return the names that the expression itself binds: arguments of lambdas, loops, :=."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id


def import_longest(parts):
    """Import `a`, then `a.b` unless `a` has the attribute `b`, and so on."""
    found = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], 2):
        if not hasattr(found, part) and isinstance(found, types.ModuleType):
            try:
                importlib.import_module(".".join(parts[:i]))
            except ModuleNotFoundError:
                return  # evaluating the expression raises the error
        found = getattr(found, part, None)


def compiled(text):
    """Return a function without arguments that evaluates the expression anew at each call.

    Names that are neither built-in nor bound by the expression are imported as modules at once:
    SyntaxError or ModuleNotFoundError. Errors of the expression are raised as EvaluationError.
    """
    tree = ast.parse(text.strip(), "<expression>", "eval")
    code = compile(tree, "<expression>", "eval")
    names = {}
    own = {*bound_names(tree), *dir(builtins)}
    for parts in dotted_names(tree):
        if parts[0] not in own:
            import_longest(parts)
            names[parts[0]] = importlib.import_module(parts[0])

    def evaluate():
        try:
            return eval(code, {"__name__": "__main__", **names})
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit, too, is no result
            raise EvaluationError from error

    return evaluate
