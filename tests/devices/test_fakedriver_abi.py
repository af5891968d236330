"""Compares the stand-in drivers with the headers of CUDA and ROCm.

The drivers are written without the vendors' headers. Each name, version, exported
symbol and parameter size is compared.
"""

import re
from pathlib import Path

import pytest

import compiler

FOLDER = compiler.ROOT / "tests" / "fakedriver"
LIST = (FOLDER / "cuda_functions.def").read_text(encoding="utf-8").split("*/", 1)[1]
HIP_FLAGS = ["-D__HIP_PLATFORM_AMD__", "-D__HIP_DISABLE_CPP_FUNCTIONS__"]
# Missing from the header of Debian's ROCm 5.2: newer names, or names of its C++ part.
UNDECLARED_HIP = {"hipStreamGetDevice", "hipGetStreamDeviceId"}
# Added in 12.5 and 13.0 under existing names. cuda.h still uses the old versions;
# cuGetProcAddress returns the new ones to callers that ask for that version.
UNMAPPED = {
    "cuCtxGetDevice": "cuCtxGetDevice",
    "cuCtxSynchronize": "cuCtxSynchronize",
    "cuStreamGetCtx": "cuStreamGetCtx",
}


# A handle of memory or of an event is passed by value.
HANDLE = "typedef struct fd_name { char bytes[64]; } fd_name;"


def header(pattern):
    found = sorted(Path("/usr").glob(pattern))
    if not found:
        pytest.skip(f"could not import '{Path(pattern).stem}': no such header here")
    return found[-1]


@pytest.fixture(scope="module")
def cuda():
    return header("local/cuda*/include/cudaTypedefs.h")


def parts(text):
    """Splits at the commas outside parentheses."""
    found, depth = [""], 0
    for character in " ".join(text.split()):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    found = [part.strip() for part in found]
    return [] if found in ([""], ["void"]) else found


def entries():
    """(kind, name, version, symbol, suffix, parameters) of each line."""
    for kind, arguments in re.findall(r"^FD_(\w+)\((.*)\)$", LIST, re.M):
        given = parts(arguments)
        name, version, symbol = given[0], int(given[1]), [*given, None][2]
        suffix = given[3] if kind == "TWIN" else ""
        shape = given[{"OLD": -1, "PLAIN": 3, "TWIN": 4}[kind]]
        yield kind, name, version, symbol, suffix, parts(shape[1:-1])


ENTRIES = list(entries())
SERVED = [entry for entry in ENTRIES if entry[0] != "OLD"]


def signatures(typedefs):
    """{name: {version: parameters}}, and the names that have a per-thread twin."""
    known, twins = {}, set()
    pattern = r"\(CUDAAPI \*PFN_(cu\w+?)_v(\d+)(_pt[sd][sz])?\)\((.*?)\);"
    for name, version, twin, parameters in re.findall(pattern, typedefs, re.S):
        if twin:
            twins.add((name, twin))
        else:
            known.setdefault(name, {})[int(version)] = parts(parameters)
    return known, twins


def our_type(parameter):
    """A type of the same size. All pointers map to one type."""
    if "*" in parameter:
        return "void *"
    return re.sub(r"\s*\w+$", "", parameter.replace("const ", ""))


def their_type(parameter):
    """The type alone. Callback typedefs are left unchanged."""
    if "*" in parameter:
        return "void *"
    return re.sub(r"\s+\w+$", "", parameter.replace("const ", ""))


def same_sizes(name, ours, theirs):
    assert len(ours) == len(theirs), (name, ours, theirs)
    return [
        f'_Static_assert(sizeof({our_type(a)}) == sizeof({their_type(b)}), "{name}: {b}");'
        for a, b in zip(ours, theirs, strict=True)
    ]


def test_every_name_has_its_versions(cuda):
    known, twins = signatures(cuda.read_text(encoding="utf-8"))
    ours = {}
    for _, name, version, _, suffix, _ in ENTRIES:
        ours.setdefault(name, set()).add(version)
        assert not suffix or (name, suffix) in twins
        assert suffix or (name, "_ptsz") not in twins or version in ours[name]
    assert {name: sorted(versions) for name, versions in ours.items()} == {
        name: sorted(known[name]) for name in ours
    }


def test_every_stream_function_has_its_per_thread_twin(cuda):
    _, twins = signatures(cuda.read_text(encoding="utf-8"))
    with_twin = {name for name, _ in twins}
    plain = {name for kind, name, *_ in ENTRIES if kind == "PLAIN"}
    assert plain & with_twin == {"cuGetProcAddress"} & with_twin


def test_parameters(cuda):
    known, _ = signatures(cuda.read_text(encoding="utf-8"))
    lines = ["#include <cuda.h>", "#include <stdint.h>", HANDLE]
    for _, name, version, _, _, parameters in SERVED:
        lines += same_sizes(name, parameters, known[name][version])
    compiler.check("\n".join(lines), include=[cuda.parent])


@pytest.mark.parametrize("per_thread", [False, True])
def test_newest_symbol_matches_the_header(cuda, per_thread):
    newest = {}
    for _, name, _, symbol, suffix, _ in sorted(SERVED, key=lambda entry: entry[2]):
        newest[name] = UNMAPPED.get(name, symbol) + (suffix if per_thread else "")
    newest.pop("cuGetProcAddress")  # cuGetProcAddress looks itself up without a suffix
    names = list(newest)
    text = "#include <cuda.h>\nNAMES " + " ".join(names)
    done = compiler.run(
        [*compiler.command(), "-E", "-P", f"-I{cuda.parent}"]
        + (["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"] if per_thread else [])
        + ["-x", "c", "-"],
        input=text,
    )
    assert done.returncode == 0, done.stderr
    symbols = done.stdout.split("NAMES ")[-1].split()
    assert dict(zip(names, symbols, strict=True)) == newest


LAYOUTS = {
    "CUDA_MEMCPY2D": (
        "cu_copy_2d",
        "source_x:srcXInBytes source_y:srcY source_type:srcMemoryType source_host:srcHost "
        "source_device:srcDevice source_array:srcArray source_pitch:srcPitch "
        "target_x:dstXInBytes target_y:dstY target_type:dstMemoryType target_host:dstHost "
        "target_device:dstDevice target_array:dstArray target_pitch:dstPitch "
        "width:WidthInBytes height:Height",
    ),
    "CUmemLocation": ("cu_location", "type:type id:id"),
    "CUmemPoolProps": (
        "fd_pool_properties",
        "allocation:allocType handles:handleTypes location:location.type id:location.id "
        "security:win32SecurityAttributes max_size:maxSize usage:usage",
    ),
    "CUmemAllocationProp": (
        "fd_physical_properties",
        "type:type handles:requestedHandleTypes location:location.type id:location.id "
        "metadata:win32HandleMetaData compression:allocFlags.compressionType "
        "rdma:allocFlags.gpuDirectRDMACapable usage:allocFlags.usage",
    ),
    "CUmemAccessDesc": ("fd_access", "location:location.type id:location.id flags:flags"),
    "CUDA_GRAPH_INSTANTIATE_PARAMS": (
        "cu_instantiate",
        "flags:flags upload:hUploadStream error_node:hErrNode_out result:result_out",
    ),
}


def test_structs(cuda):
    """The stand-in's header and cuda.h declare the same functions, so only types are compared."""
    face = (FOLDER / "cuda_face.h").read_text(encoding="utf-8")
    own = face[face.index("typedef struct cu_location") : face.index("#define FD_PLAIN")]
    shared = (FOLDER / "driver.h").read_text(encoding="utf-8")
    names = ("fd_pool_properties", "fd_physical_properties", "fd_access")
    found = [re.search(rf"typedef struct {n} \{{.*?\}} {n};", shared, re.S)[0] for n in names]
    lines = ["#include <cuda.h>", "#include <stddef.h>", "#include <stdint.h>", own, *found]
    for theirs, (ours, fields) in LAYOUTS.items():
        lines.append(f'_Static_assert(sizeof({ours}) == sizeof({theirs}), "{ours}");')
        for field in fields.split():
            a, b = field.split(":")
            equal = f"offsetof({ours}, {a}) == offsetof({theirs}, {b})"
            lines.append(f'_Static_assert({equal}, "{ours}.{a}");')
    compiler.check("\n".join(lines), include=[cuda.parent])


def errors():
    text = (FOLDER / "error_names.def").read_text(encoding="utf-8")
    return re.findall(r'^FD_ERROR\((\d+), "(\w+)", "(\w+)"\)$', text, re.M)


def test_error_names(cuda):
    lines = ["#include <cuda.h>"]
    for number, name, _ in errors():
        full = "CUDA_SUCCESS" if name == "SUCCESS" else f"CUDA_ERROR_{name}"
        lines.append(f'_Static_assert({full} == {number}, "{full}");')
    compiler.check("\n".join(lines), include=[cuda.parent])


# --- HIP ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hip():
    return header("include/hip/hip_runtime_api.h")


def hip_functions():
    found = {}
    for path in FOLDER.glob("hip_*.c"):
        text = path.read_text(encoding="utf-8")
        for name, parameters in re.findall(r"^(hip[A-Z]\w+)\((.*?)\)\n\{", text, re.M | re.S):
            found[name] = parts(parameters)
    return found


def test_hip_parameters(hip):
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", hip.read_text(encoding="utf-8"), flags=re.S)
    pattern = r"^\s*(?:hipError_t|const char\s?\*) (hip\w+)\s*\((.*?)\);"
    known = dict(re.findall(pattern, text, re.M | re.S))
    ours = hip_functions()
    assert len(ours) > 60 and set(ours) - set(known) <= UNDECLARED_HIP
    lines = ["#include <hip/hip_runtime_api.h>", "#include <stdint.h>", HANDLE]
    for name in sorted(set(ours) & set(known)):
        theirs = [re.sub(r"\s*(=.*|__dparm\(.*\))$", "", part) for part in parts(known[name])]
        lines += same_sizes(name, ours[name], theirs)
    compiler.check("\n".join(lines), *HIP_FLAGS, include=[hip.parent.parent])


def test_hip_error_names(hip):
    lines = ["#include <hip/hip_runtime_api.h>"]
    known = hip.read_text(encoding="utf-8")
    for number, _, name in errors():
        full = "hipSuccess" if name == "Success" else f"hipError{name}"
        if re.search(rf"\b{full}\b", known):
            lines.append(f'_Static_assert({full} == {number}, "{full}");')
    assert len(lines) > 15
    compiler.check("\n".join(lines), *HIP_FLAGS, include=[hip.parent.parent])
