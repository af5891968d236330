"""ad.device(), ad.Device, ad.DeviceType."""

import copy
import enum
import pickle
import sys
import types

import pytest
from peer import Peer

import arrowdev as ad

dpctl = Peer("dpctl")
jax = Peer("jax")
np = Peer("numpy")
pa = Peer("pyarrow")
torch = Peer("torch")

np = pytest.importorskip("numpy")

# The table "Device types" of the specification, and the two that DLPack alone names.
TYPES = {
    "CPU": 1,
    "CUDA": 2,
    "CUDA_HOST": 3,
    "OPENCL": 4,
    "VULKAN": 7,
    "METAL": 8,
    "VPI": 9,
    "ROCM": 10,
    "ROCM_HOST": 11,
    "EXT_DEV": 12,
    "CUDA_MANAGED": 13,
    "ONEAPI": 14,
    "WEBGPU": 15,
    "HEXAGON": 16,
    "MAIA": 17,
    "TRAINIUM": 18,
}


def test_device_types():
    assert issubclass(ad.DeviceType, enum.IntEnum)
    assert {member.name: member.value for member in ad.DeviceType} == TYPES
    assert ad.DeviceType.CUDA == 2 and ad.DeviceType(10) is ad.DeviceType.ROCM
    assert pickle.loads(pickle.dumps(ad.DeviceType.CUDA)) is ad.DeviceType.CUDA
    assert ad.DeviceType.__module__ == "arrowdev"
    with pytest.raises(ValueError, match="99"):
        ad.DeviceType(99)


@pytest.mark.parametrize(("name", "value"), TYPES.items())
def test_names(name, value):
    device = ad.device(name.lower())
    assert device.type is ad.DeviceType(value)
    assert device.id == (-1 if name == "CPU" else 0)
    assert ad.device(f"{name}:0") == ad.device(f"{name.lower()}:0") == device
    numbered = ad.device((value, 3))
    if name != "CPU":
        assert ad.device(f"{name.lower()}:3") == numbered != device
        assert (str(numbered), numbered.id) == (f"{name.lower()}:3", 3)
    assert eval(repr(numbered), {"arrowdev": ad}) == numbered


@pytest.mark.parametrize(
    "device", ["cpu", "cuda:0", "opencl:7", (2, -1), (99, 4), (1, 5), (-3, 0)]
)
def test_repr_str_and_pickle(device):
    device = ad.device(device)
    assert str(device) == device.name
    for again in (
        eval(repr(device), {"arrowdev": ad}),
        pickle.loads(pickle.dumps(device)),
        copy.copy(device),
        copy.deepcopy(device),
        ad.device((device.type, device.id)),
        ad.device(device),
    ):
        assert again == device and hash(again) == hash(device)
        assert (again.type, again.id) == (device.type, device.id)


def test_one_cpu():
    cpus = [ad.device(spec) for spec in ("cpu", "cpu:0", (1, -1), (1, 0))]
    assert len(set(cpus)) == 1
    assert all(cpu == cpus[0] and (cpu != cpus[0]) is False for cpu in cpus)
    assert ad.device((1, 1)) != cpus[0] != ad.device((1, -2))


def test_equality():
    device = ad.device("cuda:1")
    for other in ("cuda:0", "cuda_host:1", "rocm:1", (2, -1)):
        assert device != ad.device(other)
    assert device != "cuda:1" and device != (2, 1) and device is not None
    with pytest.raises(TypeError):
        device < device  # noqa: B015


def test_unknown_types_are_plain_ints():
    device = ad.device((99, 3))
    assert type(device.type) is int and device.type == 99
    assert device.name == "device(99):3"
    assert type(ad.device((19, 0)).type) is int


def test_index_objects():
    assert ad.device((np.int32(2), np.int64(1))) == ad.device("cuda:1")


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "gpu",
        "cuda:",
        "cuda:x",
        "cuda:-1",
        "cuda:1.0",
        " cuda",
        "cuda:1 ",
        "cuda:0x1",
        "cpu:1",
        "cuda:9999999999",
        "cuda\x00:0",
        "cuda:0\x00",
        "cüda",
        ":0",
        "1",
    ],
)
def test_bad_names(spec):
    with pytest.raises(ValueError, match=r"unknown device|NUL"):
        ad.device(spec)


def test_bad_pair_error_says_what_was_found():
    for pair in (("cuda", 0), (2, "0"), (2, 1.0), (2,)):
        with pytest.raises(TypeError, match=r"\(type, id\), two ints, not \("):
            ad.device(pair)
    for pair, what in (((2**40, 0), "type 1099511627776"), ((2, 2**64), f"id {2**64}")):
        with pytest.raises(ValueError, match=f"device {what} is out of range"):
            ad.device(pair)


def test_bad_name_error_lists_valid_forms():
    with pytest.raises(ValueError, match=r"unknown device 'gpu'.*\"cuda:0\".*DeviceType"):
        ad.device("gpu")


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (None, TypeError),
        (2, TypeError),
        (ad.DeviceType.CUDA, TypeError),
        ([2, 0], TypeError),
        (b"cuda", TypeError),
        ((2,), TypeError),
        ((2, 0, 0), TypeError),
        (("cuda", 0), TypeError),
        ((2, None), TypeError),
        ((2.0, 0), TypeError),
        ((1 << 31, 0), ValueError),
        ((1 << 70, 0), ValueError),
        ((2, 1 << 63), ValueError),
    ],
    ids=str,
)
def test_bad_specs(spec, error):
    with pytest.raises(error):
        ad.device(spec)


def test_immutable():
    with pytest.raises(AttributeError):
        ad.device("cpu").id = 0


# --- devices of other libraries --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cpu", "cpu"),
        ("cpu:0", "cpu"),
        ("cuda:1", "cuda:1"),
        ("cuda", "cuda:0"),
        ("xpu:2", "oneapi:2"),
        ("mps", "metal:0"),
    ],
)
def test_torch_device(name, expected):
    assert ad.device(torch.device(name)) == ad.device(expected)


def test_torch_device_of_rocm(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.2")
    assert ad.device(torch.device("cuda:1")) == ad.device("rocm:1")


def test_current_device_of_torch(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert ad.device(torch.device("cuda")) == ad.device("cuda:3")


def test_jax_device():
    assert ad.device(jax.devices()[0]) == ad.device("cpu")


def made_up(module, name, **attributes):
    """An object whose class says that it is `name` of `module`."""
    return type(name, (), {"__module__": module, **attributes})()


@pytest.mark.parametrize(
    ("version", "expected"), [("cuda 12090", "cuda:2"), ("PJRT C API\nrocm 60300", "rocm:2")]
)
def test_jax_device_of_a_gpu(version, expected):
    client = types.SimpleNamespace(platform_version=version)
    gpu = made_up("jaxlib._jax", "Device", platform="gpu", local_hardware_id=2, client=client)
    assert ad.device(gpu) == ad.device(expected)


@pytest.mark.parametrize(("is_hip", "expected"), [(False, "cuda:1"), (True, "rocm:1")])
def test_cupy_device(monkeypatch, is_hip, expected):
    runtime = types.SimpleNamespace(runtime=types.SimpleNamespace(is_hip=is_hip))
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=runtime))
    assert ad.device(made_up("cupy.cuda.device", "Device", id=1)) == ad.device(expected)


def test_dpctl_device():
    """The id is the index in dpctl.get_devices(), as in DLPack."""
    queue = made_up("dpctl._sycl_device", "SyclDevice", get_device_id=lambda self: 4)
    assert ad.device(queue) == ad.device("oneapi:4")
    for i, device in enumerate(dpctl.get_devices()):
        assert ad.device(device) == ad.device(f"oneapi:{i}")


def test_unknown_devices_of_libraries():
    with pytest.raises(ValueError, match="meta"):
        ad.device(torch.device("meta"))
    tpu = made_up(
        "jaxlib._jax",
        "Device",
        platform="tpu",
        client=types.SimpleNamespace(platform_version="tpu"),
    )
    with pytest.raises(ValueError, match="unknown device"):
        ad.device(tpu)
    with pytest.raises(TypeError, match="a device of torch, jax, dpctl or CuPy, not Device"):
        ad.device(made_up("mine", "Device"))


def test_every_function_with_a_device():
    here = torch.device("cpu")
    x = np.arange(3)
    assert ad.array(x, device=here).to_pylist() == [0, 1, 2]
    assert ad.tensor(x, device=here).data_ptr == x.ctypes.data
    assert ad.from_dlpack(x, device=here).shape == (3,)
    assert ad.convert(x, torch.Tensor, device=here).tolist() == [0, 1, 2]
    assert ad.array(x).to(here).to_pylist() == [0, 1, 2]
    assert str(ad.tensor(x).to(jax.devices()[0]).device) == "cpu"


# --- device= of tensor() and convert() -------------------------------------------------------


@pytest.mark.parametrize("copy_", [None, True])
def test_tensor_on_a_device(software, copy_):
    x = np.arange(6.0).reshape(2, 3)
    there = ad.tensor(x, device="ext_dev:0", copy=copy_)
    assert str(there.device) == "ext_dev:0" and there.shape == (2, 3)
    back = ad.tensor(there, device="cpu", copy=copy_, order="F")
    assert np.asarray(back).tolist() == x.tolist() and back.strides == (1, 2)
    filled = ad.tensor(pa.array([1, None]), device="ext_dev:0", nulls="fill", fill_value=5)
    assert np.asarray(filled.to("cpu")).tolist() == [1, 5]
    assert ad.tensor(there, device="ext_dev:0").data_ptr == there.data_ptr
    for target, source in (("ext_dev:0", x), ("cpu", there), ("ext_dev:1", there)):
        with pytest.raises(ad.ExchangeError, match="takes a copy") as info:
            ad.tensor(source, device=target, copy=False)
        assert info.value.reason == "copy"


def test_convert_brings_data_to_a_device(software):
    x = np.arange(3.0)
    there = ad.convert(x, ad.Tensor, device="ext_dev:0")
    assert str(there.device) == "ext_dev:0"
    for source in (there, ad.array(there)):
        assert ad.convert(source, np.ndarray, device="cpu").tolist() == [0, 1, 2]
        assert ad.convert(source, pa.Array, device="cpu").to_pylist() == [0, 1, 2]
        assert ad.convert(source, torch.Tensor, device="cpu", copy=True).tolist() == [0, 1, 2]
    with pytest.raises(ad.ExchangeError, match="takes a copy"):
        ad.convert(there, np.ndarray, device="cpu", copy=False)


def test_convert_with_nulls_argument():
    column = pa.array([1, None, 3])
    for cls in (np.ndarray, torch.Tensor):
        assert ad.convert(column, cls, nulls="fill", fill_value=9).tolist() == [1, 9, 3]
        assert len(ad.convert(column, cls, nulls="ignore")) == 3
        with pytest.raises(ad.ExchangeError, match="nulls"):
            ad.convert(column, cls, nulls="raise")
    assert ad.convert(column, pa.Array).to_pylist() == [1, None, 3]
    assert ad.convert(column, pa.Array, nulls="fill", fill_value=9).to_pylist() == [1, 9, 3]
    with pytest.raises(ValueError, match="go together"):
        ad.convert(column, np.ndarray, nulls="fill")
    with pytest.raises(ValueError, match="nulls must be"):
        ad.convert(column, np.ndarray, nulls="drop")
