"""Queues without a oneAPI runtime: they pass through unchanged, and are compared.

This runs in a separate process, in which ARROWDEV_ONEAPI_LIBRARY names no file: these handles
are numbers that a runtime would dereference.
"""

import itertools
import weakref

import dlpack_ctypes as dl
from dlpack_ctypes import Producer, Received

import arrowdev as ad

DATA = 0x7F0000001000
addresses = itertools.count(0x7F0000002000, 64)


class Queue:
    __module__ = "dpctl"  # queue objects are recognized by their library
    is_in_order = True

    def __init__(self):
        self.address = next(addresses)

    def addressof_ref(self):
        return self.address


class WithQueue(Producer):
    sycl_queue = Queue()


def received(thing, **kwargs):
    return Received(thing.__dlpack__(max_version=(1, 3), **kwargs))


def reason_of(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except ad.ExchangeError as error:
        return error
    raise AssertionError("nothing was raised")


t = ad.tensor(WithQueue(device=(dl.ONEAPI, 0), data=DATA))
for stream in (WithQueue.sycl_queue, -1):
    received(t, stream=stream).delete()
for stream in (None, Queue()):
    assert reason_of(t.__dlpack__, stream=stream).reason == "event"
for number in (WithQueue.sycl_queue.address, 12345):  # the two could not be distinguished
    try:
        t.__dlpack__(stream=number)
    except TypeError:
        continue
    raise AssertionError("a number was taken for a queue")

queue = Queue()
producer = Producer(device=(dl.ONEAPI, 0), data=DATA)
t = ad.tensor(producer, stream=queue)
assert producer.calls == [{"max_version": (1, 3), "stream": queue}]
received(t, stream=queue).delete()
gone = weakref.ref(queue)
producer.calls.clear()
del queue
assert gone() is not None
del t
assert gone() is None

# Without a queue nothing is known.
producer = Producer(device=(dl.ONEAPI, 0), data=DATA)
error = reason_of(ad.tensor, producer)
assert (error.reason, error.__cause__.reason) == ("refused", "stream")
assert producer.deleted == 1

print("end of the script")
