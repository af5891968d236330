"""ArrowDev_ExportDeviceArray, ArrowDev_ImportDeviceArray and the options."""

import ctypes

import arrow_ctypes as ac
import pytest
from c_api import COPY_ALWAYS, COPY_NEVER, NULLS_IGNORE, Column, Options, at
from loops import looped

import arrowdev as ad
from arrowdev.testing import EXT_DEV


def exported(capi, obj, chosen=None):
    column = Column()
    capi.export_array(obj, at(chosen), *column.addresses)
    return column


def imported(capi, tree):
    tree.device_pair()
    return capi.import_array(tree.schema.address, ac.address(tree.device))


def test_options_have_the_size_of_the_header():
    assert ctypes.sizeof(Options) == 48 + 8  # with the member that the header lacks


class TestExport:
    def test_array_goes_out_and_comes_back(self, capi):
        column = exported(capi, ad.array(ac.OnDevice(ac.numbers(3, offset=2))))
        array = column.data.array
        assert (array.length, array.offset, column.data.device_type) == (3, 2, ac.CPU)
        back = capi.import_array(*column.addresses)
        assert column.is_released == (True, True)
        assert back.to_pylist() == [2, 3, 4]

    def test_any_object(self, capi):
        memory = bytearray(b"abc")
        column = exported(capi, memory)
        assert ctypes.string_at(column.schema.format) == b"C"
        assert column.data.array.length == 3
        column.release()
        memory += b"d"  # the buffer is released

    def test_structs_outlive_the_object(self, capi):
        tree = ac.batch(3)
        array = ad.array(ac.OnDevice(tree))
        column = exported(capi, array)
        del array
        assert tree.released == (0, 0)
        column.release()
        assert tree.released == (1, 1)

    def test_children_are_released_one_by_one(self, capi):
        tree = ac.batch(3)
        column = exported(capi, ad.array(ac.OnDevice(tree)))
        child = ac.ArrowArray.from_buffer_copy(ac.children_of(column.data.array)[1])
        ac.children_of(column.data.array)[1].release = None  # moved out
        column.release()
        assert tree.released == (1, 0)
        ac.release(child)
        assert tree.released == (1, 1)

    def test_wrong_type(self, capi):
        column = Column()
        with pytest.raises(TypeError, match="object"):
            capi.export_array(object(), 0, *column.addresses)
        assert column.is_released == (True, True)

    def test_failed_protocol_names_its_reason(self, capi):
        tree = ac.numbers()
        tree.array.struct.length = -1
        column = Column()
        with pytest.raises(ad.InvalidArrowError, match="length"):
            capi.export_array(ac.OnDevice(tree), 0, *column.addresses)
        assert column.is_released == (True, True)

    def test_exception_that_is_set_stays(self, capi):
        column = Column()
        with pytest.raises(LookupError, match="set before the call"):
            capi.export_array(b"abc", 0, *column.addresses, True)
        assert column.is_released == (True, True)

    def test_null_arguments(self, capi):
        column = Column()
        schema, array = column.addresses
        for which in range(6):
            with pytest.raises(SystemError):
                capi.null_objects(which)
        with pytest.raises(SystemError):
            capi.export_array(b"abc", 0, 0, array)
        with pytest.raises(SystemError):
            capi.export_array(b"abc", 0, schema, 0)


class TestOptions:
    def test_zeros_are_defaults(self, capi):
        exported(capi, b"abc", Options()).release()

    def test_size_of_a_newer_header(self, capi):
        exported(capi, b"abc", Options(size=56)).release()
        with pytest.raises(ValueError, match=r"byte 48 .* newer arrowdev\.h"):
            exported(capi, b"abc", Options(size=56, newer=1))

    @pytest.mark.parametrize("size", [0, 8, 47, 1025, 1 << 40])
    def test_size_that_is_no_size(self, capi, size):
        with pytest.raises(ValueError, match=f"is {size}, expected .* 48 here"):
            exported(capi, b"abc", Options(size=size))

    @looped(
        ("members", "text"),
        [
            ({"copy": 3}, "copy .* is 3, expected ARROWDEV_COPY_"),
            ({"copy": -1}, "copy .* is -1"),
            ({"nulls": 3}, "nulls .* is 3, expected ARROWDEV_NULLS_"),
            ({"nulls": -1}, "nulls .* is -1"),
            ({"reserved": 1}, "reserved .* is 1, expected 0"),
            ({"nulls": NULLS_IGNORE}, "Arrow structs keep nulls"),
            ({"fill_value": 1}, "fill_value go together"),
            ({"nulls": 2}, "fill_value go together"),
        ],
    )
    def test_values_out_of_range(self, capi, members, text):
        with pytest.raises(ValueError, match=text):
            exported(capi, b"abc", Options(**members))

    def test_copy(self, capi):
        tree = ac.numbers()
        exported(capi, ac.OnDevice(tree), Options(copy=COPY_ALWAYS)).release()
        assert tree.released == (1, 1)
        tree = ac.numbers()
        column = exported(capi, ac.OnDevice(tree), Options(copy=COPY_NEVER))
        assert tree.released == (0, 0)
        column.release()

    def test_device(self, capi, software):
        column = exported(capi, b"abc", Options(device_type=EXT_DEV, device_id=1))
        assert (column.data.device_type, column.data.device_id) == (EXT_DEV, 1)
        back = capi.import_array(*column.addresses)
        host = exported(capi, back, Options(device_type=ac.CPU))
        assert (host.data.device_type, host.data.device_id) == (ac.CPU, -1)
        host.release()

    def test_device_of_another_number_needs_a_copy(self, capi, software):
        chosen = Options(device_type=EXT_DEV, copy=COPY_NEVER)
        with pytest.raises(ad.ExchangeError) as caught:
            exported(capi, b"abc", chosen)
        assert caught.value.reason == "copy"

    def test_device_without_a_runtime(self, capi):
        with pytest.raises(ad.ExchangeError) as caught:
            exported(capi, b"abc", Options(device_type=8))
        assert caught.value.reason == "runtime"

    def test_stream_waits_for_the_data(self, capi, world):
        column = exported(capi, world.pending(), Options(stream=world.consumer))
        assert world.waits(world.consumer)
        column.release()

    def test_stream_of_no_kind(self, capi):
        with pytest.raises(TypeError, match="stream must be"):
            exported(capi, b"abc", Options(stream="fast"))


class TestImport:
    def test_takes_both_structs_over(self, capi):
        tree = ac.batch(2)
        array = imported(capi, tree)
        assert isinstance(array, ad.Array)
        assert tree.held() == (False, False)
        assert tree.released == (0, 0)
        del array
        assert tree.released == (1, 1)

    def test_event_is_kept(self, capi, world):
        column = exported(capi, world.pending())
        assert column.data.sync_event is not None
        array = capi.import_array(*column.addresses)
        assert array.sync_event is not None
        array.wait(world.consumer)
        assert world.waits(world.consumer)

    def test_malformed_structs_are_released(self, capi):
        for spoil in (
            lambda tree: setattr(tree.array.struct, "n_buffers", 1),
            lambda tree: setattr(tree.schema.struct, "format", ac.text("?")),
            lambda tree: setattr(tree.schema.struct, "n_children", -1),
        ):
            tree = ac.numbers()
            spoil(tree)
            with pytest.raises(ad.InvalidArrowError):
                imported(capi, tree)
            assert tree.released == (1, 1)
            assert tree.held() == (False, False)

    def test_released_struct_gives_the_other_back(self, capi):
        tree = ac.numbers()
        tree.array.struct.release = None
        with pytest.raises(ad.InvalidArrowError, match="released"):
            imported(capi, tree)
        assert tree.released == (1, 0)
        tree = ac.numbers()
        tree.schema.struct.release = None
        with pytest.raises(ad.InvalidArrowError, match="released"):
            imported(capi, tree)
        assert tree.released == (0, 1)

    def test_null_gives_the_other_back(self, capi):
        tree = ac.numbers()
        tree.device_pair()
        with pytest.raises(SystemError):
            capi.import_array(0, ac.address(tree.device))
        with pytest.raises(SystemError):
            capi.import_array(tree.schema.address, 0)
        assert tree.released == (1, 1)

    def test_exception_that_is_set_stays(self, capi):
        tree = ac.numbers()
        tree.device_pair()
        with pytest.raises(LookupError, match="set before the call"):
            capi.import_array(tree.schema.address, ac.address(tree.device), True)
        assert tree.released == (1, 1)

    def test_column_that_comes_back_again_and_again_makes_no_chain(self, capi):
        """A chain of owners would be released by a recursion that overflows the stack."""
        tree = ac.numbers()
        array = ad.array(ac.OnDevice(tree))
        for _ in range(200_000):
            array = capi.pass_array(array)
        assert array.to_pylist() == [0, 1, 2]
        assert array.schema == ad.schema("int64")
        assert tree.released == (0, 0)
        del array
        assert tree.released == (1, 1)

    def test_structs_of_arrowdev_come_back(self, capi):
        tree = ac.numbers()
        array = ad.array(ac.OnDevice(tree))
        for _ in range(100):
            column = exported(capi, array)
            array = capi.import_array(*column.addresses)
        assert array.to_pylist() == [0, 1, 2]
        assert tree.released == (0, 0)
        del array
        assert tree.released == (1, 1)
