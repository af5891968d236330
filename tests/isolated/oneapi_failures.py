"""Each SYCL function that can fail fails once; afterwards all operations work again.

Arguments: the library built from c_helpers/failing_sycl.c.
"""

import ctypes
import sys
from contextlib import contextmanager

import numpy as np
import peer_oneapi as peer
import pyarrow as pa
from peer_oneapi import dpnp

import arrowdev as ad

library = ctypes.CDLL(sys.argv[1])
N = 100


@contextmanager
def failing(*names):
    for name in names:
        assert library.failing_sycl_set(name.encode(), 1), name
    yield
    for name in names:
        library.failing_sycl_set(name.encode(), 0)


def refused(error, text, action):
    raised = None
    try:
        action()
    except error as caught:
        raised = caught
    assert raised is not None, f"{text}: nothing was raised"
    assert text in str(raised), raised
    return raised


class Shown:
    def __init__(self, obj):
        self.obj = obj
        self.__sycl_usm_array_interface__ = obj.__sycl_usm_array_interface__


def numbers(queue):
    array = dpnp.arange(N, dtype="i8", sycl_queue=queue)
    queue.wait()
    return array


def works(source):
    assert (np.asarray(ad.tensor(source).to("cpu")) == np.arange(N)).all()


queue, consumer = peer.queue(), peer.queue()
source = numbers(queue)

# First, because arrowdev creates its own queues once.
with failing("Queue_Create"):
    refused(ad.DeviceError, "DPCTLQueue_Create", lambda: ad.tensor(source).to("cpu"))
works(source)

for name in ("Queue_GetDevice", "Queue_GetContext"):
    with failing(name):
        refused(ad.DeviceError, "failed", lambda: ad.tensor(source, stream=peer.queue()))
with failing("Device_AreEq"):
    refused(ad.ExchangeError, "none that SYCL lists", lambda: ad.tensor(numbers(peer.queue())))
with failing("Queue_Copy"):  # without it no queue is remembered
    works(numbers(peer.queue()))

with failing("Queue_SubmitBarrier"):
    refused(ad.DeviceError, "DPCTLQueue_SubmitBarrier", lambda: ad.tensor(source))
with failing("Queue_SubmitBarrierForEvents"):
    refused(
        ad.DeviceError,
        "DPCTLQueue_SubmitBarrierForEvents",
        lambda: ad.tensor(source).wait(consumer),
    )
tensor = ad.tensor(source)
with failing("Event_GetCommandExecutionStatus"):
    refused(ad.DeviceError, "DPCTLEvent_GetCommandExecutionStatus", tensor.is_ready)
    refused(ad.DeviceError, "DPCTLEvent_GetCommandExecutionStatus", tensor.synchronize)
tensor.synchronize()
with failing("Queue_MemcpyWithEvents"):
    refused(ad.DeviceError, "DPCTLQueue_MemcpyWithEvents", lambda: ad.tensor(source).to("cpu"))
works(source)
with failing("aligned_alloc_device"):
    refused(MemoryError, "", lambda: ad.device(peer.NAME).empty(8))
with failing("Device_GetName"):
    assert ad.device(peer.NAME).name == peer.NAME

shown = Shown(source)
with failing("USM_GetPointerType"):
    refused(ad.ExchangeError, "has no memory at the address", lambda: ad.tensor(shown))
assert ad.tensor(shown).device_id == peer.ID
with failing("USM_GetPointerDevice"):  # then the context's own device is used
    assert ad.tensor(shown).device_id == peer.ID

there = ad.array(pa.array([True, False, True] * 1000)).to(peer.NAME)
launch = "Queue_SubmitNDRange" if peer.DEVICES[peer.ID].is_cpu else "Queue_SubmitRange"
with failing(launch):
    refused(ad.DeviceError, f"DPCTL{launch}", lambda: ad.tensor(there))
assert ad.tensor(there).to("cpu").shape == (3000,)
works(source)
print("end of the script")
