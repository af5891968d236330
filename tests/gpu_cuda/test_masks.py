"""Nulls on the device: masks of the CUDA Array Interface with their own streams, and kernels."""

import numpy as np
import pytest
from gpu import Gate, Memory, Pinned, Stream, ask, cu

import arrowdev as ad

N = 64
VALUES = np.arange(N, dtype="int64")
VALID = np.random.default_rng(3).integers(0, 2, N).astype(bool)
EXPECTED = [int(v) if good else None for v, good in zip(VALUES, VALID, strict=True)]


class Masked:
    def __init__(self, data, mask):
        self.parts = data, mask
        self.__cuda_array_interface__ = data.__cuda_array_interface__ | {"mask": mask}


class Bits(Memory):
    """A bitmap as a mask."""

    def __init__(self, valid, **options):
        self.length = len(valid)
        super().__init__(np.packbits(valid, bitorder="little"), **options)

    @property
    def __cuda_array_interface__(self):
        return super().__cuda_array_interface__ | {"typestr": "<t1", "shape": (self.length,)}


def mask_of(kind, valid, **options):
    return Bits(valid, **options) if kind == "t1" else Memory(valid, **options)


@pytest.mark.parametrize("kind", ["b1", "t1"])
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_masks_are_imported(kind, version):
    array = ad.array(Masked(Memory(VALUES), mask_of(kind, VALID, version=version)))
    assert array.to("cpu").to_pylist() == EXPECTED
    assert array.count_nulls() == EXPECTED.count(None)
    filled = ad.tensor(array, nulls="fill", fill_value=-1)
    assert np.asarray(filled.to("cpu")).tolist() == np.where(VALID, VALUES, -1).tolist()


@pytest.mark.parametrize("kind", ["b1", "t1"])
@pytest.mark.parametrize("held", ["data", "mask"])
def test_both_streams_are_waited_for(kind, held):
    one, two = Stream(), Stream()
    data = Memory(VALUES * 0, stream=one.handle)
    mask = mask_of(kind, VALID & False, stream=two.handle)
    data.owner, mask.owner = one, two
    bits = np.packbits(VALID, bitorder="little") if kind == "t1" else VALID
    sources = Pinned(VALUES), Pinned(bits)
    with Gate((one if held == "data" else two).handle):
        for memory, stream, source in ((data, one, sources[0]), (mask, two, sources[1])):
            ask(
                cu.cuMemcpyHtoDAsync,
                memory.pointer,
                source.pointer,
                source.array.nbytes,
                stream.handle,
            )
        array = ad.array(Masked(data, mask))
        assert not array.is_ready()
    assert array.to("cpu").to_pylist() == EXPECTED


def test_nulls_round_trip():
    array = ad.array(ad.array(VALUES), validity=VALID).to("cuda:0")
    shown = array.__cuda_array_interface__
    assert shown["mask"].__cuda_array_interface__["typestr"] == "|t1"
    back = ad.array(Masked(array, shown["mask"]))
    assert back.buffers[0].data_ptr == array.buffers[0].data_ptr
    assert back.to("cpu").to_pylist() == EXPECTED


@pytest.mark.parametrize("offset", [1, 5, 8, 13])
def test_compact(offset):
    array = ad.array(ad.array(VALUES), validity=VALID).to("cuda:0")[offset:]
    found = array.compact()
    assert (found.offset, found.null_count) == (0, EXPECTED[offset:].count(None))
    assert found.to("cpu").to_pylist() == EXPECTED[offset:]
    assert found.__cuda_array_interface__["mask"] is not None
