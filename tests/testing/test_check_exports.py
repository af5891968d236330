"""What check_producer finds out about the data: on devices without a runtime, by several
protocols, by DLPack's exchange API, and in a requested type."""

import ctypes

import broken_ends as broken
import broken_exports as exports
import numpy as np
import pytest
from broken_ends import Dict, Host, Stream, Tensor

import arrowdev as ad
from arrowdev.testing import (
    ConformanceError,
    _check_elements,
    _conformance,
    _host_read,
    check_producer,
    software_device,
    step,
)

pa = pytest.importorskip("pyarrow")

EVENT = ctypes.create_string_buffer(64)

# No backend of arrowdev's reads the first five; tests find no driver of the others.
FOREIGN = ["VULKAN", "METAL", "VPI", "WEBGPU", "HEXAGON", "CUDA", "CUDA_HOST", "ROCM"]


@pytest.mark.parametrize("type", sorted(_host_read.NOT_IN_ARROW))
def test_type_that_only_dlpack_names(type):
    with pytest.raises(ConformanceError, match=r"device\.type") as caught:
        check_producer(lambda: broken.on_foreign_device(type, sync_event=None))
    assert str(caught.value).count("broken:") == 1


@pytest.mark.parametrize("name", FOREIGN)
def test_device_without_a_runtime(name):
    """What no runtime of this machine can read is not the producer's fault."""
    type = ad.DeviceType[name]
    has_events = type not in _host_read.WITHOUT_EVENTS
    events = (None, ctypes.addressof(EVENT)) if has_events else (None,)
    for event in events:
        report = check_producer(lambda e=event: broken.on_foreign_device(type, sync_event=e))
        assert not report.findings
        if event or name != "CUDA_HOST":  # the host reads that by itself
            assert "array.contents" in report.untried
            assert ("device.memory" in report.untried) == (name != "CUDA_HOST")
            assert "runtime" in report.untried["array.contents"]
        if "array.contents" in report.untried:  # data that are not read are not compared, either
            of_data = {"array.contents", "release.lifetime", "release.independent"}
            assert not of_data & report.held
    report = check_producer(
        lambda: broken.DeviceStream(
            steps=[step.batch([1, None], device_type=type)], device_type=type
        )
    )
    assert not report.findings and "stream.device_type" in report.held


def test_faults_on_a_device_without_a_runtime():
    """The structs are examined as on other devices."""
    vulkan = ad.DeviceType.VULKAN
    for rule, make in {
        "capsule.keyword": lambda: broken.on_foreign_device(vulkan, broken.AnyKeywords),
        "device.reserved": lambda: broken.on_foreign_device(vulkan, reserved=(1, 0, 0)),
    }.items():
        report = _conformance.producer_report(make)
        assert set(report.findings) == {rule}


@pytest.mark.parametrize("function", exports.SOUND_EXCHANGE)
def test_exchange_function_that_fails_without_an_exception(function):
    report = _conformance.producer_report(lambda: exports.exchange(**{function: exports.fail}))
    is_called = function != "managed_tensor_allocator"
    assert set(report.findings) == ({"dlpack.exchange_error"} if is_called else set())
    if is_called:
        assert (
            f"{function} returned -1 and set no" in report.findings["dlpack.exchange_error"].what
        )


@pytest.mark.parametrize(
    "make",
    [
        lambda: exports.Both(Host(), exports.OtherOnDevice()),
        lambda: exports.Both(exports.Other(), Stream()),
        lambda: exports.Both(Host(), Stream(steps=[[7, None, -9]])),
        lambda: exports.Both(Host(), Stream(steps=[[7, 0, -9, 12]])),
        lambda: exports.Both(Tensor(), Host()),
        lambda: exports.Both(Tensor(), Dict(shape=(3,))),
        exports.Shaped,
        lambda: exports.exchange(
            managed_tensor_from_py_object_no_sync=lambda obj, out: exports.give(
                out, exports.managed(1, 2, 4)
            )
        ),
        lambda: exports.exchange(
            dltensor_from_py_object_no_sync=lambda obj, out: exports.give_shape(out, 1, 3)
        ),
    ],
)
def test_exports_that_differ(make):
    assert set(_conformance.producer_report(make).findings) == {"exports.same"}


class TwoOnDevice:
    """A tensor by DLPack, and a column."""

    def __init__(self, tensor, column):
        self.tensor, self.column = ad.tensor(tensor), ad.array(column)

    def __dlpack__(self, **keywords):
        return self.tensor.to("ext_dev:0").__dlpack__(**keywords)

    def __dlpack_device__(self):
        return 12, 0

    def __arrow_c_device_array__(self, requested_schema=None, **keywords):
        return self.column.to("ext_dev:0").__arrow_c_device_array__(requested_schema, **keywords)


def test_exports_from_a_device():
    one, other = np.arange(3), np.array([0, 1, 3])
    with software_device():
        assert "exports.same" in _conformance.producer_report(lambda: TwoOnDevice(one, one)).held
        report = _conformance.producer_report(lambda: TwoOnDevice(one, other))
        assert "[0, 1, 3]" in report.findings["exports.same"].what


def test_shape_of_values_that_cannot_be_read(monkeypatch):
    """As on a device whose runtime fails."""

    def fail(array):
        raise ad.DeviceError("no copy today")

    monkeypatch.setattr(_check_elements, "_on_host", fail)
    assert not _conformance.producer_report(lambda: exports.Both(Host(), Stream())).findings
    report = _conformance.producer_report(exports.Shaped)
    assert "the shape (3,), __array_interface__ (1, 3)" in report.findings["exports.same"].what


def test_requested_type():
    """A label on the bytes of another type is no conversion; to refuse is no fault."""
    assert "capsule.cast" in check_producer(broken.Casts).held
    report = check_producer(Host)  # returns its own type
    assert "capsule.cast" not in report.held | set(report.findings)
    for make in (
        lambda: pa.record_batch({"a": [1, None]}),
        lambda: pa.table({"a": [1, 2], "b": [0.5, 1.5]}),
    ):
        assert "capsule.cast" in _conformance.producer_report(make).held


def test_exports_that_are_the_same():
    for make in (lambda: ad.array(np.arange(3)), lambda: ad.tensor(np.array([1.5, np.nan]))):
        assert "exports.same" in check_producer(make).held
