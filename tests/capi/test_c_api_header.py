"""arrowdev.h as text: what an installed extension relies on, and the .pxd for Cython."""

import re
from pathlib import Path

import arrowdev as ad

HEADER = Path(ad.get_include(), "arrowdev.h").read_text(encoding="utf-8")
CODE = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)
PXD = Path(ad.__file__).with_name("__init__.pxd").read_text(encoding="utf-8")

# What each version of the table added, in the order of the struct. Extensions that are installed
# read the table by these positions: a version is only ever added.
TABLE = {
    1: """version reserved package export_device_array import_device_array export_device_stream
        import_device_stream export_dlpack import_dlpack into stream_wait last_error""",
    2: "register_backend",
}
# The same for ArrowDevOptions. A member that is added needs no new version.
OPTIONS = "size stream fill_value device_id device_type copy nulls reserved"


def members(struct):
    body = re.search(rf"typedef struct {struct} \{{(.*?)\n\}} {struct};", CODE, re.S)[1]
    names = [re.search(r"\(\*(\w+)\)|(\w+)$", part.strip()) for part in body.split(";")[:-1]]
    return [found[1] or found[2] for found in names]


def test_table_only_grows():
    assert members("ArrowDevAPI") == [name for added in TABLE.values() for name in added.split()]
    assert re.search(r"#define ARROWDEV_API_VERSION (\d+)", CODE)[1] == str(max(TABLE))


def test_options_only_grow():
    assert members("ArrowDevOptions") == OPTIONS.split()


def functions(text):
    return set(re.findall(r"\b(ArrowDev_\w+)\(", text))


def test_every_function_is_in_the_pxd_and_on_the_page():
    assert len(functions(CODE)) == 12
    assert functions(CODE) == functions(PXD)
    page = Path(__file__).parent.parent.parent / "docs" / "c_api.md"
    assert functions(CODE) == functions(page.read_text(encoding="utf-8"))


def test_every_constant_is_in_the_pxd():
    constants = set(re.findall(r"^(?:#define|   ) ?(ARROW(?:DEV)?_[A-Z]+_\w+)\b", CODE, re.M))
    guards = {name for name in constants if name.startswith("ARROW_C_")}
    assert len(constants - guards) >= 3 + 14 + 6
    assert constants - guards <= set(re.findall(r"\w+", PXD))
