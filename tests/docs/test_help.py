"""help(): what a function returns, and an example of it that runs."""

import doctest
import inspect

from loops import looped

import arrowdev as ad

FUNCTIONS = [
    getattr(module, name)
    for module in (ad, ad.aio)
    for name in module.__all__
    if inspect.isroutine(getattr(module, name))
]

# These have nothing to return, and are as short as their name.
PLAIN = {"cancel", "aclose", "close", "synchronize", "wait"}
CLASSES = (ad.Array, ad.Tensor, ad.Buffer, ad.Schema, ad.Device, ad.ArrayStream)
METHODS = [
    getattr(cls, name)
    for cls in CLASSES
    for name, member in inspect.getmembers(cls, inspect.isroutine)
    if not name.startswith("_") and name not in PLAIN
]


def described(functions):
    return {function.__qualname__: function for function in functions}


def test_they_are_found():
    names = set(described(FUNCTIONS))
    assert names >= {"array", "record_batch", "tensor", "convert", "as_host", "produce", "connect"}
    assert set(described(METHODS)) >= {"Array.equals", "Tensor.from_pointer", "Schema.equals"}


@looped("name", described(FUNCTIONS + METHODS))
def test_example(name):
    function = described(FUNCTIONS + METHODS)[name]
    text = inspect.getdoc(function)
    assert text.startswith(tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ`"))
    assert text.index("\nReturns\n-------\n") < text.index("\nExamples\n--------\n")
    if "\nRaises\n------\n" in text:
        assert text.index("Returns\n---") < text.index("Raises\n---") < text.index("Examples\n---")
    examples = doctest.DocTestParser().get_doctest(text, {"ad": ad}, name, None, 0)
    assert examples.examples
    said = []
    assert doctest.DocTestRunner().run(examples, out=said.append).failed == 0, "".join(said)
