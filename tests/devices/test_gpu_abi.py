"""Compares csrc/abi/{cuda,hip,hiprtc}_api.def and gpu_abi.h with the headers of CUDA and ROCm.

Each line is compared with the header's prototype of the exported name: the
number of parameters, and for each parameter its size, whether it is a pointer,
the size that it points to, and const. A handle is only compared as a pointer.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import compiler

ABI = compiler.CSRC / "abi"
LINE = re.compile(r"^(AD_\w+)\((.*)\)$", re.M)
HIP_FLAGS = ["-D__HIP_PLATFORM_AMD__", "-D__HIP_DISABLE_CPP_FUNCTIONS__"]


def split(text):
    """The items of a list, split at the commas outside parentheses."""
    parts = re.split(r",\s*(?![^()]*\))", text)
    return [part.strip() for part in parts]


def functions(name):
    """{exported name: (member, result, parameters, required)} of a .def file."""
    found = {}
    for macro, arguments in LINE.findall((ABI / name).read_text(encoding="utf-8")):
        parts = split(arguments)
        if macro == "AD_HIP_RETURNS":
            result, member, exported, need, parameters = parts
        elif macro == "AD_HIPRTC":
            member, exported, result, parameters = parts
            need = "REQUIRED"
        else:
            member, exported, need, parameters = parts
            result = "int"
        assert parameters[0] == "(", arguments
        found[exported.strip('"')] = (member, result, split(parameters[1:-1]), need == "REQUIRED")
    return found


CUDA = functions("cuda_api.def")
HIP = functions("hip_api.def")
HIPRTC = functions("hiprtc_api.def")
# Newer than the header of Debian's ROCm 5.2.
NEWER_HIP = {"hipStreamGetDevice"}
# AMD's own names, from the C++ part of the header.
UNDECLARED_HIP = {"hipGetStreamDeviceId"}


def header(*places):
    for place in places:
        for path in sorted(Path("/").glob(str(place).lstrip("/")), reverse=True):
            return path
    pytest.skip(f"could not import '{Path(places[0]).stem}': no such header here")


@pytest.fixture(scope="module")
def cuda_h():
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return header(f"{home}/include/cuda.h", "/usr/local/cuda-*/include/cuda.h")


@pytest.fixture(scope="module")
def hip_h():
    home = os.environ.get("ROCM_PATH", "/usr")
    return header(f"{home}/include/hip/hip_runtime_api.h")


@pytest.fixture(scope="module")
def hiprtc_h(hip_h):
    return header(hip_h.parent / "hiprtc.h")


def prototypes(path, *flags):
    """{name: (result, parameters)} as the header declares them to C."""
    done = compiler.run(
        [*compiler.command(), "-E", "-P", *flags, f"-I{path.parent.parent}", str(path)]
    )
    assert done.returncode == 0, done.stderr
    text = re.sub(r"\s+", " ", done.stdout)
    pattern = r"([\w][\w \*]*?)\b(\w+) ?\(([^();]*)\) ?(?:__attribute__ ?\(\(.*?\)\) ?)*;"
    return {
        name: (result.strip(), split(given)) for result, name, given in re.findall(pattern, text)
    }


MATCH = """
#include <type_traits>
#include <cstdint>
#include <cstddef>
template <class A, class B> constexpr bool pointees();
template <class A, class B> constexpr bool same() {
    if constexpr (std::is_void_v<A> || std::is_void_v<B>) return true;
    else if constexpr (std::is_pointer_v<A> != std::is_pointer_v<B>) return false;
    else if constexpr (std::is_pointer_v<A>)
        return pointees<std::remove_pointer_t<A>, std::remove_pointer_t<B>>();
    else return sizeof(A) == sizeof(B) && std::is_class_v<A> == std::is_class_v<B> &&
                std::is_floating_point_v<A> == std::is_floating_point_v<B>;
}
template <class A, class = void> struct is_complete : std::false_type {};
template <class A> struct is_complete<A, std::void_t<decltype(sizeof(A))>> : std::true_type {};
template <class A, class B> constexpr bool pointees() {
    // Our void: the runtime's struct without members, behind a handle.
    if constexpr (std::is_void_v<A> || std::is_void_v<B>)
        return !is_complete<std::conditional_t<std::is_void_v<A>, B, A>>::value ||
               std::is_void_v<A> == std::is_void_v<B>;
    else if constexpr (std::is_function_v<A> || std::is_function_v<B>) return false;
    else return std::is_const_v<A> == std::is_const_v<B> && same<A, B>();
}
"""


def compare(path, ours, *flags):
    """Fails with the compiler's output if a declaration differs from the header's."""
    theirs = prototypes(path, *flags)
    checks = [
        f'#include "{path}"',
        '#include "abi/gpu_abi.h"',
        MATCH,
    ]
    for exported, (_, result, parameters, _) in ours.items():
        assert exported in theirs, f"{path} declares no {exported}"
        their_result, their_parameters = theirs[exported]
        assert len(parameters) == len(their_parameters), exported
        for i, (mine, yours) in enumerate(zip(parameters, their_parameters, strict=True)):
            # One function type per parameter, because there parameter names are allowed.
            checks += [
                f"template <class> struct ours_{exported}_{i};",
                f"template <class A> struct ours_{exported}_{i}<void(A)> {{ using type = A; }};",
                f"template <class> struct theirs_{exported}_{i};",
                f"template <class A> struct theirs_{exported}_{i}<void(A)> {{ using type = A; }};",
            ]
            if mine == "void":
                assert yours in ("void", ""), exported
                continue
            checks.append(
                f"static_assert(same<ours_{exported}_{i}<void({mine})>::type, "
                f'theirs_{exported}_{i}<void({yours})>::type>(), "{exported} {i}: {yours}");'
            )
        returned = their_result.removeprefix("extern ").strip()
        checks.append(f'static_assert(same<{result}, {returned}>(), "{exported}: {returned}");')
    include = (compiler.CSRC, path.parent.parent, path.parent)
    compiler.check("\n".join(checks), *flags, "-w", language="c++", include=include)


def test_functions_of_cuda(cuda_h):
    compare(cuda_h, CUDA)


def test_functions_of_hip(hip_h):
    ours = {name: value for name, value in HIP.items() if name not in NEWER_HIP | UNDECLARED_HIP}
    assert not {name for name in NEWER_HIP | UNDECLARED_HIP if HIP[name][3]}, "optional ones"
    compare(hip_h, ours, *HIP_FLAGS)


def test_functions_of_hiprtc(hiprtc_h):
    compare(hiprtc_h, HIPRTC, *HIP_FLAGS)


def test_wrong_declaration_is_detected(cuda_h):
    """The comparison detects a wrong number, size, pointer and const."""
    for parameters in [
        ["void *"],
        ["void *", "void *", "int"],
        ["void *", "int"],
        ["int", "void *"],
    ]:
        with pytest.raises(AssertionError):
            compare(cuda_h, {"cuEventRecord": ("", "int", parameters, True)})
    for parameters in [
        ["uint64_t *", "size_t *"],
        ["char *", "size_t"],
        ["const uint64_t *", "size_t"],
    ]:
        with pytest.raises(AssertionError):
            compare(cuda_h, {"cuMemAlloc_v2": ("", "int", parameters, True)})


def test_versioned_names_of_cuda(cuda_h):
    """The header's macros turn each plain name into the name that arrowdev looks up."""
    plain = {re.sub(r"_v\d+$", "", name): name for name in CUDA}
    source = "\n".join([f'#include "{cuda_h}"', *(f"NAME {name} ::: {name}_" for name in plain)])
    done = compiler.run([*compiler.command(), "-E", "-P", "-x", "c", "-"], input=source)
    assert done.returncode == 0, done.stderr
    names = re.findall(r"^NAME (\w+) ::: (\w+)_$", done.stdout, re.M)
    found = {name: expanded for expanded, name in names}
    assert found == plain


CONSTANTS_OF_BOTH = {
    "AD_GPU_SUCCESS": ("CUDA_SUCCESS", "hipSuccess"),
    "AD_GPU_INVALID_VALUE": ("CUDA_ERROR_INVALID_VALUE", "hipErrorInvalidValue"),
    "AD_GPU_OUT_OF_MEMORY": ("CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory"),
    "AD_GPU_DEINITIALIZED": ("CUDA_ERROR_DEINITIALIZED", "hipErrorDeinitialized"),
    "AD_GPU_DEVICE_UNAVAILABLE": ("CUDA_ERROR_DEVICE_UNAVAILABLE", None),
    "AD_GPU_NO_DEVICE": ("CUDA_ERROR_NO_DEVICE", "hipErrorNoDevice"),
    "AD_GPU_INVALID_DEVICE": ("CUDA_ERROR_INVALID_DEVICE", "hipErrorInvalidDevice"),
    "AD_GPU_INVALID_CONTEXT": ("CUDA_ERROR_INVALID_CONTEXT", "hipErrorInvalidContext"),
    "AD_GPU_ECC_UNCORRECTABLE": ("CUDA_ERROR_ECC_UNCORRECTABLE", "hipErrorECCNotCorrectable"),
    "AD_GPU_NVLINK_UNCORRECTABLE": ("CUDA_ERROR_NVLINK_UNCORRECTABLE", None),
    "AD_GPU_CONTAINED": ("CUDA_ERROR_CONTAINED", None),
    "AD_GPU_INVALID_HANDLE": ("CUDA_ERROR_INVALID_HANDLE", "hipErrorInvalidHandle"),
    "AD_GPU_NOT_READY": ("CUDA_ERROR_NOT_READY", "hipErrorNotReady"),
    "AD_GPU_ILLEGAL_ADDRESS": ("CUDA_ERROR_ILLEGAL_ADDRESS", "hipErrorIllegalAddress"),
    "AD_GPU_LAUNCH_TIMEOUT": ("CUDA_ERROR_LAUNCH_TIMEOUT", "hipErrorLaunchTimeOut"),
    "AD_GPU_CONTEXT_IS_DESTROYED": ("CUDA_ERROR_CONTEXT_IS_DESTROYED", None),
    "AD_GPU_ASSERT": ("CUDA_ERROR_ASSERT", "hipErrorAssert"),
    "AD_GPU_HARDWARE_STACK_ERROR": ("CUDA_ERROR_HARDWARE_STACK_ERROR", None),
    "AD_GPU_LAUNCH_FAILED": ("CUDA_ERROR_LAUNCH_FAILED", "hipErrorLaunchFailure"),
    "AD_GPU_TENSOR_MEMORY_LEAK": ("CUDA_ERROR_TENSOR_MEMORY_LEAK", None),
    "AD_GPU_NOT_SUPPORTED": ("CUDA_ERROR_NOT_SUPPORTED", "hipErrorNotSupported"),
    "AD_GPU_MPS_CLIENT_TERMINATED": ("CUDA_ERROR_MPS_CLIENT_TERMINATED", None),
    "AD_GPU_EXTERNAL_DEVICE": ("CUDA_ERROR_EXTERNAL_DEVICE", None),
    "AD_GPU_CAPTURE_UNSUPPORTED": (
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "hipErrorStreamCaptureUnsupported",
    ),
    "AD_GPU_CAPTURE_INVALIDATED": (
        "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        "hipErrorStreamCaptureInvalidated",
    ),
    "AD_GPU_CAPTURE_IMPLICIT": (
        "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
        "hipErrorStreamCaptureImplicit",
    ),
    "AD_GPU_CAPTURED_EVENT": ("CUDA_ERROR_CAPTURED_EVENT", "hipErrorCapturedEvent"),
    "AD_GPU_CAPTURE_WRONG_THREAD": (
        "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
        "hipErrorStreamCaptureWrongThread",
    ),
    "AD_GPU_STREAM_NON_BLOCKING": ("CU_STREAM_NON_BLOCKING", "hipStreamNonBlocking"),
    "AD_GPU_EVENT_DISABLE_TIMING": ("CU_EVENT_DISABLE_TIMING", "hipEventDisableTiming"),
    "AD_GPU_EVENT_INTERPROCESS": ("CU_EVENT_INTERPROCESS", "hipEventInterprocess"),
    "AD_GPU_HOST_PORTABLE": ("CU_MEMHOSTALLOC_PORTABLE", "hipHostMallocPortable"),
    "AD_GPU_CAPTURE_MODE_RELAXED": (
        "CU_STREAM_CAPTURE_MODE_RELAXED",
        "hipStreamCaptureModeRelaxed",
    ),
    "AD_GPU_POOL_OF_DEVICE_MEMORY": (
        "CU_MEM_ALLOCATION_TYPE_PINNED",
        "hipMemAllocationTypePinned",
    ),
    "AD_GPU_LOCATION_DEVICE": ("CU_MEM_LOCATION_TYPE_DEVICE", "hipMemLocationTypeDevice"),
    "AD_GPU_FILE_DESCRIPTOR": (
        "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR",
        "hipMemHandleTypePosixFileDescriptor",
    ),
    "AD_GPU_POOL_INTERNAL_WAITS": (
        "CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES",
        "hipMemPoolReuseAllowInternalDependencies",
    ),
    "AD_GPU_POOL_THRESHOLD": (
        "CU_MEMPOOL_ATTR_RELEASE_THRESHOLD",
        "hipMemPoolAttrReleaseThreshold",
    ),
    "AD_GPU_POINTER_BUFFER_ID": (
        "CU_POINTER_ATTRIBUTE_BUFFER_ID",
        "HIP_POINTER_ATTRIBUTE_BUFFER_ID",
    ),
}

CONSTANTS_OF_CUDA = {
    "AD_CUDA_STUB_LIBRARY": "CUDA_ERROR_STUB_LIBRARY",
    "AD_CUDA_NOT_PERMITTED": "CUDA_ERROR_NOT_PERMITTED",
    "AD_CUDA_STREAM_LEGACY": "(uintptr_t)CU_STREAM_LEGACY",
    "AD_CUDA_STREAM_PER_THREAD": "(uintptr_t)CU_STREAM_PER_THREAD",
    "AD_CUDA_MANAGED_GLOBAL": "CU_MEM_ATTACH_GLOBAL",
    "AD_CUDA_DEVICE_PAGEABLE_ACCESS": "CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS",
    "AD_CUDA_DEVICE_HAS_POOLS": "CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED",
    "AD_CUDA_POINTER_CONTEXT": "CU_POINTER_ATTRIBUTE_CONTEXT",
    "AD_CUDA_POINTER_MEMORY_TYPE": "CU_POINTER_ATTRIBUTE_MEMORY_TYPE",
    "AD_CUDA_POINTER_IS_MANAGED": "CU_POINTER_ATTRIBUTE_IS_MANAGED",
    "AD_CUDA_POINTER_DEVICE_ORDINAL": "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL",
    "AD_CUDA_POINTER_HAS_IPC_HANDLE": "CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE",
    "AD_CUDA_POINTER_POOL": "CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE",
    "AD_CUDA_IPC_PEER_ACCESS": "CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS",
    "AD_CUDA_ACCESS_READ_WRITE": "CU_MEM_ACCESS_FLAGS_PROT_READWRITE",
    "AD_CUDA_MEMORY_HOST": "CU_MEMORYTYPE_HOST",
    "AD_CUDA_MEMORY_DEVICE": "CU_MEMORYTYPE_DEVICE",
    "AD_CUDA_MEMORY_UNIFIED": "CU_MEMORYTYPE_UNIFIED",
}

CONSTANTS_OF_HIP = {
    "AD_HIP_INVALID_POINTER": "hipErrorInvalidDevicePointer",
    "AD_HIP_COPY_HOST_TO_DEVICE": "hipMemcpyHostToDevice",
    "AD_HIP_COPY_DEVICE_TO_HOST": "hipMemcpyDeviceToHost",
    "AD_HIP_COPY_DEVICE_TO_DEVICE": "hipMemcpyDeviceToDevice",
    "AD_HIP_COPY_DEFAULT": "hipMemcpyDefault",
}

# hipMemoryType by the major version of the header. Managed was added late in version 5.
MEMORY_TYPES = {
    5: {"HOST": "Host", "DEVICE": "Device", "UNIFIED": "Unified"},
    6: {
        "UNREGISTERED": "Unregistered",
        "HOST": "Host",
        "DEVICE": "Device",
        "MANAGED": "Managed",
        "UNIFIED": "Unified",
    },
}

SIDE = {
    "x": "XInBytes",
    "y": "Y",
    "type": "MemoryType",
    "host": "Host",
    "device": "Device",
    "array": "Array",
    "pitch": "Pitch",
}
COPY_2D = {
    **{f"source_{mine}": f"src{yours}" for mine, yours in SIDE.items()},
    **{f"target_{mine}": f"dst{yours}" for mine, yours in SIDE.items()},
    "width": "WidthInBytes",
    "height": "Height",
}

ACCESS = {
    "location_type": "location.type",
    "location_id": "location.id",
    "flags": "flags",
}

ALLOCATION = {
    "allocation_type": "type",
    "handle_types": "requestedHandleTypes",
    "location_type": "location.type",
    "location_id": "location.id",
    "metadata": "win32HandleMetaData",
    "flags": "allocFlags",
}

POOL = {
    "allocation_type": "allocType",
    "handle_types": "handleTypes",
    "location_type": "location.type",
    "location_id": "location.id",
    "security": "win32SecurityAttributes",
}

POINTER = {
    "device": "device",
    "device_pointer": "devicePointer",
    "host_pointer": "hostPointer",
    "is_managed": "isManaged",
    "allocation_flags": "allocationFlags",
}


def all_constants():
    """Every AD_ constant of the header's enumerations."""
    text = (ABI / "gpu_abi.h").read_text(encoding="utf-8")
    return set(re.findall(r"^    (AD_\w+) = ", text, re.M))


def test_every_constant_is_compared():
    versions = {
        f"AD_HIP_{major}_MEMORY_{name}" for major in (5, 6) for name in MEMORY_TYPES[major]
    }
    compared = {*CONSTANTS_OF_BOTH, *CONSTANTS_OF_CUDA, *CONSTANTS_OF_HIP, *versions}
    # checked by test_version_of_hip and test_peer_access_of_hip, or absent from every header here
    elsewhere = {
        "AD_HIP_VERSION_MAJOR",
        "AD_HIP_5_MEMORY_MANAGED",
        "AD_HIP_OLD_IPC_PEER_ACCESS",
        "AD_HIP_IPC_PEER_ACCESS",
    }
    assert all_constants() == compared | elsewhere


def assert_constants(path, pairs, *flags):
    lines = [f'#include "{path}"', '#include "abi/gpu_abi.h"']
    lines += [f'_Static_assert({mine} == {yours}, "");' for mine, yours in pairs.items() if yours]
    compiler.check("\n".join(lines), *flags, include=(compiler.CSRC, path.parent.parent))


def layout(ours, theirs, members):
    ours = f"struct {ours}"
    return {
        f"sizeof({ours})": f"sizeof({theirs})",
        **{f"offsetof({ours}, {m})": f"offsetof({theirs}, {y})" for m, y in members.items()},
    }


def sizes_of_handles(*theirs):
    return {f"sizeof({name})": "sizeof(struct ad_gpu_ipc_handle)" for name in theirs}


def test_constants_of_cuda(cuda_h):
    both = {mine: cuda for mine, (cuda, _) in CONSTANTS_OF_BOTH.items()}
    layouts = {
        **layout("ad_cuda_copy_2d", "CUDA_MEMCPY2D", COPY_2D),
        **layout("ad_gpu_pool_properties", "CUmemPoolProps", POOL),
        **layout("ad_cuda_access", "CUmemAccessDesc", ACCESS),
        **layout("ad_cuda_allocation", "CUmemAllocationProp", ALLOCATION),
        **layout("ad_gpu_uuid", "CUuuid", {}),
        **sizes_of_handles("CUipcMemHandle", "CUipcEventHandle", "CUmemPoolPtrExportData"),
    }
    assert_constants(cuda_h, {**both, **CONSTANTS_OF_CUDA, **layouts}, "-Wno-pointer-to-int-cast")


def hip_major(hip_h):
    done = compiler.run(
        [*compiler.command(), "-E", "-P", *HIP_FLAGS, f"-I{hip_h.parent.parent}", "-x", "c", "-"],
        input="#include <hip/hip_version.h>\nMAJOR HIP_VERSION_MAJOR\nALL HIP_VERSION\n",
    )
    major = re.search(r"^MAJOR (\d+)$", done.stdout, re.M)[1]
    number = re.search(r"^ALL (.*)$", done.stdout, re.M)[1]
    return int(major), eval(number)


def test_version_of_hip(hip_h):
    major, number = hip_major(hip_h)
    found = re.search(r"AD_HIP_VERSION_MAJOR = (\d+)", (ABI / "gpu_abi.h").read_text("utf-8"))
    assert number // int(found[1]) == major


def test_constants_of_hip(hip_h):
    both = {mine: hip for mine, (_, hip) in CONSTANTS_OF_BOTH.items()}
    major = min(hip_major(hip_h)[0], 6)
    types = {
        f"AD_HIP_{major}_MEMORY_{mine}": f"hipMemoryType{yours}"
        for mine, yours in MEMORY_TYPES[major].items()
    }
    first = "memoryType" if major == 5 else "type"
    layouts = {
        **layout("ad_hip_pointer", "hipPointerAttribute_t", {**POINTER, "memory_type": first}),
        **layout("ad_gpu_pool_properties", "hipMemPoolProps", POOL),
        **layout("ad_gpu_uuid", "hipUUID", {}),
        **sizes_of_handles("hipIpcMemHandle_t", "hipIpcEventHandle_t"),
    }
    flags = [*HIP_FLAGS, "-Wno-deprecated-declarations"]
    assert_constants(hip_h, {**both, **CONSTANTS_OF_HIP, **types, **layouts}, *flags)


def test_peer_access_of_hip(hip_h):
    """Its number has changed, so both are tried: the header's is one of them."""
    source = "\n".join(
        [
            f'#include "{hip_h}"',
            '#include "abi/gpu_abi.h"',
            "_Static_assert(hipIpcMemLazyEnablePeerAccess == AD_HIP_OLD_IPC_PEER_ACCESS ||",
            '    hipIpcMemLazyEnablePeerAccess == AD_HIP_IPC_PEER_ACCESS, "");',
        ]
    )
    compiler.check(source, *HIP_FLAGS, include=(compiler.CSRC, hip_h.parent.parent))


def test_peer_access_of_newer_hip():
    hip = pytest.importorskip("hip").hip
    text = (ABI / "gpu_abi.h").read_text(encoding="utf-8")
    number = re.search(r"AD_HIP_IPC_PEER_ACCESS = (\d+)", text)[1]
    assert hip.hipIpcMemLazyEnablePeerAccess == int(number)


def test_memory_types_of_newer_hip():
    """The numbers since ROCm 6, from bindings generated from a newer header."""
    hip = pytest.importorskip("hip").hip
    text = (ABI / "gpu_abi.h").read_text(encoding="utf-8")
    for mine, yours in MEMORY_TYPES[6].items():
        number = re.search(rf"AD_HIP_6_MEMORY_{mine} = (\d+)", text)[1]
        assert int(getattr(hip.hipMemoryType, f"hipMemoryType{yours}")) == int(number)


LOOK_UP = """
import ctypes, sys
try:
    library = ctypes.CDLL(sys.argv[1])
except OSError as error:
    sys.exit(3)
print(*[name for name in sys.argv[2:] if not hasattr(library, name)])
"""


def test_every_name_is_in_libamdhip64():
    # In a separate process, because other tests would find a library that is loaded.
    names = sorted({name for name in {**HIP, **HIPRTC} if name not in NEWER_HIP})
    done = subprocess.run(
        [sys.executable, "-c", LOOK_UP, "libamdhip64.so.5", *names], capture_output=True, text=True
    )
    if done.returncode == 3:
        pytest.skip("could not import 'libamdhip64': not installed")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_every_name_is_in_the_stub_library(cuda_h):
    stubs = sorted(cuda_h.parent.parent.glob("**/stubs/libcuda.so"))
    if not stubs:
        pytest.skip("no stub library in this CUDA toolkit")
    done = subprocess.run(
        ["nm", "-D", "--defined-only", str(stubs[0])], capture_output=True, text=True, check=True
    )
    exported = {line.split()[-1] for line in done.stdout.splitlines()}
    assert not set(CUDA) - exported
