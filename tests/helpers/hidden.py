"""Packages that are installed and must not be imported in this leg of CI."""

import os

HIDDEN = [name for name in os.environ.get("ARROWDEV_HIDDEN", "").split(",") if name]
