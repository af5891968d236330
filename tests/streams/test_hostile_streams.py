"""Invalid streams that are imported as one array."""

import gc

import arrow_ctypes as ac
import pytest
from hostile import freeze_kept_structs  # noqa: F401
from loops import looped

import arrowdev as ad

DEVICES = pytest.mark.parametrize("device_type", [None, ac.CPU, ac.CUDA])


def stream_of(*trees, schema="l", device_type=None, **options):
    for tree in trees:
        tree.device_type = device_type or ac.CPU
    return ac.Stream(ac.SchemaNode(schema), trees, device_type=device_type, **options)


@DEVICES
@pytest.mark.parametrize("callback", ["get_schema", "get_next"])
def test_stream_without_a_callback(device_type, callback):
    stream = stream_of(ac.numbers(), device_type=device_type)
    setattr(stream.struct, callback, None)
    with pytest.raises(ad.InvalidArrowError, match=f"{callback} of the stream is NULL"):
        ad.array(stream)
    assert stream.released == 1


@DEVICES
@pytest.mark.parametrize(
    "message", [None, "", "no data", b"\xff\xfe", "%s%n", "x" * 100_000, "\N{SNOWMAN}" * 400]
)
@pytest.mark.parametrize("failing", ["schema_code", "next_code"])
@looped("code", [5, -1, 2**31 - 1, -(2**31)])
def test_failing_stream(device_type, message, failing, code):
    stream = stream_of(ac.numbers(), device_type=device_type, message=message, **{failing: code})
    with pytest.raises(ad.ExchangeError, match="of the stream failed with error") as error:
        ad.array(stream)
    assert error.value.reason == "stream"
    assert stream.released == 1
    assert stream.schema.released == (failing == "next_code")


@DEVICES
def test_stream_is_not_taken_while_its_schema_is_read(device_type):
    """Before a type with fields is asked for, the import reads the stream's own, detached."""
    reasons, capsules = [], []

    class Inquisitive(ac.Stream):
        def _get_schema(self, pointer, out):
            if not reasons:
                reasons.append("taken")
                try:
                    ad.array_stream(capsules[0])
                except ad.ExchangeError as error:
                    reasons[0] = error.reason
            return super()._get_schema(pointer, out)

    stream = Inquisitive(ac.SchemaNode("l"), [ac.numbers()], device_type=device_type)
    capsules.append(stream._export())
    name = "__arrow_c_device_stream__" if device_type else "__arrow_c_stream__"
    setattr(stream, name, lambda **kwargs: capsules[0])
    with pytest.raises((ad.ExchangeError, ad.InvalidArrowError)):
        ad.array_stream(stream, schema=ad.record_batch({"a": b"x"}))
    assert reasons == ["consumed"]
    capsules.clear()
    assert stream.released == 1


@DEVICES
def test_stream_without_last_error(device_type):
    stream = stream_of(ac.numbers(), device_type=device_type, schema_code=22)
    stream.struct.get_last_error = None
    with pytest.raises(ad.ExchangeError, match="no message was given"):
        ad.array(stream)
    assert stream.released == 1


@DEVICES
def test_stream_without_schema(device_type):
    stream = stream_of(ac.numbers(), device_type=device_type)
    stream.schema = None
    with pytest.raises(ad.InvalidArrowError, match="released"):
        ad.array(stream)
    assert stream.released == 1


@DEVICES
def test_stream_with_invalid_schema(device_type):
    stream = stream_of(ac.numbers(), schema="??", device_type=device_type)
    with pytest.raises(ad.InvalidArrowError, match="format"):
        ad.array(stream)
    assert stream.released == stream.schema.released == 1


@DEVICES
def test_stream_with_invalid_second_chunk(device_type):
    good, bad = ac.numbers(), ac.numbers()
    bad.array.struct.length = -1
    stream = stream_of(good, bad, device_type=device_type)
    with pytest.raises((ad.InvalidArrowError, ad.ExchangeError)):
        ad.array(stream)
    gc.collect()
    assert stream.released == stream.schema.released == 1
    assert good.array.released == bad.array.released == 1


@pytest.mark.parametrize("other", [ac.CPU, 99, 0, -1])
def test_stream_with_chunk_on_other_device(other):
    tree = ac.numbers()
    stream = stream_of(tree, device_type=ac.CUDA)
    tree.device_type = other
    with pytest.raises(ad.InvalidArrowError, match="device type"):
        ad.array(stream)
    assert stream.released == stream.schema.released == tree.array.released == 1


@DEVICES
def test_stream_released_or_used(device_type):
    stream = stream_of(ac.numbers(), device_type=device_type)
    name = "__arrow_c_stream__" if device_type is None else "__arrow_c_device_stream__"
    capsule = getattr(stream, name)()
    setattr(stream, name, lambda **_: capsule)
    array = ad.array(stream)
    with pytest.raises(ad.ExchangeError, match="released") as error:
        ad.array(stream)
    assert error.value.reason == "consumed"
    assert len(array) == 3 and stream.released == 1


@DEVICES
def test_stream_without_chunks(device_type):
    schema = ac.batch(3).schema
    stream = ac.Stream(schema, [], device_type=device_type)
    array = ad.array(stream)
    assert len(array) == 0 and stream.released == 1 and schema.released == 0
    del array
    assert schema.released == 1
