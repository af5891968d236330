"""csrc/abi/opencl_api.def, opencl_api.h and opencl_errors.def against Khronos' CL/cl.h."""

import re
from pathlib import Path

import pytest

import compiler

ABI = compiler.CSRC / "abi"
HEADER = Path("/usr/include/CL/cl.h")
PRELUDE = f"""
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include "{ABI / "opencl_api.h"}"
#define AD_CL(name, result, parameters) result(*ad_##name) parameters;
#include "{ABI / "opencl_api.def"}"
#undef AD_CL
"""


@pytest.fixture(autouse=True)
def header():
    if not HEADER.exists():
        pytest.skip("could not import 'opencl_headers': no CL/cl.h here")
    return HEADER.read_text(encoding="utf-8")


def check(*lines):
    compiler.check("\n".join([PRELUDE, *lines]))


def functions():
    found = re.findall(r"^AD_CL\((\w+),", (ABI / "opencl_api.def").read_text("utf-8"), re.M)
    assert len(found) > 30
    return found


def enumerators():
    found = re.findall(r"\bAD_(CL_\w+) =", (ABI / "opencl_api.h").read_text("utf-8"))
    assert len(found) > 20
    return [*found, "CL_DEVICE_TYPE_ALL"]


def errors():
    text = (ABI / "opencl_errors.def").read_text("utf-8")
    return dict(re.findall(r"^AD_CL_ERROR\((\w+), (-\d+)\)", text, re.M))


def test_functions():
    check(
        *(
            f"_Static_assert(__builtin_types_compatible_p(__typeof__(&cl{name}),"
            f' __typeof__(ad_{name})), "cl{name}");'
            for name in functions()
        )
    )


def test_wrong_type_is_detected():
    with pytest.raises(AssertionError, match="clFinish"):
        check(
            "_Static_assert(__builtin_types_compatible_p(__typeof__(&clFinish),"
            ' __typeof__(ad_WaitForEvents)), "clFinish");'
        )


def test_constants():
    check(*(f'_Static_assert(AD_{name} == {name}, "{name}");' for name in enumerators()))


def test_error_names(header):
    """Every error code that a call can return, and no other."""
    check(*(f'_Static_assert(CL_{name} == {code}, "{name}");' for name, code in errors().items()))
    theirs = re.findall(r"^#define CL_(\w+)\s+(-\d+)$", header, re.M)
    # Status values of a build, which no call returns.
    builds = {"BUILD_NONE", "BUILD_ERROR", "BUILD_IN_PROGRESS"}
    assert {name for name, _ in theirs} - builds == set(errors())


def test_event_is_named_by_its_address():
    """The specification defines sync_event of an OpenCL array as a `cl_event *`."""
    check(
        '_Static_assert(sizeof(cl_event) == sizeof(void *), "an event\'s handle");',
        '_Static_assert(sizeof(cl_bool) == sizeof(uint32_t), "what USES_SVM_POINTER gives");',
        '_Static_assert(sizeof(cl_context_properties) == sizeof(intptr_t), "a property");',
    )
