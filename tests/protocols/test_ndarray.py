"""NumPy's arrays are read by their fields, and mean what the buffer protocol says of them."""

import gc
import pickle
import re
import sys
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest
from loops import looped

import arrowdev as ad
import compiler

CODES = "?bBhHiIlLqQefdFD"


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def unaligned(x):
    raw = np.zeros(x.nbytes + 1, "u1")[1:]
    raw[:] = np.frombuffer(x.tobytes(), "u1")
    return raw.view(x.dtype)


FORMS = {
    "plain": lambda x: x,
    "part": lambda x: x[2:5],
    "one row": lambda x: x[3:4],
    "one row with a stride": lambda x: x[::12],
    "steps": lambda x: x[::3],
    "backwards": lambda x: x[::-1],
    "no rows": lambda x: x[:0],
    "no dimension": lambda x: x[3:4].reshape(()),
    "rows": lambda x: x.reshape(3, 4),
    "columns": lambda x: x.reshape(3, 4).T,
    "repeated": lambda x: np.broadcast_to(x[:1], (5,)),
    "read-only": read_only,
    "unaligned": unaligned,
    "swapped": lambda x: x.astype(x.dtype.newbyteorder()),
    "pickled dtype": lambda x: x.view(pickle.loads(pickle.dumps(x.dtype))),
    "dtype with metadata": lambda x: x.view(np.dtype(x.dtype, metadata={"unit": "m"})),
}


def array_facts(imported):
    return {
        "type": str(imported.schema),
        "values": imported.to_pylist(),
        "length": len(imported),
        "nulls": imported.null_count,
        "addresses": [b and b.data_ptr for b in imported.buffers],
        "read-only": [b and b.readonly for b in imported.buffers],
    }


def tensor_facts(imported):
    names = ("shape", "strides", "dtype", "data_ptr", "readonly", "device", "nbytes")
    return {name: getattr(imported, name) for name in names}


def outcome(facts, import_, x):
    """What the import gives, or its error without the name of the class."""
    try:
        return facts(import_(x))
    except (ad.ExchangeError, ValueError) as error:
        return {"error": type(error), "message": str(error).partition(": ")[2]}


@looped("form", FORMS)
@looped(("import_", "facts"), [(ad.array, array_facts), (ad.tensor, tensor_facts)])
def test_the_fields_mean_what_the_buffer_protocol_says(form, import_, facts):
    for code in CODES:
        x = FORMS[form](np.arange(12).astype(code))
        found, expected = (outcome(facts, import_, y) for y in (x, memoryview(x)))
        if form in ("steps", "backwards", "columns", "repeated", "swapped", "unaligned"):
            for copied in ("addresses", "data_ptr", "read-only"):
                found.pop(copied, None)
                expected.pop(copied, None)
        assert found == expected, code


@pytest.mark.parametrize("code", ["O", "S3", "U3", "g", "G", "i4,f8", "V4"])
def test_other_elements_are_refused_as_before(code):
    x = np.zeros(3, code)
    with pytest.raises(ad.ExchangeError):
        ad.array(x)


def test_times_are_imported_as_before():
    x = np.array(["2026-01-01", "NaT"], "M8[s]")
    assert ad.array(x).null_count == 1


def test_a_subclass_is_imported_by_its_own_protocols():
    masked = np.ma.masked_array(np.arange(3), [False, True, False])
    assert ad.array(masked).to_pylist() == [0, None, 2]


def test_memory_that_will_be_read_only_is_so_now_without_a_warning():
    """NumPy warns who asks for writing. The bit for that is in no public header."""
    _, x = np.broadcast_arrays(np.arange(3), np.arange(1))
    assert memoryview(x).readonly
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ad.tensor(x).readonly


def test_the_array_is_held_and_let_go():
    x = np.arange(1000)
    before = sys.getrefcount(x)
    for import_ in (ad.array, ad.tensor):
        imported = import_(x)
        assert sys.getrefcount(x) == before + 1
        with pytest.raises(ValueError, match="cannot resize"):
            x.resize(2000)
        exported = imported.__arrow_c_device_array__()
        del imported
        assert sys.getrefcount(x) == before + 1
        del exported
        assert sys.getrefcount(x) == before


def test_a_later_change_of_the_shape_is_not_seen():
    x = np.arange(12)
    column, tensor = ad.array(x), ad.tensor(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        x.shape = (3, 4)
    assert len(column) == 12 and tensor.shape == (12,)


def test_views_share_the_memory_after_the_array_is_gone():
    x = np.arange(1000)
    alive = weakref.ref(x)
    tensor = ad.tensor(ad.array(x)[10:20])
    again = ad.array(tensor)
    del x
    gc.collect()
    assert alive() is not None
    assert again.to_pylist() == np.from_dlpack(tensor).tolist() == list(range(10, 20))
    del tensor, again
    assert alive() is None


def test_an_array_of_a_tensor_that_others_hold_has_a_node_of_its_own():
    """The owner has room for one node."""
    tensor = ad.tensor(np.arange(10))
    parts = [ad.array(tensor), ad.array(tensor), ad.array(tensor)[2:4]]
    assert [p.to_pylist() for p in parts] == [list(range(10)), list(range(10)), [2, 3]]


def test_the_layout_is_that_of_numpys_header():
    """csrc/protocol/numpy.h, for both versions of the API."""
    array = ("data", "nd", "dimensions", "strides", "descr", "flags")
    equal = {
        "NPY_ARRAY_ALIGNED": "AD_NUMPY_ALIGNED",
        "NPY_ARRAY_WRITEABLE": "AD_NUMPY_WRITEABLE",
        "NPY_SIZEOF_INTP": "sizeof(Py_ssize_t)",
        "offsetof(PyArray_Descr, type_num)": "offsetof(ad_numpy_descr, type_num)",
    } | {f"offsetof(PyArrayObject_fields, {m})": f"offsetof(ad_numpy_array, {m})" for m in array}
    for version in ("NPY_1_23_API_VERSION", "NPY_2_0_API_VERSION"):
        source = [
            f"#define NPY_TARGET_VERSION {version}",
            "#include <Python.h>",
            '#include "protocol/numpy.h"',
            "#include <numpy/ndarraytypes.h>",
            *(f'_Static_assert({a} == {b}, "{a}");' for a, b in equal.items()),
        ]
        folders = (compiler.CSRC, compiler.PYTHON_INCLUDE, np.get_include())
        compiler.check("\n".join(source), include=folders)


def test_the_numbers_of_the_table_are_numpys():
    """Those of its entries, and those of the elements."""
    text = Path(np.get_include(), "numpy/__multiarray_api.h").read_text(encoding="utf-8")
    for name, number in (("PyArray_GetNDArrayCVersion", 0), ("PyArray_DescrFromType", 45)):
        assert re.search(rf"#define {name} \\\n.*\n\s*PyArray_API\[{number}\]\)", text), name
    assert "#define PyArray_Type (*(PyTypeObject *)PyArray_API[2])" in text
    for code in CODES:
        assert ad.tensor(np.zeros(3, code)).dtype == np.dtype(code).name, code
