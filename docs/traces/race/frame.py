"""A library that copies columns of others into its own memory."""

import arrowdev as ad


class Frame:
    def __init__(self, device, column):
        self.queue = device.queue()
        x = ad.array(column)  # the mistake: without stream=self.queue, nothing waits
        self.memory = device.empty(8 * len(x))
        self.queue.copy(self.memory, x.buffers[1].data_ptr, self.memory.nbytes)
