"""Imports the module a second time: two module states coexist and end in either order."""

import gc
import importlib
import sys

import common

first = common.ad
alive = common.everything()
way = sys.argv[1]


def forget():
    for name in [name for name in sys.modules if name.partition(".")[0] == "arrowdev"]:
        del sys.modules[name]


def check(ad, other):
    """Uses all of `ad`, which accepts the other module's objects like any other objects."""
    array = ad.array(common.Owner())
    assert type(array) is ad.Array
    ad.tensor(array), ad.from_dlpack(array), ad.record_batch({"a": array}), ad.schema(array)
    exported = array.__arrow_c_device_array__()
    assert len(other.array(exported)) == 4
    for thing in (array, ad.tensor(array)):
        assert (
            type(other.array(thing)) is other.Array and type(other.tensor(thing)) is other.Tensor
        )
        assert type(other.from_dlpack(thing)) is other.Tensor
    try:
        ad.array(1)
    except TypeError:
        pass
    try:
        ad.schema("??")
    except ValueError:
        pass


if way == "reload":
    for _ in range(3):
        core = importlib.reload(sys.modules["arrowdev._core"])
        second = importlib.reload(first)
        check(second, first)
elif way == "again":
    for _ in range(3):
        forget()
        second = importlib.import_module("arrowdev")
        assert second is not first and second.Array is not first.Array
        check(second, first)
        check(first, second)
        del second
        gc.collect()
        check(first, first)
elif way == "first dies":
    forget()
    second = importlib.import_module("arrowdev")
    held = alive["array"], alive["tensor"]
    del first, common.ad, alive
    gc.collect()
    check(second, second)
    for thing in held:
        assert len(second.array(thing)) == 4 and len(
            thing.shape if hasattr(thing, "shape") else "x"
        )
        repr(thing), thing.__dlpack__(max_version=(1, 0))
    del held, thing
    gc.collect()
    check(second, second)
elif way == "exchange":
    # The exchange API finds its own state, whichever module was imported last.
    import dlpack_ctypes

    tensor = alive["tensor"]
    forget()
    second = importlib.import_module("arrowdev")
    del second
    forget()
    gc.collect()
    table = dlpack_ctypes.exchange_table(first.Tensor)
    managed = dlpack_ctypes.ctypes.POINTER(dlpack_ctypes.Versioned)()
    assert table.from_py(tensor, dlpack_ctypes.ctypes.byref(managed)) == 0
common.end()
