"""What the tests of order share: data that are pending on a queue, and who waits for them."""

import threading

import pytest
from arrow_ctypes import inside
from dlpack_ctypes import Producer

import arrowdev as ad
from arrowdev import testing

EXT_DEV = testing.EXT_DEV
OLD, NEW = b"\x11" * 12, b"\x77" * 12
SHORT = 0.05


class World:
    """Memory of 3 floats with old data; new data are pending on the queue `producer`."""

    def __init__(self, device):
        self.device = device
        self.producer = device.queue()
        self.consumer = device.queue()
        self.memory = device.from_host(OLD)
        self.producer.hold()
        self.producer.write(self.memory, NEW)
        self.event = self.producer.record()
        self._held = True
        self._timer = None
        self._found = []  # work on them may be pending

    def finish(self):
        """Let the producer's work be done."""
        if self._held:
            self._held = False
            self.producer.release()

    def finish_later(self):
        """... while the host waits for it."""
        self._timer = threading.Timer(4 * SHORT, self.finish)
        self._timer.start()

    def close(self):
        if self._timer is not None:
            self._timer.join()
        self.finish()

    # What the producer's library offers.

    def tensor_arguments(self):
        return {"device": (EXT_DEV, 0), "data": self.memory.address}

    def carrying(self, cls=Producer, **kwargs):
        return cls((0.0, 0.0, 0.0), **self.tensor_arguments(), **kwargs)

    def pending(self):
        """A tensor of ours, with the event of the producer's queue."""
        return ad.Tensor.from_pointer(
            self.memory.address,
            (3,),
            "float32",
            (EXT_DEV, 0),
            owner=self.memory,
            stream=self.producer,
        )

    # What the consumer finds.

    def use(self, queue, address=None):
        """Let a queue work with the data: it copies them."""
        found = self.device.empty(len(NEW))
        self._found.append(found)
        queue.copy(found, self.memory.address if address is None else address, len(NEW))
        return found

    def waits(self, queue, address=None):
        """The queue does not begin before the producer is done, and so finds the new data."""
        found = self.use(queue, address)
        with pytest.raises(ad.DeviceError):
            queue.synchronize(timeout=SHORT)
        self.finish()
        return queue.read(found) == NEW

    def finds_old(self, queue):
        """The queue waits for nothing, and so finds the old data."""
        found = self.use(queue)
        queue.synchronize(timeout=10)
        return self.device.peek(found) == OLD


def exported_event(array):
    pair = array.__arrow_c_device_array__()
    return inside(pair[1], "arrow_device_array").sync_event
