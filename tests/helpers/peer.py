"""A library that may be missing or too old. The first test that uses it is
skipped."""

import pytest


class Peer:
    def __init__(self, name, minversion=None):
        self.__dict__["name"] = name
        self.__dict__["minversion"] = minversion

    def __getattr__(self, attribute):
        if attribute.startswith(("_", "pytest")):  # pytest reads every global
            raise AttributeError(attribute)
        return getattr(pytest.importorskip(self.name, self.minversion), attribute)
