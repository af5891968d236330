#!/usr/bin/env python3
"""Estimate the bandwidth of the kernels on an H200, from what ptxas makes of the PTX.

    python tools/estimate_kernels.py --ptxas PATH --nvdisasm PATH

ptxas and nvdisasm are of a CUDA toolkit (or the wheels nvidia-cuda-nvcc, nvidia-cuda-nvdisasm).
Two limits are computed, and the lower one counts. Memory: the bytes that all resident threads
read and write in a step, per latency. Instructions: those of a step, which are counted while
the PTX runs on the host, times the instructions that ptxas makes of one. Nothing is measured
on a GPU.
"""

import argparse
import ctypes
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import make_ptx
import numpy as np

sys.path.insert(0, str(make_ptx.ROOT / "tests" / "helpers"))
import ptx as translator

# H200: multiprocessors, clock, threads and registers of each, warp instructions per clock that
# such code reaches, seconds of a load under load, bytes per second of a copy (read and written).
N_SM, CLOCK, THREADS, REGISTERS, PER_CLOCK = 132, 1.7e9, 2048, 65536, 2.5
LATENCY, COPY = 0.8e-6, 4.3e12
BLOCK = 256

# Name, kernel, its number, bytes read and written per row, rows of a step, groups of loads that
# wait for each other in a step (read from the SASS), parameters p0 to p3. If the name ends with
# "+ n", the source begins n bytes after a multiple of 16.
ONES = int(np.int64(-1))
CASES = [
    ("bits to bytes", "unpack_bits", 0, 1 / 8 + 1, 16, 1, []),
    ("count bits", "count_bits", 1, 1 / 8, 512, 2, []),
    ("bytes to bits", "pack_bits", 2, 1 + 1 / 8, 16, 1, [0]),
    ("bytes to bits + 1", "pack_bits", 2, 1 + 1 / 8, 16, 1, [0]),
    ("copy bits", "copy_bits", 3, 2 / 8, 128, 1, [0, 0, 0]),
    ("copy bits + 1", "copy_bits", 3, 2 / 8, 128, 1, [0, 0, 0]),
    ("and of bits", "copy_bits", 3, 3 / 8, 128, 1, [0, 1, 0]),
    *((f"fill nulls of int{8 * n}", "fill_nulls", 4, 2 * n + 1 / 8, 16 // n, 1, [n, 1, ONES, ONES])
      for n in (1, 2, 4, 8)),
    ("fill nulls of int8 + 1", "fill_nulls", 4, 2 + 1 / 8, 16, 1, [1, 1, ONES, ONES]),
    ("fill nulls of int32 + 4", "fill_nulls", 4, 8 + 1 / 8, 4, 1, [4, 1, ONES, ONES]),
    *((f"gather of int{8 * n}{place}", "gather", 5, 2 * n, 16 // n, 1, [1 << 40, 1 << 50, n, n])
      for n, place in ((1, ""), (2, ""), (4, ""), (8, ""), (1, " + 1"), (8, " + 1"))),
    ("gather of int8, 24 of 32 columns", "gather", 5, 2, 16, 1, [24, 32, 1, 1]),
    *((f"gather of int{8 * n}, every other", "gather", 5, 3 * n, {1: 8, 2: 4, 4: 4, 8: 2}[n],
       2 if n == 1 else 1, [1 << 40, 0, 2 * n, n]) for n in (1, 2, 4, 8)),
    *((f"check_offsets of int{8 * n}", "check_offsets", 6, n, 32 // n, 1, [n, 1 << 30])
      for n in (4, 8)),
    ("check_offsets of int32 + 4", "check_offsets", 6, 4, 8, 1, [4, 1 << 30]),
    *((f"add to int{8 * n}", "add", 7, 2 * n, 16 // n, 1, [n, 1]) for n in (1, 4, 8)),
    ("add to int32 + 4", "add", 7, 8, 4, 1, [4, 1]),
    ("find_runs of int32", "find_runs", 8, 4, 4, 1, [4, 1 << 30, 1 << 30]),
]  # fmt: skip


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def committed_ptx():
    """The kernels of all modules as one."""
    text = make_ptx.HEADER.read_text(encoding="utf-8")
    lines = re.findall(r'^    "(.*)\\n",?$', text, re.M)
    lines = [line.encode().decode("unicode_escape") for line in lines]
    is_kernel = [not line.startswith((".version", ".target", ".address_size")) for line in lines]
    kernels = [line for line, keep in zip(lines, is_kernel, strict=True) if keep]
    return "\n".join([*lines[: is_kernel.index(True)], *kernels, ""])


def assemble(ptx, folder, ptxas):
    """Registers of each kernel, and the path of the cubin."""
    source, cubin = folder / "kernels.ptx", folder / "kernels.cubin"
    source.write_text(ptx, encoding="utf-8")
    output = run(ptxas, "-v", "-arch=sm_90", str(source), "-o", str(cubin))
    found = re.findall(r"entry function 'ad_(\w+)'.*?Used (\d+) registers", output, re.S)
    return {name: int(registers) for name, registers in found}, cubin


def sass_of(cubin, nvdisasm):
    """Opcodes of each kernel."""
    parts = re.split(r"\n\t?\.section\s+\.text\.ad_(\w+),", run(nvdisasm, "-c", str(cubin)))
    return {
        name: re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", text)
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def ptx_sizes(ptx):
    parts = re.split(r"\.visible \.entry ad_(\w+)\(", ptx)
    return {name: text.count(";") for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def compile_for_host(ptx, folder):
    """The PTX as a library of the host that counts its instructions."""
    source, target = folder / "counted.c", folder / "counted.so"
    source.write_text(translator.to_c(ptx, is_counted=True), encoding="utf-8")
    run("gcc", "-O1", "-w", "-fPIC", "-shared", str(source), "-o", str(target))
    library = ctypes.CDLL(str(target))
    library.helper_executed.restype = ctypes.c_int64
    return library


def skew_of(label):
    _, _, skew = label.partition(" + ")
    return int(skew or 0)


def count_instructions(library, kernel, numbers, n_rows, skew=0):
    """PTX instructions of one work item that processes n_rows of the numbers 1, 2, 3, ...

    The source, or the values of a kernel that fills, begin `skew` bytes after a multiple of 16.
    """
    memory = [np.arange(1, 4 * n_rows + 256, dtype=np.int32) for _ in range(3)]
    first = [array.ctypes.data + -array.ctypes.data % 16 for array in memory]
    padded = (ctypes.c_int64 * 4)(*numbers, *[0] * (4 - len(numbers)))
    wide = [ctypes.c_int64(number) for number in (-1 if kernel == 8 else 0, n_rows, 1)]
    before = library.helper_executed()
    pointers = [ctypes.c_void_p(address + skew * (i != 1)) for i, address in enumerate(first)]
    zero = ctypes.c_int64(0)
    library.helper_run(kernel, pointers[0], zero, pointers[1], zero, *wide, padded, pointers[2])
    return library.helper_executed() - before


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ptxas", default="ptxas")
    parser.add_argument("--nvdisasm", default="nvdisasm")
    parser.add_argument("--ptx", help="another file than the committed kernels")
    arguments = parser.parse_args()
    ptx = Path(arguments.ptx).read_text(encoding="utf-8") if arguments.ptx else committed_ptx()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        registers, cubin = assemble(ptx, folder, arguments.ptxas)
        sass, sizes = sass_of(cubin, arguments.nvdisasm), ptx_sizes(ptx)
        library = compile_for_host(ptx, folder)
        print(
            "| kernel | reg. | instr. | loads, of 16 bytes | rows of a step "
            "| its bytes | its instr. | of a copy |"
        )
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
        for label, kernel, number, per_row, rows, rounds, numbers in CASES:
            n = rows * 8 if kernel != "count_bits" else rows * 8 + 256
            skew = skew_of(label)
            more = count_instructions(library, number, numbers, n + 8 * rows, skew)
            step = (more - count_instructions(library, number, numbers, n, skew)) / 8
            step *= len(sass[kernel]) / sizes[kernel]
            blocks = min(THREADS // BLOCK, REGISTERS // (BLOCK * -(-registers[kernel] // 8) * 8))
            moved = rows * per_row
            by_memory = N_SM * blocks * BLOCK * moved / (LATENCY * rounds)
            by_instructions = N_SM * CLOCK * PER_CLOCK / step * 32 * moved
            share = min(by_memory, by_instructions) / COPY
            percent = "95 % or more" if share >= 0.95 else f"{share:.0%}".replace("%", " %")
            loads = [name for name in sass[kernel] if name.startswith("LDG")]
            wide = sum(name.endswith(".128") for name in loads)
            print(
                f"| {label} | {registers[kernel]} | {len(sass[kernel]):,} | {len(loads)}, {wide} "
                f"| {rows} | {moved:.3g} | {step:.0f} | {percent} |"
            )


if __name__ == "__main__":
    main()
