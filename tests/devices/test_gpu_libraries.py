"""The GPU suite's own code for libraries that need a GPU, run or looked up without one.

On a machine without a GPU, tests/gpu_cuda only skips it.
"""

import ast
import contextlib
import importlib
import sys

import numpy as np
import pytest

import compiler

FOLDER = compiler.ROOT / "tests" / "gpu_cuda"
SOURCES = sorted(FOLDER.glob("*.py"))
VALUES = np.arange(64, dtype="int64")


@pytest.fixture
def libraries(monkeypatch):
    pytest.importorskip("cuda.bindings")
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("libraries")
    for name in ("libraries", "gpu"):
        del sys.modules[name]
    if "jax" in sys.modules:  # libraries.Jax turns 64 bits on for the whole process
        sys.modules["jax"].config.update("jax_enable_x64", False)


def host_library(libraries, name):
    """The library on the CPU, where it has no streams."""
    pytest.importorskip(name)
    if name == "jax":
        return libraries.Jax("cpu")

    class OnTheHost(libraries.Torch):
        def stream(self):
            return None

        def on(self, stream):
            return contextlib.nullcontext()

        def finish(self, stream):
            pass

    return OnTheHost("cpu")


@pytest.mark.parametrize("consumer", ["torch", "jax"])
@pytest.mark.parametrize("producer", ["torch", "jax"])
def test_libraries_on_the_host(libraries, producer, consumer):
    import arrowdev as ad

    one, two = host_library(libraries, producer), host_library(libraries, consumer)
    source = one.make(VALUES, None)
    taken = two.take(ad.tensor(source), None)
    assert two.pointer(taken) == one.pointer(source) or consumer == "jax"  # which may copy here
    assert bytes(two.values(taken, None)) == VALUES.tobytes()
    assert isinstance(ad.convert(source, two.class_of_arrays()), two.class_of_arrays())


def dotted(node):
    """`torch.cuda.graph` as a list of names; None for what does not begin with a name."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)) is not None:
        return [*before, node.attr]
    return None


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def chains(tree, *root):
    """All dotted names in the tree that begin with `root`, without it."""
    found = (dotted(node) for node in ast.walk(tree))
    n = len(root)
    return {tuple(names[n:]) for names in found if names and tuple(names[:n]) == root} - {()}


def missing(module, names):
    """The dotted name, if the module lacks a part of it."""
    found = module
    for name in names:
        if not hasattr(found, name):
            return ".".join(names)
        found = getattr(found, name)
        if not hasattr(found, "__name__"):
            return None  # an object, whose attributes may appear with a device
    return None


def names_by_library():
    """What the classes of libraries.py use as `self.api`, and scripts by the module's name."""
    used = {}
    for node in parsed(FOLDER / "libraries.py").body:
        for statement in getattr(node, "body", ()):
            if isinstance(statement, ast.Assign) and statement.targets[0].id == "module":
                used[ast.literal_eval(statement.value)] = chains(node, "self", "api")
    del used[None]  # of the base class
    for path in SOURCES:
        for module, names in used.items():
            names |= chains(parsed(path), *module.split("."))
    return used


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_names_of_libraries_exist(name):
    """A build for the CPU has the names of the build for CUDA."""
    module = pytest.importorskip(name)
    names = names_by_library()[name]
    assert names
    assert [lost for chain in names if (lost := missing(module, chain))] == []


def test_names_of_the_driver_exist():
    driver = pytest.importorskip("cuda.bindings.driver")
    names = {chain for path in SOURCES for chain in chains(parsed(path), "cu")}
    names |= {chain for path in SOURCES for chain in chains(parsed(path), "gpu", "cu")}
    assert names
    assert [lost for chain in names if (lost := missing(driver, chain))] == []
