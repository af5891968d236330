"""What the order tests share: data that are pending on a queue, and checks of waits."""

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
    """Memory of 3 floats with old data. New data are pending on the queue `producer`."""

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
        self._found = []  # arrays whose memory may have pending work

    def finish(self):
        """Lets the producer's work finish."""
        if self._held:
            self._held = False
            self.producer.release()

    def finish_later(self):
        """Lets the producer's work finish while the host waits for it."""
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
        """An arrowdev tensor with the event of the producer's queue."""
        return ad.Tensor.from_pointer(
            self.memory.address,
            (3,),
            "float32",
            (EXT_DEV, 0),
            owner=self.memory,
            stream=self.producer,
        )

    # What the consumer observes.

    def use(self, queue, address=None):
        """Makes a queue use the data: the queue copies them."""
        found = self.device.empty(len(NEW))
        self._found.append(found)
        queue.copy(found, self.memory.address if address is None else address, len(NEW))
        return found

    def waits(self, queue, address=None):
        """Whether the queue starts only after the producer's work, and so finds the new data."""
        found = self.use(queue, address)
        with pytest.raises(ad.DeviceError):
            queue.synchronize(timeout=SHORT)
        self.finish()
        return queue.read(found) == NEW

    def finds_old(self, queue):
        """Whether the queue does not wait, and so finds the old data."""
        found = self.use(queue)
        queue.synchronize(timeout=10)
        return self.device.peek(found) == OLD


def exported_event(array):
    pair = array.__arrow_c_device_array__()
    return inside(pair[1], "arrow_device_array").sync_event
