"""Images of Pillow, which are pixels by Arrow and N-d by the array interface."""

import pytest

import arrowdev as ad

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
Image = pytest.importorskip("PIL.Image")

MODES = [
    *("1", "L", "P", "LA", "PA", "RGB", "RGBA", "RGBX", "RGBa", "La", "CMYK", "YCbCr", "LAB"),
    *("HSV", "I", "F", "I;16", "I;16B", "I;16L", "I;16N"),
]


def image_of(mode, size):
    """An image whose bytes all differ, so that a transposed axis or a padding byte shows."""
    image = Image.new(mode, size)
    raw = np.random.default_rng(0).integers(0, 256, len(image.tobytes()), "u1").tobytes()
    if mode == "F":
        raw = np.arange(size[0] * size[1], dtype="f4").tobytes()
    image.frombytes(raw)
    return image


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [(4, 2), (1, 1), (3, 1), (1, 3), (9, 5)])
def test_an_image_is_the_tensor_that_numpy_sees(mode, size):
    image = image_of(mode, size)
    expected = np.asarray(image)
    native = expected.dtype.newbyteorder("=")
    for found in (np.from_dlpack(ad.tensor(image)), ad.convert(image, np.ndarray)):
        assert found.shape == expected.shape and found.dtype == native
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("mode", MODES)
def test_an_image_is_no_column(mode):
    image = image_of(mode, (4, 2))
    for ask in (ad.array, lambda x: ad.convert(x, pa.Array), ad.array_stream):
        with pytest.raises(ad.ExchangeError, match="Image has two meanings") as info:
            ask(image)
        assert info.value.reason == "shape"
        assert info.value.hint == "arrowdev.tensor(x) takes the latter"
    column = ad.array(ad.tensor(image))
    assert column.to_pylist() == np.asarray(image).tolist()


def test_a_swapped_image_is_refused_without_a_copy():
    """By Arrow it would be int16, and a row of 8 values."""
    image = image_of("I;16B", (4, 2))
    with pytest.raises(ad.ExchangeError) as info:
        ad.tensor(image, copy=False)
    assert info.value.reason == "byteorder"


def test_images_go_through_a_tensor():
    """Pillow reads ours, and the image that comes of it is the same."""
    for mode in ("L", "RGB", "RGBA"):
        image = image_of(mode, (4, 2))
        again = Image.fromarray(ad.tensor(image))
        assert (again.mode, again.size, again.tobytes()) == (mode, image.size, image.tobytes())
    values = np.arange(8, dtype="u1")
    pixels = Image.fromarrow(ad.array(values), "L", (4, 2))
    assert np.asarray(pixels).tolist() == values.reshape(2, 4).tolist()


def test_a_closed_image_is_refused():
    image = image_of("L", (2, 2))
    image.close()
    for ask in (ad.tensor, ad.array):
        with pytest.raises(ad.ExchangeError, match="closed") as info:
            ask(image)
        assert info.value.reason == "refused"
