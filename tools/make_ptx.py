#!/usr/bin/env python3
"""Make csrc/kernels/generated/kernels_ptx.h from csrc/kernels/kernels.inc.

CUDA takes the kernels as PTX, so that neither building nor running arrowdev needs
a CUDA toolkit. Any clang with the NVPTX target will do (Debian's has it): the text
is built as OpenCL C for sm_50, which every driver since CUDA 6 takes.

    python tools/make_ptx.py            write the header
    python tools/make_ptx.py --check    fail if it is not what would be written
    python tools/make_ptx.py --print    show the PTX
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXT = ROOT / "csrc" / "kernels" / "kernels.inc"
HEADER = ROOT / "csrc" / "kernels" / "generated" / "kernels_ptx.h"

# What kernels.c supplies for the other dialects. The work item comes from the
# special registers: get_global_id() would be left to a library.
PRELUDE = """\
typedef uchar ad_byte;
typedef long ad_i64;
typedef ulong ad_u64;
typedef uint ad_u32;
typedef ushort ad_u16;
typedef struct __attribute__((aligned(16))) {
    ad_u64 low;
    ad_u64 high;
} ad_pair;
#define AD_TEXT(...) __VA_ARGS__
#define AD_KERNEL __kernel
#define AD_FUNCTION static
#define AD_GLOBAL __global
#define REGISTER(name) ((ad_i64)__nvvm_read_ptx_sreg_##name##_x())
#define AD_ON_DEVICE 1
#define AD_UNROLL _Pragma("unroll 8")
#define AD_POPCOUNT(word) __builtin_popcountl(word)
#define AD_POPCOUNT_WORDS ad_popcount_strided
#define AD_ITEM (REGISTER(ctaid) * REGISTER(ntid) + REGISTER(tid))
#define AD_ITEMS (REGISTER(nctaid) * REGISTER(ntid))
#define AD_BEGIN(n) AD_ITEM
#define AD_END(n) (n)
#define AD_STEP AD_ITEMS
#define AD_EACH(i, n) for (ad_i64 i = AD_BEGIN(n); i < (n); i += AD_STEP)
#define AD_PARAMETERS AD_GLOBAL const ad_byte *source, ad_i64 source_offset, \\
    AD_GLOBAL const ad_byte *values, ad_i64 values_offset, AD_GLOBAL ad_byte *target, \\
    ad_i64 target_offset, ad_i64 bit_offset, ad_i64 length, \\
    ad_i64 p0, ad_i64 p1, ad_i64 p2, ad_i64 p3

#define ACCESS(SIZE, TYPE) \\
    AD_FUNCTION ad_u64 ad_load_##SIZE(AD_GLOBAL const ad_byte *from) \\
    { \\
        ad_u64 value = 0; \\
        if (((ad_u64)from & (SIZE - 1)) == 0) { \\
            return *(AD_GLOBAL const TYPE *)from; \\
        } \\
        if (SIZE == 8 && ((ad_u64)from & 3) == 0) { \\
            return *(AD_GLOBAL const ad_u32 *)from | \\
                   (ad_u64)((AD_GLOBAL const ad_u32 *)from)[1] << 32; \\
        } \\
        for (int i = 0; i < SIZE; i++) { \\
            value |= (ad_u64)from[i] << (8 * i); \\
        } \\
        return value; \\
    } \\
    AD_FUNCTION void ad_store_##SIZE(AD_GLOBAL ad_byte *to, ad_u64 value) \\
    { \\
        if (((ad_u64)to & (SIZE - 1)) == 0) { \\
            *(AD_GLOBAL TYPE *)to = (TYPE)value; \\
            return; \\
        } \\
        for (int i = 0; i < SIZE; i++) { \\
            to[i] = (ad_byte)(value >> (8 * i)); \\
        } \\
    }

ACCESS(2, ad_u16)
ACCESS(4, ad_u32)
ACCESS(8, ad_u64)

AD_FUNCTION ad_u64
ad_load_shifted(AD_GLOBAL const ad_byte *from, int shift)
{
    return ad_load_8(from) >> shift | (ad_u64)from[8] << (64 - shift);
}
"""

FLAGS = [
    *("-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header", "-nogpulib"),
    *("--target=nvptx64-nvidia-cuda", "-march=sm_50", "-O2", "-S"),
    *("-I", str(ROOT / "csrc")),
    # What is not aligned goes byte by byte; that shall not be written out.
    *("-fno-unroll-loops", "-mllvm", "-unroll-threshold=0"),
]


def compile_text(compiler):
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernels.cl")
        source.write_text(PRELUDE + TEXT.read_text(encoding="utf-8"), encoding="utf-8")
        target = Path(folder, "kernels.ptx")
        subprocess.run([compiler, *FLAGS, str(source), "-o", str(target)], check=True)
        return target.read_text(encoding="utf-8")


def tidy(ptx):
    """The PTX without comments, labels' remarks and empty lines."""
    lines = (line.split("//")[0].rstrip() for line in ptx.splitlines())
    return [line for line in lines if line]


def modules(lines):
    """The lines of a module for each kernel: (name, lines)."""
    starts = [i for i, line in enumerate(lines) if line.startswith(".visible .entry")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        name = lines[start].split()[-1].removeprefix("ad_").removesuffix("(")
        yield name, lines[: starts[0]] + lines[start:end]


def quoted(lines):
    escaped = (line.replace('"', '\\"').replace("\t", "\\t") for line in lines)
    return "\n".join(f'    "{line}\\n"' for line in escaped)


def header(lines):
    body = "\n".join(
        f"    [AD_KERNEL_{name.upper()}] =\n{quoted(module)}," for name, module in modules(lines)
    )
    return (
        "/* Made by tools/make_ptx.py from kernels.inc; not to be edited.\n */\n"
        "#ifndef AD_KERNELS_GENERATED_KERNELS_PTX_H\n"
        "#define AD_KERNELS_GENERATED_KERNELS_PTX_H\n\n"
        '#include "kernels/kernels.h"\n\n'
        "/* clang-format off */\n"
        f"const char *const ad_kernels_ptx[AD_N_KERNELS] = {{\n{body}\n}};\n"
        "/* clang-format on */\n\n"
        "#endif /* AD_KERNELS_GENERATED_KERNELS_PTX_H */\n"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", default=os.environ.get("CLANG", "clang"))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--print", action="store_true")
    arguments = parser.parse_args()
    lines = tidy(compile_text(arguments.compiler))
    if arguments.print:
        print("\n".join(lines))
    elif arguments.check:
        if HEADER.read_text(encoding="utf-8") != header(lines):
            sys.exit(f"{HEADER} is out of date: run tools/make_ptx.py")
    else:
        HEADER.write_text(header(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
