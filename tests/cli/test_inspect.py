"""`python -m arrowdev inspect`: every protocol, every field, and possible losses."""

import argparse
import json
import os
import signal
import subprocess
import sys

import broken_ends as broken
import numpy as np
import pytest

import arrowdev as ad
import compiler
from arrowdev._cli import expression, inspect
from arrowdev.testing import ScriptedStream, software_device, step

pa = pytest.importorskip("pyarrow")


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "arrowdev", "inspect", *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=compiler.ROOT / "tests",
    )


def warnings_of(obj):
    return [text for _, text in inspect.examine(obj)["warnings"]]


# --- fields ---------------------------------------------------------------------------


def test_every_protocol_is_shown():
    found = inspect.examine(ad.array(np.arange(3)))
    assert set(found["protocols"]) >= set(found["arrowdev takes"]) - {"arrowdev.Array"}
    tensor = inspect.examine(ad.tensor(np.arange(6).reshape(2, 3)))["protocols"]
    assert {
        "__dlpack__",
        "__dlpack_c_exchange_api__",
        "__array_interface__",
        "buffer protocol",
    } < (set(tensor))


def test_array():
    array = pa.array([["a"], None], pa.list_(pa.string()))
    shown = inspect.examine(array)["protocols"]["__arrow_c_device_array__"]
    assert shown["schema"]["format"] == "+l"
    assert shown["schema"]["children[0]"]["format"] == "u"
    struct = shown["device array"]
    assert struct["device"] == "1 (CPU), id -1" and struct["sync_event"] == "NULL"
    node = struct["array"]
    assert (node["length"], node["null_count"], node["offset"], node["n_buffers"]) == (2, 1, 0, 2)
    assert node["buffers"] == [hex(buffer.address) for buffer in array.buffers()[:2]]
    assert len(node["children[0]"]["buffers"]) == 3


def test_dictionary_metadata_and_flags():
    field = pa.field("d", pa.dictionary(pa.int8(), pa.string()), False, {"key": "value"})
    column = pa.array(["a", "b"]).dictionary_encode().cast(field.type)
    batch = pa.record_batch([column], schema=pa.schema([field]))
    shown = inspect.examine(batch)["protocols"]["__arrow_c_array__"]
    child = shown["schema"]["children[0]"]
    assert child["flags"] == "none" and child["metadata"] == {"key": "value"}
    assert child["dictionary"]["format"] == "u"
    assert shown["array"]["children[0]"]["dictionary"]["length"] == 2


def test_many_children_are_cut():
    batch = pa.record_batch({f"c{i}": [1] for i in range(40)})
    shown = inspect.examine(batch)["protocols"]["__arrow_c_array__"]["array"]
    assert shown["..."] == "more children" and "children[32]" not in shown


def test_stream_is_not_read():
    taken = []

    def batches():
        taken.append(1)
        yield pa.record_batch({"a": [1]})

    schema = pa.schema([("a", pa.int64())])
    shown = inspect.examine(pa.RecordBatchReader.from_batches(schema, batches()))["protocols"]
    assert shown["__arrow_c_stream__"]["schema"]["children[0]"]["format"] == "l"
    assert taken == []


def test_single_use_stream():
    """A stream consumed by the inspection is not reported as a refusal."""

    def stream():
        return ad.array_stream(iter([np.arange(3)]))

    shown = inspect.examine(stream(), again=stream)["protocols"]
    assert shown["__arrow_c_stream__"]["schema"]["format"] == "l"
    assert shown["__arrow_c_device_stream__"]["schema"]["format"] == "l"
    assert "handed over" in inspect.examine(stream())["protocols"]["__arrow_c_device_stream__"]


def test_failing_stream():
    error = step.error(5, "arrowdev planned this failure")
    stream = ScriptedStream([], type="int64", schema_error=error, device=False)
    shown = inspect.examine(stream)["protocols"]["__arrow_c_stream__"]
    assert shown["schema"] == "error 5: arrowdev planned this failure"


def test_tensor():
    array = np.arange(6, dtype="f4").reshape(2, 3).T
    shown = inspect.examine(array)["protocols"]["__dlpack__"]
    for kind in ("legacy", "versioned"):
        assert shown[kind]["data"] == hex(array.ctypes.data)
        assert shown[kind]["dtype"] == "code 2, bits 32, lanes 1 (float32)"
        assert (shown[kind]["shape"], shown[kind]["strides"]) == ((3, 2), (1, 3))
    assert shown["versioned"]["flags"] == "none"


def test_refusals_are_shown():
    shown = inspect.examine(pa.array([1, None]))["protocols"]["__dlpack__"]
    # One text if __dlpack_device__ already refuses.
    legacy = shown if isinstance(shown, str) else shown["legacy"]
    assert legacy.startswith("refused: ArrowTypeError: ")


def test_device_memory_is_not_touched():
    with software_device() as device:  # a read would end the process
        array = device.array([1, None, 3])
        found = inspect.examine(ad.array(array))
        struct = found["protocols"]["__arrow_c_device_array__"]["device array"]
        assert struct["device"].startswith("12 (EXT_DEV)") and struct["sync_event"] != "NULL"
        assert "consumers that take no notice of sync_event" in str(found["warnings"])


# --- warnings -------------------------------------------------------------------------

DLPACK = broken._dlpack


class Cuda:
    def __init__(self, **entries):
        interface = {"shape": (0,), "typestr": "<f4", "data": (0, False), "version": 3}
        self.__cuda_array_interface__ = interface | entries


def test_mask_is_shown_with_its_fields():
    masked = Cuda(mask=Cuda(typestr="|t1", stream=7))
    shown = inspect.examine(masked)["protocols"]["__cuda_array_interface__"]
    assert shown["mask"]["typestr"] == "|t1" and shown["mask"]["stream"] == 7
    assert "    typestr  |t1" in "\n".join(inspect.report(inspect.examine(masked)))
    assert "object object" in str(inspect.examine(Cuda(mask=object())))


def test_mask_is_its_own_mask():
    masked = Cuda(typestr="|b1")
    masked.__cuda_array_interface__["mask"] = masked
    shown = inspect.examine(masked)["protocols"]["__cuda_array_interface__"]
    assert shown["mask"]["typestr"] == "|b1" and "Cuda object" in shown["mask"]["mask"]


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (
            broken.ReadOnly(broken.set_flags(1), refuses=False),
            "the read-only flag is lost to a legacy consumer",
        ),
        (broken.ReadOnly(), "the memory is read-only, but READ_ONLY is not set"),
        (broken.Only(knows=("stream",)), "max_version is not understood"),
        (broken.Tensor(broken.set_tensor(strides=None)), "strides are NULL (legacy)"),
        (broken.Tensor(device=(2, 0)), "__dlpack_device__ says 2 (CUDA), id 0"),
        (
            broken.OnDevice(spoil_device=lambda struct: struct.reserved.__setitem__(0, 1)),
            "reserved is not zero",
        ),
        (
            broken.OnDevice(spoil_device=broken.set_device(device_id=3)),
            "the CPU's device_id should be -1",
        ),
        (
            broken.OnDevice(spoil_device=broken.set_device(sync_event=8)),
            "this device type has no events",
        ),
        (broken.Host(broken.set_buffers(broken.misaligned)), "buffers should be aligned"),
        (
            broken.Host(broken.nulls_against_the_schema),
            "the schema says that there are none",
        ),
        (Cuda(mask=object()), "the mask is lost"),
        (Cuda(stream=1), "consumers that take no notice of `stream`"),
        (Cuda(version=2), "before version 3"),
    ],
)  # fmt: skip
def test_warning(obj, text):
    assert any(text in warning for warning in warnings_of(obj)), warnings_of(obj)


def test_no_false_warning():
    # Not a NumPy array: old versions give NULL strides in legacy capsules.
    for obj in (ad.tensor(np.arange(3)), broken.Tensor(), broken.OnDevice()):
        assert warnings_of(obj) == []


def test_lost_nulls():
    assert not any("lost" in text for text in warnings_of(pa.array([1, None])))  # DLPack refuses

    class Both(broken.Host, broken.Tensor):
        def __init__(self):
            broken.Tensor.__init__(self)

    assert "nulls are lost to consumers of __dlpack__" in warnings_of(Both())


# --- the command ----------------------------------------------------------------------


def test_command():
    done = command("numpy.arange(3, dtype='i4')")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("numpy.ndarray\narrowdev takes: __dlpack__, ")
    assert "\n__array_interface__\n  data " in done.stdout


def test_command_as_json():
    done = command("pyarrow.array([1])", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["type"] == "pyarrow.lib.Int64Array"
    assert found["protocols"]["__arrow_c_array__"]["array"]["length"] == 1


@pytest.mark.parametrize("expression", ["1 +", "no_such_module.x", "1/0"])
def test_command_without_an_object(expression):
    done = command(expression)
    assert done.returncode == 2 and done.stdout == "" and "Error: " in done.stderr
    if expression == "1/0":  # the traceback has no arrowdev frames
        frames = [line for line in done.stderr.splitlines() if line.startswith("  File")]
        assert frames == ['  File "<expression>", line 1, in <module>']


def test_attribute_that_raises():
    """The inspection shows the error, of a second object too."""

    class Raises:
        @property
        def __arrow_c_stream__(self):
            raise ValueError("not today")

        __arrow_c_device_stream__ = __arrow_c_stream__

    found = inspect.examine(Raises(), again=Raises)["protocols"]
    assert found == dict.fromkeys(
        ("__arrow_c_stream__", "__arrow_c_device_stream__"), "refused: ValueError: not today"
    )


@pytest.mark.parametrize("is_property", [False, True], ids=["method", "property"])
def test_exception_that_ends_the_program(is_property, capsys):
    obj = broken.Exits("__arrow_c_array__", is_property)
    text = "refused: SystemExit: 0, which ends the program that asks"
    assert inspect.examine(obj)["protocols"] == {"__arrow_c_array__": text}
    arguments = argparse.Namespace(expression=f"broken_ends.{obj}", json=False)
    assert inspect.run(arguments) == 1
    assert text in capsys.readouterr().out
    with pytest.raises(KeyboardInterrupt):
        inspect.examine(broken.Exits("__arrow_c_array__", is_property, KeyboardInterrupt))


def test_object_without_protocols():
    found = inspect.examine([1, 2])
    assert found["protocols"] == {} and found["arrowdev takes"] == []
    assert list(inspect.report(found)) == ["builtins.list", "arrowdev takes: nothing of it"]


# --- expressions ----------------------------------------------------------------------


def test_ways_to_another_process():
    assert inspect.examine(np.arange(3))["to another process"] == []
    with software_device() as device:
        array = ad.array(device.array([1, 2]))
        examined = inspect.examine(array)
        assert examined["to another process"] == ["memory file"]
        assert "to another process: memory file" in list(inspect.report(examined))
        device.fail_at(1, "memory_export")
        (way,) = inspect.examine(array)["to another process"]
        assert way.startswith("refused: DeviceError: memory_export")
        del array


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([1, 2], "malformed: list in place of a dict"),
        ({1: 2, "data": (5,), "version": "3"}, "1        2"),
    ],
)
def test_malformed_dicts(found, text):
    """The expression defines the class itself, so it belongs to no module."""
    members = dict.fromkeys(("__array_interface__", "__cuda_array_interface__"), found)
    done = command(f"type('A', (), {members!r})()")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("__main__.A\n") and done.stdout.count(text) == 2


def test_mask_is_not_a_dict():
    mask = type("Mask", (), {"__cuda_array_interface__": 1})()
    found = inspect.examine(Cuda(mask=mask))["protocols"]["__cuda_array_interface__"]
    assert found["mask"] == "malformed: int in place of a dict"


def run_with_output_to(stdout, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "arrowdev", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=110,
        cwd=compiler.ROOT / "tests",
        env={**os.environ, **environment},
    )


def test_closed_output_pipe():
    """Like `| head`."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        done = run_with_output_to(closed, "inspect", "3")
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "3"],
        ["inspect", "3", "--json"],
        ["check", "arrowdev.schema('int8')"],
        ["matrix", "--only", "memoryview", "--device", "cpu"],
        pytest.param(["doctor"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_output_that_cannot_be_written(arguments):
    with open("/dev/full", "w") as full:
        done = run_with_output_to(full, *arguments)
    message = "cannot write the output: [Errno 28] No space left on device"
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == f"{arguments[0]}: {message}"


def test_output_that_cannot_be_encoded():
    expression = "type('\xe9', (), {})()"
    done = run_with_output_to(subprocess.DEVNULL, "inspect", expression, PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert done.stderr.startswith("inspect: cannot write the output: 'ascii' codec can't encode")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
@pytest.mark.parametrize("arguments", [["inspect", "3"], ["matrix", "--only", "memoryview"]])
def test_without_a_standard_stream(arguments, closed):
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "arrowdev", *arguments],
        timeout=110,
        cwd=compiler.ROOT / "tests",
    )
    assert done.returncode == 0


def test_expression_imports_named_modules():
    assert (
        expression.compiled("xml.dom.minidom.parseString('<a/>').documentElement.tagName")() == "a"
    )
    assert expression.compiled("[x + 1 for x in range(2)]")() == [1, 2]
    assert expression.compiled("(lambda y: y * 2)(3)")() == 6
    fresh = expression.compiled("object()")
    assert fresh() is not fresh()
