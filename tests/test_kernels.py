"""The kernels: one text, as C on the host, as OpenCL C, as HIP's C++ and as PTX."""

import ctypes
import mmap
import os
import shutil
import subprocess
import sys
from ctypes import c_char_p, c_int, c_int64, c_void_p

import c_library
import numpy as np
import pytest

import compiler

UNPACK, COUNT = 0, 1
OPENCL, HIP, PTX = range(3)
LENGTHS = [1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 128, 129, 500, 1023, 1031, 4096, 5001]
MAKE_PTX = compiler.ROOT / "tools" / "make_ptx.py"


@pytest.fixture(scope="module")
def library():
    found = ctypes.CDLL(str(c_library.build("kernels")))
    found.helper_run.argtypes = [c_int, c_void_p, c_int64, c_void_p, *[c_int64] * 4]
    found.helper_run.restype = None
    found.helper_text.restype = found.helper_name.restype = c_char_p
    return found


def text_of(library, dialect):
    return library.helper_text(dialect).decode()


def names(library):
    found = [library.helper_name(kernel) for kernel in range(100)]
    return [name.decode() for name in found if name is not None]


class GuardedPage:
    """Memory in front of a page that nobody may touch."""

    def __init__(self, nbytes=16384):
        self.nbytes = nbytes
        self.map = mmap.mmap(-1, nbytes + mmap.PAGESIZE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(c_void_p(self.address + nbytes), mmap.PAGESIZE, 0) == 0
        self.array = np.frombuffer(self.map, np.uint8, nbytes)

    def end(self, data):
        """`data` at the end; its address."""
        self.array[self.nbytes - len(data) :] = data
        return self.address + self.nbytes - len(data)


@pytest.fixture(scope="module")
def guarded():
    return GuardedPage()


def random_bits(bit_offset, length):
    rng = np.random.default_rng([bit_offset, length])
    bitmap = rng.integers(0, 256, (bit_offset + length + 7) // 8, np.uint8)
    bits = np.unpackbits(bitmap, bitorder="little")[bit_offset : bit_offset + length]
    return bitmap, bits


# --- on the host --------------------------------------------------------------------------------


@pytest.mark.parametrize("n_items", [1, 3, 256])
@pytest.mark.parametrize("bit_offset", range(64))
def test_unpack_on_the_host(library, guarded, bit_offset, n_items):
    for length in LENGTHS:
        bitmap, bits = random_bits(bit_offset, length)
        source = guarded.end(bitmap)
        for target_offset in (0, 1, 5):
            target = np.full(length + target_offset + 9, 0xA5, np.uint8)
            library.helper_run(
                UNPACK, source, 0, target.ctypes.data, target_offset, bit_offset, length, n_items
            )
            found = target[target_offset : target_offset + length]
            assert np.array_equal(found, bits), length
            assert set(target[:target_offset]) | set(target[target_offset + length :]) == {0xA5}


@pytest.mark.parametrize("n_items", [1, 3, 256])
@pytest.mark.parametrize("bit_offset", range(64))
def test_count_on_the_host(library, guarded, bit_offset, n_items):
    for length in LENGTHS:
        bitmap, bits = random_bits(bit_offset, length)
        target = np.full(n_items + 2, -7, np.int64)
        library.helper_run(
            COUNT, guarded.end(bitmap), 0, target.ctypes.data, 8, bit_offset, length, n_items
        )
        assert target[0] == target[-1] == -7
        assert target[1:-1].sum() == bits.sum(), length


@pytest.mark.parametrize("value", [0, 0xFF])
def test_count_of_all_and_none(library, value):
    bitmap = np.full(1 << 16, value, np.uint8)
    target = np.zeros(1, np.int64)
    for bit_offset in range(9):
        length = bitmap.size * 8 - bit_offset - 3
        library.helper_run(
            COUNT, bitmap.ctypes.data, 0, target.ctypes.data, 0, bit_offset, length, 1
        )
        assert target[0] == (length if value else 0)


def test_source_offset(library):
    bitmap, bits = random_bits(24, 999)
    target = np.zeros(999, np.uint8)
    library.helper_run(UNPACK, bitmap.ctypes.data, 2, target.ctypes.data, 0, 8, 999, 1)
    assert np.array_equal(target, bits)


# --- OpenCL -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opencl(library):
    cl = pytest.importorskip("pyopencl")
    try:
        context = cl.create_some_context(interactive=False)
    except cl.Error as error:
        pytest.skip(f"no OpenCL device: {error}")
    program = cl.Program(context, text_of(library, OPENCL)).build()
    return cl, context, cl.CommandQueue(context), program


def run_opencl(opencl, kernel, bitmap, nbytes, bit_offset, length, n_items):
    cl, context, queue, program = opencl
    flags = cl.mem_flags
    source = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=bitmap)
    target = cl.Buffer(context, flags.READ_WRITE, nbytes + 8)
    numbers = [np.int64(number) for number in (8, bit_offset, length)]
    run = cl.Kernel(program, kernel)
    run(queue, (n_items,), None, source, np.int64(0), target, *numbers)
    found = np.empty(nbytes + 8, np.uint8)
    cl.enqueue_copy(queue, found, target)
    return found[8:]


@pytest.mark.parametrize("n_items", [1, 77, 512])
@pytest.mark.parametrize("bit_offset", [0, 1, 7, 8, 13, 63])
def test_opencl(opencl, bit_offset, n_items):
    for length in (1, 9, 64, 1031, 5001):
        bitmap, bits = random_bits(bit_offset, length)
        found = run_opencl(opencl, "ad_unpack_bits", bitmap, length, bit_offset, length, n_items)
        assert np.array_equal(found, bits), length
        sums = run_opencl(
            opencl, "ad_count_bits", bitmap, 8 * n_items, bit_offset, length, n_items
        )
        assert sums.view(np.int64).sum() == bits.sum(), length


# --- HIP ----------------------------------------------------------------------------------------

HIP_STUB = """
#define __global__
#define __device__
struct dim { unsigned x, y, z; };
extern const dim blockIdx, blockDim, threadIdx, gridDim;
extern "C" int __popcll(unsigned long long);
"""


@pytest.mark.parametrize("name", ["g++", "clang++"])
def test_hip_compiles(library, tmp_path, name):
    if shutil.which(name) is None:
        pytest.skip(f"no {name}")
    source = tmp_path / "kernels.cpp"
    source.write_text(HIP_STUB + text_of(library, HIP), encoding="utf-8")
    output = tmp_path / "kernels.o"
    done = compiler.run(
        [name, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-c", source, "-o", output]
    )
    assert done.returncode == 0, done.stderr
    symbols = compiler.run(["nm", output]).stdout
    assert all(f" T {name}\n" in symbols for name in names(library))


# --- PTX ----------------------------------------------------------------------------------------


def test_ptx_has_every_kernel(library):
    ptx = text_of(library, PTX)
    assert names(library) == ["ad_unpack_bits", "ad_count_bits"]
    assert all(f".visible .entry {name}(" in ptx for name in names(library))
    assert ".target sm_50" in ptx and ".extern" not in ptx


def find_clang():
    """A clang that makes what the committed PTX was made by; others name registers anew."""
    for name in (os.environ.get("CLANG"), "clang-14", "clang"):
        if name and shutil.which(name):
            version = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
            if "version 14." in version:
                return name
    pytest.skip("no clang 14, with which the PTX was made")


def test_ptx_is_up_to_date():
    done = compiler.run([sys.executable, MAKE_PTX, "--check", "--compiler", find_clang()])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("target", ["sm_75", "sm_90", "sm_100"])
def test_ptx_assembles(library, tmp_path, target):
    if shutil.which("ptxas") is None:
        pytest.skip("no ptxas (CUDA toolkit)")
    source = tmp_path / "kernels.ptx"
    source.write_text(text_of(library, PTX), encoding="utf-8")
    done = compiler.run(["ptxas", f"-arch={target}", source, "-o", tmp_path / "kernels.cubin"])
    assert done.returncode == 0, done.stderr
