"""tools/estimate_kernels.py: what it reads from PTX and SASS, and what it counts."""

import re
import sys

import pytest

import compiler

pytest.importorskip("numpy")

LISTING = """
\t.section\t.text.ad_gather,"ax",@progbits
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 EXIT ;
        /*0020*/              @UP1 LDG.E.128 R4, [R2.64] ;
\t.section\t.text.ad_add,"ax",@progbits
        /*0000*/                   IADD3 R1, R1, 0x1, RZ ;
"""


@pytest.fixture(scope="module")
def tool():
    sys.path.insert(0, str(compiler.ROOT / "tools"))
    try:
        import estimate_kernels
    finally:
        sys.path.pop(0)
    return estimate_kernels


@pytest.fixture(scope="module")
def ptx(tool):
    return tool.committed_ptx()


def test_every_kernel_has_an_estimate(tool, ptx):
    adds_up = {"reduce"}  # the results of the blocks of another kernel
    assert {case[1] for case in tool.CASES} == set(tool.ptx_sizes(ptx)) - adds_up


def test_more_rows_take_more_instructions(tool, ptx, tmp_path):
    compiler.command()
    library = tool.compile_for_host(ptx, tmp_path)
    for label, kernel, number, _, rows, _, numbers in tool.CASES:
        n = rows * 8 if kernel != "count_bits" else rows * 8 + 256
        few = tool.count_instructions(library, number, numbers, n)
        assert 0 < few < tool.count_instructions(library, number, numbers, n + 8 * rows), label


def test_opcodes_of_a_listing(tool, tmp_path):
    program = tmp_path / "nvdisasm"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{LISTING}END\n", encoding="utf-8")
    program.chmod(0o755)
    assert tool.sass_of(tmp_path / "cubin", str(program)) == {
        "gather": ["LDC", "EXIT", "LDG.E.128"],
        "add": ["IADD3"],
    }


def test_page_of_estimates_has_a_row_per_case(tool):
    page = (compiler.ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+?) \| \d+ \| [\d,]+ \| \d+, \d+ \|", page, re.M)
    assert rows == [case[0] for case in tool.CASES]
