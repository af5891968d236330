"""The kernels' sources for HIP and CUDA compile, and the committed PTX is up to date."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from kernel_library import HIP, load_library, names, ptx_modules, text_of

import compiler

MAKE_PTX = compiler.ROOT / "tools" / "make_ptx.py"

library = pytest.fixture(scope="module")(load_library)

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
        [
            name,
            "-std=c++17",
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",
            "-Werror",
            "-c",
            source,
            "-o",
            output,
        ]
    )
    assert done.returncode == 0, done.stderr
    symbols = compiler.run(["nm", output]).stdout
    assert all(f" T {name}\n" in symbols for name in names(library))


# --- PTX ----------------------------------------------------------------------------------------


def test_every_kernel_has_a_module_of_ptx(library):
    assert names(library)[:3] == ["ad_unpack_bits", "ad_count_bits", "ad_pack_bits"]
    assert len(names(library)) == 10
    for name, ptx in zip(names(library), ptx_modules(library), strict=True):
        assert re.findall(r"\.entry (\w+)\(", ptx) == [name]
        assert ptx.startswith(".version 4.0\n.target sm_50\n") and ".extern" not in ptx


def find_clang():
    """The clang version that built the committed PTX; others name registers differently."""
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
    source = tmp_path / "kernel.ptx"
    for module in ptx_modules(library):
        source.write_text(module, encoding="utf-8")
        command = ["ptxas", "-v", f"-arch={target}", source, "-o", tmp_path / "kernel.cubin"]
        done = compiler.run(command)
        assert done.returncode == 0, done.stderr
        said = done.stdout + done.stderr
        (registers,) = re.findall(r"Used (\d+) registers", said)
        spilled = re.findall(r"(\d+) bytes (?:stack frame|spill)", said)
        assert set(spilled) == {"0"}
        assert int(registers) <= 64  # four blocks of 256 are resident in a multiprocessor


def test_ptx_takes_16_bytes_in_a_step(library):
    """The path of 64 rows, for shares that are runs, is not in it."""
    bodies = dict(zip(names(library), ptx_modules(library), strict=True))
    narrow = {name for name, body in bodies.items() if ".global.v2.u64" not in body}
    assert narrow == {"ad_count_bits", "ad_reduce"}  # eight loads of 8 bytes in flight
    assert bodies["ad_fill_nulls"].count(";") < 700
