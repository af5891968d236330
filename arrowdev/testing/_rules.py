"""The rules of the specifications that one end of an exchange can break, each with its paragraph.

A reference without a document is to Arrow's format documentation. "C device data interface" also
specifies device streams and async streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

DATA = "C data interface, "
STREAM = "C stream interface, "
DEVICE = "C device data interface, "
ASYNC = "Async Device Stream Interface, "
HANDLER = ASYNC + "The ArrowAsyncDeviceStreamHandler structure"
TASK = ASYNC + "The ArrowAsyncTask structure"
PRODUCER = ASYNC + "The ArrowAsyncProducer structure"
CAPSULE = "PyCapsule interface, "
COLUMNAR = "columnar format, "
DLPACK = "DLPack, "
ARRAY_API = "Python array API standard, "
INTERFACE = "array interface of NumPy, CUDA and SYCL, "
CUDA = "CUDA Array Interface, "
SYCL = "SYCL USM array interface, "
PYTHON = "Python library reference, "
BACKEND = "arrowdev, Add a backend, "


@dataclass(frozen=True)
class Rule:
    """A rule. `level`: "must", or "should" for a recommendation."""

    id: str
    text: str
    source: str
    level: Literal["must", "should"] = "must"

    def __str__(self) -> str:
        return f"{self.id}: {self.text} ({self.source})"


def _rules(*rows: tuple[str, ...]) -> dict[str, Rule]:
    return {row[0]: Rule(*row) for row in rows}  # type: ignore[arg-type]


# Of both ends. The command finds it, as a check in the same process ends with it.
_ALIVE = ("process.alive", "nothing that is called ends the process", CAPSULE + "Export Protocol")

PRODUCER_RULES = _rules(
    _ALIVE,
    # --- capsules of both kinds
    ("capsule.result", "an array is exported as two capsules, a schema or a stream as one",
     CAPSULE + "ArrowArray Export"),
    ("capsule.name", "the capsule is named after its struct", CAPSULE + "Capsule names"),
    ("capsule.live", "a fresh capsule holds a struct that is not released",
     CAPSULE + "Export Protocol"),
    ("capsule.unconsumed", "an unconsumed capsule releases its struct exactly once",
     CAPSULE + "Lifetime Semantics"),
    ("capsule.consumed", "a capsule whose struct was moved out does not release it",
     CAPSULE + "Lifetime Semantics"),
    ("capsule.again", "an object other than a stream can be exported more than once",
     CAPSULE + "Export Protocol", "should"),
    ("capsule.schema", "__arrow_c_schema__ is the schema of the data",
     CAPSULE + "ArrowSchema Export"),
    ("capsule.requested", "a request for the data's own schema is not an error",
     CAPSULE + "Schema Requests", "should"),
    ("capsule.incompatible", "a requested schema with other fields is refused",
     CAPSULE + "Schema Requests", "should"),
    ("capsule.cast", "data that come in a requested type have the same values as without it",
     CAPSULE + "Schema Requests"),
    ("capsule.keyword_none", "unknown keyword arguments that are None are accepted",
     CAPSULE + "Device-aware export"),
    ("capsule.keyword", "other unknown keyword arguments raise NotImplementedError",
     CAPSULE + "Device-aware export"),
    # --- schema
    ("schema.format", "format is a format string of the interface",
     DATA + "ArrowSchema.format"),
    ("schema.name", "name is NULL or UTF-8", DATA + "ArrowSchema.name"),
    ("schema.metadata", "metadata is NULL, or its counts and lengths are possible",
     DATA + "ArrowSchema.metadata"),
    ("schema.flags", "only defined flags are set", DATA + "ArrowSchema.flags"),
    ("schema.children", "the number of children fits the format, and none is NULL or released",
     DATA + "ArrowSchema.children"),
    ("schema.dictionary", "dictionary indices are integers, and the values are not released",
     DATA + "ArrowSchema.dictionary"),
    # --- array
    ("array.length", "length is at least 0", DATA + "ArrowArray.length"),
    ("array.null_count", "null_count is -1, or from 0 to the length",
     DATA + "ArrowArray.null_count"),
    ("array.nullable", "there are no nulls if the schema excludes them",
     DATA + "ArrowSchema.flags", "should"),
    ("array.offset", "offset is at least 0", DATA + "ArrowArray.offset"),
    ("array.n_buffers", "the number of buffers fits the format", DATA + "ArrowArray.n_buffers"),
    ("array.buffers", "no buffer is NULL, except the bitmap of an array without nulls",
     DATA + "ArrowArray.buffers"),
    ("array.alignment", "buffers are aligned to at least 8 bytes",
     DATA + "ArrowArray.buffers", "should"),
    ("array.children", "the number of children fits the schema, and none is NULL or released",
     DATA + "ArrowArray.children"),
    ("array.child_length", "children are long enough for their parent",
     COLUMNAR + "Struct Layout"),
    ("array.dictionary", "there is a dictionary if, and only if, the schema has one",
     DATA + "ArrowArray.dictionary"),
    ("array.contents", "the contents of the buffers are valid for the format: offsets, type "
     "ids, indices, UTF-8, null_count", COLUMNAR + "Physical Memory Layout"),
    ("exports.same", "all protocols of an object export the same elements: type, shape, values",
     CAPSULE + "Export Protocol"),
    ("exports.usable", "what an object exports can be used without an error, and no export "
     "raises SystemExit", CAPSULE + "Export Protocol"),
    # --- lifetime
    ("release.marked", "release marks its struct as released",
     DATA + "Release callback semantics"),
    ("release.below", "release calls the release of each child and of the dictionary, once",
     DATA + "Release callback semantics"),
    ("release.children", "a child that was moved out outlives its parent",
     DATA + "Moving child arrays"),
    ("release.schema", "schema and array are released independently of each other",
     DATA + "Memory management"),
    ("release.independent", "the release of one export does not affect the others",
     DATA + "Release callback semantics"),
    ("release.lifetime", "the data stay valid until the release, even if the object is destroyed",
     DATA + "Lifetime"),
    # --- device
    ("device.type", "device_type is a defined device type", DEVICE + "ArrowDeviceType"),
    ("device.id", "the device_id of a CPU array is -1",
     DEVICE + "ArrowDeviceArray.device_id", "should"),
    ("device.memory", "the buffers are memory of the device that the array names, and long enough",
     DEVICE + "ArrowDeviceArray.device_type"),
    ("device.order", "the data are written once sync_event is done, or already if it is NULL",
     DEVICE + "Synchronization event types"),
    ("device.event", "sync_event is NULL if the device type has no events",
     DEVICE + "Synchronization event types"),
    ("device.reserved", "reserved is zero", DEVICE + "ArrowDeviceArray.reserved"),
    # --- streams
    ("stream.callbacks", "no callback of a stream is NULL",
     STREAM + "The ArrowArrayStream structure"),
    ("stream.schema", "get_schema returns the schema, the same on each call",
     STREAM + "ArrowArrayStream.get_schema"),
    ("stream.next", "get_next returns arrays, and a released one at the end",
     STREAM + "ArrowArrayStream.get_next"),
    ("stream.same_schema", "each array has the stream's schema",
     STREAM + "ArrowArrayStream.get_schema"),
    ("stream.device_type", "each array has the stream's device_type",
     DEVICE + "ArrowDeviceArrayStream.device_type"),
    ("stream.lifetime", "schema and arrays outlive the stream", STREAM + "Result lifetimes"),
    ("stream.error", "an error has a code, and a message that is NULL or a C string",
     STREAM + "ArrowArrayStream.get_last_error"),
    ("stream.after_error", "a stream that failed can be released", STREAM + "Stream lifetime"),
    ("stream.end", "after the end of the stream get_next returns no array",
     STREAM + "ArrowArrayStream.get_next"),
    # --- async streams
    ("async.producer", "handler->producer is set before on_schema, with request and cancel",
     HANDLER),
    ("async.producer_alive", "the producer stays unchanged until release",
     ASYNC + "ArrowAsyncProducer Lifetime"),
    ("async.schema_first", "on_schema is called once, before any other callback except on_error",
     HANDLER),
    ("async.schema", "on_schema receives a schema that is not released", HANDLER),
    ("async.metadata", "metadata is NULL, or has no negative count or length", HANDLER),
    ("async.task", "extract_data of a task is not NULL", TASK),
    ("async.array", "extract_data returns a valid array with the stream's schema", TASK),
    ("async.device_type", "each array has the producer's device_type", PRODUCER),
    ("async.task_copied", "a copy of a task can be extracted after on_next_task has returned",
     HANDLER),
    ("async.discard", "extract_data with NULL cleans up and is not an error", TASK),
    ("async.extract_error", "after a failure of extract_data, on_error follows", TASK),
    ("async.requested", "no more tasks are sent than were requested", PRODUCER),
    ("async.request_refused", "request(n) with n <= 0 leads to on_error", PRODUCER, "should"),
    ("async.not_reentrant", "request calls neither on_next_task nor on_error", PRODUCER),
    ("async.cancel_quiet", "cancel calls no callback of the handler except on_error", PRODUCER),
    ("async.cancel_no_error", "a successful cancel does not lead to on_error", PRODUCER),
    ("async.after_cancel", "after a cancel, further calls of request and cancel have no effect",
     PRODUCER),
    ("async.serialized", "calls of the handler are serialized", ASYNC + "Thread safety"),
    ("async.end", "the end of the stream is a NULL task", HANDLER),
    ("async.over", "after the end, an error or a refusal, only release follows",
     ASYNC + "Error Handling"),
    ("async.release", "release is called exactly once, as the last call", HANDLER),
    ("async.error", "an error has a code, and a message that is NULL or UTF-8", HANDLER),
    ("async.lifetime", "schema and arrays outlive the stream", ASYNC + "Result lifetimes"),
    # --- tensors
    ("dlpack.name", "the capsule is named dltensor or dltensor_versioned",
     DLPACK + "Python Specification"),
    ("dlpack.refusal", "data that DLPack cannot express are refused with BufferError",
     ARRAY_API + "__dlpack__", "should"),
    ("dlpack.max_version", "the keyword max_version is accepted",
     ARRAY_API + "__dlpack__", "should"),
    ("dlpack.versioned", "with max_version=(1, 0) or later the capsule is versioned",
     ARRAY_API + "__dlpack__", "should"),
    ("dlpack.version", "the major version of the capsule is the requested one",
     ARRAY_API + "__dlpack__"),
    ("dlpack.legacy", "without max_version the capsule is unversioned",
     ARRAY_API + "__dlpack__"),
    ("dlpack.unconsumed", "an unconsumed capsule calls the deleter exactly once",
     DLPACK + "Python Specification"),
    ("dlpack.consumed", "a renamed capsule does not call the deleter",
     DLPACK + "Python Specification"),
    ("dlpack.device", "__dlpack_device__ is a pair of ints, and the device of the tensor",
     ARRAY_API + "__dlpack_device__"),
    ("dlpack.dl_device", "dl_device= with the tensor's own device is not an error",
     ARRAY_API + "__dlpack__", "should"),
    ("dlpack.stream", "stream=None is not an error", ARRAY_API + "__dlpack__"),
    ("dlpack.copy_true", "copy=True returns new memory, flagged IS_COPIED",
     ARRAY_API + "__dlpack__"),
    ("dlpack.copy_false", "copy=False returns the object's own memory, or raises BufferError",
     ARRAY_API + "__dlpack__"),
    ("dlpack.read_only", "read-only memory is flagged READ_ONLY",
     DLPACK + "DLPACK_FLAG_BITMASK_READ_ONLY"),
    ("dlpack.read_only_legacy", "read-only memory is refused to legacy consumers",
     DLPACK + "DLPACK_FLAG_BITMASK_READ_ONLY", "should"),
    ("dlpack.flags", "only defined flags are set",
     DLPACK + "DLManagedTensorVersioned.flags"),
    ("dlpack.shape", "shape is present, and no extent is negative", DLPACK + "DLTensor.shape"),
    ("dlpack.strides", "strides are present if there are dimensions (since 1.2)",
     DLPACK + "DLTensor.strides", "should"),
    ("dlpack.data", "data is NULL only if there are no elements", DLPACK + "DLTensor.data"),
    ("dlpack.dtype", "bits and lanes of the type are not 0, a bool has 8 bits",
     DLPACK + "DLDataType"),
    ("dlpack.lifetime", "the data stay valid until the deleter is called",
     DLPACK + "DLManagedTensor.deleter"),
    ("dlpack.exchange", "the exchange API has version 1 and all mandatory functions",
     DLPACK + "DLPackExchangeAPI"),
    ("dlpack.exchange_error", "a function of the exchange API sets an exception if, and only if, "
     "it fails",
     DLPACK + "DLPackExchangeAPI"),
    # --- the three dicts: __array_interface__, __cuda_..., __sycl_usm_...
    ("interface.dict", "the attribute is a dict", INTERFACE + "Python side"),
    ("interface.version", "version is 3; for CUDA at most 3, for SYCL 1", INTERFACE + "version"),
    ("interface.shape", "shape is a tuple of non-negative ints, for less than 2**63 bytes",
     INTERFACE + "shape"),
    ("interface.typestr", "typestr consists of byte order, kind and size", INTERFACE + "typestr"),
    ("interface.descr", "the fields of descr add up to the size of typestr, and a single unnamed "
     "field equals typestr",
     INTERFACE + "descr"),
    ("interface.data", "data is an address, which is not 0 if there are elements, and a flag",
     INTERFACE + "data"),
    ("interface.strides", "strides is None, or has as many ints as shape",
     INTERFACE + "strides"),
    ("interface.offset", "offset is an int; NumPy's applies to data without an address",
     INTERFACE + "offset"),
    ("interface.mask", "mask has the same interface without a mask, is of flags, and can be "
     "broadcast",
     INTERFACE + "mask"),
    ("interface.read_only", "read-only memory is flagged", INTERFACE + "data"),
    ("interface.again", "a second read returns the same", INTERFACE + "data", "should"),
    ("interface.lifetime", "the data stay valid as long as the object exists", INTERFACE + "data"),
    ("cuda.stream", "stream is None or a positive int", CUDA + "stream"),
    ("cuda.zero_size", "the address is 0 if there are no elements", CUDA + "data"),
    ("sycl.syclobj", "syclobj is present", SYCL + "syclobj"),
)  # fmt: skip

CONSUMER_RULES = _rules(
    _ALIVE,
    ("consumer.release", "a consumed struct is released once, and not leaked",
     DATA + "Release callback semantics"),
    ("consumer.release_schema", "the schema is released once",
     DATA + "Release callback semantics"),
    ("consumer.values", "offset, bitmap and null_count -1 are honoured",
     DATA + "ArrowArray.offset"),
    ("consumer.lifetime", "the data are kept alive as long as they are used",
     DATA + "Release callback semantics"),
    ("consumer.released", "a released struct is refused", DATA + "Released structure"),
    ("consumer.name", "a capsule with another name is refused", CAPSULE + "Capsule names"),
    ("consumer.malformed", "an array that the consumer refuses is released, too",
     DATA + "Release callback semantics"),
    ("consumer.wait", "data are read after sync_event is done",
     DEVICE + "Synchronization event types"),
    ("consumer.device", "device memory is not read as host memory",
     DEVICE + "ArrowDeviceArray.device_type"),
    ("consumer.reserved", "reserved is ignored", DEVICE + "ArrowDeviceArray.reserved"),
    ("consumer.stream", "a stream is released once", STREAM + "Stream lifetime"),
    ("consumer.stream_released", "nothing is called on a released stream",
     STREAM + "Stream lifetime"),
    ("consumer.stream_out", "get_schema and get_next receive memory to write to",
     STREAM + "The ArrowArrayStream structure"),
    ("consumer.stream_threads", "calls of a stream are serialized", STREAM + "Thread safety"),
    ("consumer.stream_last_error", "get_last_error is called after a failed call only",
     STREAM + "ArrowArrayStream.get_last_error"),
    ("consumer.stream_end", "get_next is not called after the end or an error",
     STREAM + "ArrowArrayStream.get_next", "should"),
    ("consumer.stream_error", "an error of get_next becomes an exception with its message",
     STREAM + "ArrowArrayStream.get_last_error"),
    ("consumer.async_handler", "no callback of the handler is NULL", HANDLER),
    ("consumer.async_ready", "the handler can be called as soon as it is handed over",
     ASYNC + "Thread safety"),
    ("consumer.async_schema", "on_schema moves the schema out, or releases it",
     ASYNC + "Result lifetimes"),
    ("consumer.async_request", "request is called with a positive number", PRODUCER),
    ("consumer.async_alive", "the producer is called after on_schema began and before release",
     ASYNC + "ArrowAsyncProducer Lifetime"),
    ("consumer.async_quiet", "on_error and release call no callback of the producer", HANDLER),
    ("consumer.async_task", "a task that is used after on_next_task is copied during that call",
     HANDLER),
    ("consumer.async_extract", "extract_data is called exactly once for every task", TASK),
    ("consumer.async_error", "on_error becomes an exception with its message", HANDLER, "should"),
    ("consumer.exception", "no exception is raised that ends the program, such as SystemExit",
     PYTHON + "Exception hierarchy"),
    ("consumer.deleter", "the deleter is called once", DLPACK + "DLManagedTensor.deleter"),
    ("consumer.renamed", "the capsule is renamed before it is used",
     DLPACK + "Python Specification"),
    ("consumer.max_version", "a producer without the keyword max_version is called without it",
     ARRAY_API + "from_dlpack", "should"),
    ("consumer.major", "a tensor with another major version is refused and deleted",
     DLPACK + "DLManagedTensorVersioned.version"),
)  # fmt: skip

RULES = PRODUCER_RULES | CONSUMER_RULES

# Of check_backend(), whose source is no specification.
BACKEND_RULES = _rules(
    ("backend.devices", "each device is listed with a name, and another number is refused",
     BACKEND + "The slots"),
    ("backend.memory", "allocations are aligned to 64 bytes and do not overlap",
     BACKEND + "The slots"),
    ("backend.no_memory", "an allocation that fails is an error, and the device works afterwards",
     BACKEND + "Errors"),
    ("backend.copies", "copies in, out, on a device and between devices change no byte",
     BACKEND + "The slots"),
    ("backend.kernels", "a kernel does what arrowdev's source of it does", BACKEND + "The slots"),
    ("backend.event", "an event is done after its work, and not before", BACKEND + "Events"),
    ("backend.wait", "work on a stream begins after the events that it waits for",
     BACKEND + "Events"),
    ("backend.synchronize", "synchronize() returns after all work on the device",
     BACKEND + "The slots"),
    ("backend.stream", "a stream of another device is refused", BACKEND + "The slots"),
    ("backend.release", "memory stays until the work that uses it is done", BACKEND + "Lifetime"),
    ("backend.threads", "several threads use the devices at once", BACKEND + "Threads"),
    ("backend.fork", "a forked child gets an error, and ends; the parent goes on",
     BACKEND + "Forks and the end"),
    ("backend.share", "another process finds the same bytes, after the work that is pending",
     BACKEND + "Other processes"),
)  # fmt: skip


class Broken(NamedTuple):
    """A broken rule: its id in RULES, and a description."""

    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.what}\n    rule {RULES[self.rule]}"


class BrokenRule(AssertionError):
    """One end of a stream broke rules of the specification; ``broken`` lists them."""

    def __init__(self, broken: list[Broken]) -> None:
        super().__init__("\n".join(str(one) for one in broken))
        self.broken = broken
