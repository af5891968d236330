"""Memory of devices without a runtime, in a process that has none.

    ARROWDEV_SUITE=no_runtime pytest tests/no_runtime

tests/test_suites.py runs it as part of the whole suite. Pointers and events
are made up here: a runtime that is there would be handed them.
"""

import os

IS_ON = os.environ.get("ARROWDEV_SUITE") == "no_runtime"
collect_ignore_glob = [] if IS_ON else ["*"]

if IS_ON:
    for runtime in ("CUDA", "HIP", "ONEAPI", "OPENCL"):
        os.environ[f"ARROWDEV_{runtime}_LIBRARY"] = "/nowhere/library.so"
