"""tensor[...]: the views of NumPy's basic indexing, over the same memory."""

import itertools
import random

import pytest

import arrowdev as ad
from arrowdev.testing import software_device

np = pytest.importorskip("numpy")

NOWHERE = 0x7E0000


def same(view, expected):
    """The same address, shape and strides as NumPy's view."""
    assert isinstance(view, ad.Tensor)
    assert view.shape == expected.shape
    if expected.size:
        assert view.data_ptr == expected.__array_interface__["data"][0]
        for n, ours, theirs in zip(view.shape, view.strides, expected.strides, strict=True):
            assert n == 1 or ours * expected.itemsize == theirs
    assert np.asarray(view).tolist() == expected.tolist()


def numpy_view(x, key):
    """NumPy's view; an ellipsis keeps it from making a scalar."""
    key = key if isinstance(key, tuple) else (key,)
    return x[key] if Ellipsis in key else x[(*key, ...)]


def test_every_key_of_two_dimensions():
    x = np.arange(12, dtype="i2").reshape(3, 4)
    one = [0, 2, -1, -3, *(slice(*s) for s in [(None,), (1, 3), (3, 1), (None, None, -1)])]
    two = [*one, slice(-100, 100, 2), slice(2, None, -2), slice(5, 9), ...]
    tensor = ad.tensor(x)
    for key in [*one, ..., None, (), (None,), (..., None), (None, ...)]:
        same(tensor[key], numpy_view(x, key))
    for key in itertools.product(one, two):
        same(tensor[key], numpy_view(x, key))
        for at in range(3):
            with_axis = (*key[:at], None, *key[at:])
            same(tensor[with_axis], numpy_view(x, with_axis))


def test_views_of_views():
    """Random keys on random strides, each applied to the result of the one before."""
    random.seed(5)
    bounds = [None, *range(-9, 10)]
    for _ in range(200):
        x = np.arange(720, dtype="f4").reshape(2, 3, 4, 5, 6)[::1, ::-1, ::2].swapaxes(1, 3)
        tensor = ad.tensor(x)
        while x.ndim:
            key = tuple(
                random.choice(
                    [
                        random.randrange(-n, n) if n else slice(None),
                        slice(
                            random.choice(bounds),
                            random.choice(bounds),
                            random.choice([None, -3, -2, -1, 1, 2]),
                        ),
                    ]
                )
                for n in x.shape[: random.randrange(1, x.ndim + 1)]
            )
            x, tensor = numpy_view(x, key), tensor[key]
            same(tensor, x)
            if not x.size:
                break


def test_it_is_the_same_memory_and_keeps_it():
    x = np.arange(6.0)
    view = ad.tensor(x)[1::2]
    x[3] = 42.0
    assert np.asarray(view).tolist() == [1.0, 42.0, 5.0]
    del x
    assert np.from_dlpack(view).tolist() == [1.0, 42.0, 5.0]
    view.into(np.ndarray)[0] = 7.0
    assert np.asarray(view).tolist() == [7.0, 42.0, 5.0]


def test_readonly_and_dtype_are_kept():
    for data, readonly in [(b"abcd", True), (bytearray(b"abcd"), False)]:
        view = ad.tensor(data)[1:3]
        assert (view.readonly, view.dtype, bytes(view)) == (readonly, "uint8", b"bc")
    assert ad.tensor(ad.array(np.arange(3)))[1:].readonly


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (3, IndexError, "index 3 is out of range for dimension 0, which has 3 elements"),
        (-4, IndexError, "index -4 is out of range for dimension 0"),
        ((0, 4), IndexError, "index 4 is out of range for dimension 1, which has 4 elements"),
        (2**70, IndexError, "cannot fit"),
        ((0, 0, 0), IndexError, "3 dimensions are indexed, but the Tensor has 2"),
        ((..., 0, ...), IndexError, "at most one ellipsis"),
        (True, TypeError, "by ints, slices, ... and None, not bool; masks"),
        ([0, 1], TypeError, "not list"),
        (np.array([True, False, True]), TypeError, "integer"),
        (1.0, TypeError, "not float"),
        ("a", TypeError, "not str"),
        (slice(0, 1.5), TypeError, "slice indices"),
        (slice(None, None, 0), ValueError, "slice step cannot be zero"),
        ((None,) * 63, IndexError, "more than the 64 dimensions"),
    ],
)
def test_refused_keys(key, error, message):
    tensor = ad.tensor(np.zeros((3, 4)))
    with pytest.raises(error, match=message):
        tensor[key]


def test_steps_of_any_size():
    x = np.arange(5)
    for step in (2**63 - 1, -(2**63) + 1, 7, -7):
        same(ad.tensor(x)[::step], x[::step])
        same(ad.tensor(x)[3:2:step], x[3:2:step])


def test_index_of_another_library():
    tensor = ad.tensor(np.arange(5))
    assert np.asarray(tensor[np.int32(-1)]) == 4
    assert np.asarray(tensor[np.uint64(2) : np.int8(4)]).tolist() == [2, 3]


def test_key_that_raises():
    class Raises:
        def __index__(self):
            raise KeyError("no")

    tensor = ad.tensor(np.zeros(3))
    for key in (Raises(), slice(Raises()), (..., Raises())):
        with pytest.raises(KeyError, match="no"):
            tensor[key]


def test_no_dimensions_and_no_elements():
    x = np.array(7.0)
    tensor = ad.tensor(x)
    same(tensor[...], x)
    same(tensor[None], x[None])
    same(tensor[()], x)
    with pytest.raises(IndexError, match="1 dimensions are indexed, but the Tensor has 0"):
        tensor[0]
    for shape in [(0,), (0, 3), (3, 0), (2, 0, 2)]:
        x = np.zeros(shape)
        same(ad.tensor(x)[::-1], x[::-1])
        same(ad.tensor(x)[..., None], x[..., None])
    with pytest.raises(IndexError, match="which has 0 elements"):
        ad.tensor(np.zeros(0))[0]


def test_iteration_gives_the_views_of_the_first_dimension():
    x = np.arange(6).reshape(3, 2)
    for view, row in zip(ad.tensor(x), x, strict=True):
        same(view, row)
    assert [np.asarray(view).item() for view in ad.tensor(x[0])] == [0, 1]
    assert list(ad.tensor(x[:0])) == []
    with pytest.raises(TypeError, match="iteration over a 0-d Tensor"):
        iter(ad.tensor(np.array(1)))
    assert not isinstance(ad.tensor(x), list)


def test_a_tensor_is_no_sequence_to_other_libraries():
    """So they take it by a protocol and not element by element."""
    import operator

    tensor = ad.tensor(np.arange(3))
    with pytest.raises(TypeError):
        operator.concat(tensor, tensor)
    assert np.asarray([tensor, tensor]).tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize("dtype", ["u1", "i8", "?", "f2", "f4", ">i4"])
def test_0d_tensor_is_a_number(dtype):
    x = np.array([50, 0, 1], dtype)
    tensor = ad.tensor(x)
    for i in range(3):
        assert int(tensor[i]) == int(x[i]) and float(tensor[i]) == float(x[i])
        assert bool(tensor[i]) is bool(x[i])
    assert np.asarray([*tensor]).tolist() == x.tolist()


def test_nothing_else_is_a_number():
    """CPython would read the memory as text: b"12" as 12."""
    tensor = ad.tensor(b"12")
    for x in (tensor, tensor[:1], ad.array(tensor), ad.array(tensor).buffers[1]):
        for convert in (int, float):
            with pytest.raises(TypeError, match="only a 0-d Tensor is a number, found "):
                convert(x)
    assert bool(tensor) and bool(tensor[:0])
    with pytest.raises(TypeError, match="'complex'"):
        int(ad.tensor(np.array(1j)))


def test_number_on_a_device():
    with software_device() as device:
        tensor = ad.tensor(device.array([1]))[0]
        for convert in (int, float, bool):
            with pytest.raises(ad.ExchangeError) as info:
                convert(tensor)
            assert info.value.reason == "device"
        assert int(tensor.to("cpu")) == 1


def test_in_is_refused():
    tensor = ad.tensor(np.arange(3))
    with pytest.raises(TypeError, match=r"x in arrowdev.array\(tensor\)"):
        assert 2 in tensor
    assert 2 in ad.array(tensor) and 3 not in ad.array(tensor)


def test_elements_within_a_byte():
    tensor = ad.Tensor.from_pointer(NOWHERE, (4, 4), "float4_e2m1fn", "cuda:1")
    assert tensor[1].data_ptr == NOWHERE + 2
    assert tensor[1:, 2].data_ptr == NOWHERE + 3
    assert tensor[::-1].data_ptr == NOWHERE + 6
    with pytest.raises(
        ad.ExchangeError, match="element 5 of float4_e2m1fn is within a byte"
    ) as caught:
        tensor[1, 1]
    assert caught.value.reason == "dtype"
    assert tensor[1, 1:1].shape == (0,)  # has no element that begins anywhere


def test_of_lanes():
    tensor = ad.Tensor.from_pointer(NOWHERE, (4,), "float32x4", "cuda:1")
    assert tensor[2:].data_ptr == NOWHERE + 32


def test_handles_keep_an_offset_apart():
    tensor = ad.Tensor.from_pointer(NOWHERE, (4, 3), "int16", "opencl:0", byte_offset=6)
    view = tensor[::-1, 1:]
    assert (view.data_ptr, view.byte_offset) == (NOWHERE, 6 + 2 * (9 + 1))
    assert (view.shape, view.strides) == ((4, 2), (-3, 1))
    assert view[3].byte_offset == 6 + 2


def test_event_goes_with_the_view():
    with software_device() as device:
        queue = device.queue()
        with queue.held():
            tensor = ad.tensor(device.array(list(range(6)), queue=queue))
            view = tensor[4:1:-1]
            assert not view.is_ready() and view.sync_event == tensor.sync_event
            assert "after event" in repr(view)
        assert ad.array(view.to("cpu")).to_pylist() == [4, 3, 2]


def test_stream_without_a_runtime_goes_with_the_view():
    tensor = ad.Tensor.from_pointer(NOWHERE, (6,), "int8", "cuda:1", stream=5)
    assert repr(tensor[2:]).endswith("on cuda:1, after stream>")


# --- permute() ----------------------------------------------------------------


def test_every_permutation():
    x = np.arange(48, dtype="i2").reshape(2, 3, 4, 2)[::-1, :, ::2]
    tensor = ad.tensor(x)
    same(tensor.permute(), x.T)
    for axes in itertools.permutations(range(4)):
        same(tensor.permute(*axes), x.transpose(axes))
        same(tensor.permute(list(axes)), x.transpose(axes))
        negative = [axis - 4 for axis in axes]
        same(tensor.permute(*negative), x.transpose(axes))


def test_permutation_of_few_dimensions_and_of_no_elements():
    for x in (np.array(5), np.arange(3), np.zeros((0, 3)), np.zeros((3, 0, 2))):
        tensor = ad.tensor(x)
        same(tensor.permute(), x.T)
        same(tensor.permute(tuple(range(x.ndim))), x)
    everything = ad.Tensor.from_pointer(NOWHERE, (2,) * 30 + (1,) * 34, "int8", "cuda:0")
    assert everything.permute().strides[34:] == everything.strides[29::-1]
    assert everything.permute(range(64)).shape == everything.shape


@pytest.mark.parametrize("axes", [(0,), (0, 0), (0, 2), (-3, 1), (0, 1, 2), ((0, 1, 1),), ([],)])
def test_axes_that_are_no_permutation(axes):
    with pytest.raises(ValueError, match="takes each of the 2 axes once, found "):
        ad.tensor(np.zeros((2, 2))).permute(*axes)


@pytest.mark.parametrize("axes", [(0, "1"), (0.0, 1), (True, 0), (None,), ("ab",)])
def test_axes_that_are_no_ints(axes):
    with pytest.raises(TypeError, match="must be a"):
        ad.tensor(np.zeros((2, 2))).permute(*axes)


def test_flags_and_event_go_with_the_permutation():
    x = np.arange(6).reshape(2, 3)
    x.flags.writeable = False
    assert ad.tensor(x).permute().readonly
    tensor = ad.Tensor.from_pointer(NOWHERE, (4, 3), "int16", "opencl:0", byte_offset=6)
    assert (tensor.permute().byte_offset, tensor.permute().strides) == (6, (1, 3))
    with software_device() as device:
        queue = device.queue()
        with queue.held():
            pending = ad.tensor(device.array(np.array([[1, 2], [3, 4]]), queue=queue))
            view = pending.permute(1, 0)
            assert not view.is_ready() and view.sync_event == pending.sync_event
        assert view.to("cpu").tolist() == [[1, 3], [2, 4]]


def test_owner_lives_as_long_as_the_permutation():
    view = ad.tensor(np.arange(6).reshape(2, 3)).permute()
    assert view.tolist() == [[0, 3], [1, 4], [2, 5]]
