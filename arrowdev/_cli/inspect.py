"""``python -m arrowdev inspect EXPR``: every protocol of an object, field by field."""

import ctypes
import json

import arrowdev
from arrowdev import _share
from arrowdev._cli import expression
from arrowdev._cli.machine import FORMAT
from arrowdev._cli.terminal import put
from arrowdev._core import _shown
from arrowdev._errors import described
from arrowdev.testing import _abi, _dlpack, _host_read

DESCRIPTION = """\
Show every exchange protocol that an object offers, and every field of every struct.

EXPR is a Python expression; modules that it names are imported:

  python -m arrowdev inspect "pyarrow.array([1, None])"
  python -m arrowdev inspect "torch.zeros(3, 4).t()"

Only structs are read, never the memory of a buffer. Of a stream the schema is asked for, and no
array. The exit status is 1 if a protocol raises what ends a program, such as SystemExit.
"""

SHOWN_CHILDREN = 32


def add_arguments(parser):
    parser.add_argument("expression", metavar="EXPR")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


# --- structs -----------------------------------------------------------------------------------


def pointer(address):
    return hex(address) if address else "NULL"


def device(type_, id_):
    name = _host_read.DEVICE_TYPES.get(type_, "not known")
    return f"{type_} ({name}), id {id_}"


def first_children(pairs):
    """Return the first few children."""
    for i, (step, node) in enumerate(pairs):
        if i == SHOWN_CHILDREN:
            yield "...", "more children"
            return
        yield step, node


def tree(fields, node, show):
    """Return the `fields` of a node and of its descendants."""
    for step, child in first_children(_host_read.below(node)):
        if child is None or isinstance(child, str):
            fields[step] = child or "NULL"
        elif not child.release:
            fields[step] = "released"
        else:
            fields[step] = show(child)
    return fields


def schema_fields(node):
    fields = {
        "format": _host_read.text_at(node.format),
        "name": _host_read.text_at(node.name),
        "flags": ", ".join(_host_read.flag_names(node.flags)) or "none",
        "metadata": {
            key.decode(errors="backslashreplace"): value.decode(errors="backslashreplace")
            for key, value in _host_read.metadata(node)
        },
        "n_children": node.n_children,
        "release": pointer(node.release),
        "private_data": pointer(node.private_data),
    }
    return tree(fields, node, schema_fields)


def array_fields(node):
    fields = {
        "length": node.length,
        "null_count": node.null_count,
        "offset": node.offset,
        "n_buffers": node.n_buffers,
        "buffers": [pointer(address) for address in _host_read.buffers(node)],
        "n_children": node.n_children,
        "release": pointer(node.release),
        "private_data": pointer(node.private_data),
    }
    return tree(fields, node, array_fields)


def device_array_fields(struct):
    return {
        "device": device(struct.device_type, struct.device_id),
        "sync_event": pointer(struct.sync_event),
        "reserved": list(struct.reserved),
        "array": array_fields(struct.array),
    }


def callbacks(struct):
    return {
        name: pointer(getattr(struct, name))
        for name, _ in struct._fields_
        if name in _abi.CALLBACKS or name == "private_data"
    }


def stream_fields(struct):
    fields = callbacks(struct)
    if hasattr(struct, "device_type"):
        fields = {"device_type": device(struct.device_type, "of each array")} | fields
    schema = _abi.ArrowSchema()
    code = _abi.call(struct, "get_schema", ctypes.addressof(schema))
    if code != 0:
        message = _host_read.text_at(_abi.call(struct, "get_last_error"))
        return fields | {"schema": f"error {code}: {message}"}
    fields["schema"] = schema_fields(schema)
    _abi.call(schema, "release")
    return fields


def tensor_fields(tensor):
    return {
        "data": pointer(tensor.data),
        "device": device(tensor.device.type, tensor.device.id),
        "ndim": tensor.ndim,
        "dtype": f"code {tensor.dtype.code}, bits {tensor.dtype.bits}, lanes {tensor.dtype.lanes}"
        f" ({_dlpack.dtype_name(tensor.dtype)})",
        "shape": _dlpack.extents(tensor, "shape"),
        "strides": _dlpack.extents(tensor, "strides"),
        "byte_offset": tensor.byte_offset,
    }


def managed_fields(struct):
    fields = tensor_fields(struct.tensor)
    fields["manager_ctx"] = pointer(struct.manager_ctx)
    fields["deleter"] = pointer(struct.deleter)
    if isinstance(struct, _dlpack.DLManagedTensorVersioned):
        names = {1: "READ_ONLY", 2: "IS_COPIED", 4: "IS_SUBBYTE_TYPE_PADDED"}
        flags = [name for bit, name in names.items() if struct.flags & bit]
        version = f"{struct.version.major}.{struct.version.minor}"
        fields = {"version": version, "flags": ", ".join(flags) or "none"} | fields
    return fields


# --- protocols ---------------------------------------------------------------------------------


# A capsule stays in a variable while its struct is read.


def show_schema(obj):
    capsule = obj.__arrow_c_schema__()
    return schema_fields(_abi.inside(capsule, "arrow_schema"))


def show_array(obj):
    schema, array = obj.__arrow_c_array__()
    return {
        "schema": schema_fields(_abi.inside(schema, "arrow_schema")),
        "array": array_fields(_abi.inside(array, "arrow_array")),
    }


def show_device_array(obj):
    schema, array = obj.__arrow_c_device_array__()
    return {
        "schema": schema_fields(_abi.inside(schema, "arrow_schema")),
        "device array": device_array_fields(_abi.inside(array, "arrow_device_array")),
    }


def show_stream(obj):
    capsule = obj.__arrow_c_stream__()
    return stream_fields(_abi.inside(capsule, "arrow_array_stream"))


def show_device_stream(obj):
    capsule = obj.__arrow_c_device_stream__()
    return stream_fields(_abi.inside(capsule, "arrow_device_array_stream"))


# DLPack's "no synchronization": an inspection enqueues no work.
NO_SYNC = {2: -1, 10: -1, 13: -1}


def show_dlpack(obj):
    type_, id_ = (int(part) for part in obj.__dlpack_device__())
    stream = {"stream": NO_SYNC[type_]} if type_ in NO_SYNC else {}
    found = {"__dlpack_device__": device(type_, id_)}
    for name, keywords in (("legacy", {}), ("versioned", {"max_version": (1, 3)})):
        try:
            capsule = obj.__dlpack__(**stream, **keywords)
            found[name] = managed_fields(_dlpack.inside(capsule))
        except Exception as error:
            found[name] = refusal(error)
    return found


def show_exchange_api(obj):
    capsule = type(obj).__dlpack_c_exchange_api__
    table = _dlpack.inside(capsule)
    functions = [name for name, _ in table._fields_ if name not in ("version", "prev_api")]
    return {
        "version": f"{table.version.major}.{table.version.minor}",
        "prev_api": pointer(table.prev_api),
    } | {name: pointer(getattr(table, name)) for name in functions}


def dictionary(name):
    def show(obj):
        found = getattr(obj, name)
        shown = fields(found)
        if isinstance(found, dict) and hasattr(found.get("mask"), name):
            shown["mask"] = fields(getattr(found["mask"], name))  # a nested mask is only named
        return shown

    def fields(found):
        if not isinstance(found, dict):
            return f"malformed: {type(found).__name__} in place of a dict"
        return {str(key): plain(value) for key, value in found.items()}

    return show


def show_buffer(obj):
    with memoryview(obj) as view:
        return {
            "format": view.format,
            "itemsize": view.itemsize,
            "shape": view.shape,
            "strides": view.strides,
            "nbytes": view.nbytes,
            "readonly": view.readonly,
            "c_contiguous": view.c_contiguous,
            "f_contiguous": view.f_contiguous,
        }


def plain(value):
    """Return a value of a dict interface; an object, such as a queue, becomes its name."""
    if isinstance(value, (type(None), bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return repr(value)


PROTOCOLS = {
    "__arrow_c_schema__": show_schema,
    "__arrow_c_array__": show_array,
    "__arrow_c_device_array__": show_device_array,
    "__arrow_c_stream__": show_stream,
    "__arrow_c_device_stream__": show_device_stream,
    "__dlpack__": show_dlpack,
    "__dlpack_c_exchange_api__": show_exchange_api,
    "__array_interface__": dictionary("__array_interface__"),
    "__cuda_array_interface__": dictionary("__cuda_array_interface__"),
    "__sycl_usm_array_interface__": dictionary("__sycl_usm_array_interface__"),
}


ENDS = "which ends the program that asks"


def refusal(error):
    ending = "" if isinstance(error, Exception) else f", {ENDS}"
    return f"refused: {described(error)}{ending}"


def is_offered(obj, name):
    try:
        return hasattr(type(obj) if name == "__dlpack_c_exchange_api__" else obj, name)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return True  # the inspection shows the failure


def has_buffer(obj):
    try:
        memoryview(obj).release()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return False
    return True


WITHOUT_NULLS = (
    "__dlpack__", "__array_interface__", "__sycl_usm_array_interface__", "buffer protocol",
)  # fmt: skip


# --- warnings ----------------------------------------------------------------------------------


def nodes(fields, path=""):
    """Yield (path, fields) of an array or schema and its descendants."""
    yield path, fields
    for step, child in fields.items():
        if isinstance(child, dict) and (step.startswith("children[") or step == "dictionary"):
            yield from nodes(child, f"{path}.{step}" if path else step)


def warn_of_device_array(found):
    struct = found.get("device array")
    if struct is None:
        return
    if any(struct["reserved"]):
        yield "reserved is not zero (specification, ArrowDeviceArray.reserved)"
    type_ = int(struct["device"].split()[0])
    if type_ in _host_read.WITHOUT_EVENTS and struct["sync_event"] != "NULL":
        yield "this device type has no events, but sync_event is not NULL"
    if type_ == 1 and not struct["device"].endswith("id -1"):
        yield "the CPU's device_id should be -1"
    if struct["sync_event"] != "NULL":
        yield "consumers that take no notice of sync_event read data that may not be there yet"


def warn_of_array(found, others):
    array = found.get("array") or found.get("device array", {}).get("array")
    if array is None:
        return
    schemas = dict(nodes(found["schema"]))
    for path, node in nodes(array):
        where = f" ({path})" if path else ""
        if any(int(b, 16) % 8 for b in node["buffers"] if b != "NULL"):
            yield f"buffers should be aligned to 8 bytes at least{where}"
        flags = schemas.get(path, {}).get("flags", "NULLABLE")
        if node["null_count"] > 0 and "NULLABLE" not in flags:
            yield f"there are nulls, and the schema says that there are none{where}"
        if others and node["null_count"] != 0 and node["buffers"][:1] not in ([], ["NULL"]):
            yield f"nulls are lost to consumers of {', '.join(others)}{where}"


def warn_of_dlpack(found, is_readonly):
    legacy, versioned = found["legacy"], found["versioned"]
    flags = versioned.get("flags", "") if isinstance(versioned, dict) else ""
    if isinstance(legacy, dict) and ("READ_ONLY" in flags or is_readonly):
        yield "the read-only flag is lost to a legacy consumer"
    if is_readonly and isinstance(versioned, dict) and "READ_ONLY" not in flags:
        yield "the memory is read-only, but READ_ONLY is not set"
    if isinstance(versioned, str) and isinstance(legacy, dict):
        yield "max_version is not understood: consumers fall back to the legacy capsule"
    for name, struct in (("legacy", legacy), ("versioned", versioned)):
        if isinstance(struct, dict) and struct["strides"] is None and struct["ndim"] > 0:
            yield f"strides are NULL ({name}), which DLPack forbids since 1.2"
    advertised = found["__dlpack_device__"]
    for struct in (legacy, versioned):
        if isinstance(struct, dict) and struct["device"] != advertised:
            yield f"__dlpack_device__ says {advertised}, the tensor {struct['device']}"


def warn_of_cuda_interface(found):
    if found.get("mask") is not None:
        yield "the mask is lost to consumers that do not look for one"
    version = found.get("version")
    tells_stream = isinstance(version, int) and version >= 3
    if tells_stream and found.get("stream") is not None:
        yield "consumers that take no notice of `stream` read data that may not be there yet"
    if not tells_stream:
        yield "before version 3 the interface does not say which stream to wait for"


def gives_data(fields):
    """Whether a protocol gives the data in at least one way (DLPack has two)."""
    ways = [fields[name] for name in ("legacy", "versioned") if name in fields]
    return not ways or any(isinstance(way, dict) for way in ways)


def warnings_of(found):
    """Return (protocol, text) for each fault, and for each loss of information."""
    shown = {name: fields for name, fields in found.items() if isinstance(fields, dict)}
    is_readonly = any(
        (
            shown.get("buffer protocol", {}).get("readonly", False),
            *(
                any(fields["data"][1:])
                for name, fields in shown.items()
                if name.endswith("array_interface__") and isinstance(fields.get("data"), list)
            ),
        )
    )
    others = [name for name in WITHOUT_NULLS if name in shown and gives_data(shown[name])]
    for name, fields in shown.items():
        makers = [warn_of_device_array(fields), warn_of_array(fields, others)]
        if name == "__dlpack__":
            makers = [warn_of_dlpack(fields, is_readonly)]
        elif name == "__cuda_array_interface__":
            makers = [warn_of_cuda_interface(fields)]
        for maker in makers:
            yield from ((name, text) for text in maker)


def protocols(obj):
    """Return what arrowdev takes: nothing of an object that fails when it is asked."""
    try:
        return list(arrowdev.protocols(obj))
    except KeyboardInterrupt:
        raise
    except BaseException:
        return []


def ways_to_others(obj, found):
    """Return how share() would hand memory of a device to another process; [] for other memory."""
    if all(name.endswith(("schema__", "stream__", "api__")) for name in found):
        return []
    try:
        return list(_share.ways(obj))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        is_about_it = isinstance(error, arrowdev.DeviceError) or (
            isinstance(error, arrowdev.ExchangeError) and error.reason == "share"
        )
        return [refusal(error)] if is_about_it else []


def is_ending(fields):
    """Whether the protocol raised what no program survives that does not expect it."""
    return isinstance(fields, str) and fields.endswith(ENDS)


def fields_of_another(name, error, again):
    """Return the fields of a new object, for a protocol that failed with `error`."""
    if again is None:
        return refusal(error)
    try:
        return PROTOCOLS[name](again())
    except KeyboardInterrupt:
        raise
    except BaseException as own:
        return refusal(own)


# --- output ------------------------------------------------------------------------------------


def examine(obj, again=None):
    """Return {"type", "arrowdev takes", "to another process", "protocols", "warnings"}.

    "protocols" is {name: fields or reason}, "warnings" is [[name, text]].

    Some streams can be exported only once: `again` creates another `obj` if the inspection of one
    protocol has consumed the object.
    """
    found = {}
    is_taken = False
    for name, show in PROTOCOLS.items():
        if is_offered(obj, name):
            try:
                found[name] = show(obj)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                found[name] = fields_of_another(name, error, again if is_taken else None)
            is_taken |= name.endswith("stream__")
    if has_buffer(obj):
        found["buffer protocol"] = show_buffer(obj)
    kind = type(obj)
    return {
        "type": f"{kind.__module__}.{kind.__qualname__}",
        "arrowdev takes": protocols(obj),
        "to another process": ways_to_others(obj, found),
        "protocols": found,
        "warnings": [list(warning) for warning in dict.fromkeys(warnings_of(found))],
    }


def lines(fields, indent):
    width = max(
        (len(_shown(name)) for name, value in fields.items() if not is_nested(value)), default=0
    )
    for name, value in fields.items():
        if is_nested(value):
            yield f"{indent}{_shown(name)}"
            yield from lines(value, indent + "  ")
        else:
            yield f"{indent}{_shown(name):{width}}  {_shown(value_text(value))}"


def is_nested(value):
    return isinstance(value, dict) and bool(value)


def value_text(value):
    if isinstance(value, dict):
        return "none"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(map(str, value)) + ("," if len(value) == 1 else "") + ")"
    return "NULL" if value is None else str(value)


def report(examined):
    yield _shown(examined["type"])
    yield "arrowdev takes: " + (", ".join(examined["arrowdev takes"]) or "nothing of it")
    if examined["to another process"]:
        yield "to another process: " + _shown(", ".join(examined["to another process"]))
    for name, fields in examined["protocols"].items():
        yield ""
        yield name
        yield from lines(fields, "  ") if isinstance(fields, dict) else [f"  {_shown(fields)}"]
    if examined["warnings"]:
        yield ""
        yield "Warnings"
        yield from (f"  {name}: {_shown(text)}" for name, text in examined["warnings"])


def run(arguments):
    try:
        make = expression.compiled(arguments.expression)
        obj = make()
    except expression.ERRORS as error:
        expression.explain(error)
        return 2
    examined = examine(obj, again=make)
    if arguments.json:
        put(json.dumps({"format": FORMAT, **examined}, indent=2))
    else:
        put("\n".join(report(examined)))
    return 1 if any(is_ending(fields) for fields in examined["protocols"].values()) else 0
