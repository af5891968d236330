"""The kit finds each of the classic faults, each time.

ARROWDEV_EXAMPLES sets how often it is tried, 20 times at most.
"""

import gc
import json
import os
import re
import subprocess
import sys

import broken_devices as devices
import broken_ends as broken
import broken_exports as exports
import numpy as np
import pytest
from broken_consumers import Consumer
from broken_devices import Forgetful, Numbers
from broken_ends import Dict, Host, OnDevice, Stream, Tensor

import arrowdev as ad
import compiler
from arrowdev.testing import _check_async, _conformance, _leaks, software_device

pytestmark = pytest.mark.timeout(600)  # with many examples
EXAMPLES = int(os.environ.get("ARROWDEV_EXAMPLES", "1"))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No long waits for what a faulty end never does."""
    monkeypatch.setattr(_check_async, "PATIENCE", 0.001)
    monkeypatch.setattr(_check_async, "LINGER", 0.001)
    monkeypatch.setattr(_leaks, "LINGER", 0.01)


def find(make):
    gc.freeze()  # what checks keep for good is not collected again and again
    with software_device():
        return _conformance.producer_report(make)


def consume(consumer, read):
    gc.freeze()
    with software_device():
        return _conformance.consumer_report(consumer, read=read)


# --- producers with a fault -----------------------------------------------------------


class Labels(Tensor):
    """Strides that repeat the first element, in one of two protocols."""

    @property
    def __array_interface__(self):
        where = broken.ctypes.addressof(self.data)
        return {"shape": (3,), "typestr": "<i8", "data": (where, False), "strides": (0,),
                "version": 3}  # fmt: skip


class Picture:
    """As Pillow's of mode I;16: 40000 is -25536 in Arrow, and in one row."""

    numbers = np.array([[40000, 7]], "u2")

    @property
    def __array_interface__(self):
        data = self.numbers.tobytes()
        return {"shape": (1, 2), "typestr": "<u2", "data": data, "version": 3}

    def __arrow_c_array__(self, requested_schema=None):
        flat = self.numbers.reshape(-1).view("i2")
        return ad.array(flat).__arrow_c_array__(requested_schema)


class SmallArray:
    """Memory of NumPy's, which keeps small arrays that are freed as they are."""

    def __init__(self, length):
        self.values = np.arange(float(length))

    def __arrow_c_array__(self, requested_schema=None):
        where = self.values.ctypes.data
        tensor = ad.Tensor.from_pointer(where, self.values.shape, "float64", "cpu")
        return ad.array(tensor).__arrow_c_array__(requested_schema)


class SmallInterface(SmallArray):
    """The dict is that of an array that is freed."""

    __arrow_c_array__ = None

    @property
    def __array_interface__(self):
        return (self.values + 0).__array_interface__


FAULTS = {
    "no owner": (lambda: Numbers(owner=False), "release.lifetime"),
    "no owner of two numbers": (lambda: SmallArray(2), "release.lifetime"),
    "no owner of ten numbers": (lambda: SmallArray(10), "release.lifetime"),
    "no owner of 127 numbers": (lambda: SmallArray(127), "release.lifetime"),
    "the interface of ten numbers that are gone": (
        lambda: SmallInterface(10),
        "interface.lifetime",
    ),
    "an interface of far too many numbers": (
        lambda: Dict(shape=(10**9, 3)),
        "interface.data",
    ),
    "no event": (lambda: Numbers(event=False), "device.order"),
    "the event of another queue": (lambda: Numbers(devices.of_another_queue), "device.order"),
    "an event recorded too early": (lambda: Numbers(devices.too_early), "device.order"),
    "device memory labelled as the host's": (
        lambda: Numbers(devices.labelled_as_host),
        "device.memory",
    ),
    "host memory that is gone": (
        lambda: Host(broken.set_buffers(broken.unmapped)),
        "device.memory",
    ),
    "the id of another device": (lambda: Numbers(devices.on_the_other_device), "device.memory"),
    "buffers too short": (lambda: Numbers(length=9), "device.memory"),
    "an offset beyond the memory": (lambda: Numbers(devices.beyond_its_memory), "device.memory"),
    "a wrong offset": (
        lambda: exports.Both(Host(), OnDevice(broken.set_array(offset=0))),
        "exports.same",
    ),
    "a dropped mask": (
        lambda: exports.Both(Host(), Stream(steps=[[7, 0, -9, 12]])),
        "exports.same",
    ),
    "a wrong null_count": (lambda: Host(broken.set_array(null_count=2)), "array.contents"),
    "a double release": (broken.ReleasesTwice, "capsule.unconsumed"),
    "a leaked schema": (broken.LeaksSchemas, "capsule.unconsumed"),
    "schemas that are kept for ever": (broken.KeepsSchemas, "capsule.unconsumed"),
    "a double release of a schema": (
        lambda: broken.ReleasesTwice(part="schema"),
        "capsule.unconsumed",
    ),
    "a schema that leaks its child": (
        lambda: broken.Forgets(ad.record_batch({"a": b"ab"}), "schema"),
        "release.below",
    ),
    "a leaked array": (broken.LeaksArrays, "capsule.unconsumed"),
    "a leaked tensor": (
        lambda: broken.WithDestructor(destroy=lambda struct: None),
        "dlpack.unconsumed",
    ),
    "a renamed capsule that is freed": (
        lambda: broken.WithDestructor(destroy=broken._dlpack.delete),
        "dlpack.consumed",
    ),
    "an early release": (broken.Short, "release.lifetime"),
    "an early release of a tensor": (broken.ShortTensor, "dlpack.lifetime"),
    "metadata of a negative length": (lambda: Host(broken.set_metadata(1, -5)), "schema.metadata"),
    "metadata of a huge length": (
        lambda: Host(broken.set_metadata(1, 1 << 30)),
        "schema.metadata",
    ),
    "metadata without an end": (lambda: Host(broken.endless_metadata()), "schema.metadata"),
    "a name at no address": (lambda: Host(broken.set_schema(name=64)), "schema.name"),
    "a format at no address": (lambda: Host(broken.set_schema(format=64)), "schema.format"),
    "protocols that disagree": (lambda: exports.Both(Host(), exports.OtherOnDevice()),
                                "exports.same"),
    "protocols of another type": (Picture, "exports.same"),
    "wrong strides": (Labels, "exports.same"),
    "a shape at no address": (lambda: Tensor(broken.set_tensor(shape=64)), "dlpack.shape"),
    "tensor data at no address": (lambda: Tensor(broken.set_tensor(data=64)), "dlpack.data"),
    "an interface to no memory": (lambda: Dict(data=(4096, False)), "interface.data"),
    "a dropped read-only flag": (broken.ReadOnly, "dlpack.read_only"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_fault_of_a_producer_is_found(name):
    make, rule = FAULTS[name]
    for _ in range(min(EXAMPLES, 20)):
        report = find(make)
        assert rule in report.findings, report
        assert not report.broken or report.broken[0].rule.id == rule


def test_error_in_the_middle_is_a_finding():
    """An exception of a later export, of arrowdev or of the producer, is none of the check."""
    for n in range(1, 12):
        left = [n]
        report = find(lambda left=left: broken.Tired(left=left))
        assert report.findings, n


def test_error_of_the_factory_is_the_callers():
    def make():
        raise OSError("the file is gone")

    with pytest.raises(OSError, match="the file is gone"):
        find(make)


ENDS = {
    "segfault": r"signal 11 \(Segmentation fault\) in __arrow_c_array__\(\)",
    "abort": r"signal 6 \(Aborted\) in __arrow_c_array__\(\)",
    "exit": r"with the status 0 in __arrow_c_array__\(\)",
}


@pytest.mark.parametrize("how", ENDS)
def test_crash_in_a_method_is_found(how):
    for _ in range(min(EXAMPLES, 20)):
        done = subprocess.run(
            [sys.executable, "-m", "arrowdev", "check", f"broken_ends.Ends({how!r})", "--json"],
            capture_output=True,
            text=True,
            timeout=110,
            cwd=compiler.ROOT / "tests" / "helpers",
        )
        assert done.returncode == 1, done.stderr
        report = json.loads(done.stdout)
        (finding,) = report["findings"]
        assert finding["rule"] == "process.alive" and re.search(ENDS[how], finding["found"])
        assert "schema.format" in report["held"]  # what was found before


# --- consumers ------------------------------------------------------------------------

FAULTY_CONSUMERS = {
    "no wait": (Forgetful(waits=False), Forgetful.read, "consumer.wait"),
    "released twice": (Consumer("twice"), Consumer.read, "consumer.release"),
    "not released": (Consumer("release"), Consumer.read, "consumer.release"),
    "a schema released twice": (Consumer("twice"), Consumer.read, "consumer.release_schema"),
    "a schema not released": (Consumer("schema"), Consumer.read, "consumer.release_schema"),
    "read after the release": (Consumer("early"), Consumer.read, "consumer.lifetime"),
    "an ignored mask": (Consumer("bitmap"), Consumer.read, "consumer.values"),
    "an ignored offset": (Consumer("offset"), Consumer.read, "consumer.values"),
    "device memory read as the host's": (Consumer("device"), Consumer.read, "consumer.device"),
    "a deleter that is not called": (Consumer("deleter"), Consumer.read, "consumer.deleter"),
}


@pytest.mark.parametrize("name", FAULTY_CONSUMERS)
def test_fault_of_a_consumer_is_found(name):
    consumer, read, rule = FAULTY_CONSUMERS[name]
    for _ in range(min(EXAMPLES, 20)):
        report = consume(consumer, read)
        assert rule in report.findings, report


@pytest.mark.parametrize(
    ("consumer", "read"),
    [
        (Forgetful(waits=True), Forgetful.read),
        (ad.array, lambda array: array.to("cpu").to_pylist()),
        (Consumer(), Consumer.read),
    ],
    ids=["waits", "arrowdev", "scripted"],
)
def test_sound_consumer_is_not_accused(consumer, read):
    for _ in range(min(EXAMPLES, 100)):
        report = consume(consumer, read)
        assert not report.findings, report
        is_tried = not isinstance(consumer, Consumer)  # which knows no device
        assert ("consumer.wait" in report.held) == is_tried
