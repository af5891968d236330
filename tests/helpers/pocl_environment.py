"""Environment variables of PoCL for two devices. PoCL reads them once, at the first use.

The tests cache kernels in a folder of their own, not in the user's.
"""

import os
import tempfile

os.environ.setdefault("POCL_DEVICES", "pthread pthread")
if "POCL_CACHE_DIR" not in os.environ:
    cache = os.path.join(tempfile.gettempdir(), f"arrowdev-pocl-{os.getuid()}")
    os.makedirs(cache, mode=0o700, exist_ok=True)
    os.environ["POCL_CACHE_DIR"] = cache
os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
