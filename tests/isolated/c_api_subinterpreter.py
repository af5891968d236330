"""ArrowDev_Import() in a sub-interpreter: an ImportError before CPython 3.12."""

import sys
from pathlib import Path

import common
import extension

try:
    import _interpreters as interpreters  # 3.13
except ImportError:
    import _xxsubinterpreters as interpreters

PATH = Path(sys.argv[1])
SCRIPT = f"""
import importlib.util, sys
sys.path[:] = {sys.path!r}
spec = importlib.util.spec_from_file_location("capi", {str(PATH)!r})
try:
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
except ImportError as error:
    assert "interpreter" in str(error), error
    print("refused", flush=True)
else:
    import arrowdev
    assert memoryview(module.into(b"abc", arrowdev.Tensor, 0)).tolist() == [97, 98, 99]
    print("imported", flush=True)
"""

capi = extension.load(PATH)
made = interpreters.create("legacy") if sys.version_info >= (3, 13) else interpreters.create()
failed = interpreters.run_string(made, SCRIPT)
assert failed is None, failed
interpreters.destroy(made)
capi.import_again()
assert isinstance(capi.into(b"abc", common.ad.Tensor, 0), common.ad.Tensor)
common.end()
