"""Pickles of device memory, on the software device and in a process without it."""

import copy
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from arrow_samples import skip_what_pyarrow_misreads
from concat_checks import ALL

import arrowdev as ad
from arrowdev.testing import software_device

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the software device needs Linux"
)

pa = pytest.importorskip("pyarrow")

HERE = "ext_dev:0"


def again(obj, protocol=5):
    return pickle.loads(pickle.dumps(obj, protocol))


@pytest.mark.parametrize("name", ALL)
def test_arrays_come_back_to_their_device(name, device):
    skip_what_pyarrow_misreads(name)
    sample = ALL[name]
    for rows in (slice(0, None), slice(3, 12), slice(5, 5)):
        array = ad.array(sample).to(HERE)[rows]
        for found in (again(array), again(array, 2), copy.deepcopy(array)):
            assert str(found.device) == HERE
            assert pa.array(found.to("cpu")).to_pylist() == sample[rows].to_pylist()
            assert found.schema == array.schema


def test_tensors_and_buffers_come_back_to_their_device(device):
    tensor = ad.tensor(np.arange(6).reshape(2, 3)).to("ext_dev:1")
    for found in (again(tensor), copy.deepcopy(tensor)):
        assert type(found) is ad.Tensor and str(found.device) == "ext_dev:1"
        assert np.asarray(found.to("cpu")).tolist() == [[0, 1, 2], [3, 4, 5]]
    buffer = ad.array(np.arange(3)).to(HERE).buffers[1]
    for found in (again(buffer), copy.deepcopy(buffer)):
        assert type(found) is ad.Buffer and str(found.device) == HERE
        assert bytes(found.to("cpu")) == np.arange(3).tobytes()


@pytest.mark.parametrize("how", [pickle.dumps, copy.deepcopy])
def test_event_is_waited_for(how, device):
    queue = device.queue()
    queue.hold()
    array = ad.array(device.array([1, 2, 3], queue=queue))
    assert not array.is_ready()
    opener = threading.Timer(0.05, queue.release)
    opener.start()
    data = how(array)
    opener.join()
    found = pickle.loads(data) if how is pickle.dumps else data
    assert found.to("cpu").to_pylist() == [1, 2, 3]


class TestUnpickleOn:
    def test_host(self, device):
        data = pickle.dumps([ad.array(np.arange(3)).to(HERE), ad.tensor(np.arange(2)).to(HERE)])
        with ad.unpickle_on("cpu"):
            array, tensor = pickle.loads(data)
        assert array.to_pylist() == [0, 1, 2] and np.asarray(tensor).tolist() == [0, 1]
        assert str(pickle.loads(data)[0].device) == HERE

    def test_another_device(self, device):
        with ad.unpickle_on("ext_dev:1"):
            assert str(again(ad.array(np.arange(3)).to(HERE)).device) == "ext_dev:1"
            assert str(again(ad.array(np.arange(3))).device) == "ext_dev:1"
            with ad.unpickle_on("cpu"):
                assert str(again(ad.array(np.arange(3)).to(HERE)).device) == "cpu"
            assert str(again(ad.tensor(np.arange(3))).device) == "ext_dev:1"

    def test_holds_on_its_thread_only(self, device):
        data = pickle.dumps(ad.array(np.arange(3)))
        found = []
        with ad.unpickle_on(HERE):
            thread = threading.Thread(target=lambda: found.append(pickle.loads(data)))
            thread.start()
            thread.join()
        assert str(found[0].device) == "cpu"

    def test_is_used_again_and_within_itself(self):
        scope = ad.unpickle_on("cpu")
        assert repr(scope) == "arrowdev.unpickle_on('cpu')"
        with scope, scope:
            pass
        with pytest.raises(ZeroDivisionError), scope:
            raise ZeroDivisionError
        assert again(ad.array(np.arange(3))).to_pylist() == [0, 1, 2]

    def test_is_left_in_any_order_by_several_threads(self, device):
        scope, entered, left = ad.unpickle_on(HERE), threading.Event(), threading.Event()
        data, found = pickle.dumps(ad.array(np.arange(3))), []

        def use():
            with scope:
                entered.set()
                left.wait()
                found.append(pickle.loads(data))
            found.append(pickle.loads(data))

        thread = threading.Thread(target=use)
        with scope:
            thread.start()
            entered.wait()
        found.append(pickle.loads(data))
        left.set()
        thread.join()
        assert [str(x.device) for x in found] == ["cpu", HERE, "cpu"]

    def test_unknown_device(self):
        with pytest.raises(ValueError):
            ad.unpickle_on("nowhere")


class TestOfTheProcess:
    """ARROWDEV_UNPICKLE_ON."""

    @pytest.fixture(autouse=True)
    def on_host(self, monkeypatch):
        monkeypatch.setenv("ARROWDEV_UNPICKLE_ON", "cpu")

    def test_holds_on_every_thread(self, device):
        data = pickle.dumps([ad.array(np.arange(3)).to(HERE), ad.tensor(np.arange(2)).to(HERE)])
        found = pickle.loads(data)
        thread = threading.Thread(target=lambda: found.extend(pickle.loads(data)))
        thread.start()
        thread.join()
        assert [str(x.device) for x in found] == ["cpu"] * 4

    def test_scope_goes_first(self, device):
        with ad.unpickle_on("ext_dev:1"):
            assert str(again(ad.array(np.arange(3)).to(HERE)).device) == "ext_dev:1"

    def test_change_holds_at_once(self, device, monkeypatch):
        monkeypatch.setenv("ARROWDEV_UNPICKLE_ON", "ext_dev:1")
        assert str(again(ad.array(np.arange(3))).device) == "ext_dev:1"
        for name in ("", None):  # set to nothing, and not set
            if name is None:
                monkeypatch.delenv("ARROWDEV_UNPICKLE_ON")
            else:
                monkeypatch.setenv("ARROWDEV_UNPICKLE_ON", name)
            assert str(again(ad.array(np.arange(3)).to(HERE)).device) == HERE

    @pytest.mark.parametrize("name", ["nowhere", "cpu:99999999999999999999", "cuda:x"])
    def test_unknown_device_is_named(self, name, monkeypatch):
        monkeypatch.setenv("ARROWDEV_UNPICKLE_ON", name)
        with pytest.raises(ValueError, match=f"ARROWDEV_UNPICKLE_ON='{name}' names no device"):
            again(ad.array(np.arange(3)))

    def test_does_not_hold_for_schemas_and_copies(self, device, monkeypatch):
        monkeypatch.setenv("ARROWDEV_UNPICKLE_ON", "nowhere")
        array = ad.array(np.arange(3)).to(HERE)
        assert str(copy.deepcopy(array).device) == HERE
        assert again(array.schema) == array.schema


WORKER = """
import os, pickle, sys
import arrowdev as ad

data = sys.stdin.buffer.read()
try:
    pickle.loads(data)
except ad.ExchangeError as error:
    assert error.reason == "runtime" and str(error.device) == "ext_dev:0", repr(error)
    assert 'with arrowdev.unpickle_on("cpu"):' in error.hint and error.hint in str(error)
    assert "ARROWDEV_UNPICKLE_ON=cpu" in error.hint
else:
    raise AssertionError("there is no such device here")
with ad.unpickle_on("cpu"):
    array, tensor, buffer = pickle.loads(data)
os.environ["ARROWDEV_UNPICKLE_ON"] = "cpu"
assert pickle.loads(data)[0].to_pylist() == ["a", None]
assert array.to_pylist() == ["a", None], array
assert memoryview(tensor).tolist() == [0, 1, 2]
assert bytes(buffer) == bytes(8)
print("done")
"""


def test_worker_without_the_device():
    with software_device():
        parts = ad.array(pa.array(["a", None])), ad.tensor(np.arange(3)), ad.array(bytes(8))
        array, tensor, bytes_ = (part.to(HERE) for part in parts)
        data = pickle.dumps((array, tensor, bytes_.buffers[1]))
    done = subprocess.run(
        [sys.executable, "-c", WORKER], input=data, capture_output=True, timeout=60
    )
    assert done.stdout == b"done\n", done.stderr.decode()


def test_failure_of_the_runtime_is_no_missing_device(device):
    data = pickle.dumps(ad.array(np.arange(3)).to(HERE))
    device.fail_at(1, "allocate")
    with pytest.raises(ad.DeviceError):
        pickle.loads(data)
    device.fail_at(0)
    assert pickle.loads(data).to("cpu").to_pylist() == [0, 1, 2]


def test_ordinal_that_is_not_there(device):
    function, (*parts, _) = ad.array(np.arange(3)).__reduce_ex__(5)
    memories = tuple(m and m.__reduce_ex__(4)[1][0] for m in parts[3])
    with pytest.raises(ad.ExchangeError, match="ext_dev:99"):
        function(*parts[:3], memories, (12, 99))
