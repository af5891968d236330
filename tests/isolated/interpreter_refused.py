"""Another interpreter of the process cannot import arrowdev before CPython 3.12."""

import _xxsubinterpreters as interpreters
import sys

import common

SCRIPT = """
try:
    import arrowdev._core
except ImportError as error:
    assert "3.12" in str(error), error
    print("refused", flush=True)
"""

alive = common.everything()
made = interpreters.create()
interpreters.run_string(made, f"import sys; sys.path[:] = {sys.path!r}\n{SCRIPT}")
interpreters.destroy(made)
common.everything()  # the module of the main interpreter is not affected
common.read_pending()
common.end()
