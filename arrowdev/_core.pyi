import builtins
import enum
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeVar, final, overload, type_check_only

from typing_extensions import CapsuleType, Self

from arrowdev.typing import ArrayLike, DeviceLike, SupportsDLPack, TypeLike

_T = TypeVar("_T")
_Nulls = Literal["raise", "ignore", "fill"]
_Order = Literal["C", "F"]
_Level = Literal["structure"]

# An int with DLPack's meaning for the device, or a stream or queue object.
_Stream = object

__version__: Final[str]

class DeviceType(enum.IntEnum):
    CPU = 1
    CUDA = 2
    CUDA_HOST = 3
    OPENCL = 4
    VULKAN = 7
    METAL = 8
    VPI = 9
    ROCM = 10
    ROCM_HOST = 11
    EXT_DEV = 12
    CUDA_MANAGED = 13
    ONEAPI = 14
    WEBGPU = 15
    HEXAGON = 16

class ExchangeError(BufferError):
    reason: str | None
    device: Device | None
    dtype: str | None
    hint: str | None

class DeviceError(RuntimeError):
    code: int | None
    device: Device | None
    hint: str | None

class InvalidArrowError(ValueError):
    path: str | None
    hint: str | None

@final
class Device:
    @property
    def type(self) -> DeviceType | int: ...
    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class Schema:
    @property
    def format(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def nullable(self) -> bool: ...
    @property
    def dictionary_ordered(self) -> bool: ...
    @property
    def map_keys_sorted(self) -> bool: ...
    @property
    def metadata(self) -> dict[bytes, bytes] | None: ...
    @property
    def children(self) -> tuple[Schema, ...]: ...
    @property
    def dictionary(self) -> Schema | None: ...
    def equals(self, other: TypeLike, /, check_metadata: bool = False) -> bool: ...
    def __arrow_c_schema__(self) -> CapsuleType: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

# Attributes that are not there in every state of an object are properties: a
# look-up raises AttributeError, so that hasattr() tells the truth.

@type_check_only
class _ExportArray(Protocol):
    def __call__(
        self, requested_schema: object | None = None
    ) -> tuple[CapsuleType, CapsuleType]: ...

@type_check_only
class _ExportStream(Protocol):
    def __call__(self, requested_schema: object | None = None) -> CapsuleType: ...

@type_check_only
class _ExportDLPack(Protocol):
    def __call__(
        self,
        *,
        stream: _Stream | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...

@type_check_only
class _ExportDLPackDevice(Protocol):
    def __call__(self) -> tuple[int, int]: ...

# What Array, Tensor and Buffer have in common.
@type_check_only
class _Memory:
    @property
    def device(self) -> Device: ...
    @property
    def device_type(self) -> DeviceType | int: ...
    @property
    def device_id(self) -> int: ...
    @property
    def sync_event(self) -> int | None: ...
    def is_ready(self) -> bool: ...
    def synchronize(self) -> None: ...
    def wait(self, stream: _Stream, /) -> None: ...
    def to(self, device: DeviceLike, *, stream: _Stream | None = None) -> Self: ...
    def into(
        self, cls: type[_T], *, stream: _Stream | None = None, copy: bool | None = None
    ) -> _T: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __arrow_c_schema__(self) -> CapsuleType: ...
    def __arrow_c_device_array__(
        self, requested_schema: object | None = None, **kwargs: Any
    ) -> tuple[CapsuleType, CapsuleType]: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    @property
    def __sycl_usm_array_interface__(self) -> dict[str, Any]: ...

@final
class Array(_Memory):
    @classmethod
    def from_buffers(
        cls,
        type: TypeLike,
        length: int,
        buffers: Sequence[ArrayLike | None],
        *,
        null_count: int = -1,
        offset: int = 0,
        children: Sequence[ArrayLike] = (),
        dictionary: ArrayLike | None = None,
    ) -> Array: ...
    @property
    def schema(self) -> Schema: ...
    @property
    def offset(self) -> int: ...
    @property
    def null_count(self) -> int | None: ...
    @property
    def nbytes(self) -> int | None: ...
    @property
    def buffers(self) -> tuple[Buffer | None, ...]: ...
    @property
    def children(self) -> tuple[Array, ...]: ...
    @property
    def dictionary(self) -> Array | None: ...
    @property
    def validity(self) -> Array | None: ...
    def field(self, key: str | int, /) -> Array: ...
    def slice(self, offset: int, length: int | None = None) -> Array: ...
    def view(self, type: TypeLike, /) -> Array: ...
    def count_nulls(self, stream: _Stream | None = None) -> int: ...
    def validate(self, level: _Level = "structure") -> tuple[str, ...]: ...
    def to_pylist(self) -> list[Any]: ...
    @overload
    def __getitem__(self, key: int, /) -> Any: ...
    @overload
    def __getitem__(self, key: builtins.slice[Any, Any, Any] | str, /) -> Array: ...
    def __arrow_c_device_stream__(
        self, requested_schema: object | None = None, **kwargs: Any
    ) -> CapsuleType: ...
    @property
    def __arrow_c_array__(self) -> _ExportArray: ...
    @property
    def __arrow_c_stream__(self) -> _ExportStream: ...
    @property
    def __dlpack__(self) -> _ExportDLPack: ...
    @property
    def __dlpack_device__(self) -> _ExportDLPackDevice: ...

# What Tensor and Buffer have in common.
@type_check_only
class _Block(_Memory):
    @property
    def readonly(self) -> bool: ...
    @property
    def data_ptr(self) -> int: ...
    @property
    def byte_offset(self) -> int: ...
    def __dlpack__(
        self,
        *,
        stream: _Stream | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class Tensor(_Block):
    __dlpack_c_exchange_api__: CapsuleType
    @classmethod
    def from_pointer(
        cls,
        ptr: int,
        shape: Sequence[int],
        dtype: str,
        device: DeviceLike,
        *,
        strides: Sequence[int] | None = None,
        byte_offset: int = 0,
        owner: object = None,
        stream: _Stream | None = None,
        readonly: bool = False,
    ) -> Tensor: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def ndim(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

@final
class Buffer(_Block):
    @property
    def nbytes(self) -> int | None: ...

def array(
    obj: ArrayLike,
    type: TypeLike | None = None,
    /,
    *,
    device: DeviceLike | None = None,
    stream: _Stream | None = None,
    copy: bool | None = None,
    validity: ArrayLike | None = None,
) -> Array: ...
def tensor(
    obj: ArrayLike,
    /,
    *,
    stream: _Stream | None = None,
    copy: bool | None = None,
    nulls: _Nulls = "raise",
    fill_value: complex | None = None,
    order: _Order | None = None,
    readonly: bool | None = None,
) -> Tensor: ...
def from_dlpack(
    x: SupportsDLPack, /, *, device: DeviceLike | None = None, copy: bool | None = None
) -> Tensor: ...
def record_batch(
    columns: Mapping[str, ArrayLike] | Sequence[ArrayLike] | ArrayLike,
    /,
    *,
    names: Sequence[str] | None = None,
) -> Array: ...
def schema(obj: TypeLike, /) -> Schema: ...
def device(spec: DeviceLike, /) -> Device: ...
def convert(
    obj: ArrayLike, cls: type[_T], *, stream: _Stream | None = None, copy: bool | None = None
) -> _T: ...
def validate(obj: ArrayLike, level: _Level = "structure") -> tuple[str, ...]: ...
def protocols(obj: object, probe: bool = False) -> tuple[str, ...]: ...
