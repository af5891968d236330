"""The examples of the documentation: where they stand, and how they are compiled."""

import ast
import re

import compiler

ROOT = compiler.ROOT
PAGES = [
    page for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))] if page.exists()
]
# ```python ... ```, preceded by <!-- needs: pandas>=3 --> if the newest release is needed, by
# <!-- needs: GPU --> if a GPU is, or by <!-- needs: CUDA --> if the stand-in driver suffices.
BLOCK = re.compile(
    r"^(?:<!-- needs: (?P<needs>.*?) -->\n\n?)?```python\n(?P<code>.*?)^```$", re.M | re.S
)
STARTS_PROCESSES = re.compile(r"^(?:import ray|from distributed import)\b", re.M)


class ExpectErrors(ast.NodeTransformer):
    """Adds `else: raise AssertionError` to each `try` whose handlers check the error.

    An example that shows an error also fails if there is none.
    """

    def visit_Try(self, node):
        self.generic_visit(node)
        checks = [n for handler in node.handlers for n in handler.body]
        if not node.orelse and any(isinstance(n, ast.Assert) for n in checks):
            [missing] = ast.parse(
                "raise AssertionError('no error, although the page shows one')"
            ).body
            node.orelse = [ast.copy_location(missing, node)]
        return node


def compiled(line, code, page):
    """The example; its line numbers in a traceback are those of the page."""
    tree = ExpectErrors().visit(ast.parse("\n" * line + code))
    return compile(ast.fix_missing_locations(tree), str(page), "exec")
