"""ArrowDev_ExportDLPack, ArrowDev_ImportDLPack and ArrowDev_Into."""

import ctypes
import fractions

import arrow_ctypes as ac
import dlpack_ctypes as dc
import pytest
from c_api import COPY_ALWAYS, COPY_NEVER, NULLS_FILL, NULLS_IGNORE, Options, at

import arrowdev as ad
from arrowdev.testing import EXT_DEV


def exported(capi, obj, chosen=None):
    address = capi.export_dlpack(obj, at(chosen))
    return dc.Received.of_struct(dc.Versioned.from_address(address))


def values(received):
    n = received.shape[0]
    return list((ctypes.c_float * n).from_address(received.data + received.byte_offset))


def with_null():
    """0, null, 2 as float32."""
    data = (ctypes.c_float * 3)(0, 1, 2)
    bits = (ctypes.c_uint8 * 8)(0b101)
    return ad.Array.from_buffers("float32", 3, [bits, data])


class TestExport:
    def test_tensor_goes_out_and_comes_back(self, capi):
        producer = dc.Managed()
        tensor = capi.import_dlpack(ac.address(producer.struct))
        received = exported(capi, tensor)
        assert (received.shape, received.dtype) == ((3,), dc.FLOAT32)
        assert received.version == (1, 3)
        assert values(received) == [1, 2, 3]
        del tensor
        assert producer.deleted == 0
        received.delete()
        assert producer.deleted == 1

    def test_flags(self, capi):
        received = exported(capi, b"abc")
        assert received.flags == dc.READ_ONLY
        received.delete()
        received = exported(capi, b"abc", Options(copy=COPY_ALWAYS))
        assert received.flags == dc.IS_COPIED
        received.delete()

    def test_nulls(self, capi):
        with pytest.raises(ad.ExchangeError) as caught:
            exported(capi, with_null())
        assert caught.value.reason == "nulls"
        received = exported(capi, with_null(), Options(nulls=NULLS_FILL, fill_value=7.5))
        assert values(received) == [0, 7.5, 2]
        received.delete()
        received = exported(capi, with_null(), Options(nulls=NULLS_IGNORE))
        assert values(received) == [0, 1, 2]
        received.delete()

    def test_fill_value_that_does_not_fit(self, capi):
        with pytest.raises(TypeError):
            exported(capi, with_null(), Options(nulls=NULLS_FILL, fill_value="x"))

    def test_device(self, capi, software):
        chosen = Options(device_type=EXT_DEV, device_id=1)
        received = exported(capi, b"abc", chosen)
        assert received.device == (EXT_DEV, 1)
        received.delete()
        with pytest.raises(ad.ExchangeError) as caught:
            exported(capi, b"abc", Options(device_type=EXT_DEV, copy=COPY_NEVER))
        assert caught.value.reason == "copy"

    def test_stream_of_the_options_waits(self, capi, world):
        received = exported(capi, world.pending(), Options(stream=world.consumer))
        assert world.waits(world.consumer, received.data)
        received.delete()

    def test_current_stream_waits(self, capi, world):
        with ad.use_stream(world.consumer):
            received = exported(capi, world.pending())
        assert world.waits(world.consumer, received.data)
        received.delete()

    def test_host_waits_without_a_stream(self, capi, world):
        pending = world.pending()
        world.finish_later()
        received = exported(capi, pending)
        assert pending.is_ready()
        received.delete()

    def test_wrong_type(self, capi):
        with pytest.raises(TypeError, match="object"):
            exported(capi, object())

    def test_exception_that_is_set_stays(self, capi):
        with pytest.raises(LookupError, match="set before the call"):
            capi.export_dlpack(b"abc", 0, True)


class TestImport:
    def test_another_major_version_is_deleted(self, capi):
        producer = dc.Managed(version=(2, 0))
        with pytest.raises(ad.ExchangeError) as caught:
            capi.import_dlpack(ac.address(producer.struct))
        assert caught.value.reason == "version"
        assert producer.deleted == 1

    def test_invalid_tensor_is_deleted(self, capi):
        producer = dc.Managed(ndim=-1)
        with pytest.raises(ad.ExchangeError):
            capi.import_dlpack(ac.address(producer.struct))
        assert producer.deleted == 1

    def test_null(self, capi):
        with pytest.raises(SystemError):
            capi.import_dlpack(0)

    def test_exception_that_is_set_stays(self, capi):
        producer = dc.Managed()
        with pytest.raises(LookupError, match="set before the call"):
            capi.import_dlpack(ac.address(producer.struct), True)
        assert producer.deleted == 1

    def test_pending_work_on_the_current_stream(self, capi, world):
        managed = dc.Managed((0.0, 0.0, 0.0), **world.tensor_arguments())
        with ad.use_stream(world.producer):
            tensor = capi.import_dlpack(ac.address(managed.struct))
        tensor.wait(world.consumer)
        assert world.waits(world.consumer)


class TestInto:
    def test_class_of_arrowdev(self, capi):
        assert isinstance(capi.into(b"abc", ad.Tensor, 0), ad.Tensor)
        assert isinstance(capi.into(b"abc", ad.Array, 0), ad.Array)

    def test_class_of_another_library(self, capi):
        np = pytest.importorskip("numpy")
        source = ad.tensor(np.arange(3.0))
        found = capi.into(source, np.ndarray, 0)
        assert type(found) is np.ndarray
        assert np.shares_memory(found, np.asarray(source))
        chosen = Options(copy=COPY_ALWAYS)
        copied = capi.into(source, np.ndarray, at(chosen))
        assert not np.shares_memory(copied, found)

    def test_subclass_as_from_python(self, capi):
        np = pytest.importorskip("numpy")

        class Mine(np.ndarray):
            pass

        def outcome(call):
            try:
                return type(call())
            except Exception as error:
                return type(error), str(error)

        x = ad.tensor(np.arange(3.0))
        assert outcome(lambda: capi.into(x, Mine, 0)) == outcome(lambda: x.into(Mine))

    def test_torch(self, capi):
        torch = pytest.importorskip("torch")
        found = capi.into(torch.arange(3), torch.Tensor, 0)
        assert type(found) is torch.Tensor

    def test_device_and_nulls(self, capi, software):
        np = pytest.importorskip("numpy")
        chosen = Options(device_type=ac.CPU, nulls=NULLS_FILL, fill_value=7)
        found = capi.into(with_null().to("ext_dev:0"), np.ndarray, at(chosen))
        assert found.tolist() == [0, 7, 2]

    def test_unknown_class(self, capi):
        with pytest.raises(TypeError, match="Fraction"):
            capi.into(b"abc", fractions.Fraction, 0)

    def test_what_is_no_class(self, capi):
        with pytest.raises(TypeError, match="must be a class"):
            capi.into(b"abc", 5, 0)

    def test_exception_that_is_set_stays(self, capi):
        with pytest.raises(LookupError, match="set before the call"):
            capi.into(b"abc", ad.Tensor, 0, True)
