"""Each call of a whole exchange fails once: a clear error, and no leak."""

import gc

import numpy as np
import pytest
from conftest import DRIVER
from dlpack_ctypes import OnlyDLPack
from gpu import MODES, NEW, Memory, Stream, ask, cu

import arrowdev as ad

CODE = 719


def protocols(memory, stream):
    array = ad.array(memory)
    tensor = ad.tensor(array[8:])
    capsule = tensor.__dlpack__(stream=stream.handle, max_version=(1, 0))
    pair = array.__arrow_c_device_array__()
    shown = tensor.__cuda_array_interface__
    again = ad.array(pair)
    again.wait(stream)
    return capsule, shown, again


def copies(memory, stream):
    array = ad.array(memory)
    there = array.to("cuda:1")
    back = there.to("cuda:0", stream=None)
    assert back.to("cpu").to_pylist() == NEW.tolist()
    return there, back


def downloads(memory, stream):
    batches = [ad.array(memory), ad.array(memory)]
    found = list(ad.array_stream(batches).to("cpu", prefetch=1, stream=stream))
    assert [batch.to_pylist() for batch in found] == [NEW.tolist()] * 2
    return found


def allocation(memory, stream):
    buffer = ad.device("cuda:0").empty(4096, stream=stream)
    return buffer, buffer.to("cpu")


def bits(memory, stream):
    array = ad.Array.from_buffers("bool", 512, [None, ad.tensor(memory)])
    return ad.tensor(array)


class Run:
    """One run of an exchange whose n-th call fails; with n 0, no call fails."""

    def __init__(self, standin, work, n, stay=False):
        memory, stream = Memory(NEW, stream=1), Stream()
        before = standin.context()
        self.error = None
        standin.fail_at(n, CODE, stay=stay)
        with standin.logged() as self.calls:
            try:
                work(memory, stream)
            except (ad.DeviceError, ad.ExchangeError) as error:
                self.error = error.with_traceback(None)
                self.error.__context__ = None
            except AttributeError as error:  # of an attribute look-up, for hasattr()
                assert isinstance(error.__cause__, ad.DeviceError)  # noqa: PT017
                self.error = error.__cause__.with_traceback(None)
        standin.fail_at(0, 0)
        self.failed = self.calls[n - 1].name if 0 < n <= len(self.calls) else None
        if stay or self.failed == "cuCtxPopCurrent_v2":  # nothing can repeat this call
            while standin.context() != before:
                ask(cu.cuCtxPopCurrent)
        assert standin.context() == before
        if stay:  # the thread's mode could not be restored
            ask(cu.cuThreadExchangeStreamCaptureMode, MODES[0])
        ask(cu.cuCtxSynchronize)
        del memory


def settle(standin):
    # Twice: the second run frees, in stream order, what the first one deferred.
    for id in (0, 1, 0, 1):
        ad.device(f"cuda:{id}").synchronize()
        gc.collect()
    Stream.destroy_unused()
    return standin.count()


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("work", [protocols, copies, downloads, allocation, bits])
def test_every_call_fails_once(standin, work):
    for _ in range(3):
        n_calls = len(Run(standin, work, 0).calls)
    before = settle(standin)
    n_events = before.events
    assert n_calls > 0
    n_errors = 0
    for n in range(1, n_calls + 1):
        run = Run(standin, work, n)
        n_errors += run.error is not None
        if isinstance(run.error, ad.DeviceError):
            assert run.error.code == CODE
            assert run.failed.removesuffix("_v2") in str(run.error)
        after = settle(standin)
        leaks = after.leaks(before)
        leaks.pop("events", None)
        if run.error is None:  # a failed release leaks its resource
            assert sum(leaks.values()) <= 1, f"call {n}, {run.failed}"
            before = after
        else:
            assert leaks == {}, f"call {n}, {run.failed}"
    assert n_errors > 0
    # This thread and the driver's may each come to need one more at once, on each of the two
    # devices. No thread keeps those that it only gives back.
    assert settle(standin).events - n_events <= 4
    assert Run(standin, work, 0).error is None


# --- sticky errors ------------------------------------------------------------


def taken_in(memory, stream):
    """By an import stream of arrowdev's."""
    tensor = ad.tensor(OnlyDLPack(ad.tensor(memory)))
    return tensor, tensor.to("cpu")


def staged(memory, stream):
    with DRIVER.held(stream.handle):
        there = ad.tensor(np.zeros(1 << 17, "uint8")).to("cuda:0", stream=stream)
    return there, there.to("cpu")


def prefetched(memory, stream):
    batches = [ad.array(np.full(1 << 17, i, "uint8")) for i in range(4)]
    for batch in ad.array_stream(batches).to("cuda:0", prefetch=2, stream=stream):
        batch.wait(stream)


def blocks(memory, stream):
    pinned = ad.device("cuda_host:0").empty(1 << 16)
    return pinned, ad.device("cuda_managed:0").empty(1 << 16), pinned.to("cuda:0")


def numbered(memory, stream):
    """Streams that are bare numbers, on which memory is released."""
    ad.device("cuda:0").empty(64, stream=stream.handle)
    for tensor in (ad.tensor(NEW).to("cuda:0"), ad.tensor(memory)):
        tensor.__dlpack__(stream=stream.handle)


PATHS = [protocols, copies, allocation, bits, taken_in, staged, prefetched, blocks, numbered]


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("work", PATHS)
def test_every_call_fails_from_one_on(standin, work):
    """As after a kernel that failed: nothing hangs, and what fails says so with the code."""
    for _ in range(3):
        calls = [call.name for call in Run(standin, work, 0).calls]
    n_errors, n_calls = 0, len(calls)
    for n in range(1, n_calls + 1):
        run = Run(standin, work, n, stay=True)
        n_errors += run.error is not None
        if isinstance(run.error, ad.DeviceError):
            assert run.error.code == CODE, f"call {n}, {run.failed}"
            assert "a new process only" in run.error.hint
        settle(standin)
    # A wait asks as often as the machine lets it: a query and two changes of the mode.
    assert n_errors > (n_calls - 3 * calls.count("cuEventQuery")) // 3
    assert Run(standin, work, 0).error is None


# The errors of cuda.h that no later call in the process gets rid of.
STICKY = [214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911]


@pytest.mark.parametrize("code", STICKY)
def test_broken_context_is_reported(standin, code):
    """A sticky device error, as after an illegal address."""
    memory = Memory(NEW, stream=1)
    standin.break_context(code)
    with pytest.raises(ad.DeviceError) as caught:
        ad.array(memory).to("cpu")
    assert caught.value.code == code
    assert "a new process only" in caught.value.hint
    standin.break_context(0)
    assert ad.array(memory).to("cpu").to_pylist() == NEW.tolist()


def test_out_of_memory(standin):
    standin.fail_at(1, 2, "cuMemAllocFromPoolAsync", stay=True)
    with pytest.raises(MemoryError):
        ad.device("cuda:0").empty(1 << 20)
