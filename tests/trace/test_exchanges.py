"""ad.trace: imports, exports, conversions, releases, and what runtimes do."""

import ctypes
import gc
import subprocess
import sys
import threading

import pytest
from chrome_trace import check, instants, slices

import arrowdev as ad
from arrowdev.testing import software_device

np = pytest.importorskip("numpy")


def only(data, category):
    found = slices(data, category)
    assert len(found) == 1, found
    return found[0]["args"]


def flows(data, category):
    return [event for event in data["traceEvents"] if event.get("cat") == category]


def test_an_import_says_what_came_from_where():
    x = np.arange(6.0).reshape(2, 3)
    with ad.trace() as t:
        ad.tensor(x)
    check(t.data)
    args = only(t.data, "import")
    assert args["from"] == "numpy.ndarray" and args["to"] == "arrowdev.Tensor"
    assert (args["type"], args["shape"], args["bytes"]) == ("float64", [2, 3], 48)
    assert (args["device"], args["protocol"]) == ("cpu", "buffer protocol")
    assert args["address"] == hex(x.ctypes.data)
    line = test_an_import_says_what_came_from_where.__code__.co_firstlineno + 3
    assert args["line"] == f"test_exchanges.py:{line} in {sys._getframe().f_code.co_name}"


IMPORTS = {
    "array": lambda x: ad.array(x),
    "tensor": lambda x: ad.tensor(x),
    "from_dlpack": lambda x: ad.from_dlpack(x),
    "buffer": lambda x: ad.array(bytes(x)),
    "record_batch": lambda x: ad.record_batch({"a": x, "b": x}),
    "capsules": lambda x: ad.array(ad.array(x).__arrow_c_device_array__()),
}


@pytest.mark.parametrize("kind", IMPORTS)
def test_an_import_and_its_release(kind):
    """Imports keep what they import until the result is released."""
    x = np.arange(4)
    before = sys.getrefcount(x)
    with ad.trace() as t:
        result = IMPORTS[kind](x)
        del result
        gc.collect()
    check(t.data)
    found = slices(t.data, "import")
    releases = {event["args"]["allocation"] for event in slices(t.data, "release")}
    assert found and all(event["args"]["allocation"] in releases for event in found)
    assert sys.getrefcount(x) == before
    assert t.data["otherData"]["summary"]["alive"] == []


def test_what_is_alive_at_the_end():
    with ad.trace() as t:
        kept = ad.array(np.arange(4))
        ad.array(np.arange(5))
    assert t.data["otherData"]["summary"]["alive"] == [
        {"library": "numpy", "count": 1, "bytes": 32}
    ]
    assert kept.to_pylist() == [0, 1, 2, 3]


def capsule_of(array):
    return array.__arrow_c_device_array__()[1]


EXPORTS = {
    "__arrow_c_device_array__": lambda a: a.__arrow_c_device_array__(),
    "__arrow_c_array__": lambda a: a.__arrow_c_array__(),
    "__dlpack__": lambda a: a.__dlpack__(),
}


@pytest.mark.parametrize("protocol", EXPORTS)
def test_an_export_and_its_release(protocol):
    x = np.arange(4)
    array = ad.array(x)
    before = sys.getrefcount(array)
    with ad.trace() as t:
        capsule = EXPORTS[protocol](array)
        del capsule
    check(t.data)
    args = only(t.data, "export")
    assert (args["protocol"], args["from"]) == (protocol, "arrowdev.Array")
    assert args["bytes"] == 32 and args["address"] == hex(x.ctypes.data)
    assert only(t.data, "release")["allocation"] == args["allocation"]
    start, end = flows(t.data, "memory")
    assert start["ph"] == "s" and end["ph"] == "f"
    assert sys.getrefcount(array) == before


OTHER_EXPORTS = {
    "buffer protocol": lambda a: memoryview(a),
    "__array_interface__": lambda a: a.__array_interface__,
    "__arrow_c_stream__": lambda a: a.__arrow_c_stream__(),
    "__arrow_c_device_stream__": lambda a: a.__arrow_c_device_stream__(),
}


@pytest.mark.parametrize("protocol", OTHER_EXPORTS)
def test_an_export_without_a_release(protocol):
    array = ad.array(np.arange(4))
    with ad.trace() as t:
        OTHER_EXPORTS[protocol](array)
    check(t.data)
    assert only(t.data, "export")["protocol"] == protocol


@pytest.mark.parametrize("versioned", [False, True])
def test_memory_that_is_released_after_the_trace(versioned):
    """The release function of the export is called once, on any thread, without the GIL."""
    x = np.arange(1000)
    before = sys.getrefcount(x)
    with ad.trace():
        version = (1, 0) if versioned else None
        capsules = [ad.tensor(x).__dlpack__(max_version=version) for _ in range(8)]
        arrays = [ad.array(x).__arrow_c_device_array__() for _ in range(8)]
    assert sys.getrefcount(x) == before + 16
    with ad.trace():  # the next trace knows nothing of them
        thread = threading.Thread(target=lambda: (capsules.clear(), arrays.clear()))
        thread.start()
        thread.join()
    assert sys.getrefcount(x) == before
    consumer = np.from_dlpack(ad.tensor(x))
    del consumer
    assert sys.getrefcount(x) == before


def test_a_release_without_the_gil():
    """A consumer in C moves the struct, and releases it from where it is then."""
    x = np.arange(4)
    before = sys.getrefcount(x)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    with ad.trace() as t:
        schema, capsule = ad.array(x).__arrow_c_array__()
        source = pointer(capsule, b"arrow_array")
        moved = (ctypes.c_char * 80).from_buffer_copy(ctypes.string_at(source, 80))
        ctypes.c_void_p.from_address(source + 64).value = None  # release: moved
        release = ctypes.c_void_p.from_buffer(moved, 64).value
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(release)(ctypes.addressof(moved))
        assert ctypes.c_void_p.from_buffer(moved, 64).value is None
        del schema, capsule
    assert len(slices(t.data, "release")) == 2  # of the export, and of the import
    assert sys.getrefcount(x) == before


def test_a_conversion_has_both_classes():
    pa = pytest.importorskip("pyarrow")
    x = np.arange(4)
    with ad.trace() as t:
        result = ad.convert(x, pa.Array)
        ad.array(x).into(memoryview)
    check(t.data)
    first, second = (event["args"] for event in slices(t.data, "convert"))
    assert (first["from"], first["to"]) == ("numpy.ndarray", "pyarrow.Int64Array")
    assert (second["from"], second["to"]) == ("arrowdev.Array", "memoryview")
    pairs = {
        (row["from"], row["to"]): (row["count"], row["zero_copy"])
        for row in t.data["otherData"]["summary"]["exchanges"]
    }
    assert pairs["numpy.ndarray", "pyarrow.Int64Array"] == (1, 1)
    assert "numpy.ndarray -> pyarrow.Int64Array: 1, 1 of them without a copy" in t.summary()
    assert result.to_pylist() == [0, 1, 2, 3]


def test_a_copied_import_is_no_zero_copy():
    with ad.trace() as t:
        ad.array(np.arange(8)[::2])
        ad.array(np.arange(8))
    [row] = t.data["otherData"]["summary"]["exchanges"]
    assert (row["count"], row["zero_copy"]) == (2, 1)


def test_batches_of_a_stream():
    pa = pytest.importorskip("pyarrow")
    chunks = pa.chunked_array([[1, 2], [3]])
    with ad.trace() as t:
        assert [len(batch) for batch in ad.array_stream(chunks)] == [2, 1]
    check(t.data)
    found = slices(t.data, "import")
    assert [event["name"] for event in found] == [
        "import pyarrow.ChunkedArray",
        "import a batch",
        "import a batch",
    ]
    assert [event["args"].get("shape") for event in found] == [None, [2], [1]]


def test_a_failed_import_says_so():
    with ad.trace() as t, pytest.raises(TypeError):
        ad.array(object())
    check(t.data)
    args = only(t.data, "import")
    assert args["failed"] and args["from"] == "object"
    assert t.data["otherData"]["summary"]["exchanges"] == []


def test_a_producer_that_uses_arrowdev_is_one_import():
    class Producer:
        def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
            return ad.array(np.arange(3)).__arrow_c_device_array__()

    with ad.trace() as t:
        ad.array(Producer())
    check(t.data)
    assert [event["args"]["to"] for event in slices(t.data, "import")] == ["arrowdev.Array"]
    assert only(t.data, "import")["from"].endswith("Producer")


def test_the_library_that_takes_an_export():
    torch = pytest.importorskip("torch")
    with ad.trace() as t:
        torch.from_dlpack(ad.tensor(np.arange(3)))
    assert only(t.data, "export")["to"] == "torch"


def test_an_arrow_leads_from_the_event_to_the_wait():
    with software_device() as device, ad.trace() as t:
        producer, consumer = device.queue(), device.queue()
        producer.delay = 0.01
        array = ad.array(device.array([1, 2, 3], queue=producer), stream=consumer)
        array.synchronize()
        there = ad.array(np.arange(3)).to("ext_dev:0")
        there.wait(consumer)
        del there, array
        device.synchronize()
    check(t.data)
    assert {"event recorded", "event complete"} <= {
        event["name"] for event in instants(t.data, "event")
    }
    names = {
        event["pid"]: event["args"]["name"]
        for event in t.data["traceEvents"]
        if event["name"] == "process_name"
    }
    waits = [event for event in slices(t.data, "wait") if event["pid"] != 0]
    assert waits and {names[wait["pid"]] for wait in waits} == {"ext_dev:0"}
    assert waits[0]["args"]["why"] == "the stream that was named"
    assert "test_an_arrow_leads" in waits[0]["args"]["line"]
    starts = [event for event in flows(t.data, "event") if event["ph"] == "s"]
    assert starts and all(names[event["pid"]] == "ext_dev:0" for event in starts)


def test_a_device_that_comes_while_a_trace_is_on():
    code = (
        "import arrowdev as ad\n"
        "t = ad.trace().__enter__()\n"
        "from arrowdev.testing import software_device\n"
        "with software_device() as device:\n"
        "    ad.array(b'abc').to('ext_dev:0').synchronize()\n"
        "t.end()\n"
        "print('event recorded' in {event['name'] for event in t.data['traceEvents']})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "True\n"


def test_a_deferred_release():
    with software_device() as device, ad.trace() as t:
        queue = device.queue()
        array = ad.array(device.array([1, 2, 3]))
        array.synchronize()
        queue.hold()
        array.wait(queue)
        del array
        queue.release()
        ad.device("ext_dev:0").synchronize()
    check(t.data)
    [deferred] = slices(t.data, "deferred release")
    assert deferred["dur"] > 0 and deferred["args"]["device"] == "ext_dev:0"


# --- off ------------------------------------------------------------------------------------


class Method(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


def functions():
    """The addresses that CPython calls for what a trace exchanges."""
    word = ctypes.sizeof(ctypes.c_void_p)
    # PyObject_HEAD, then m_ml; of a descriptor d_type, d_name, d_qualname come first
    places = {"builtin_function_or_method": object.__basicsize__}
    descriptor = object.__basicsize__ + 3 * word
    found = []
    for owner in (ad.Array, ad.Tensor, ad.Buffer, ad.ArrayStream, ad._core):
        for name, value in sorted(vars(owner).items()):
            kind = type(value).__name__
            if kind not in (
                "builtin_function_or_method",
                "method_descriptor",
                "getset_descriptor",
            ):
                continue
            place = id(value) + places.get(kind, descriptor)
            definition = ctypes.c_void_p.from_address(place).value
            function = Method.from_address(definition).function
            found.append((owner.__name__, name, definition, function))
    return found


def test_off_all_functions_are_those_from_before():
    before = functions()
    with ad.trace():
        during = functions()
        with pytest.raises(RuntimeError), ad.trace():
            pass
        assert functions() == during
    assert functions() == before
    changed = {new[:2] for new, old in zip(during, before, strict=True) if new != old}
    assert changed >= {
        ("Array", "__arrow_c_device_array__"),
        ("Array", "__dlpack__"),
        ("Tensor", "__dlpack__"),
        ("Tensor", "__cuda_array_interface__"),
        ("Buffer", "into"),
        ("ArrayStream", "__arrow_c_stream__"),
        ("arrowdev._core", "array"),
        ("arrowdev._core", "convert"),
    }
    assert ("Array", "slice") not in changed


def test_a_method_that_was_bound_in_a_trace_works_after_it():
    array = ad.array(np.arange(3))
    with ad.trace():
        export = array.__arrow_c_array__
    with ad.trace() as t:
        pass
    schema, capsule = export()
    assert ad.array((schema, capsule)).to_pylist() == [0, 1, 2]
    assert slices(t.data, "export") == []


def test_calls_that_are_optimised_by_the_interpreter_are_traced():
    x = np.arange(3)

    def loop(n):
        for _ in range(n):
            ad.array(x).__arrow_c_device_array__()

    loop(200)  # the instructions are specialised by now
    with ad.trace() as t:
        loop(5)
    assert len(slices(t.data, "import")) == len(slices(t.data, "export")) == 5
    loop(5)


def test_nvtx_ranges_of_the_python_package(monkeypatch):
    import types

    calls = []
    module = types.ModuleType("nvtx")
    module.push_range = lambda name: calls.append(name)
    module.pop_range = lambda: calls.append("end")
    monkeypatch.setitem(sys.modules, "nvtx", module)
    with ad.trace():
        ad.array(np.arange(3)).__arrow_c_device_array__()
        with pytest.raises(TypeError):
            ad.array(object())
    assert calls == ["array", "end", "__arrow_c_device_array__", "end", "array", "end"]
    monkeypatch.delitem(sys.modules, "nvtx")
    with ad.trace():
        ad.array(np.arange(3))
    assert len(calls) == 6


def test_what_is_put_in_the_place_of_a_function_is_left_alone(monkeypatch):
    """A method that the trace before has bound is still that method."""
    column = ad.array(np.arange(3))
    with ad.trace():
        bound = [column.__arrow_c_device_array__, column.__dlpack__, column.into, ad.tensor]
    for name, other in (
        ("array", lambda x: x),
        ("convert", ad._core._log),
        ("from_dlpack", sorted),
        ("record_batch", None),
        ("array_stream", ad.tensor),
    ):
        monkeypatch.setattr(ad._core, name, other)
    with ad.trace() as t:
        ad.tensor(np.arange(3))
        pair = bound[0]()
        memory = bound[1]()
        assert isinstance(bound[2](np.ndarray), np.ndarray)
    assert len(pair) == 2 and "dltensor" in repr(memory)
    assert len(slices(t.data, "import")) == 1
    assert sorted(event["name"] for event in slices(t.data, "export"))[0].startswith("export")
    monkeypatch.undo()
    with ad.trace() as t:
        ad.array(np.arange(3))
        bound[3](np.arange(3))
    assert len(slices(t.data, "import")) == 2
