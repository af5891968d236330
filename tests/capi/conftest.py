"""The extension in C that the tests of this folder call."""

from pathlib import Path

import pytest

HELPERS = Path(__file__).resolve().parent.parent / "c_helpers"


@pytest.fixture(scope="session")
def capi():
    import extension

    return extension.load(extension.build(HELPERS / "capi.c"))
