"""Two devices of PoCL, whoever asks OpenCL first: the variables are read once.

Kernels are cached in a folder of the tests' own; that of the user is not theirs.
"""

import os
import tempfile

os.environ.setdefault("POCL_DEVICES", "pthread pthread")
if "POCL_CACHE_DIR" not in os.environ:
    cache = os.path.join(tempfile.gettempdir(), f"arrowdev-pocl-{os.getuid()}")
    os.makedirs(cache, mode=0o700, exist_ok=True)
    os.environ["POCL_CACHE_DIR"] = cache
os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
