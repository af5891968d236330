"""Compares csrc/abi and arrowdev.h with the headers that other libraries ship.

Nothing is listed by hand: structs, members, enumerators and constants are read
from the installed header, so that an addition to it fails here. The compiler
then compares sizes and offsets. The types of members are compared as text.
"""

import ctypes
import importlib.util
import re
from pathlib import Path

import extension
import pytest

import arrowdev
import compiler
from arrowdev.testing import _abi

ARROW = compiler.CSRC / "abi" / "arrow_c.h"
DLPACK = compiler.CSRC / "abi" / "dlpack.h"
C_API = Path(arrowdev.get_include(), "arrowdev.h")

ARROW_GUARDS = [
    "ARROW_C_DATA_INTERFACE",
    "ARROW_C_STREAM_INTERFACE",
    "ARROW_C_DEVICE_DATA_INTERFACE",
    "ARROW_C_DEVICE_STREAM_INTERFACE",
    "ARROW_C_ASYNC_STREAM_INTERFACE",
]

# DLPack's names and the corresponding names of csrc/abi.
DLPACK_NAMES = {
    "DLPackVersion": "ad_dl_version",
    "DLDevice": "ad_dl_device",
    "DLDeviceType": "int32_t",
    "DLDataType": "ad_dl_dtype",
    "DLTensor": "ad_dl_tensor",
    "DLManagedTensor": "ad_dl_managed",
    "DLManagedTensorVersioned": "ad_dl_managed_versioned",
    "DLPackExchangeAPIHeader": "ad_dl_exchange_header",
    "DLPackExchangeAPI": "ad_dl_exchange_api",
    "DLPackManagedTensorAllocator": "ad_dl_allocator_fn",
    "DLPackManagedTensorFromPyObjectNoSync": "ad_dl_from_py_fn",
    "DLPackManagedTensorToPyObjectNoSync": "ad_dl_to_py_fn",
    "DLPackDLTensorFromPyObjectNoSync": "ad_dl_tensor_from_py_fn",
    "DLPackCurrentWorkStream": "ad_dl_current_stream_fn",
}

# kDLCUDAHost has no underscore between the words of ARROW_DEVICE_CUDA_HOST.
ARROW_DEVICES = {
    "kDLCUDAHost": "CUDA_HOST",
    "kDLROCMHost": "ROCM_HOST",
    "kDLExtDev": "EXT_DEV",
    "kDLCUDAManaged": "CUDA_MANAGED",
}

# DLPack defines these types; Arrow does not yet.
NOT_IN_ARROW = {"kDLMAIA", "kDLTrn"}

FLAGS = {
    "DLPACK_FLAG_BITMASK_READ_ONLY": "AD_DL_FLAG_READ_ONLY",
    "DLPACK_FLAG_BITMASK_IS_COPIED": "AD_DL_FLAG_IS_COPIED",
    "DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED": "AD_DL_FLAG_SUBBYTE_PADDED",
}


def shipped(package, *places):
    """Path of a header inside an installed package, found without an import."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        pytest.skip(f"could not import '{package}': not installed")
    for folder in spec.submodule_search_locations:
        for place in places:
            if Path(folder, place).exists():
                return Path(folder, place)
    pytest.fail(f"{package} is installed but ships none of {places}")


def pyarrow_header(name):
    return shipped("pyarrow", f"include/arrow/c/{name}")


def tokens_of(text):
    return re.findall(r"\w+|\*", text)


def without_name(parameter):
    """`struct A *self` and `struct A*` are the same parameter."""
    words = tokens_of(parameter)
    if len(words) > 1 and words[-1] != "*" and words[-2:-1] not in (["struct"], ["const"]):
        words.pop()
    return " ".join(words)


def split_declaration(text):
    """Splits one declaration into (name, type)."""
    function = re.fullmatch(r"(?:typedef )?(.*?)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)", text, re.S)
    if function:
        returns, name, inner = function.groups()
        nested = re.search(r"\w+\s*\(\s*\*\s*\w*\s*\)\s*\(.*\)", inner, re.S)
        parameters = []
        if nested:  # the last parameter may be a callback
            parameters = [split_declaration(nested[0])[1]]
            inner = inner[: nested.start()].rstrip().rstrip(",")
        parameters = [without_name(part) for part in inner.split(",")] + parameters
        return name, f"{' '.join(tokens_of(returns))}({', '.join(parameters)})"
    plain = re.fullmatch(r"(.*?)(\w+)\s*((?:\[\d+\])?)", text, re.S)
    return plain[2], " ".join(tokens_of(plain[1])) + plain[3]


def structs_of(text):
    """{struct: {member: type}}, in the order of the file."""
    found = {}
    pattern = r"(?:typedef\s+)?struct(?:\s+(\w+))?\s*\{([^{}]*)\}\s*(\w*)\s*;"
    for tag, body, alias in re.findall(pattern, text):
        members = (part.strip() for part in body.split(";"))
        found[alias or tag] = dict(split_declaration(part) for part in members if part)
    return found


def functions_of(text):
    """{function type: its signature}."""
    found = re.findall(r"typedef\s+int\s*\(\s*\*[^;]*;", text)
    return dict(split_declaration(part.rstrip(";")) for part in found)


def same_layout(theirs, ours, members):
    """Static assertions that two struct types have the same layout."""
    yield f'_Static_assert(sizeof({theirs}) == sizeof({ours}), "size of {theirs}");'
    yield f'_Static_assert(_Alignof({theirs}) == _Alignof({ours}), "alignment of {theirs}");'
    for member in members:
        yield (
            f"_Static_assert(offsetof({theirs}, {member}) == offsetof({ours}, {member}),"
            f' "offset of {theirs}.{member}");'
        )
        yield (
            f"_Static_assert(sizeof((({theirs} *)0)->{member}) == "
            f'sizeof((({ours} *)0)->{member}), "size of {theirs}.{member}");'
        )


def assert_user_compiles(code, language, flags=extension.FLAGS):
    """As a user of arrowdev.h compiles it, without writing anything."""
    command = extension.command(language, flags)
    done = compiler.run([*command, "-fsyntax-only", "-x", language, "-"], input=code)
    assert done.returncode == 0, f"{code}\n{done.stderr}"


class TestArrow:
    """csrc/abi/arrow_c.h matches arrow/c/abi.h of Arrow C++."""

    def test_layout(self):
        header = pyarrow_header("abi.h")
        structs = structs_of(compiler.preprocess(header))
        assert len(structs) == 8
        lines = ["#include <stddef.h>"]
        lines += [f"#define {name} ours_{name}" for name in [*structs, "ArrowDeviceType"]]
        lines += [f'#include "{ARROW}"']
        lines += [f"#undef {name}" for name in [*structs, "ArrowDeviceType", *ARROW_GUARDS]]
        lines += [f'#include "{header}"']
        for name, members in structs.items():
            lines += same_layout(f"struct {name}", f"struct ours_{name}", members)
        compiler.check("\n".join(lines))

    def test_sizes_match_the_specification(self):
        sizes = {
            "ArrowSchema": 72,
            "ArrowArray": 80,
            "ArrowArrayStream": 40,
            "ArrowDeviceArray": 128,
            "ArrowDeviceArrayStream": 48,
            # Sizes of the reference header, without ArrowAsyncProducer.release.
            "ArrowAsyncTask": 16,
            "ArrowAsyncProducer": 40,
            "ArrowAsyncDeviceStreamHandler": 48,
        }
        lines = [f'#include "{ARROW}"']
        for name, size in sizes.items():
            lines += [f'_Static_assert(sizeof(struct {name}) == {size}, "{name}");']
        compiler.check("\n".join(lines))

    def test_types_of_the_members(self):
        theirs = structs_of(compiler.preprocess(pyarrow_header("abi.h")))
        assert structs_of(compiler.preprocess(ARROW)) == theirs

    def test_constants(self):
        header = pyarrow_header("abi.h")
        pattern = r"#\s*define (ARROW_(?:FLAG|DEVICE)_\w+) (\d+)"
        theirs = dict(re.findall(pattern, header.read_text(encoding="utf-8")))
        assert len(theirs) == 3 + 14
        assert dict(re.findall(pattern, ARROW.read_text(encoding="utf-8"))) == theirs

    def test_guards_match_the_specification(self):
        for path in (ARROW, pyarrow_header("abi.h")):
            text = path.read_text(encoding="utf-8")
            for guard in ARROW_GUARDS:
                assert re.search(rf"#ifndef {guard}\n#\s*define {guard}\n", text), (path, guard)

    @pytest.mark.parametrize("language", ["c", "c++"])
    def test_headers_compile_in_both_orders(self, language):
        header = pyarrow_header("abi.h")
        use = "struct ArrowDeviceArray a; struct ArrowAsyncDeviceStreamHandler h;"
        for first, second in ((ARROW, header), (header, ARROW)):
            compiler.check(f'#include "{first}"\n#include "{second}"\n{use}\n', language=language)

    @pytest.mark.parametrize("n_blocks", range(len(ARROW_GUARDS)))
    def test_compiles_after_header_with_first_blocks_only(self, n_blocks):
        """A library may vendor only the data block, for example, and be included first."""
        text = pyarrow_header("abi.h").read_text(encoding="utf-8")
        lines = ["#include <stdint.h>"]
        for guard in ARROW_GUARDS[:n_blocks]:
            block = re.search(rf"#ifndef {guard}\n.*?\n#endif  // {guard}\n", text, re.S)
            lines += [block[0]]
        lines += [f'#include "{ARROW}"', "struct ArrowAsyncDeviceStreamHandler handler;"]
        compiler.check("\n".join(lines))


# C types as ctypes writes them. A pointer of any kind is an address.
IN_CTYPES = {
    "int64_t": ctypes.c_int64,
    "ArrowDeviceType": ctypes.c_int32,
    "struct ArrowArray": _abi.ArrowArray,
    "int64_t[3]": ctypes.c_int64 * 3,
}


def in_ctypes(type):
    """The type of a member, parameter or result as _abi declares it."""
    return ctypes.c_void_p if type.endswith(("*", ")")) else IN_CTYPES[type]


class TestCtypes:
    """arrowdev.testing._abi matches csrc/abi/arrow_c.h."""

    def test_members(self):
        ours = structs_of(compiler.preprocess(ARROW))
        assert {struct.__name__ for struct in _abi.STRUCTS} == set(ours)
        for struct in _abi.STRUCTS:
            members = {name: in_ctypes(type) for name, type in ours[struct.__name__].items()}
            assert dict(struct._fields_) == members

    def test_layout(self):
        lines = ["#include <stddef.h>", f'#include "{ARROW}"']
        for struct in _abi.STRUCTS:
            name = f"struct {struct.__name__}"
            lines += [f'_Static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, "{name}");']
            for member, _ in struct._fields_:
                offset = getattr(struct, member).offset
                lines += [
                    f'_Static_assert(offsetof({name}, {member}) == {offset}, "{name}.{member}");'
                ]
        compiler.check("\n".join(lines))

    def test_callbacks(self):
        numbers = {"int": ctypes.c_int, "int64_t": ctypes.c_int64, "void": None}
        seen = set()
        for members in structs_of(compiler.preprocess(ARROW)).values():
            for name, type in members.items():
                function = re.fullmatch(r"(.*?)\((.*)\)", type)
                if function:
                    kinds = [function[1], *function[2].split(", ")]
                    found = [
                        ctypes.c_void_p if kind.endswith("*") else numbers[kind] for kind in kinds
                    ]
                    declared = _abi.CALLBACKS[name]
                    assert [declared._restype_, *declared._argtypes_] == found, name
                    seen.add(name)
        assert seen == set(_abi.CALLBACKS)


DLPACK_HEADERS = {
    "pyarrow": lambda: pyarrow_header("dlpack_abi.h"),
    "tvm_ffi": lambda: shipped("tvm_ffi", "include/dlpack/dlpack.h"),
    "torch": lambda: shipped("torch", "include/ATen/dlpack.h"),
}


@pytest.fixture(params=DLPACK_HEADERS)
def dlpack_header(request):
    return DLPACK_HEADERS[request.param]()


def is_complete(dlpack_header):
    """True if the header has our version. An older header (old peers) has only part of it."""
    pattern = r"#define (?:DLPACK|AD_DL)_(?:MAJOR|MINOR)(?:_VERSION)? (\d+)"
    theirs, ours = (
        tuple(map(int, re.findall(pattern, path.read_text(encoding="utf-8"))))
        for path in (dlpack_header, DLPACK)
    )
    assert len(ours) == 2
    assert (1, 0) <= theirs <= ours, f"DLPack {theirs} is newer than csrc/abi/dlpack.h"
    return theirs == ours


class TestDLPack:
    """csrc/abi/dlpack.h matches each copy of dlpack.h that a peer ships."""

    def test_layout(self, dlpack_header):
        structs = structs_of(compiler.preprocess(dlpack_header))
        assert len(structs) == (8 if is_complete(dlpack_header) else 6)
        lines = ["#include <stddef.h>", f'#include "{dlpack_header}"', f'#include "{DLPACK}"']
        # Version 1.0 declares this struct without a typedef.
        lines += ["typedef struct DLManagedTensorVersioned DLManagedTensorVersioned;"]
        for name, members in structs.items():
            lines += same_layout(name, DLPACK_NAMES[name], members)
        compiler.check("\n".join(lines))

    def test_types_of_the_members(self, dlpack_header):
        text = compiler.preprocess(dlpack_header)
        # Names are replaced before parsing; our headers use int32 for an enum of DLPack.
        text = re.sub(r"typedef\s+enum\s*\{[^}]*\}\s*\w+;", "", text)
        text = re.sub(r"\w+", lambda word: DLPACK_NAMES.get(word[0], word[0]), text)
        theirs = structs_of(text) | functions_of(text)
        ours = compiler.preprocess(DLPACK)
        ours = structs_of(ours) | functions_of(ours)
        assert len(ours) == 8 + 5
        if is_complete(dlpack_header):
            assert theirs == ours
        else:
            assert theirs == {name: ours[name] for name in theirs}

    def test_constants(self, dlpack_header):
        devices, codes = re.findall(
            r"typedef\s+enum\s*\{([^}]*)\}", compiler.preprocess(dlpack_header)
        )
        devices, codes = (re.findall(r"(kDL\w+) =", names) for names in (devices, codes))
        flags = re.findall(r"#define (DLPACK_FLAG_\w+)", dlpack_header.read_text("utf-8"))
        if is_complete(dlpack_header):
            assert (len(devices), len(codes), len(flags)) == (16, 18, 3)
        pairs = {flag: FLAGS[flag] for flag in flags}
        for name in devices:
            if name not in NOT_IN_ARROW:
                arrow = ARROW_DEVICES.get(name, name.removeprefix("kDL").upper())
                pairs[name] = f"ARROW_DEVICE_{arrow}"
        for name in codes:
            ours = name.removeprefix("kDL").removesuffix("Handle").upper()
            pairs[name] = f"AD_DL_{ours}"
        lines = [f'#include "{header}"' for header in (dlpack_header, DLPACK, ARROW)]
        for theirs, ours in pairs.items():
            lines += [f'_Static_assert((int){theirs} == (int){ours}, "{theirs}");']
        compiler.check("\n".join(lines))

    @pytest.mark.parametrize("language", ["c", "c++"])
    def test_headers_compile_in_both_orders(self, dlpack_header, language):
        for first, second in ((DLPACK, dlpack_header), (dlpack_header, DLPACK)):
            compiler.check(f'#include "{first}"\n#include "{second}"\n', language=language)


class TestCApi:
    """The structs of arrowdev.h, the C API, and its life beside the headers of others."""

    # Both orders; other libraries have the same guards.
    OTHERS = DLPACK_HEADERS | {"arrow": lambda: pyarrow_header("abi.h")}

    @pytest.mark.parametrize("language", ["c", "c++"])
    def test_header_compiles_alone(self, language):
        assert_user_compiles(f'#include "{C_API}"\n', language)

    @pytest.mark.parametrize("language", ["c", "c++"])
    @pytest.mark.parametrize("other", OTHERS)
    def test_headers_compile_in_both_orders(self, other, language):
        path = self.OTHERS[other]()
        use = "DLManagedTensorVersioned *tensor; struct ArrowDeviceArray array; "
        use += "int f(void) { return ArrowDev_ExportDLPack(NULL, NULL, &tensor); }"
        for first, second in ((C_API, path), (path, C_API)):
            code = f'#include "{first}"\n#include "{second}"\n#include "{C_API}"\n{use}\n'
            # With the flags of others' headers: they are not clean with -Wpedantic.
            assert_user_compiles(code, language, ["-Wall", "-Werror"])

    def test_arrow_structs_are_those_of_the_core(self):
        core, api = (path.read_text(encoding="utf-8") for path in (ARROW, C_API))
        for guard in ARROW_GUARDS[:4]:
            block = re.search(rf"^#ifndef {guard}$.*?^#endif /\* {guard} \*/$", core, re.M | re.S)
            assert block[0] in api

    def test_dlpack_is_complete(self, dlpack_header):
        theirs = dlpack_header.read_text(encoding="utf-8")
        theirs = re.sub(r"/\*.*?\*/|//[^\n]*", "", theirs, flags=re.S)
        names = set(re.findall(r"\b(?:DL|kDL)\w+", theirs)) - {"DLPACK_EXPORTS"}
        assert names <= set(re.findall(r"\w+", C_API.read_text(encoding="utf-8")))

    def test_layout_of_dlpack(self, dlpack_header):
        structs = structs_of(compiler.preprocess(dlpack_header))
        theirs = dlpack_header.read_text(encoding="utf-8")
        constants = re.findall(r"(kDL\w+) = ", theirs)
        ours = set(re.findall(r"\bk?DL(?!PACK)\w+", C_API.read_text(encoding="utf-8")))
        lines = ["#include <Python.h>"]
        lines += [f"#define {name} ours_{name}" for name in sorted(ours)]
        lines += [f'#include "{C_API}"', "#undef DLPACK_DLPACK_H_"]
        lines += [f"#undef {name}" for name in sorted(ours)]
        macros = re.findall(r"#\s*define (DLPACK_\w+)", C_API.read_text(encoding="utf-8"))
        lines += [f"#undef {name}" for name in macros]
        lines += [f'#include "{dlpack_header}"']
        lines += ["typedef struct DLManagedTensorVersioned DLManagedTensorVersioned;"]
        for name, members in structs.items():
            lines += same_layout(name, f"ours_{name}", members)
        assert len(constants) > 20
        for name in constants:
            lines += [f'_Static_assert((int){name} == (int)ours_{name}, "{name}");']
        compiler.check("\n".join(lines), include=(compiler.PYTHON_INCLUDE,))
