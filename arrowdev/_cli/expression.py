"""Python expressions of the command line, whose modules need no import statement."""

import ast
import builtins
import importlib
import sys
import traceback
import types


class EvaluationError(Exception):
    """What the expression raised is its cause."""

    def __str__(self):
        return f"{type(self.__cause__).__name__}: {self.__cause__}"

    def traceback(self):
        """From the expression on, without the frames that evaluate it."""
        cause = self.__cause__
        return "".join(traceback.format_exception(type(cause), cause, cause.__traceback__.tb_next))


# What run() of a command is to pass to explain().
ERRORS = (SyntaxError, ImportError, EvaluationError)


def explain(error):
    """Why there is no object."""
    text = f"{type(error).__name__}: {error}\n"
    print(
        error.traceback() if isinstance(error, EvaluationError) else text, file=sys.stderr, end=""
    )


def dotted_names(tree):
    """`a.b.c` of every chain of attributes in an expression, and every bare name."""
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
    """What the expression itself gives names to: arguments of lambdas, loops, :=."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id


def import_longest(parts):
    """Import `a`, then `a.b` where `b` is no attribute of it, and so on."""
    found = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], 2):
        if not hasattr(found, part) and isinstance(found, types.ModuleType):
            try:
                importlib.import_module(".".join(parts[:i]))
            except ModuleNotFoundError:
                return  # evaluating the expression will say what is missing
        found = getattr(found, part, None)


def compiled(text):
    """A function of no arguments that evaluates the expression anew at each call.

    Names that are neither built in nor the expression's own are modules, and are imported now:
    SyntaxError or ModuleNotFoundError. What the expression itself raises is an EvaluationError.
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
        except Exception as error:
            raise EvaluationError from error

    return evaluate
