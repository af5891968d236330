"""Memory of devices without a runtime, in a process that loads none.

    ARROWDEV_SUITE=no_runtime pytest tests/no_runtime

tests/devices/test_suites.py runs it as part of the whole suite. Pointers and events
are invalid here: an installed runtime would dereference them.
"""

import os

IS_ON = os.environ.get("ARROWDEV_SUITE") == "no_runtime"
collect_ignore_glob = [] if IS_ON else ["*"]

if IS_ON:
    for runtime in ("CUDA", "HIP", "ONEAPI", "OPENCL"):
        os.environ[f"ARROWDEV_{runtime}_LIBRARY"] = "/nowhere/library.so"
