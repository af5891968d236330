"""Every pair of libraries, both ways: values, without a copy, and alive as long as it is used."""

import gc

import libraries
import pytest
from gpu import NEW

import arrowdev as ad

IMPORTS = {
    "tensor": ad.tensor,
    "array": ad.array,
    "capsules": lambda source: ad.array(ad.array(source).__arrow_c_device_array__()),
}


@pytest.fixture(params=libraries.pairs(), ids=libraries.identity)
def pair(request):
    return [libraries.get(name) for name in request.param]


@pytest.mark.parametrize("how", IMPORTS)
def test_values_arrive_without_a_copy(pair, how):
    producer, consumer = pair
    one, two = producer.stream(), consumer.stream()
    source = producer.make(NEW, one)
    pointer = producer.pointer(source)
    with producer.on(one):
        exchanged = IMPORTS[how](source)
    with consumer.on(two):
        taken = consumer.take(exchanged, two)
        assert consumer.pointer(taken) == pointer
        del source, exchanged
        gc.collect()
        assert bytes(consumer.values(taken, two)) == NEW.tobytes()
    del taken


HAVE_A_CLASS = ("torch", "cupy", "jax", "cudf")


@pytest.mark.parametrize("pair", libraries.pairs(consumers=HAVE_A_CLASS), ids=libraries.identity)
def test_convert_gives_the_consumers_class(pair):
    producer, consumer = map(libraries.get, pair)
    one, two = producer.stream(), consumer.stream()
    source = producer.make(NEW, one)
    with producer.on(one), consumer.on(two):
        converted = ad.convert(source, consumer.class_of_arrays())
    assert isinstance(converted, consumer.class_of_arrays())
    assert consumer.pointer(converted) == producer.pointer(source)
    assert bytes(consumer.values(converted, two)) == NEW.tobytes()


@pytest.mark.parametrize("name", [n for n in libraries.ALL if libraries.ALL[n].can_produce])
def test_protocols_agree(name):
    """Through each protocol that an object offers, the values are the same."""
    library = libraries.get(name)
    stream = library.stream()
    source = library.make(NEW, stream)
    with library.on(stream):
        found = [ad.tensor(source), ad.tensor(ad.array(source))]
        if hasattr(source, "__dlpack__"):
            found.append(ad.from_dlpack(source))
        for tensor in found:
            assert tensor.device == ad.device("cuda:0")
            assert tensor.data_ptr == library.pointer(source)
            assert bytes(tensor.to("cpu")) == NEW.tobytes()
