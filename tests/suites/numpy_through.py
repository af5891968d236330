"""The arrowdev tensor of an array or of a buffer, where there is one without a copy.

Elements of which arrowdev has no equivalent, and those in the other byte order, pass unchanged.
"""

import arrowdev as ad

WITHOUT_EQUIVALENT = {"dtype", "byteorder"}


def through(obj):
    if not isinstance(obj, memoryview) and not hasattr(obj, "__array_interface__"):
        return obj  # a list of values, for example
    try:
        return ad.tensor(obj, copy=False)
    except ad.ExchangeError as error:
        reasons = {error.reason, getattr(error.__cause__, "reason", None)}
        if not reasons & WITHOUT_EQUIVALENT:
            raise
        return obj
