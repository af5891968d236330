"""Another interpreter of the process cannot import arrowdev: it gets ImportError."""

import sys
import threading

import common

from arrowdev.testing import software_device

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
# PyGILState_Check() is true for any thread from now on. The read of a stream gives the GIL up,
# and the wait in it must not do so again.
with software_device() as device:
    source = device.array([1, 2, 3], queue=device.queue())
    source.queue.hold()
    stream = common.ad.array_stream(common.ad.array(source)).to("cpu")
    timer = threading.Timer(0.2, source.queue.release)
    timer.start()
    assert next(stream).to_pylist() == [1, 2, 3]
    timer.join()
print("interpreters:", len(settings))
common.end()
