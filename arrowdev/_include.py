"""The folder of the C header."""

import os


def get_include() -> str:
    """The folder of ``arrowdev.h``, the C API for other extensions.

    A compiler takes it as ``-I``. There is no library to link with.

    Returns
    -------
    str

    Examples
    --------
    >>> import os
    >>> os.path.exists(os.path.join(ad.get_include(), "arrowdev.h"))
    True
    """
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "include")
