"""Taichi: kernels take NumPy arrays, its own arrays become some."""

import warnings

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import taichi as ti

import arrowdev as ad

ti.init(arch=ti.cpu, log_level=ti.ERROR)


@ti.kernel
def add_one(x: ti.types.ndarray(dtype=ti.i64, ndim=1)):
    for i in x:
        x[i] += 1


memory = np.array([1, 2, 3])
add_one(np.asarray(ad.tensor(memory)))
assert memory.tolist() == [2, 3, 4]

own = ti.ndarray(ti.i64, (3,))
own.from_numpy(np.asarray(ad.array(memory)))
assert ad.array(own.to_numpy()).to_pylist() == [2, 3, 4]
assert ad.protocols(own) == ()
print("end of the script")
