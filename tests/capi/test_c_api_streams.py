"""ArrowDev_ExportDeviceStream and ArrowDev_ImportDeviceStream."""

import ctypes

import arrow_ctypes as ac
import pytest
from c_api import COPY_ALWAYS, NULLS_IGNORE, Options, Stream, at
from loops import looped

import arrowdev as ad
from arrowdev.testing import EXT_DEV


def exported(capi, obj, chosen=None):
    stream = Stream()
    capi.export_stream(obj, at(chosen), stream.address)
    return stream


def two_batches():
    return ac.Stream(ac.SchemaNode("l"), [ac.numbers(3), ac.numbers(2)], device_type=ac.CPU)


class TestExport:
    def test_stream_goes_out_and_comes_back(self, capi):
        stream = exported(capi, ad.array_stream([b"ab", b"cde"]))
        back = capi.import_stream(stream.address)
        assert not stream.struct.release
        assert isinstance(back, ad.ArrayStream)
        assert [len(batch) for batch in back] == [2, 3]

    def test_array_is_a_stream_of_one_batch(self, capi):
        stream = exported(capi, b"abc")
        back = capi.import_stream(stream.address)
        assert [batch.to_pylist() for batch in back] == [[97, 98, 99]]

    def test_array_stream_is_handed_over(self, capi):
        source = ad.array_stream([b"ab"])
        stream = exported(capi, source)
        with pytest.raises(ad.ExchangeError, match="handed over"):
            next(source)
        ac.release(stream.struct)
        failed = Stream()
        with pytest.raises(ad.ExchangeError, match="handed over"):
            capi.export_stream(source, 0, failed.address)
        assert not failed.struct.release

    def test_release_reaches_the_producer(self, capi):
        source = two_batches()
        stream = exported(capi, source)
        assert source.released == 0
        ac.release(stream.struct)
        assert source.released == 1

    def test_device(self, capi, software):
        stream = exported(capi, two_batches(), Options(device_type=EXT_DEV))
        assert stream.struct.device_type == EXT_DEV
        back = capi.import_stream(stream.address)
        assert [batch.to("cpu").to_pylist() for batch in back] == [[0, 1, 2], [0, 1]]

    def test_stream_of_the_copies(self, capi, software):
        queue = software.queue()
        chosen = Options(device_type=EXT_DEV, stream=queue)
        stream = exported(capi, two_batches(), chosen)
        back = capi.import_stream(stream.address)
        queue.hold()
        first = next(back)
        assert not first.is_ready()
        queue.release()
        assert first.to("cpu").to_pylist() == [0, 1, 2]
        back.close()

    @looped(
        ("members", "text"),
        [
            ({"copy": COPY_ALWAYS}, "a stream is not copied as a whole"),
            ({"nulls": NULLS_IGNORE}, "Arrow structs keep nulls"),
            ({"stream": 1}, "name that, or leave stream out"),
        ],
    )
    def test_options_without_a_meaning(self, capi, members, text):
        source = two_batches()
        with pytest.raises(ValueError, match=text):
            exported(capi, source, Options(**members))
        assert source.released == 0

    def test_wrong_type(self, capi):
        stream = Stream()
        with pytest.raises(TypeError, match="object is no stream"):
            capi.export_stream(object(), 0, stream.address)
        assert not stream.struct.release

    def test_exception_that_is_set_stays(self, capi):
        source = ad.array_stream([b"ab"])
        stream = Stream()
        with pytest.raises(LookupError, match="set before the call"):
            capi.export_stream(source, 0, stream.address, True)
        assert not stream.struct.release
        assert len(next(source)) == 2  # not handed over


class TestImport:
    def test_takes_the_struct_over(self, capi):
        source = two_batches()
        stream = capi.import_stream(ac.address(source.struct))
        assert not source.struct.release
        assert [len(batch) for batch in stream] == [3, 2]
        del stream
        assert source.released == 1

    def test_broken_schema_is_an_error(self, capi):
        source = ac.Stream(None, [], device_type=ac.CPU, schema_code=5, message="no schema here")
        with pytest.raises(ad.ExchangeError, match="no schema here") as caught:
            capi.import_stream(ac.address(source.struct))
        assert caught.value.reason == "stream"
        assert source.released == 1
        assert not source.struct.release

    def test_released_struct(self, capi):
        source = two_batches()
        source.struct.release = None
        with pytest.raises(ad.InvalidArrowError, match="released"):
            capi.import_stream(ac.address(source.struct))
        assert source.released == 0

    def test_null(self, capi):
        with pytest.raises(SystemError):
            capi.import_stream(0)

    def test_exception_that_is_set_stays(self, capi):
        source = two_batches()
        with pytest.raises(LookupError, match="set before the call"):
            capi.import_stream(ac.address(source.struct), True)
        assert source.released == 1
        assert not source.struct.release


def test_error_of_a_batch_reaches_the_caller_in_c(capi):
    def batches():
        yield b"ab"
        raise ValueError("no more of it")

    stream = exported(capi, batches())
    next_batch = ac.CALLBACKS["get_next"](stream.struct.get_next)
    batch = ac.ArrowDeviceArray()
    assert next_batch(stream.address, ac.address(batch)) == 0
    ac.release(batch.array)
    assert next_batch(stream.address, ac.address(batch)) == 22
    text = ac.CALLBACKS["get_last_error"](stream.struct.get_last_error)(stream.address)
    text = text if isinstance(text, bytes) else ctypes.string_at(text)
    assert b"no more of it" in text
    ac.release(stream.struct)
