"""A process that has registered a backend for Vulkan: the other tests have none.

ARROWDEV_SUITE=vulkan pytest tests/vulkan
"""

import os

collect_ignore_glob = [] if os.environ.get("ARROWDEV_SUITE") == "vulkan" else ["*"]
