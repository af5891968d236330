"""A library that computes on Vulkan and knows nothing of arrowdev but Arrow's protocol.

Its column is written by a queue, behind a gate that the test opens. The array's sync_event is the
address of the VkEvent that the queue sets behind the writes.
"""

import ctypes

import vulkan as vk

ARROW_DEVICE_VULKAN = 7


def integer(handle):
    return int(vk.ffi.cast("uintptr_t", handle))


class Device:
    """The first device of the system, with a queue."""

    def __init__(self):
        about = vk.VkApplicationInfo(apiVersion=vk.VK_MAKE_VERSION(1, 2, 0))
        self.instance = vk.vkCreateInstance(vk.VkInstanceCreateInfo(pApplicationInfo=about), None)
        self.physical = vk.vkEnumeratePhysicalDevices(self.instance)[0]
        self.family = 0
        queue = vk.VkDeviceQueueCreateInfo(
            queueFamilyIndex=self.family, queueCount=1, pQueuePriorities=[1.0]
        )
        features = vk.VkPhysicalDeviceVulkan12Features(timelineSemaphore=True)
        self.handle = vk.vkCreateDevice(
            self.physical,
            vk.VkDeviceCreateInfo(pNext=features, pQueueCreateInfos=[queue]),
            None,
        )
        self.queue = vk.vkGetDeviceQueue(self.handle, self.family, 0)
        self.pool = vk.vkCreateCommandPool(
            self.handle, vk.VkCommandPoolCreateInfo(queueFamilyIndex=self.family), None
        )

    def event(self):
        return vk.vkCreateEvent(self.handle, vk.VkEventCreateInfo(), None)

    def buffer(self, nbytes):
        """A buffer, with memory that belongs to it."""
        made = vk.vkCreateBuffer(
            self.handle,
            vk.VkBufferCreateInfo(
                size=nbytes,
                usage=vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT,
            ),
            None,
        )
        needs = vk.vkGetBufferMemoryRequirements(self.handle, made)
        memory = vk.vkAllocateMemory(
            self.handle,
            vk.VkMemoryAllocateInfo(allocationSize=needs.size, memoryTypeIndex=0),
            None,
        )
        vk.vkBindBufferMemory(self.handle, made, memory, 0)
        return made, memory


class ArrowArray(ctypes.Structure):
    _fields_ = [
        ("length", ctypes.c_int64),
        ("null_count", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("n_buffers", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    ]


class ArrowDeviceArray(ctypes.Structure):
    _fields_ = [
        ("array", ArrowArray),
        ("device_id", ctypes.c_int64),
        ("device_type", ctypes.c_int32),
        ("sync_event", ctypes.c_void_p),
        ("reserved", ctypes.c_int64 * 3),
    ]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


@ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowArray))
def release(array):
    """The test's columns live as long as it runs: nothing is freed."""
    array[0].release = None


class Column:
    """A column of int32, which the queue writes once the gate is open."""

    def __init__(self, device, values, number):
        self.device, self.number, self.length = device, number, len(values)
        self.gate, self.done = device.event(), device.event()
        data = vk.ffi.new("int32_t[]", list(values))
        nbytes = vk.ffi.sizeof(data)
        self.buffer, self.memory = device.buffer(nbytes)
        (commands,) = vk.vkAllocateCommandBuffers(
            device.handle,
            vk.VkCommandBufferAllocateInfo(
                commandPool=device.pool,
                level=vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                commandBufferCount=1,
            ),
        )
        vk.vkBeginCommandBuffer(commands, vk.VkCommandBufferBeginInfo())
        vk.vkCmdWaitEvents(
            commands,
            1,
            [self.gate],
            vk.VK_PIPELINE_STAGE_HOST_BIT,
            vk.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
            0, None, 0, None, 0, None,
        )  # fmt: skip
        vk.vkCmdUpdateBuffer(commands, self.buffer, 0, nbytes, data)
        vk.vkCmdSetEvent(commands, self.done, vk.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT)
        vk.vkEndCommandBuffer(commands)
        vk.vkQueueSubmit(device.queue, 1, [vk.VkSubmitInfo(pCommandBuffers=[commands])], None)

    def open_gate(self):
        vk.vkSetEvent(self.device.handle, self.gate)

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        import arrowdev as ad

        schema = ad.schema("int32").__arrow_c_schema__()
        buffers = (ctypes.c_void_p * 2)(None, integer(self.buffer))
        event = ctypes.c_uint64(integer(self.done))  # sync_event is the address of the VkEvent
        struct = ArrowDeviceArray(
            device_id=self.number,
            device_type=ARROW_DEVICE_VULKAN,
            sync_event=ctypes.addressof(event),
        )
        struct.array = ArrowArray(
            length=self.length,
            n_buffers=2,
            buffers=buffers,
            release=ctypes.cast(release, ctypes.c_void_p),
        )
        self.kept = struct, buffers, event
        return schema, new_capsule(ctypes.addressof(struct), b"arrow_device_array", None)
