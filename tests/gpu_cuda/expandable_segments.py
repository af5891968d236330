"""torch with expandable segments: memory is mapped, and unmapped by empty_cache()."""

import os
import sys
from pathlib import Path

for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):  # before and since torch 2.10
    os.environ[name] = "expandable_segments:True"
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "helpers")]

import conftest  # noqa: E402, F401  # the driver and its settings
import gpu  # noqa: E402
import libraries  # noqa: E402
import torch  # noqa: E402

import arrowdev as ad  # noqa: E402

library = libraries.get("torch")
stream = library.stream()
source = library.make(gpu.NEW, stream)
gpu.ask(gpu.cu.cuCtxSetCurrent, gpu.ask(gpu.cu.cuDevicePrimaryCtxRetain, 0))
gpu.load_kernels()
reader = gpu.Reader()
with library.on(stream):
    tensor = ad.tensor(source)
assert tensor.device == ad.device("cuda:0")
assert bytes(tensor.to("cpu")) == gpu.NEW.tobytes()
assert bytes(ad.tensor(tensor, copy=True).to("cpu")) == gpu.NEW.tobytes()
tensor.__dlpack__(stream=reader.stream.handle)
with gpu.Hold(reader.stream.handle):
    reader.read(tensor.data_ptr)
    del source, tensor
    torch.cuda.empty_cache()
    again = [library.make(gpu.OLD, stream) for _ in range(4)]
assert reader.result() == gpu.NEW.tolist()
del again
ad.device("cuda:0").synchronize()
torch.cuda.empty_cache()
print("end")
