"""Protocol classes of the exchange protocols, for annotations.

``import arrowdev`` does not import this module. At run time use hasattr() or
arrowdev.protocols(), which tell what an object offers in its present state;
isinstance() would only tell what its class may offer. The signatures of methods
are left open, since libraries differ in the keywords that they accept.
"""

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

from arrowdev._stream_into import AsyncConvertedStream, ConvertedStream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Buffer, CapsuleType

    from arrowdev._core import Device

__all__ = [
    "ArrayLike",
    "AsyncConvertedStream",
    "ConvertedStream",
    "DeviceLike",
    "SupportsArrayInterface",
    "SupportsArrowArray",
    "SupportsArrowDeviceArray",
    "SupportsArrowDeviceStream",
    "SupportsArrowSchema",
    "SupportsArrowStream",
    "SupportsArrowdevFrom",
    "SupportsAsyncDeviceStream",
    "SupportsCudaArrayInterface",
    "SupportsCudaStream",
    "SupportsDLPack",
    "SupportsSyclUsmArrayInterface",
    "TypeLike",
]


class SupportsArrowSchema(Protocol):
    """A type, as a capsule with an ``ArrowSchema``: what ``arrowdev.schema`` takes."""

    def __arrow_c_schema__(self) -> Any: ...


class SupportsArrowArray(Protocol):
    """An array or a batch in host memory, as capsules with its schema and itself."""

    def __arrow_c_array__(self, *args: Any, **kwargs: Any) -> Any: ...


class SupportsArrowStream(Protocol):
    """Arrays or batches in host memory, one after another."""

    def __arrow_c_stream__(self, *args: Any, **kwargs: Any) -> Any: ...


class SupportsArrowDeviceArray(Protocol):
    """An array or a batch on any device, with the event that signals it is ready."""

    def __arrow_c_device_array__(self, *args: Any, **kwargs: Any) -> Any: ...


class SupportsArrowDeviceStream(Protocol):
    """Arrays or batches on devices of one type, one after another."""

    def __arrow_c_device_stream__(self, *args: Any, **kwargs: Any) -> Any: ...


class SupportsAsyncDeviceStream(Protocol):
    """A producer for ``arrowdev.aio.connect``."""

    def __arrowdev_async_device_stream__(self, handler: Any, /) -> None: ...


class SupportsArrowdevFrom(Protocol):
    """A class that ``arrowdev.convert`` makes instances of by a class method of its own."""

    @classmethod
    def __arrowdev_from__(
        cls, exporter: Any, *, copy: bool | None = None, stream: Any = None
    ) -> Any: ...


class SupportsDLPack(Protocol):
    """A tensor on any device."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


class SupportsCudaArrayInterface(Protocol):
    """A tensor on a CUDA or ROCm device, as a dict."""

    @property
    def __cuda_array_interface__(self) -> Any: ...


class SupportsSyclUsmArrayInterface(Protocol):
    """A tensor in SYCL's unified shared memory, as a dict."""

    @property
    def __sycl_usm_array_interface__(self) -> Any: ...


class SupportsArrayInterface(Protocol):
    """A tensor in host memory, as a dict: NumPy's protocol."""

    @property
    def __array_interface__(self) -> Any: ...


class SupportsCudaStream(Protocol):
    """A CUDA stream, as the protocol's version and its handle, for any ``stream=``."""

    def __cuda_stream__(self) -> tuple[int, int]: ...


# The argument of arrowdev.array(), tensor(), ...
ArrayLike: TypeAlias = Union[
    SupportsArrowDeviceArray,
    SupportsArrowArray,
    SupportsArrowDeviceStream,
    SupportsArrowStream,
    SupportsDLPack,
    SupportsSyclUsmArrayInterface,
    SupportsCudaArrayInterface,
    SupportsArrayInterface,
    "Buffer",
    "tuple[CapsuleType, CapsuleType]",
]


class _TorchDevice(Protocol):
    @property
    def type(self) -> str: ...
    @property
    def index(self) -> Any: ...


class _JaxDevice(Protocol):
    @property
    def platform(self) -> str: ...
    @property
    def local_hardware_id(self) -> Any: ...


class _SyclDevice(Protocol):
    def get_device_id(self) -> int: ...


class _CupyDevice(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def compute_capability(self) -> Any: ...


# The argument of arrowdev.device() and of every device=.
DeviceLike: TypeAlias = Union[
    str, tuple[int, int], "Device", _TorchDevice, _JaxDevice, _SyclDevice, _CupyDevice
]

# The argument of arrowdev.schema() and of every type=.
TypeLike: TypeAlias = Union[
    str,
    SupportsArrowSchema,
    "CapsuleType",
    "Mapping[str, TypeLike]",
    "Sequence[tuple[str, TypeLike] | SupportsArrowSchema]",
]
