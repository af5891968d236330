"""Views within objects of nanoarrow. Its export of them ends the process, so it is not called."""

import nanoarrow as na
import nanoarrow.device
import pyarrow as pa

import arrowdev as ad

VIEWS = pa.array(["a string of more than twelve bytes", None, "b"], pa.string_view())
COLUMNS = [
    VIEWS,
    pa.array([b"a"], pa.binary_view()),
    pa.array([["a"]], pa.list_(pa.string_view())),
    pa.array([{"x": "a"}], pa.struct([("x", pa.string_view())])),
    pa.DictionaryArray.from_arrays(pa.array([0]), VIEWS),
]


class Derived(na.Array):
    pass


def objects(column):
    one = na.c_array(column)
    yield one
    yield nanoarrow.device.c_device_array(column)
    yield na.Array(one)
    yield na.Array(one)[0]
    yield na.Array(one)._data
    yield na.Array(pa.chunked_array([column]))
    yield Derived(one)


WAYS = {
    "array": ad.array,
    "array of a type": lambda x: ad.array(x, "utf8"),
    "stream": ad.array_stream,
    "column": lambda x: ad.record_batch({"x": x}),
    "iterable": lambda x: list(ad.array_stream([x])),
    "convert": lambda x: ad.convert(x, pa.Array),
}


def refusal(function, x):
    try:
        function(x)
    except ad.ExchangeError as error:
        return error
    raise AssertionError(f"{type(x)} was not refused")


def check_refusals():
    for column in COLUMNS:
        for x in objects(column):
            for way, function in WAYS.items():
                error = refusal(function, x)
                assert error.reason == "version", (way, error)
                assert "pyarrow.string()" in error.hint, (way, error)


def check_what_is_sound():
    chunks = pa.chunked_array([VIEWS])
    for x in (na.ArrayStream(chunks), na.c_array_stream(chunks)):  # they hand on pyarrow's stream
        assert ad.array(x).to_pylist() == VIEWS.to_pylist()
    strings = na.Array(pa.array(["a string of more than twelve bytes"]))
    assert ad.array(strings).to_pylist() == strings.to_pylist()


def check_versions():
    """A later version is asked for its data."""
    na.__version__ = "0.10.0"

    class Mended(na.Array):
        def __arrow_c_array__(self, requested_schema=None):
            return VIEWS.__arrow_c_array__()

        __arrow_c_stream__ = None

    assert ad.array(Mended(na.c_array(VIEWS))).to_pylist() == VIEWS.to_pylist()
    na.__version__ = "unknown"
    assert refusal(ad.array, na.c_array(VIEWS)).reason == "version"


check_refusals()
check_what_is_sound()
check_versions()
print("end of the script")
