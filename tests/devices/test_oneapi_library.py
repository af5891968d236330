"""oneAPI's library: its devices, calls of it that fail, and arrays of every type.

The tests with queues and gates are in test_oneapi.py.
"""

import c_library
import concat_checks
import null_checks
import peer_oneapi as peer
import pytest
import type_checks
from isolation import run
from peer_oneapi import dpctl, dpnp

import arrowdev as ad
import compiler

# --- devices -----------------------------------------------------------------


def test_ordinal_matches_dpctl():
    ours = [d for d in ad.devices() if d.type == ad.DeviceType.ONEAPI]
    usable = [d for d in peer.DEVICES if d.has_aspect_usm_device_allocations]
    assert [d.id for d in ours] == [d.get_device_id() for d in usable]
    assert [d.name for d in ours] == [d.name for d in usable]


def test_subdevice_has_ordinal_of_root_device():
    part = peer.DEVICE.create_sub_devices(partition=1)[0]
    array = dpnp.arange(8, sycl_queue=dpctl.SyclQueue(part))
    tensor = ad.tensor(array, stream=-1)
    assert tensor.device_id == array.__dlpack_device__()[1] == peer.ID


def test_runtime_imported_after_arrowdev():
    run("oneapi_late")


def test_ordinal_out_of_range():
    with pytest.raises(ad.ExchangeError, match=r"oneapi:99 is not there: SYCL has \d+ device"):
        ad.device("oneapi:99").empty(8)


def test_device_without_usm():
    without = [d for d in peer.DEVICES if d not in peer.WITH_USM]
    if not without:
        pytest.skip("could not import 'pocl': every SYCL device has USM")
    with pytest.raises(ad.ExchangeError, match="no unified shared memory"):
        ad.device((14, without[0].get_device_id())).empty(8)


# --- failures ----------------------------------------------------------------


def run_with(library, script, *arguments, **environment):
    return run(
        script,
        *arguments,
        environment={
            "ARROWDEV_ONEAPI_LIBRARY": str(library),
            "REAL_SYCL_LIBRARY": peer.library_path(),
            **environment,
        },
    )


def test_every_failing_function():
    library = c_library.build("failing_sycl")
    run_with(library, "oneapi_failures", library)


@pytest.mark.parametrize("name", ["DeviceMgr_GetDevices", "DeviceVector_GetAt"])
def test_device_listing_fails(name):
    library = c_library.build("failing_sycl")
    run_with(library, "oneapi_library", f"DPCTL{name}", FAILING_SYCL=name)


@pytest.mark.parametrize(
    ("library", "text"),
    [("/nowhere/lib.so", "/nowhere/lib.so"), ("libm.so.6", "DPCTLDeviceMgr_GetDevices")],
)
def test_unusable_library(library, text):
    run_with(library, "oneapi_library", text)


def test_kernel_build_fails():
    library = c_library.build("failing_sycl")
    run_with(library, "oneapi_no_kernels", FAILING_SYCL="KernelBundle_CreateFromOCLSource")


def test_declarations_match_dpctl():
    """A declaration that differs from the header is a compiler error."""
    folder = dpctl.get_include()
    source = """
#include <stdint.h>
#include <dpctl_sycl_interface.h>
#include "abi/sycl_api.h"
_Static_assert(sizeof(ad_sycl_arg_type) == sizeof(DPCTLKernelArgType), "");
#define ad_sycl_arg_type DPCTLKernelArgType
#define AD_SYCL(name, need, result, parameters) result DPCTL##name parameters;
#include "abi/sycl_api.def"
_Static_assert(AD_SYCL_ALL_DEVICES == (DPCTL_ALL | DPCTL_ALL_BACKENDS), "");
_Static_assert(AD_SYCL_IN_ORDER == DPCTL_IN_ORDER, "");
_Static_assert(AD_SYCL_UNKNOWN == DPCTL_UNKNOWN_STATUS, "");
_Static_assert(AD_SYCL_COMPLETE == DPCTL_COMPLETE, "");
_Static_assert(AD_SYCL_USM_UNKNOWN == DPCTL_USM_UNKNOWN, "");
_Static_assert(AD_SYCL_USM_DEVICE == DPCTL_USM_DEVICE, "");
_Static_assert(AD_SYCL_USM_SHARED == DPCTL_USM_SHARED, "");
_Static_assert(AD_SYCL_USM_HOST == DPCTL_USM_HOST, "");
_Static_assert(AD_SYCL_IS_CPU == cpu, "");
_Static_assert(AD_SYCL_HAS_USM_DEVICE == usm_device_allocations, "");
_Static_assert(AD_SYCL_ARG_INT64 == DPCTL_INT64_T, "");
_Static_assert(AD_SYCL_ARG_POINTER == DPCTL_VOID_PTR, "");
"""
    compiler.check(source, include=(compiler.CSRC, folder))


@pytest.mark.parametrize("check", null_checks.DEVICE)
def test_nulls(check):
    check(peer.NAME)


@pytest.mark.parametrize("name", concat_checks.ALL)
def test_concat(name):
    concat_checks.check_on_device(name, peer.NAME)


@pytest.mark.parametrize("check", type_checks.ALL)
def test_types(check):
    check(peer.NAME)
