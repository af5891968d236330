"""Producers on the software device that runs: a sound one, and those with one classic fault."""

from broken_ends import forever

import arrowdev as ad
from arrowdev.testing import _abi
from arrowdev.testing._software import SoftwareDevice


def nothing(struct, numbers):
    pass


class Numbers:
    """A library's own array: memory, a queue that writes it, and an export with its event.

    `spoil` changes the exported struct.
    """

    values = (1, 2, 3)

    def __init__(self, spoil=nothing, *, owner=True, event=True, length=3, delay=0.0):
        device = SoftwareDevice._current
        self.spoil, self.has_owner, self.has_event, self.length = spoil, owner, event, length
        self.queue, self.other = device.queue(), device.queue()
        self.queue.delay = delay
        self.memory = device.empty(4 * len(self.values))
        self.early = self.queue.record()
        self.queue.write(self.memory, b"".join(v.to_bytes(4, "little") for v in self.values))

    def __arrow_c_device_array__(self, requested_schema=None, **keywords):
        tensor = ad.Tensor.from_pointer(
            self.memory.address,
            (self.length,),
            "int32",
            self.memory.device,
            owner=self.memory if self.has_owner else None,
            stream=self.queue if self.has_event else None,
        )
        schema, array = tensor.__arrow_c_device_array__(requested_schema, **keywords)
        self.spoil(_abi.inside(array, "arrow_device_array"), self)
        return schema, array


def of_another_queue(struct, numbers):
    event = numbers.other.record()
    forever.append(event)
    struct.sync_event = event.address


def too_early(struct, numbers):
    forever.append(numbers.early)
    struct.sync_event = numbers.early.address


def labelled_as_host(struct, numbers):
    struct.device_type, struct.device_id, struct.sync_event = 1, -1, None


def on_the_other_device(struct, numbers):
    struct.device_id = 1


def beyond_its_memory(struct, numbers):
    struct.array.offset = 2


class Forgetful:
    """A consumer that copies on a queue of its own; `waits`: behind the producer's event."""

    def __init__(self, waits):
        self.waits = waits

    def __call__(self, obj):
        column = ad.array(obj)
        if column.device_type != ad.DeviceType.EXT_DEV:
            return column
        queue = SoftwareDevice._current.queue()
        if self.waits:
            column.wait(queue)
        found = [None if b is None else queue.read(b.data_ptr, b.nbytes) for b in column.buffers]
        return ad.Array.from_buffers(column.schema, len(column), found)

    @staticmethod
    def read(column):
        return column.to_pylist()
