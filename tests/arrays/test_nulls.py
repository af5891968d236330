"""Nulls: masks that become validity, tensors of columns with nulls, compact()."""

import ctypes
import gc

import arrow_ctypes as ac
import null_checks
import numpy as np
import pyarrow as pa
import pytest
from arrow_samples import ROWS, SAMPLES
from hypothesis import given
from hypothesis import strategies as st
from lifetimes import settled

import arrowdev as ad


@pytest.mark.parametrize("check", null_checks.HOST)
def test_on_the_host(check):
    check("cpu")


@pytest.mark.parametrize("check", null_checks.DEVICE)
def test_on_the_software_device(software, check):
    check("ext_dev:0")


# --- validity= ----------------------------------------------------------------------------------


def test_aligned_bitmap_is_shared():
    mask = ad.array(np.arange(100) % 3 == 0, "bool")
    array = ad.array(np.arange(100), validity=mask)
    assert array.buffers[0].data_ptr == mask.buffers[1].data_ptr
    assert array.null_count == 66


def test_all_valid_mask_gives_no_bitmap():
    array = ad.array(pa.array([1, 2, 3]), validity=np.ones(3, bool))
    assert array.buffers[0] is None and array.null_count == 0
    nulls = ad.array(pa.array([1, None, 3]), validity=np.ones(3, bool))
    assert nulls.null_count == 1


def test_bitmap_of_ones_gives_no_bitmap():
    ones = (ctypes.c_uint8 * 8)(*[255] * 8)
    array = ad.array(ac.Host(ac.numbers(3, null_count=-1, validity=ctypes.addressof(ones))))
    assert ad.tensor(array).shape == (3,)
    assert array.compact().buffers[0] is None


def test_strided_masks_on_a_device(software):
    valid = null_checks.flags(1, 400)
    mask = ad.tensor(valid).to("ext_dev:0")
    every_second = ad.Tensor.from_pointer(
        mask.data_ptr, (200,), "bool", "ext_dev:0", strides=(2,), owner=mask
    )
    data = ad.array(np.arange(200)).to("ext_dev:0")
    found = ad.array(data, validity=every_second)
    assert null_checks.rows(found) == null_checks.expected(np.arange(200), valid[::2])


def test_pending_mask_is_waited_for(software):
    """Data and mask are pending on two queues; the result waits for both."""
    one, two = software.queue(), software.queue()
    valid = null_checks.flags(2, 100)
    data = ad.array(np.arange(100)).to("ext_dev:0", stream=one)
    mask = ad.tensor(valid).to("ext_dev:0", stream=two)
    one.hold()
    two.hold()
    data = ad.array(data, copy=True, device="ext_dev:0", stream=one)
    for form in (mask, ad.array(mask)):
        found = ad.array(data, validity=form)
        assert not found.is_ready()
    two.release()
    one.release()
    assert null_checks.rows(found) == null_checks.expected(np.arange(100), valid)


def test_mask_on_another_device(software):
    """The error names the device that the host cannot read, of data or mask."""
    data, mask = np.arange(3), ad.tensor(np.ones(3, bool))
    for array, other in (
        (ad.array(data), mask.to("ext_dev:0")),
        (ad.array(data).to("ext_dev:0"), mask),
    ):
        with pytest.raises(ad.ExchangeError, match="but their mask is on") as info:
            ad.array(array, validity=other)
        assert (info.value.reason, str(info.value.device)) == ("device", "ext_dev:0")


def test_mask_for_non_nullable_field(software):
    schema = ad.schema(pa.field("x", pa.int64(), nullable=False))
    for device in ("cpu", "ext_dev:0"):
        never = ad.array(np.arange(9), schema).to(device)
        with pytest.raises(ValueError, match="the mask marks 1"):
            ad.array(never, validity=ad.tensor(np.arange(9) != 3).to(device))
        assert ad.array(never, validity=ad.tensor(np.ones(9, bool)).to(device)).null_count == 0


def test_mask_of_no_rows():
    assert len(ad.array(np.zeros(0), validity=np.zeros(0, bool))) == 0
    with pytest.raises(ValueError, match="0, not 1"):
        ad.array(np.zeros(0), validity=np.zeros(1, bool))


def test_bools_become_bits_on_a_device(software):
    values = null_checks.flags(1)
    found = ad.array(ad.array(values).to("ext_dev:0"), "bool")
    assert (found.schema.format, str(found.device)) == ("b", "ext_dev:0")
    assert null_checks.rows(found) == values.tolist()


# --- compact() ----------------------------------------------------------------------------------


def nodes(array):
    yield array
    for child in array.children:
        yield from nodes(child)
    if array.dictionary is not None:
        yield from nodes(array.dictionary)


@pytest.mark.parametrize("device", ["cpu", "ext_dev:0"])
@pytest.mark.parametrize("name", SAMPLES)
def test_compact_of_every_type(software, name, device):
    sample = SAMPLES[name]
    for first, n in ((0, ROWS), (0, 9), (1, 20), (7, 8), (8, 8), (13, 0), (ROWS, 0)):
        array = ad.array(sample).to(device)[first : first + n]
        found = array.compact()
        host = found.to("cpu")
        expected = sample.slice(first, n)
        assert pa.array(host).equals(expected), (first, n)
        if name != "dense_union":  # the sample's offsets decrease
            pa.array(host).validate(full=True)
        assert found.compact() is found
        for node in nodes(found):
            assert node.offset == 0 and node.null_count is not None
            has_bitmap = node.schema.format not in ("n", "+r") and node.schema.format[:2] != "+u"
            if has_bitmap and node.null_count == 0:
                assert node.buffers[0] is None
            if has_bitmap and node.null_count and device == "cpu":
                assert null_checks.is_padded(node)


def test_compact_array_is_returned_itself():
    for obj in (np.arange(3), pa.array([1.5, 2]), pa.array(["a", "b"]), np.zeros((3, 4))):
        array = ad.array(obj)
        assert array.null_count == 0
        assert array.compact() is array
    assert ad.array(pa.array([1, None])).compact().null_count == 1


def test_only_bitmaps_are_copied():
    array = ad.array(pa.array([1, None, 3, 4]))[1:]
    found = array.compact()
    assert found.buffers[1].data_ptr == array.buffers[1].data_ptr + 8
    words = ad.array(pa.array(["a", "bc", None]))[1:]
    assert words.compact().buffers[2].data_ptr == words.buffers[2].data_ptr


def test_compact_of_a_slice():
    whole = ad.array(pa.array([1, None, 3, 4])).compact()
    part = whole[1:]
    assert part.compact() is not part and part.compact().to_pylist() == [None, 3, 4]
    assert whole[0:4].compact().to_pylist() == whole.to_pylist()


@pytest.mark.parametrize("rows", [slice(0, 3), slice(2, 5), slice(0, 9)])
def test_compact_of_runs_has_the_runs_of_its_rows(rows):
    whole = pa.RunEndEncodedArray.from_arrays(pa.array(range(1, 10)), pa.array(range(9)))
    found = ad.array(whole)[rows].compact()
    assert [len(child) for child in found.children] == [len(found)] * 2
    assert pa.array(found).to_pylist() == whole.to_pylist()[rows]


def test_compact_of_children():
    batch = ad.array(pa.array([{"a": 1}, {"a": None}, {"a": 3}])).compact()
    child = batch.children[0]
    assert child.compact() is child
    del batch
    assert child.to_pylist() == [1, None, 3]


def test_compact_keeps_the_memory(software):
    before = settled(software)
    array = ad.array(pa.array([1, None, 3] * 50)).to("ext_dev:0")[5:].compact()
    assert array.to("cpu").to_pylist() == ([1, None, 3] * 50)[5:]
    del array
    software.synchronize()
    assert software.live().allocations == before.allocations


def test_compact_arguments(software):
    array = ad.array(pa.array([1, None, 3])).to("ext_dev:0")[1:]
    assert null_checks.rows(array.compact(stream=software.queue())) == [None, 3]
    with pytest.raises(TypeError):
        array.compact(stream="x")
    with pytest.raises(TypeError):
        array.compact(1, 2)


@pytest.mark.parametrize("call", ["allocate", "launch", "event_record", "stream_wait"])
def test_failing_calls(software, call):
    array = ad.array(pa.array([1, None, 3] * 2000)).to("ext_dev:0")[5:]
    mask = ad.tensor(np.arange(5995) % 3 != 0).to("ext_dev:0")
    gc.collect()
    software.synchronize()
    before = settled(software)
    for work in (
        array.compact,
        lambda: ad.array(array, validity=mask),
        lambda: ad.tensor(array, nulls="fill", fill_value=1),
    ):
        for n in range(1, 20):
            software.fail_at(n, call)
            try:
                work()
                break
            except (ad.DeviceError, MemoryError):
                continue
            finally:
                software.fail_at(0)
        assert n > 1 or call in ("event_record", "stream_wait")
        work()
    gc.collect()
    software.synchronize()
    assert software.live().allocations == before.allocations


def test_scattered_elements_are_gathered_by_a_kernel(software):
    whole = np.arange(300 * 700.0).reshape(300, 700)
    there = ad.tensor(whole).to("ext_dev:0")
    shown = ad.Tensor.from_pointer(
        there.data_ptr, (300, 300), "float64", "ext_dev:0", strides=(700, 2), owner=there
    )
    before = software.n_calls
    found = ad.tensor(shown, copy=True)
    made = software.calls[-(software.n_calls - before) :]
    assert made.count("launch") == 1 and "copy" not in made
    assert np.array_equal(np.asarray(found.to("cpu")), whole[:, :600:2])


# --- random cases -------------------------------------------------------------------------------

DTYPES = ["i1", "u2", "i4", "f4", "i8", "f8"]


@given(data=st.data())
def test_like_numpy_and_pyarrow(data):
    """Any type, length, offset, nulls, stride and form of mask."""
    dtype = data.draw(st.sampled_from(DTYPES))
    n = data.draw(st.integers(0, 300))
    offset = data.draw(st.integers(0, 70))
    step = data.draw(st.sampled_from([1, 2, -1]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    values = rng.integers(0, 100, (offset + n) * abs(step)).astype(dtype)[::step]
    old, new = rng.integers(0, 2, (2, offset + n)).astype(bool)
    has_nulls = data.draw(st.booleans())
    column = pa.array(np.ascontiguousarray(values), mask=~old if has_nulls else None)[offset:]
    array = (
        ad.array(column) if data.draw(st.booleans()) else ad.array(values, validity=old)[offset:]
    )
    if not has_nulls:
        old = old | True
        array = ad.array(values)[offset:]
    mask = new[offset:]
    form = data.draw(st.sampled_from(["bytes", "strided", "bits", "pyarrow"]))
    made = {
        "bytes": lambda: mask.astype("u1") * 3,
        "strided": lambda: np.repeat(mask, 3)[::3],
        "bits": lambda: ad.array(new, "bool")[offset:],
        "pyarrow": lambda: pa.array(mask),
    }[form]()
    valid = old[offset:] & mask
    expected = pa.array(np.ascontiguousarray(values[offset:]), mask=~valid)
    found = ad.array(array, validity=made)
    assert pa.array(found).equals(expected) and found.null_count == expected.null_count
    assert pa.array(found.compact()).equals(expected)
    before = pa.array(np.ascontiguousarray(values[offset:]), mask=~old[offset:])
    joined = pa.concat_arrays([expected, before, expected])
    assert pa.array(ad.concat([found, array, found])).equals(joined)
    filled = np.asarray(ad.tensor(found, nulls="fill", fill_value=7))
    assert np.array_equal(filled, np.where(valid, values[offset:], np.array(7, dtype)))
