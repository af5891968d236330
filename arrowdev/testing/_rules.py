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


PRODUCER_RULES = _rules(
    # --- capsules of both kinds
    ("capsule.result", "a pair of capsules for an array, one for a schema or a stream",
     CAPSULE + "ArrowArray Export"),
    ("capsule.name", "the capsule has the name of its struct", CAPSULE + "Capsule names"),
    ("capsule.live", "a fresh capsule holds a struct that is not released",
     CAPSULE + "Export Protocol"),
    ("capsule.unconsumed", "a capsule that nobody consumed releases its struct, once",
     CAPSULE + "Lifetime Semantics"),
    ("capsule.consumed", "a capsule whose struct was moved out does not release it",
     CAPSULE + "Lifetime Semantics"),
    ("capsule.again", "an object that is no stream can be exported more than once",
     CAPSULE + "Export Protocol", "should"),
    ("capsule.schema", "__arrow_c_schema__ is the schema of the data",
     CAPSULE + "ArrowSchema Export"),
    ("capsule.requested", "a requested schema that is the data's own is no error",
     CAPSULE + "Schema Requests", "should"),
    ("capsule.incompatible", "a requested schema with other fields is refused",
     CAPSULE + "Schema Requests", "should"),
    ("capsule.keyword_none", "unknown keyword arguments that are None are accepted",
     CAPSULE + "Device-aware export"),
    ("capsule.keyword", "other unknown keyword arguments raise NotImplementedError",
     CAPSULE + "Device-aware export"),
    # --- schema
    ("schema.format", "format is a type of the interface",
     DATA + "ArrowSchema.format"),
    ("schema.name", "name is NULL or UTF-8", DATA + "ArrowSchema.name"),
    ("schema.metadata", "metadata is NULL, or counts and lengths that are not negative",
     DATA + "ArrowSchema.metadata"),
    ("schema.flags", "flags are those that are defined", DATA + "ArrowSchema.flags"),
    ("schema.children", "as many children as the format has, none NULL or released",
     DATA + "ArrowSchema.children"),
    ("schema.dictionary", "indices of a dictionary are integers, its values not released",
     DATA + "ArrowSchema.dictionary"),
    # --- array
    ("array.length", "length is at least 0", DATA + "ArrowArray.length"),
    ("array.null_count", "null_count is -1, or from 0 to the length",
     DATA + "ArrowArray.null_count"),
    ("array.nullable", "there are no nulls where the schema says so",
     DATA + "ArrowSchema.flags", "should"),
    ("array.offset", "offset is at least 0", DATA + "ArrowArray.offset"),
    ("array.n_buffers", "as many buffers as the format has", DATA + "ArrowArray.n_buffers"),
    ("array.buffers", "no buffer is NULL but the bitmap of an array without nulls",
     DATA + "ArrowArray.buffers"),
    ("array.alignment", "buffers are aligned to 8 bytes at least",
     DATA + "ArrowArray.buffers", "should"),
    ("array.children", "as many children as the schema has, none NULL or released",
     DATA + "ArrowArray.children"),
    ("array.child_length", "children are long enough for their parent",
     COLUMNAR + "Struct Layout"),
    ("array.dictionary", "a dictionary where the schema has one, and only there",
     DATA + "ArrowArray.dictionary"),
    ("array.contents", "what the buffers hold is as the format has it: offsets, type ids, "
     "indices, UTF-8, null_count", COLUMNAR + "Physical Memory Layout"),
    # --- lifetime
    ("release.marked", "release marks its struct released", DATA + "Release callback semantics"),
    ("release.children", "a child that was moved out outlives its parent",
     DATA + "Moving child arrays"),
    ("release.independent", "the release of one export leaves the others alone",
     DATA + "Release callback semantics"),
    ("release.lifetime", "the data stay until the release, whatever becomes of the object",
     DATA + "Lifetime"),
    # --- device
    ("device.type", "device_type is one that is defined", DEVICE + "ArrowDeviceType"),
    ("device.id", "the device_id of a CPU array is -1",
     DEVICE + "ArrowDeviceArray.device_id", "should"),
    ("device.event", "sync_event is NULL where the device type has none",
     DEVICE + "Synchronization event types"),
    ("device.reserved", "reserved is zero", DEVICE + "ArrowDeviceArray.reserved"),
    # --- streams
    ("stream.callbacks", "no callback of a stream is NULL",
     STREAM + "The ArrowArrayStream structure"),
    ("stream.schema", "get_schema gives the schema, each time the same",
     STREAM + "ArrowArrayStream.get_schema"),
    ("stream.next", "get_next gives arrays, and a released one at the end",
     STREAM + "ArrowArrayStream.get_next"),
    ("stream.same_schema", "each array is of the stream's schema",
     STREAM + "ArrowArrayStream.get_schema"),
    ("stream.device_type", "each array has the stream's device_type",
     DEVICE + "ArrowDeviceArrayStream.device_type"),
    ("stream.lifetime", "schema and arrays outlive the stream", STREAM + "Result lifetimes"),
    ("stream.error", "an error has a code, and a message that is NULL or a C string",
     STREAM + "ArrowArrayStream.get_last_error"),
    ("stream.after_error", "a stream that failed can be released", STREAM + "Stream lifetime"),
    ("stream.end", "after the end of the stream there is no array",
     STREAM + "ArrowArrayStream.get_next"),
    # --- async streams
    ("async.producer", "handler->producer is set before on_schema, with request and cancel",
     HANDLER),
    ("async.producer_alive", "the producer stays as it is until release",
     ASYNC + "ArrowAsyncProducer Lifetime"),
    ("async.schema_first", "on_schema comes once, before anything but on_error", HANDLER),
    ("async.schema", "on_schema brings a schema that is not released", HANDLER),
    ("async.metadata", "metadata are NULL, or counts and lengths that are not negative", HANDLER),
    ("async.task", "extract_data of a task is not NULL", TASK),
    ("async.array", "extract_data gives a valid array of the stream's schema", TASK),
    ("async.device_type", "each array has the producer's device_type", PRODUCER),
    ("async.task_copied", "a copy of a task is extracted when on_next_task is over", HANDLER),
    ("async.discard", "extract_data with NULL cleans up, and is no error", TASK),
    ("async.extract_error", "after extract_data failed, on_error comes", TASK),
    ("async.requested", "no more tasks come than were requested", PRODUCER),
    ("async.request_refused", "request(n) with n <= 0 leads to on_error", PRODUCER, "should"),
    ("async.not_reentrant", "request calls neither on_next_task nor on_error", PRODUCER),
    ("async.cancel_quiet", "cancel calls nothing of the handler but on_error", PRODUCER),
    ("async.cancel_no_error", "a cancel that succeeds leads to no on_error", PRODUCER),
    ("async.after_cancel", "after a cancel further calls of request and cancel do nothing",
     PRODUCER),
    ("async.serialized", "calls of the handler are serialized", ASYNC + "Thread safety"),
    ("async.end", "the end of the stream is a task that is NULL", HANDLER),
    ("async.over", "after the end, an error or a refusal only release follows",
     ASYNC + "Error Handling"),
    ("async.release", "release is called exactly once, as the last call", HANDLER),
    ("async.error", "an error has a code, and a message that is NULL or UTF-8", HANDLER),
    ("async.lifetime", "schema and arrays outlive the stream", ASYNC + "Result lifetimes"),
    # --- tensors
    ("dlpack.name", "a capsule named dltensor or dltensor_versioned",
     DLPACK + "Python Specification"),
    ("dlpack.refusal", "data that DLPack cannot express are refused with BufferError",
     ARRAY_API + "__dlpack__", "should"),
    ("dlpack.max_version", "max_version is understood",
     ARRAY_API + "__dlpack__", "should"),
    ("dlpack.versioned", "max_version=(1, 0) or more gives a versioned capsule",
     ARRAY_API + "__dlpack__", "should"),
    ("dlpack.version", "the version of the capsule has the major number that was asked for",
     ARRAY_API + "__dlpack__"),
    ("dlpack.legacy", "without max_version the capsule is unversioned",
     ARRAY_API + "__dlpack__"),
    ("dlpack.unconsumed", "a capsule that nobody consumed calls the deleter, once",
     DLPACK + "Python Specification"),
    ("dlpack.consumed", "a capsule that was renamed does not call the deleter",
     DLPACK + "Python Specification"),
    ("dlpack.device", "__dlpack_device__ is a pair of ints, and the device of the tensor",
     ARRAY_API + "__dlpack_device__"),
    ("dlpack.dl_device", "dl_device= of the own device is no error",
     ARRAY_API + "__dlpack__", "should"),
    ("dlpack.stream", "stream=None is no error", ARRAY_API + "__dlpack__"),
    ("dlpack.copy_true", "copy=True gives memory of its own, flagged IS_COPIED",
     ARRAY_API + "__dlpack__"),
    ("dlpack.copy_false", "copy=False gives the object's own memory, or BufferError",
     ARRAY_API + "__dlpack__"),
    ("dlpack.read_only", "read-only memory is flagged READ_ONLY",
     DLPACK + "DLPACK_FLAG_BITMASK_READ_ONLY"),
    ("dlpack.read_only_legacy", "read-only memory is refused to legacy consumers",
     DLPACK + "DLPACK_FLAG_BITMASK_READ_ONLY", "should"),
    ("dlpack.flags", "flags are those that are defined",
     DLPACK + "DLManagedTensorVersioned.flags"),
    ("dlpack.shape", "shape is there, and no extent is negative", DLPACK + "DLTensor.shape"),
    ("dlpack.strides", "strides are there where there are dimensions (since 1.2)",
     DLPACK + "DLTensor.strides", "should"),
    ("dlpack.data", "data is NULL only without elements", DLPACK + "DLTensor.data"),
    ("dlpack.dtype", "bits and lanes of the type are not 0, a bool has 8 bits",
     DLPACK + "DLDataType"),
    ("dlpack.lifetime", "the data stay until the deleter is called",
     DLPACK + "DLManagedTensor.deleter"),
    ("dlpack.exchange", "the exchange API has version 1 and all functions that are mandatory",
     DLPACK + "DLPackExchangeAPI"),
    # --- the three dicts: __array_interface__, __cuda_..., __sycl_usm_...
    ("interface.dict", "the attribute is a dict", INTERFACE + "Python side"),
    ("interface.version", "version is 3, of CUDA's up to 3, of SYCL's 1", INTERFACE + "version"),
    ("interface.shape", "shape is a tuple of ints that are not negative, of less than 2**63 bytes",
     INTERFACE + "shape"),
    ("interface.typestr", "typestr is byte order, kind and size", INTERFACE + "typestr"),
    ("interface.descr", "descr is a list of fields as long as typestr in all, and a lone one "
     "without a name is typestr",
     INTERFACE + "descr"),
    ("interface.data", "data is an address, not 0 where there are elements, and a flag",
     INTERFACE + "data"),
    ("interface.strides", "strides are None, or as many ints as shape has",
     INTERFACE + "strides"),
    ("interface.offset", "offset is an int; NumPy's is for data without an address",
     INTERFACE + "offset"),
    ("interface.mask", "mask has the same interface, but no mask, is of flags, can be broadcast",
     INTERFACE + "mask"),
    ("interface.read_only", "read-only memory is flagged", INTERFACE + "data"),
    ("interface.again", "what is read again is the same", INTERFACE + "data", "should"),
    ("interface.lifetime", "the data stay for as long as the object does", INTERFACE + "data"),
    ("cuda.stream", "stream is None or an int above 0", CUDA + "stream"),
    ("cuda.zero_size", "without elements the address is 0", CUDA + "data"),
    ("sycl.syclobj", "syclobj is there", SYCL + "syclobj"),
)  # fmt: skip

CONSUMER_RULES = _rules(
    ("consumer.release", "what was taken is released once, and not leaked",
     DATA + "Release callback semantics"),
    ("consumer.release_schema", "the schema is released once",
     DATA + "Release callback semantics"),
    ("consumer.values", "offset, bitmap and null_count -1 are honoured",
     DATA + "ArrowArray.offset"),
    ("consumer.lifetime", "the data are kept for as long as they are used",
     DATA + "Release callback semantics"),
    ("consumer.released", "a released struct is refused", DATA + "Released structure"),
    ("consumer.name", "a capsule of another name is refused", CAPSULE + "Capsule names"),
    ("consumer.malformed", "an array that it cannot take is released, too",
     DATA + "Release callback semantics"),
    ("consumer.device", "memory that is not the host's is not read as if it were",
     DEVICE + "ArrowDeviceArray.device_type"),
    ("consumer.reserved", "reserved is not looked at", DEVICE + "ArrowDeviceArray.reserved"),
    ("consumer.stream", "a stream is released once", STREAM + "Stream lifetime"),
    ("consumer.stream_released", "nothing is called on a released stream",
     STREAM + "Stream lifetime"),
    ("consumer.stream_out", "get_schema and get_next are given memory to write to",
     STREAM + "The ArrowArrayStream structure"),
    ("consumer.stream_threads", "calls of a stream are serialized", STREAM + "Thread safety"),
    ("consumer.stream_last_error", "get_last_error follows a call that failed",
     STREAM + "ArrowArrayStream.get_last_error"),
    ("consumer.stream_end", "get_next is not called after the end or an error",
     STREAM + "ArrowArrayStream.get_next", "should"),
    ("consumer.stream_error", "an error of get_next is an exception with its message",
     STREAM + "ArrowArrayStream.get_last_error"),
    ("consumer.async_handler", "no callback of the handler is NULL", HANDLER),
    ("consumer.async_ready", "the handler can be called as soon as it was handed over",
     ASYNC + "Thread safety"),
    ("consumer.async_schema", "on_schema moves the schema out, or releases it",
     ASYNC + "Result lifetimes"),
    ("consumer.async_request", "request is called with a number above 0", PRODUCER),
    ("consumer.async_alive", "the producer is called after on_schema began and before release",
     ASYNC + "ArrowAsyncProducer Lifetime"),
    ("consumer.async_quiet", "on_error and release call nothing of the producer", HANDLER),
    ("consumer.async_task", "a task that is used after on_next_task was copied in it", HANDLER),
    ("consumer.async_extract", "extract_data is called exactly once for every task", TASK),
    ("consumer.async_error", "on_error is an exception with its message", HANDLER, "should"),
    ("consumer.deleter", "the deleter is called once", DLPACK + "DLManagedTensor.deleter"),
    ("consumer.renamed", "the capsule is renamed before it is used",
     DLPACK + "Python Specification"),
    ("consumer.max_version", "a producer that knows no max_version is asked without it",
     ARRAY_API + "from_dlpack", "should"),
    ("consumer.major", "a tensor of another major version is refused, and deleted",
     DLPACK + "DLManagedTensorVersioned.version"),
)  # fmt: skip

RULES = PRODUCER_RULES | CONSUMER_RULES


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
