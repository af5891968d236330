"""What a producer or consumer can break: each rule with the paragraph it stands in."""

from __future__ import annotations

from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Any, Literal

DATA = "C data interface, "
STREAM = "C stream interface, "
DEVICE = "C device data interface, "
CAPSULE = "PyCapsule interface, "
COLUMNAR = "columnar format, "
DLPACK = "DLPack, "
ARRAY_API = "Python array API standard, "


@dataclass(frozen=True)
class Rule:
    """`level`: "must", or "should" for what the text recommends."""

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
    # --- life
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
    ("consumer.stream", "a stream is read to its end, and released once",
     STREAM + "Stream lifetime"),
    ("consumer.stream_chunks", "each array of a stream is released once",
     STREAM + "Result lifetimes"),
    ("consumer.stream_end", "get_next is not called after the end or an error",
     STREAM + "ArrowArrayStream.get_next"),
    ("consumer.stream_error", "an error of get_next is an exception with its message",
     STREAM + "ArrowArrayStream.get_last_error"),
    ("consumer.deleter", "the deleter is called once", DLPACK + "DLManagedTensor.deleter"),
    ("consumer.renamed", "the capsule is renamed before it is used",
     DLPACK + "Python Specification"),
    ("consumer.max_version", "a producer that knows no max_version is asked without it",
     ARRAY_API + "from_dlpack", "should"),
    ("consumer.major", "a tensor of another major version is refused, and deleted",
     DLPACK + "DLManagedTensorVersioned.version"),
)  # fmt: skip

RULES = PRODUCER_RULES | CONSUMER_RULES


@dataclass(frozen=True)
class Finding:
    """A rule that is broken, and what was found."""

    rule: Rule
    what: str

    def __str__(self) -> str:
        word = "broken" if self.rule.level == "must" else "not followed"
        return f"{word}: {self.rule}: {self.what}"


class ConformanceError(AssertionError):
    """A library does not do what the specification says."""


@dataclass
class Report:
    """What a check found. Rules that are neither held nor broken did not apply."""

    subject: str
    held: set[str] = field(default_factory=set)
    findings: dict[str, Finding] = field(default_factory=dict)

    def hold(self, id: str, is_held: object, what: str) -> bool:
        """Note that a rule was looked at; `what` was found where it was not held."""
        if is_held:
            if id not in self.findings:
                self.held.add(id)
        else:
            self.held.discard(id)
            self.findings.setdefault(id, Finding(RULES[id], what))
        return bool(is_held)

    def attempt(self, id: str, call: Any, *arguments: Any, **keywords: Any) -> Any:
        """What the call returns; None, and a finding, where it raises."""
        try:
            return call(*arguments, **keywords)
        except Exception as error:
            self.hold(id, False, f"{type(error).__name__}: {error}")
            return None

    @property
    def broken(self) -> list[Finding]:
        """Findings of the level "must"."""
        return [f for f in self.findings.values() if f.rule.level == "must"]

    def require(self, ignore: Collection[str] = (), recommended: bool = False) -> None:
        """ConformanceError, unless nothing is broken but what is to be ignored."""
        unknown = set(ignore) - set(RULES)
        if unknown:
            raise ValueError(f"no such rules: {', '.join(sorted(unknown))}")
        found = [
            finding
            for finding in self.findings.values()
            if finding.rule.id not in ignore and (recommended or finding.rule.level == "must")
        ]
        if found:
            raise ConformanceError("\n".join([f"{self.subject}:", *lines(found)]))


def lines(findings: Iterable[Finding]) -> list[str]:
    return [f"  {finding}" for finding in findings]
