"""Dask's family "cuda": memory of a device is sent from there. On the stand-in driver."""

import json
from pathlib import Path

import pytest
from sharing import run

pytest.importorskip("pyarrow")
pytest.importorskip("distributed")

CODE = """
sys.path.insert(0, sys.argv[1])
os.environ.pop("ARROWDEV_CUDA_LIBRARY", None)
import fakegpu
driver = fakegpu.load("cuda")
import ctypes, json, threading, pyarrow as pa
import arrowdev.dask
from distributed.protocol import deserialize, serialize
from sharing import VALUES

device = ad.device("cuda:0")
FAMILIES = ("cuda", "dask", "pickle")
RESULTS = {}

class Frame:
    '''Memory into which a transport has received.'''
    def __init__(self, frame):
        self.memory = ad.array(frame, copy=True).buffers[1]
        self.memory.synchronize()
        self.__cuda_array_interface__ = self.memory.__cuda_array_interface__

def dumped(value):
    header, frames = serialize(value, serializers=FAMILIES)
    return header["serializer"], header, frames

def loaded(header, frames):
    is_cuda = header["serializer"] == "cuda"
    return deserialize(header, list(map(Frame, frames)) if is_cuda else frames)

RESULTS["values"] = {}
for name, value in VALUES.items():
    is_buffer = isinstance(value, ad.Buffer)
    is_array = "pyarrow" in type(value).__module__
    value = value if is_buffer else ad.array(value) if is_array else ad.tensor(value)
    family, header, frames = dumped(value.to(device))
    found = loaded(header, frames)
    host = found.to("cpu")
    is_equal = bytes(host) == bytes(value) if is_buffer else host.equals(value)
    RESULTS["values"][name] = family, str(found.device), is_equal, type(found) is type(value)

x = ad.tensor(np.arange(1000)).to(device)
family, header, frames = dumped(ad.record_batch({"a": x, "b": x}))
places = [str(frame.device) for frame in frames]
RESULTS["frames"] = family, places, frames[0].data_ptr == x.data_ptr

_, header, frames = dumped(x[::2])
RESULTS["strided"] = loaded(header, frames).to("cpu").tolist() == list(range(0, 1000, 2))

class Pending:
    def __init__(self, x, stream):
        self.__cuda_array_interface__ = {**x.__cuda_array_interface__, "stream": stream}
        self.memory = x

context, stream = ctypes.c_void_p(), ctypes.c_void_p()
driver.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.library.cuCtxSetCurrent(context)
driver.library.cuStreamCreate(ctypes.byref(stream), 1)
RESULTS["waits"] = []
for make in (lambda y: y, lambda y: y[::2], ad.array, lambda y: ad.array(y)[500:]):
    released = []
    def release():
        driver.library.cuCtxSetCurrent(context)
        released.append(1)
        driver.release(stream.value)
    driver.hold(stream.value)
    y = ad.tensor(Pending(x, stream.value))
    timer = threading.Timer(0.05, release)
    timer.start()
    dumped(make(y))
    RESULTS["waits"].append(len(released))
    timer.join()

x = ad.array(pa.array(["a" * 100] * 1000)).to(device)
_, header, frames = dumped(x[500:502])
found = loaded(header, frames)
RESULTS["slice"] = sum(frame.nbytes for frame in frames), found.to("cpu").to_pylist()

host = ad.array(np.arange(3)), ad.tensor(np.arange(3))
RESULTS["host"] = [dumped(value)[0] for value in host]

header, frames = serialize(host[0].to(device))
found = deserialize(header, [bytearray(frame) for frame in frames])
RESULTS["tcp"] = header["serializer"], str(found.device), found.to("cpu").to_pylist()

_, header, frames = dumped(host[0].to(device))
parts = header["sub-header"]["parts"]
damaged = {
    "short": ["Array"],
    "no class": ["Table", *parts[1:]],
    "no frame": [*parts[:3], [5, 5]],
    "too long": [*parts[:2], [9**9, 0, 0, 2], parts[3]],
}
RESULTS["damaged"] = {}
for name, wrong in damaged.items():
    header["sub-header"]["parts"] = wrong
    try:
        loaded(header, frames)
    except Exception as error:
        RESULTS["damaged"][name] = type(error).__name__
print(json.dumps(RESULTS))
"""


@pytest.fixture(scope="module")
def results():
    return json.loads(run(CODE, Path(__file__).parents[1] / "helpers"))


def test_values(results):
    found = results["values"]
    # The sizes of views are on the device; where there is no memory, there is no frame.
    assert {name for name, (family, *_) in found.items() if family != "cuda"} == {
        "views",
        "no rows",
        "a batch without columns",
        "nothing but nulls",
        "an empty matrix",
    }
    assert len(found) > 20
    for name, (_, *rest) in found.items():
        assert rest == ["cuda:0", True, True], name


def test_frames_are_the_memory_of_the_device(results):
    assert results["frames"] == ["cuda", ["cuda:0", "cuda:0"], True]


def test_frames_are_ready(results):
    """The work that makes the memory has been done."""
    assert results["waits"] == [1, 1, 1, 1]


def test_slice_contains_its_own_rows(results):
    nbytes, found = results["slice"]
    assert nbytes <= 300 and found == ["a" * 100] * 2


def test_strided_memory(results):
    assert results["strided"]


def test_host_memory_takes_the_other_families(results):
    assert results["host"] == ["pickle", "pickle"]


def test_transport_without_devices(results):
    """TCP asks for "dask" and "pickle"."""
    assert results["tcp"] == ["pickle", "cuda:0", [0, 1, 2]]


def test_damaged_headers(results):
    errors = results["damaged"]
    assert set(errors) == {"short", "no class", "no frame", "too long"}
    assert set(errors.values()) <= {"InvalidArrowError", "ValueError", "IndexError"}
