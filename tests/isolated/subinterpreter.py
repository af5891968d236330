"""Another interpreter of the process cannot import arrowdev: it gets ImportError."""

import sys

import common

try:
    import _interpreters as interpreters  # 3.13
except ImportError:
    import _xxsubinterpreters as interpreters

SCRIPT = """
try:
    import arrowdev._core
except ImportError as error:
    assert "interpreter" in str(error), error
    print("refused", flush=True)
else:
    print("imported", flush=True)
"""

alive = common.everything()
settings = [{}]
if sys.version_info >= (3, 13):
    settings = [("isolated",), ("legacy",)]
elif sys.version_info >= (3, 12):
    settings = [{"isolated": True}, {"isolated": False}]
for setting in settings:
    made = (
        interpreters.create(*setting)
        if isinstance(setting, tuple)
        else interpreters.create(**setting)
    )
    script = f"import sys; sys.path[:] = {sys.path!r}\n{SCRIPT}"
    for _ in range(2):
        failed = interpreters.run_string(made, script)
        assert failed is None, failed
    interpreters.destroy(made)
    # The module of the main interpreter is not affected.
    assert len(common.ad.array(common.Owner())) == 4
    common.everything()
print("interpreters:", len(settings))
common.end()
