"""What a report says about where it was made."""

import platform

import arrowdev

# Of every --json. It grows where a field changes its meaning or goes away.
FORMAT = 1


def machine():
    """Return the versions and the platform, for a bug report."""
    return {
        "format": FORMAT,
        "arrowdev": arrowdev.__version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "machine": platform.machine(),
    }
