"""share() and attach() of ROCm memory: two processes with a runtime each."""

import gc
import os
from pathlib import Path

import c_library
import fakegpu
import pytest
from gpu_sharing import described, fail_each, leaks, next_line, opened, settled
from hip import hip
from sharing import connections, descriptors, process, run, wait_until
from test_hip_exchange import NEW, OLD, Memory, Stream, ask, tensor_of

import arrowdev as ad

HERE = Path(__file__).resolve().parent
START = f"""
sys.path[:0] = {[str(HERE), str(HERE.parent / "helpers")]!r}
from conftest import DRIVER
from hip import hip
from test_hip_exchange import *
import fakegpu
ask(hip.hipSetDevice, 0)
def end():
    assert DRIVER is None or DRIVER.violations() == []
"""
ATTACH = START + "x = ad.attach(sys.argv[1])\n"
READ = ATTACH + "print(x.device, x.to('cpu').to_pylist())\nend()"
SHARE = "shared = ad.share(x)\nprint(shared)"
MAKE = {
    "pool": "x = ad.array(NEW).to('rocm:0')\n",
    "hipMalloc": "x = ad.array(tensor_of(Memory(NEW)))\n",
}
KINDS = {
    "pool": lambda: ad.array(NEW).to("rocm:0"),
    "hipMalloc": lambda: ad.array(tensor_of(Memory(NEW))),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
def test_values(kind):
    value = KINDS[kind]()
    shared = ad.share(value)
    assert shared.how == ("legacy IPC",)
    assert run(READ, shared).decode() == f"rocm:0 {NEW.tolist()}\n"
    part = ad.share(value[40:50])
    assert run(READ, part).decode() == f"rocm:0 {NEW[40:50].tolist()}\n"


@each_kind
def test_nothing_is_copied(kind):
    value = KINDS[kind]()
    shared = ad.share(value)
    code = ATTACH + (
        "print('attached'); sys.stdout.flush(); sys.stdin.readline()\n"
        "print(x.to('cpu').to_pylist())"
    )
    with process(code, shared) as child:
        assert child.line == "attached"
        kind = hip.hipMemcpyKind.hipMemcpyDefault
        ask(hip.hipMemcpy, value.buffers[1].data_ptr, OLD, OLD.nbytes, kind)
        assert next_line(child) == f"{OLD.tolist()}"


@each_kind
def test_several_opens_in_a_process(kind):
    code = ATTACH + (
        "y = ad.attach(sys.argv[2])\n"
        "del x; ad.device('rocm:0').synchronize()\n"
        f"assert y.to('cpu').to_pylist() == {NEW.tolist()}\n"
        "del y; ad.device('rocm:0').synchronize(); end()"
    )
    value = KINDS[kind]()
    run(code, ad.share(value), ad.share(value))


def test_devices_with_other_numbers(standin):
    shared = ad.share(ad.array(NEW).to("rocm:1"))
    found = run(READ, shared, env={**os.environ, "HIP_VISIBLE_DEVICES": "1,0"})
    assert found.decode() == f"rocm:0 {NEW.tolist()}\n"


# --- order ---------------------------------------------------------------------------------------


def test_nobody_waits_for_pending_data(standin):
    code = ATTACH.replace("x = ", "with DRIVER.logged() as calls: x = ") + (
        "stream = Stream()\n"
        "copy = ad.array(x, copy=True, stream=stream.handle)\n"
        "print(fakegpu.waits(calls), x.is_ready(), copy.is_ready()); sys.stdout.flush()\n"
        "sys.stdin.readline()\n"
        "print(copy.to('cpu').to_pylist()); sys.stdout.flush(); end()"
    )
    source, stream = ad.array(tensor_of(Memory(NEW))), Stream()
    with standin.held(stream.handle):
        value = ad.array(source, copy=True, stream=stream.handle)
        with standin.logged() as calls:
            shared = ad.share(value)
        assert set(fakegpu.waits(calls)) <= {"hipEventQuery"}
        with process(code, shared) as child:
            assert child.line == "[] False False"
            standin.release(stream.handle)
            assert next_line(child) == f"{NEW.tolist()}"
            standin.hold(stream.handle)
    wait_until(lambda: connections(shared) == 0)
    shared.close()
    del value, calls
    settled(standin)  # before the stream ends, in whose order the copy is freed


def test_memory_stays_until_the_work_of_the_consumer_is_done(standin):
    code = ATTACH + (
        "stream = Stream(); DRIVER.hold(stream.handle)\n"
        "copy = ad.array(x, copy=True, stream=stream.handle)\n"
        "del x; print('dropped'); sys.stdout.flush(); sys.stdin.readline()\n"
        "DRIVER.release(stream.handle)\n"
        "print(copy.to('cpu').to_pylist()); sys.stdout.flush(); end()\n"
    )
    value = ad.array(NEW).to("rocm:0")
    shared = ad.share(value)
    before = settled(standin).device
    with process(code, shared) as child:
        assert child.line == "dropped"
        del value
        shared.close()
        assert settled(standin).device == before and connections(shared) == 1
        assert next_line(child) == f"{NEW.tolist()}"
        wait_until(lambda: connections(shared) == 0)
    assert settled(standin).device == before - 1


PENDING = (
    "stream = Stream(); DRIVER.hold(stream.handle)\n"
    "x = ad.array(ad.array(tensor_of(Memory(NEW))), copy=True, stream=stream.handle)\n"
)


def test_producer_is_killed(standin):
    before = settled(standin)
    with process(START + PENDING + SHARE) as child:
        found = ad.attach(child.line)
        assert not found.is_ready()
        child.kill()
        child.wait()
        with pytest.raises(ad.DeviceError) as info:
            found.to("cpu")
        del info
    del found
    wait_until(lambda: leaks(standin, before) == {})


def test_consumer_is_killed(standin):
    value = ad.array(NEW).to("rocm:0")
    before = settled(standin)
    shared = ad.share(value)
    with process(ATTACH + "print()", shared) as child:
        assert connections(shared) == 1
        child.kill()
        wait_until(lambda shared=shared: connections(shared) == 0)
    del value, shared
    wait_until(lambda: settled(standin).device == before.device - 1)


# --- what is refused -----------------------------------------------------------------------------


def test_pinned_memory():
    with pytest.raises(ad.ExchangeError, match="pinned host memory") as info:
        ad.share(ad.array(NEW).to("rocm_host:0"))
    assert info.value.reason == "share" and '.to("cpu").to("rocm:0")' in info.value.hint


def test_managed_memory():
    pointer = ask(hip.hipMallocManaged, NEW.nbytes, 1)
    value = ad.Tensor.from_pointer(int(pointer), (64,), "int64", "rocm:0")
    with pytest.raises(ad.ExchangeError, match="managed memory") as info:
        ad.share(value)
    assert info.value.reason == "share"
    del value, info
    ask(hip.hipFree, pointer)


@pytest.mark.parametrize("code", [1, 17, 801])
def test_memory_that_hip_does_not_export(standin, code):
    value = ad.array(NEW).to("rocm:0")
    standin.fail_at(1, code, "hipIpcGetMemHandle")
    with pytest.raises(ad.ExchangeError, match="without a handle for them") as info:
        ad.share(value)
    assert info.value.reason == "share"
    assert hip.hipGetLastError()[0] == hip.hipError_t.hipSuccess


REFUSED = (
    "try: {}\n"
    "except ad.ExchangeError as error: print(error.reason, error)\n"
    "else: print('no error')"
)
PRODUCER, CONSUMER = "ad.share(ad.array(np.arange(3)).to('rocm:0'))", "ad.attach(sys.argv[1])"
OLDER = {  # what an older version lacks, and who misses it
    "hipDeviceGetUuid": PRODUCER,
    "hipMemGetAddressRange": PRODUCER,
    "hipIpcGetMemHandle": PRODUCER,
    "hipIpcOpenMemHandle": CONSUMER,
    "hipIpcCloseMemHandle": CONSUMER,
}


@pytest.mark.slow
@pytest.mark.usefixtures("standin")
@pytest.mark.parametrize("function", OLDER)
def test_older_version(tmp_path, function):
    library = fakegpu.build_without("hip", function, tmp_path)
    shared = ad.share(ad.array(NEW).to("rocm:0"))
    environment = {**os.environ, "ARROWDEV_HIP_LIBRARY": library}
    said = run(REFUSED.format(OLDER[function]), shared, env=environment).decode()
    assert said.startswith("share ")
    assert f"the HIP library that is installed has no {function}" in said


HELD = """
import ctypes
library = ctypes.CDLL(os.environ["ARROWDEV_HIP_LIBRARY"])
stream = ctypes.c_void_p()
assert library.hipStreamCreateWithFlags(ctypes.byref(stream), 1) == 0
x = ad.array(np.arange(3)).to("rocm:0")
library.fake_hold(stream)
x = ad.array(x, copy=True, stream=stream.value)
"""


@pytest.mark.parametrize("function", ["hipIpcGetEventHandle", "hipIpcOpenEventHandle"])
def test_older_version_without_events(standin, tmp_path, function):
    """Data that are ready go without one."""
    library = fakegpu.build_without("hip", function, tmp_path)
    environment = {**os.environ, "ARROWDEV_HIP_LIBRARY": library}
    source, stream = ad.array(tensor_of(Memory(NEW))), Stream()
    assert b"True" in run("print(len(ad.attach(sys.argv[1])) == 64)", ad.share(source))
    with standin.held(stream.handle):
        value = ad.array(source, copy=True, stream=stream.handle)
        shared = ad.share(value)
        code = REFUSED.format(CONSUMER)
        if function == "hipIpcGetEventHandle":
            code = HELD + REFUSED.format("ad.share(x)") + "\nlibrary.fake_release(stream)"
        said = run(code, shared, env=environment).decode()
        wait_until(lambda: connections(shared) == 0)
        shared.close()
    del value
    settled(standin)  # before the stream ends, in whose order the copy is freed
    assert said.startswith("share ")
    assert f"the HIP library that is installed has no {function}" in said


@each_kind
def test_what_was_attached_to_is_not_passed_on(kind):
    """Its producer would not know of a third process; and HIP names only its own memory."""
    shared = ad.share(KINDS[kind]())
    said = run(ATTACH + REFUSED.format("ad.share(x)"), shared).decode()
    assert said.startswith("share ") and "memory of another process" in said


def test_consumer_with_an_old_version(standin):
    """hipIpcMemLazyEnablePeerAccess was 0, and the runtime compares it."""
    library = Path(standin.path)
    flags = ["-Wl,--no-as-needed", str(library), f"-Wl,-rpath,{library.parent}", "-ldl"]
    old = c_library.build("hip_5", flags=flags)
    shared = ad.share(ad.array(NEW).to("rocm:0"))
    code = "print(ad.attach(sys.argv[1]).to('cpu').to_pylist())"
    found = run(code, shared, env={**os.environ, "ARROWDEV_HIP_LIBRARY": str(old)})
    assert found.decode() == f"{NEW.tolist()}\n"


LIES = {
    "no memory": (3, lambda row: 0),
    "more than there is": (3, lambda row: row[3] + (1 << 30)),
    "a pool": (0, lambda row: 1),
    "unknown kind": (0, lambda row: 4),
    "name of nothing": (4, lambda row: "ab" * 64),
}


@each_kind
def test_lies_about_an_allocation(standin, kind):
    """Of [kind, number of its descriptor, offset in it, nbytes, name]."""
    with process(START + MAKE[kind] + SHARE) as child:
        ad.attach(child.line)
        before, files = settled(standin), descriptors()
        for place, invent in LIES.values():
            description, *sent = described(child.line)
            row = description[6][2][0]
            row[place] = invent(row)
            with pytest.raises((ad.ExchangeError, ad.DeviceError)) as info:
                opened(child.line, description, *sent)
            del info, sent, description
            wait_until(lambda: leaks(standin, before) == {} and descriptors() <= files)


def test_event_whose_name_has_no_end(standin):
    """HIP reads it up to a zero byte."""
    with process(START + PENDING + SHARE) as child:
        description, *sent = described(child.line)
        description[6][3][1] = "ab" * 64
        with pytest.raises(ad.ExchangeError, match="a name without an end"):
            opened(child.line, description, *sent)
        description, *sent = described(child.line)
        description[6][3][1] = "ab" * 63 + "00"
        before = settled(standin)
        with pytest.raises(ad.DeviceError, match="hipIpcOpenEventHandle"):
            opened(child.line, description, *sent)
        assert settled(standin).events <= before.events


# --- calls that fail -----------------------------------------------------------------------------

RESTORES = {"hipSetDevice": lambda: ask(hip.hipSetDevice, 0)}


@each_kind
def test_each_call_of_share_fails(standin, kind):
    value = KINDS[kind]()
    fail_each(standin, lambda: ad.share(value).close(), RESTORES)


def test_each_call_of_share_with_an_event_fails(standin):
    source, stream = ad.array(tensor_of(Memory(NEW))), Stream()
    with standin.held(stream.handle):
        value = ad.array(source, copy=True, stream=stream.handle)

        def pending(standin):
            gc.collect()
            return standin.count()

        def work(value=value):
            ad.share(value).close()

        fail_each(standin, work, RESTORES, pending)
    del value, work
    settled(standin)  # before the stream ends, in whose order the copy is freed


@pytest.mark.parametrize("make", [*MAKE.values(), PENDING], ids=[*MAKE, "pending"])
def test_each_call_of_attach_fails(standin, make):
    with process(START + make + SHARE) as child:
        fail_each(standin, lambda: ad.attach(child.line), RESTORES)
