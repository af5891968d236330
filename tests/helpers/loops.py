"""Cases that run in a loop inside one test, where separate test ids would add nothing.

`@looped` has the arguments of `@pytest.mark.parametrize` and decorates the same kind of test. The
test runs once for every combination; the first failure ends it and names its case. Fixtures
are set up once for all cases. Either all cases are skipped or none is.
"""

import functools
import inspect

import pytest


def split(names, value):
    return dict(zip(names, value, strict=True)) if len(names) > 1 else {names[0]: value}


def explain(error, case):
    """Adds the case to the failure that pytest prints."""
    shown = ", ".join(f"{name}={value!r}" for name, value in case.items())
    if hasattr(error, "add_note"):
        error.add_note(f"in the case {shown}")
    else:  # CPython 3.10
        print(f"in the case {shown}")


def looped(names, values):
    """`names`: one string for each of `values`, or a tuple of strings."""
    names = [names] if isinstance(names, str) else list(names)
    cases = [split(names, value) for value in values]
    assert cases, "a loop without a case tests nothing"

    def decorate(test):
        @functools.wraps(test)
        def run(*args, **kwargs):
            skipped = []
            for case in cases:
                try:
                    test(*args, **kwargs, **case)
                except pytest.skip.Exception as skip:
                    skipped.append(skip)
                except BaseException as error:
                    explain(error, case)
                    raise
            if skipped:
                # Some of the cases would be skipped unnoticed: parametrize the condition instead.
                assert len(skipped) == len(cases), f"only some cases are skipped: {skipped[0]}"
                raise skipped[0]

        signature = inspect.signature(test)
        missing = set(names) - set(signature.parameters)
        assert not missing, f"{test.__name__} has no arguments {missing}"
        left = [p for name, p in signature.parameters.items() if name not in names]
        run.__signature__ = signature.replace(parameters=left)
        return run

    return decorate
