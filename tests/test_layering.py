"""The layers of csrc are proven by the compiler, not promised."""

import re

import pytest

import compiler
from compiler import CSRC

# Folders that must not know Python, and those above them.
WITHOUT_PYTHON = ("abi", "core", "device")
ABOVE = ("protocol", "python")


def files(folders, pattern):
    found = (path for folder in folders for path in (CSRC / folder).glob(pattern))
    return sorted(str(path.relative_to(CSRC)) for path in found)


@pytest.mark.parametrize("name", files(WITHOUT_PYTHON, "*.c"))
def test_source_compiles_without_python(name):
    compiler.check(f'#include "{name}"\n', *compiler.STRICT)


@pytest.mark.parametrize("name", files(WITHOUT_PYTHON, "*.h"))
def test_header_compiles_alone_without_python(name):
    compiler.check(f'#include "{name}"\n#include "{name}"\n', *compiler.STRICT)


@pytest.mark.parametrize("name", files(ABOVE, "*.h"))
def test_header_compiles_alone(name):
    compiler.check(
        f'#include "{name}"\n#include "{name}"\n', include=(CSRC, compiler.PYTHON_INCLUDE)
    )


@pytest.mark.parametrize("name", files(WITHOUT_PYTHON, "*.[ch]") + files(WITHOUT_PYTHON, "*.def"))
def test_includes_point_downwards(name):
    text = (CSRC / name).read_text(encoding="utf-8")
    included = re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', text, re.M)
    assert "Python.h" not in included
    assert not [path for path in included if path.startswith(("protocol/", "python/", "../"))]
    if name.startswith(("abi/", "core/")):
        # The core calls a device through device/backend.h, nothing else of it.
        assert {path for path in included if path.startswith("device/")} <= {"device/backend.h"}


@pytest.mark.parametrize("name", files(WITHOUT_PYTHON + ABOVE, "*.h"))
def test_guard_is_named_after_the_file(name):
    guard = "AD_" + re.sub(r"\W", "_", name).upper()
    text = (CSRC / name).read_text(encoding="utf-8")
    assert re.search(rf"^#ifndef {guard}\n#define {guard}$", text, re.M)
    assert text.endswith(f"#endif /* {guard} */\n")
