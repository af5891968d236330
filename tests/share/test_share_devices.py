"""share() and attach() of memory on devices: the software device in two processes."""

import contextlib
import gc
import io
import json
import multiprocessing
import pickle
import random

import pytest
from sharing import VALUES, connections, descriptors, process, run, wait_until

import arrowdev as ad
from arrowdev import _core, _share
from arrowdev.testing import software_device

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

START = """
from arrowdev.testing import software_device
device = software_device().__enter__()
"""
ATTACH = START + "x = ad.attach(sys.argv[1])\n"


@pytest.fixture
def device():
    with software_device() as device:
        yield device
        gc.collect()


def on_device(value):
    value = ad.tensor(value) if isinstance(value, np.ndarray) else ad.array(value)
    return value.to("ext_dev:1")


def numbers(device, n=4, queue=None):
    return ad.array(device.array(np.arange(n), queue=queue))


# --- values --------------------------------------------------------------------------------------


def assert_same(found, value, name):
    host = value.to("cpu")
    assert type(found) is type(host), name
    assert found.equals(host), name
    assert isinstance(found, ad.Tensor) or found.schema == host.schema, name


@pytest.mark.parametrize("name", VALUES)
def test_values_in_this_process(device, name):
    value = on_device(VALUES[name])
    with ad.share(value) as shared:
        found = ad.attach(str(shared))
        assert str(found.device) == "ext_dev:1"
        assert_same(found.to("cpu"), value, name)
        del found
    del value


def test_values_in_another_process(device):
    values = {name: on_device(value) for name, value in VALUES.items()}
    handles = [ad.share(value) for value in values.values()]
    code = START + (
        "for text in sys.argv[1:]:\n"
        "    x = ad.attach(text)\n"
        "    assert str(x.device) == 'ext_dev:1', x.device\n"
        "    sys.stdout.buffer.write(pickle.dumps(x.to('cpu')))\n"
    )
    out = io.BytesIO(run(code, *handles))
    for name, value in values.items():
        assert_same(pickle.load(out), value, name)
    del value, values, handles


def test_slices(device):
    array = ad.array(pa.array([{"a": i, "b": str(i)} for i in range(10)])).to("ext_dev:0")
    for part in (array[3:7], array[10:], array.slice(2, 5).children[1]):
        shared = ad.share(part)
        code = ATTACH + "sys.stdout.buffer.write(pickle.dumps(x.to('cpu')))"
        assert_same(pickle.loads(run(code, shared)), part, part)
    del array, part, shared


def test_matrix_of_rows_that_are_apart(device):
    matrix = on_device(np.arange(24.0).reshape(4, 6))[:, ::2]
    shared = ad.share(matrix)
    out = run(ATTACH + "print(x.to('cpu').tolist())", shared)
    assert json.loads(out) == matrix.to("cpu").tolist()
    del matrix, shared


def test_nothing_is_copied(device):
    value = numbers(device)
    shared = ad.share(value)
    assert shared.how == ("memory file",)
    code = ATTACH + (
        "sys.stdout.write('attached\\n'); sys.stdout.flush(); sys.stdin.readline()\n"
        "print(x.to('cpu').to_pylist())"
    )
    with process(code, shared) as child:
        assert child.line == "attached"
        queue = device.queue()
        queue.write(value.buffers[1].data_ptr, np.full(4, 7))
        queue.synchronize()
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"[7, 7, 7, 7]\n"
    del value, shared


def test_copy(device):
    value = numbers(device)
    shared = ad.share(value, copy=True)
    device.synchronize()
    queue = device.queue()
    queue.write(value.buffers[1].data_ptr, np.full(4, 7))
    queue.synchronize()
    assert run(ATTACH + "print(x.to('cpu').to_pylist())", shared) == b"[0, 1, 2, 3]\n"
    del value, shared


def test_what_was_attached_to_is_not_passed_on(device):
    """Its producer would not know of the third process. The first text can be passed on."""
    with process(START + "x = ad.array(device.array([1, 2])); s = ad.share(x)\nprint(s)") as child:
        found = ad.attach(child.line)
        with pytest.raises(ad.ExchangeError, match="memory of another process") as info:
            ad.share(found)
        assert info.value.reason == "share" and "pass the text on" in info.value.hint
        shared = ad.share(found, copy=True)
        assert run(ATTACH + "print(x.to('cpu').to_pylist())", shared) == b"[1, 2]\n"
        del found, info, shared
        gc.collect()


def test_copy_has_an_event_of_its_own(device):
    """The elements that are apart are copied, after the work on them."""
    matrix = on_device(np.arange(24.0).reshape(4, 6))
    queue = device.queue(1)
    queue.hold()
    pending = ad.Tensor.from_pointer(
        matrix.data_ptr, (4, 6), "float64", "ext_dev:1", owner=matrix, stream=queue
    )
    shared = ad.share(pending[:, ::2])
    assert shared.how == ("copied on the device, memory file",)
    code = ATTACH + "print(x.is_ready()); sys.stdout.flush(); print(x.to('cpu').tolist())"
    with process(code, shared) as child:
        assert child.line == "False"
        queue.release()
        assert json.loads(child.stdout.readline()) == matrix[:, ::2].to("cpu").tolist()
    with pytest.raises(ad.ExchangeError, match="not contiguous") as info:
        ad.share(pending[:, ::2], copy=False)
    assert info.value.reason == "copy"
    del matrix, pending, shared, info


def test_copies_are_as_what_was_shared(device):
    array = numbers(device)
    for copy in (None, True):
        shared = ad.share(array, copy=copy, writable=True)
        assert ad.attach(shared).to("cpu").to_pylist() == [0, 1, 2, 3]
    buffer = ad.share(array.buffers[1], copy=True)
    assert run(ATTACH + "print(type(x).__name__, x.nbytes)", buffer) == b"Buffer 32\n"
    assert type(ad.attach(buffer)) is ad.Buffer
    del array, shared, buffer


@pytest.mark.parametrize("writable", [False, True])
def test_read_only(device, writable):
    value = on_device(np.arange(3))
    shared = ad.share(value, writable=writable)
    assert ad.attach(shared).readonly is not writable
    assert run(ATTACH + "print(x.readonly)", shared).decode().strip() == str(not writable)
    if not writable:
        with pytest.raises(ad.ExchangeError, match="read-only") as info:
            ad.share(ad.attach(shared), writable=True)
        assert info.value.reason == "readonly"
        del info
    del value, shared


def test_attach_to_a_device(device):
    shared = ad.share(numbers(device))
    code = START + "print(ad.attach(sys.argv[1], device='cpu').to_pylist())"
    assert run(code, shared) == b"[0, 1, 2, 3]\n"
    del shared


# --- order ---------------------------------------------------------------------------------------


def test_nobody_waits_for_pending_data(device):
    """Neither share() nor attach() waits, and work of the consumer comes after the producer's."""
    queue = device.queue()
    queue.hold()
    value = numbers(device, queue=queue)
    shared = ad.share(value)
    code = ATTACH + (
        "print(x.is_ready()); sys.stdout.flush()\n"
        "copy = x.to('ext_dev:1'); print(copy.is_ready()); sys.stdout.flush()\n"
        "sys.stdin.readline()\n"
        "print(copy.to('cpu').to_pylist(), x.is_ready())"
    )
    with process(code, shared) as child:
        assert child.line == "False" and child.stdout.readline() == b"False\n"
        assert not value.is_ready()
        queue.release()
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"[0, 1, 2, 3] True\n"
    del value, shared


def test_event_of_data_that_are_ready(device):
    value = numbers(device)
    value.synchronize()
    shared = ad.share(value)
    assert run(ATTACH + "print(x.sync_event, x.is_ready())", shared) == b"None True\n"
    del value, shared


def test_many_wait_for_one_event(device):
    queue = device.queue()
    queue.hold()
    value = numbers(device, queue=queue)
    shared = ad.share(value)
    code = ATTACH + "print(x.is_ready()); sys.stdout.flush(); print(x.to('cpu').to_pylist())"
    with process(code, shared) as one, process(code, shared) as other:
        assert one.line == other.line == "False"
        queue.release()
        assert one.stdout.readline() == other.stdout.readline() == b"[0, 1, 2, 3]\n"
    del value, shared


def test_producer_that_ends_before_its_work(device):
    code = START + (
        "queue = device.queue(); queue.hold()\n"
        "x = ad.array(device.array([1, 2], queue=queue)); shared = ad.share(x)\nprint(shared)"
    )
    with process(code) as child:
        found = ad.attach(child.line)
        assert not found.is_ready()
        child.kill()
        child.wait()
        with pytest.raises(ad.DeviceError):
            found.to("cpu")
    del found
    device.reset()


def test_memory_stays_until_the_work_of_the_consumer_is_done(device):
    value = numbers(device)
    shared = ad.share(value)
    code = ATTACH + (
        "queue = device.queue(1); queue.hold(); copy = x.to('ext_dev:1', stream=queue)\n"
        "del x; print('dropped'); sys.stdout.flush(); sys.stdin.readline()\n"
        "queue.release(); print(copy.to('cpu').to_pylist())\n"
    )
    with process(code, shared) as child:
        assert child.line == "dropped"
        del value
        shared.close()
        assert connections(shared) == 1 and device.live().allocations > 0
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"[0, 1, 2, 3]\n"
        wait_until(lambda shared=shared: connections(shared) == 0)
    del shared


def test_memory_is_released_when_the_consumer_is_killed(device):
    value = numbers(device)
    device.synchronize()
    before = device.live().allocations
    shared = ad.share(value)
    with process(ATTACH + "print()", shared) as child:
        del value
        shared.close()
        assert device.live().allocations == before
        child.kill()

        def is_released():
            device.synchronize()
            gc.collect()
            return device.live().allocations < before

        wait_until(is_released)


def test_forked_child_of_a_consumer_keeps_nothing(device):
    value = numbers(device)
    shared = ad.share(value)
    code = ATTACH + (
        "import gc\nif os.fork() == 0:\n    sys.stdin.read(); os._exit(0)\n"
        "del x; gc.collect(); device.synchronize(); print()"
    )
    with process(code, shared):
        wait_until(lambda shared=shared: connections(shared) == 0)
    del value, shared


# --- streams and pickles -------------------------------------------------------------------------


def test_stream(device):
    stream = ad.array_stream([numbers(device, i + 1) for i in range(3)])
    shared = ad.share(stream)
    code = START + "print([len(b) for b in ad.attach(sys.argv[1])])"
    assert run(code, shared) == b"[1, 2, 3]\n"
    del stream, shared


def test_pickles_hold_the_text(device):
    value = numbers(device, 100_000)
    with ad.sharing():
        data = pickle.dumps(value)
        assert len(data) < 400
        here = pickle.loads(pickle.dumps(value))
    assert str(here.device) == "ext_dev:0" and here.to("cpu").equals(value.to("cpu"))
    code = START + "x = pickle.loads(bytes.fromhex(sys.argv[1])); print(x.device, len(x))"
    assert run(code, data.hex()) == b"ext_dev:0 100000\n"
    del value, here


def start():
    software_device().__enter__()


def total(array):
    return sum(array.to("cpu").to_pylist())


def test_multiprocessing(device):
    with ad.sharing(), multiprocessing.get_context("spawn").Pool(1, start) as pool:
        assert pool.map(total, [numbers(device, 10), numbers(device, 5)]) == [45, 10]
    gc.collect()


# --- what is refused -----------------------------------------------------------------------------


def test_device_that_the_consumer_does_not_see():
    with software_device(3) as three:
        shared = ad.share(ad.array(np.arange(3)).to("ext_dev:2"))
        code = START + (
            "try: ad.attach(sys.argv[1])\n"
            "except ad.ExchangeError as error: print(error.reason, error.hint)"
        )
        reason, hint = run(code, shared).decode().split(" ", 1)
        assert reason == "device" and "VISIBLE" in hint
        del shared
        gc.collect()
        three.synchronize()


def test_runtime_that_shares_nothing():
    pytest.importorskip("pyopencl")
    devices = [device for device in ad.devices() if device.type == ad.DeviceType.OPENCL]
    value = ad.array(np.arange(1, 3)).to(devices[0])
    with pytest.raises(ad.ExchangeError, match="cannot be shared with another process") as info:
        ad.share(value)
    assert info.value.reason == "share" and '.to("cpu")' in info.value.hint
    with ad.sharing():  # a copy on the host goes
        assert pickle.loads(pickle.dumps(value)).to("cpu").to_pylist() == [1, 2]


def described(value):
    """The description of what a server would send, and the descriptors."""
    shared = ad.share(value)
    with _share._connected(_share._parsed(str(shared))[0]) as connection:
        _, message, files, n = _share._received(connection, bytes.fromhex(str(shared)[-32:]))
    return shared, json.loads(message), files, n


@pytest.mark.parametrize("seed", range(4))
def test_damaged_descriptions(device, seed):
    """What another process says of an allocation is checked: an error follows, or a value."""
    random_ = random.Random(seed)
    value = ad.array(pa.array(["a", None, "bc"])).to("ext_dev:0")
    odd = [None, -1, 0, 1, 2**31, 2**63, 2**64, "", "00", [], {}, 1.5, True]
    with process(
        START + "x = ad.array(device.array(list(range(9))))\ns = ad.share(x)\nprint(s)"
    ) as child:
        for _ in range(40):
            shared, description, files, n = described(value)
            at, key = description, 6
            while isinstance(at[key], list) and at[key] and random_.random() < 0.8:
                at, key = at[key], random_.randrange(len(at[key]))
            at[key] = random_.choice(odd)
            with _share._connected(_share._parsed(child.line)[0]) as connection:
                with contextlib.suppress(ad.ExchangeError, ad.DeviceError, MemoryError):
                    message = json.dumps(description).encode()
                    _share._built(message, files, n, connection.fileno(), None)
            del shared, files
    del value


@pytest.mark.parametrize("call", ["memory_export", "event_export", "device_uuid"])
def test_failures_of_the_producer(device, call):
    queue = device.queue()
    queue.hold()
    value = numbers(device, queue=queue)
    before = descriptors()
    device.fail_at(1, call)
    with pytest.raises(ad.DeviceError, match=call) as info:
        ad.share(value)
    del info
    assert descriptors() <= before + 3  # of the server
    queue.release()
    del value
    gc.collect()


@pytest.mark.parametrize(
    ("shift", "message"),
    [(8, "an allocation that begins behind the buffer"), (-1 << 40, "reaches beyond")],
)
def test_allocation_that_does_not_have_the_buffer(device, monkeypatch, shift, message):
    exported = _core._export_memory

    def moved(buffer):
        start, *rest = exported(buffer)
        return start + shift, *rest

    monkeypatch.setattr(_core, "_export_memory", moved)
    before = descriptors()
    value = numbers(device)
    with pytest.raises(ad.ExchangeError, match=message) as info:
        ad.share(value)
    assert info.value.reason == "share"
    del info
    assert descriptors() <= before


@pytest.mark.parametrize("call", ["memory_open", "event_open", "device_count", "device_uuid"])
def test_failures_of_the_consumer(device, call):
    code = START + (
        "queue = device.queue(); queue.hold()\n"
        "x = ad.array(device.array([1, 2], queue=queue)); shared = ad.share(x)\nprint(shared)\n"
        "sys.stdout.flush(); sys.stdin.readline(); queue.release()"
    )
    before = descriptors()
    with process(code) as child:
        device.fail_at(1, call)
        with pytest.raises(ad.DeviceError, match=call) as info:
            ad.attach(child.line)
        del info
        child.stdin.write(b"\n")
        child.stdin.flush()
        device.synchronize()  # a wait for the event of the child may have begun
    gc.collect()
    wait_until(lambda: descriptors() <= before)


def test_nothing_leaks(device):
    code = START + (
        "x = ad.array(device.array(list(range(1000)))); x.synchronize()\n"
        "shared = ad.share(x)\nprint(shared)"
    )

    def counts():
        gc.collect()
        device.synchronize()
        return descriptors(), device.live()

    with process(code) as child:
        ad.attach(child.line).to("cpu")
        before = counts()
        for _ in range(50):
            ad.attach(child.line).to("cpu")
        wait_until(lambda: counts() == before)
