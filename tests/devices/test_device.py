"""ad.device(), ad.Device, ad.DeviceType."""

import copy
import enum
import pickle

import pytest

import arrowdev as ad

np = pytest.importorskip("numpy")

# The table "Device types" of the specification.
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
    assert type(ad.device((17, 0)).type) is int


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
        ((2, 1 << 63), OverflowError),
    ],
    ids=str,
)
def test_bad_specs(spec, error):
    with pytest.raises(error):
        ad.device(spec)


def test_immutable():
    with pytest.raises(AttributeError):
        ad.device("cpu").id = 0
