"""arrowdev's first use in this process, inside a capture: first_use.py LIBRARY."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "helpers")]

import conftest  # noqa: E402, F401  # the driver and its settings
import gpu  # noqa: E402
import libraries  # noqa: E402
from test_graphs import GRAPHS, download, imported  # noqa: E402

import arrowdev as ad  # noqa: E402

name = sys.argv[1]
gpu.ask(gpu.cu.cuInit, 0)
context = gpu.ask(gpu.cu.cuDevicePrimaryCtxRetain, 0)
gpu.ask(gpu.cu.cuCtxSetCurrent, context)
library, graph = libraries.get(name), GRAPHS[name]()
stream = library.stream()
source, target = library.make(gpu.OLD, stream), gpu.Memory(gpu.OLD - 1)
with graph.capture(library, stream):
    tensor = imported(library, source, stream)
    unrelated = ad.tensor(gpu.NEW.view("u1")).to("cuda:0")
    bits = ad.Array.from_buffers("bool", 4096, [None, unrelated])
    assert ad.tensor(bits).to("cpu").nbytes == 4096  # by a kernel
    handle = library.handle(stream)
    gpu.ask(gpu.cu.cuMemcpyDtoDAsync, target.pointer, tensor.data_ptr, 512, handle)
    del tensor, unrelated, bits
graph.launch(library, stream)
assert download(target.pointer) == gpu.OLD.tolist()
print("end")
