"""A library that makes columns: a queue of its own writes them."""

import arrowdev as ad


class Column:
    def __init__(self, device, values):
        self.length = len(values)
        self.queue = device.queue()
        self.memory = device.empty(8 * self.length)
        self.queue.write(self.memory, values)

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        tensor = ad.Tensor.from_pointer(
            self.memory.address,
            (self.length,),
            "float64",
            self.memory.device,
            owner=self.memory,
            stream=self.queue,  # its event says when the values are there
        )
        return tensor.__arrow_c_device_array__(requested_schema, **kwargs)
