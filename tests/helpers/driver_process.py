"""A process with a stand-in driver, whose functions a test calls by name.

    with Process("cuda") as a, Process("hip") as b:
        pointer = a.ask("Malloc", OUT, 64)
        code = b.code("IpcCloseMemHandle", pointer)

Names are those of HIP without their prefix. OUT stands for a number that the function writes,
BYTES for 64 bytes. 64 bytes as an argument are passed by value, In() by reference.
"""

import contextlib
import ctypes
import os
import pickle
import subprocess
import sys
from pathlib import Path

OUT, BYTES = "OUT", "BYTES"

# Those that are not named as in HIP.
CUDA = {
    "DeviceGetUuid": "DeviceGetUuid_v2",
    "EventCreateWithFlags": "EventCreate",
    "EventDestroy": "EventDestroy_v2",
    "Free": "MemFree_v2",
    "FreeAsync": "MemFreeAsync",
    "GetDeviceCount": "DeviceGetCount",
    "HostFree": "MemFreeHost",
    "HostMalloc": "MemHostAlloc",
    "IpcOpenMemHandle": "IpcOpenMemHandle_v2",
    "Malloc": "MemAlloc_v2",
    "MallocAsync": "MemAllocAsync",
    "MallocFromPoolAsync": "MemAllocFromPoolAsync",
    "MallocManaged": "MemAllocManaged",
    "MemGetAddressRange": "MemGetAddressRange_v2",
    "MemsetAsync": "MemsetD8Async",
    "StreamCreateWithFlags": "StreamCreate",
    "StreamDestroy": "StreamDestroy_v2",
}


class In(bytes):
    """A struct that a function reads."""


class Refused(AssertionError):
    def __init__(self, name, code):
        super().__init__(f"{name} answered {code}")


class _Bytes(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]


class Side:
    """What the process does with its driver."""

    def __init__(self, face):
        import fakegpu

        self.face = face
        self.driver = fakegpu.load(face)
        self.files = []
        self.driver.set_patience(20_000)
        if face == "cuda":
            self.code("Init", 0)
        self.contexts = [self.context_of(n) for n in range(self.ask("GetDeviceCount", OUT))]
        self.select(0)
        self.before = self.driver.count()

    def context_of(self, device):
        if self.face == "cuda":
            return self.ask("DevicePrimaryCtxRetain", OUT, device)
        self.ask("SetDevice", device)  # makes it
        return device

    def select(self, device):
        name = "CtxSetCurrent" if self.face == "cuda" else "SetDevice"
        self.ask(name, self.contexts[device])

    def result(self, name, *arguments):
        """The code, and what the function wrote."""
        full = "cu" + CUDA.get(name, name) if self.face == "cuda" else "hip" + name
        outs, given = [], []
        for argument in arguments:
            if argument in (OUT, BYTES):
                outs.append(ctypes.c_uint64() if argument == OUT else _Bytes())
                given.append(ctypes.byref(outs[-1]))
            elif isinstance(argument, In):
                given.append(ctypes.create_string_buffer(argument, len(argument)))
            elif isinstance(argument, bytes):
                given.append(_Bytes.from_buffer_copy(argument))
            else:
                given.append(ctypes.c_uint64(argument))
        code = getattr(self.driver.library, full)(*given)
        values = [bytes(out) if isinstance(out, _Bytes) else out.value for out in outs]
        return code, values[0] if len(values) == 1 else values

    def code(self, name, *arguments):
        return self.result(name, *arguments)[0]

    def ask(self, name, *arguments):
        code, result = self.result(name, *arguments)
        if code != 0:
            raise Refused(name, code)
        return result

    def attribute(self, number, pointer):
        """A 4-byte attribute is in the low half."""
        return self.ask("PointerGetAttribute", OUT, number, pointer)

    def copy(self, pointer, nbytes, stream):
        """The bytes of device memory, copied in the order of a stream."""
        out = ctypes.create_string_buffer(nbytes)
        target = ctypes.addressof(out)
        if self.face == "cuda":
            self.ask("MemcpyDtoHAsync_v2", target, pointer, nbytes, stream)
        else:
            self.ask("MemcpyAsync", target, pointer, nbytes, 2, stream)
        self.ask("StreamSynchronize", stream)
        return out.raw

    def control(self, name, *arguments):
        """A control of tests/fakedriver/controls.h."""
        return getattr(self.driver, name)(*arguments)

    def open_file(self, pid, number):
        """A descriptor of another process, as if it had been passed."""
        self.files.append(os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC))
        return self.files[-1]

    def new_file(self, content):
        self.files.append(os.memfd_create("file"))
        os.write(self.files[-1], content)
        return self.files[-1]

    def close_file(self, number):
        os.close(number)

    def n_files(self):
        return len(os.listdir("/proc/self/fd"))

    def end_of_test(self):
        """The violations, and what is left."""
        self.driver.reset()
        self.select(0)
        for file in self.files:
            os.close(file)
        self.files = []
        return self.driver.violations(), self.driver.count().leaks(self.before)


class Process:
    """Calls the methods of a Side in another process."""

    def __init__(self, face, **environment):
        self.child = subprocess.Popen(
            [sys.executable, __file__, face],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | environment,
        )
        self.pid = self.child.pid

    def send(self, name, *arguments):
        pickle.dump((name, arguments), self.child.stdin)
        self.child.stdin.flush()

    def receive(self):
        error, result = pickle.load(self.child.stdout)
        if error is not None:
            raise AssertionError(error)
        return result

    def __getattr__(self, name):
        def call(*arguments):
            self.send(name, *arguments)
            return self.receive()

        return call

    def kill(self):
        """The process becomes a zombie until the end of the block."""
        self.child.kill()
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.close()
        self.child.stdout.close()
        self.child.wait(20)


def main(face):
    sys.path.insert(0, str(Path(__file__).parent))
    side = Side(face)
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = (None, getattr(side, name)(*arguments))
        except Exception as error:  # the other process raises it
            answer = (f"{type(error).__name__}: {error}", None)
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    # Both processes unpickle In from the module of its name.
    import driver_process

    driver_process.main(sys.argv[1])
