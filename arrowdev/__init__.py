"""Arrow device arrays between any two libraries, without a copy.

The names in this module are the public interface; ``arrowdev._core`` is the
extension that they come from. See https://arrow.apache.org/docs/format/ for
the specification of the Arrow C Device data interface.
"""

import os as _os

try:
    from arrowdev._core import _C_API  # noqa: F401
except ModuleNotFoundError as _error:
    raise ImportError(
        f"{_os.path.dirname(__file__)} has no extension arrowdev._core for this Python; "
        "run `pip install .` in the checkout, or start Python in another folder"
    ) from _error

from arrowdev import aio
from arrowdev._core import (
    Array,
    ArrayStream,
    Buffer,
    Device,
    DeviceError,
    DeviceType,
    ExchangeError,
    InvalidArrowError,
    Schema,
    Tensor,
    __version__,
    array,
    array_stream,
    concat,
    concat_streams,
    convert,
    device,
    devices,
    from_dlpack,
    protocols,
    record_batch,
    register_backend,
    schema,
    tensor,
    use_stream,
    validate,
)
from arrowdev._include import get_include
from arrowdev._share import Shared, attach, share, sharing
from arrowdev._targets import register_target
from arrowdev._trace import trace
from arrowdev._unpickle_on import unpickle_on
from arrowdev._wrappers import as_device, as_host
from arrowdev.aio import AsyncArrayStream

__all__ = [
    "Array",
    "ArrayStream",
    "AsyncArrayStream",
    "Buffer",
    "Device",
    "DeviceError",
    "DeviceType",
    "ExchangeError",
    "InvalidArrowError",
    "Schema",
    "Shared",
    "Tensor",
    "__version__",
    "aio",
    "array",
    "array_stream",
    "as_device",
    "as_host",
    "attach",
    "concat",
    "concat_streams",
    "convert",
    "device",
    "devices",
    "from_dlpack",
    "get_include",
    "protocols",
    "record_batch",
    "register_backend",
    "register_target",
    "schema",
    "share",
    "sharing",
    "tensor",
    "trace",
    "unpickle_on",
    "use_stream",
    "validate",
]

if _os.environ.get("ARROWDEV_LOG"):
    from arrowdev._log import read_environment as _read_environment

    _read_environment()

if _os.environ.get("ARROWDEV_TRACE"):
    from arrowdev._trace import read_environment as _read_trace_environment

    _read_trace_environment()
