"""Marks the tests of other libraries that are expected to fail: see deviations.py."""

import importlib.metadata

import deviations
import foreign_suite
import pytest


def pytest_configure(config):
    foreign_suite.config = config


def is_version_known(file):
    library = file.split("_")[1]
    return importlib.metadata.version(library) == deviations.VERSIONS[library]


def pytest_collection_modifyitems(items):
    for item in items:
        file = item.path.stem
        reason = deviations.reason_of(file, item.nodeid.partition("::")[2])
        if item.path.parent.name == "suites" and reason is not None:
            mark = pytest.mark.xfail(strict=is_version_known(file), reason=reason)
            item.add_marker(mark)
