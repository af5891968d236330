"""Code of a user, as mypy sees it: test_stubs.py checks this file; it is not run."""

from collections.abc import Callable
from typing import Any

from typing_extensions import CapsuleType, Self, assert_type

import arrowdev as ad
from arrowdev.typing import (
    ArrayLike,
    AsyncConvertedStream,
    ConvertedStream,
    SupportsArrowdevFrom,
    SupportsArrowDeviceArray,
    SupportsDLPack,
)


class Target: ...


class Producer:
    def __dlpack__(self, *, stream: int | None = None) -> object:
        raise NotImplementedError

    def __dlpack_device__(self) -> tuple[int, int]:
        raise NotImplementedError


class ArrowProducer:
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        raise NotImplementedError


class ArrowStreamer:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise NotImplementedError


def arrays(source: ArrayLike, array: ad.Array, pair: tuple[CapsuleType, CapsuleType]) -> None:
    for made in (
        ad.array(source),
        ad.array(array, "int32", device="cpu", copy=False),
        ad.array(pair, ad.schema("int8")),
        ad.array(b"bytes", validity=bytearray(5)),
        ad.array(Producer(), device=(2, 0), stream=7),
        ad.array(ArrowProducer()),
        ad.array(array.buffers[0] or b""),
        ad.record_batch({"a": Producer(), "b": array}),
        ad.record_batch([array, b"x"], names=["a", "b"]),
        ad.record_batch(array),
        array[1:2],
        array["name"],
        array.slice(1),
        array.field(0),
        array.view("int64"),
        array.to("cpu"),
        array.children[0],
        ad.Array.from_buffers("int8", 3, [None, b"abc"]),
    ):
        assert_type(made, ad.Array)
    assert_type(array[0], Any)
    assert_type([value for value in array], list[Any])  # noqa: C416 (what `for` gives)
    assert_type(array.equals(b"bytes"), bool)
    assert_type(array.shape, tuple[int, int])
    assert_type(array.column_names, list[str])
    assert_type(array.null_count, int | None)
    assert_type(array.validity, ad.Array | None)
    assert_type(array.device_type, ad.DeviceType | int)
    assert_type(array.buffers, tuple[ad.Buffer | None, ...])
    assert_type(array.to_pylist(), list[Any])
    assert_type(array.into(Target), Target)
    assert_type(ad.convert(array, Target, copy=False), Target)
    assert_type(len(array), int)
    assert_type(array.schema.metadata, dict[bytes, bytes] | None)
    assert_type(ad.validate(array), tuple[str, ...])
    assert_type(array.__arrow_c_array__(), tuple[CapsuleType, CapsuleType])
    memoryview(array)


class MadeFromOurs:
    @classmethod
    def __arrowdev_from__(
        cls, exporter: object, *, copy: bool | None = None, stream: object = None
    ) -> Self:
        return cls()


def targets(array: ad.Array) -> None:
    made: SupportsArrowdevFrom = MadeFromOurs()
    assert_type(array.into(MadeFromOurs), MadeFromOurs)
    ad.register_target(Target, lambda exporter: Target(), takes="stream")
    ad.register_target(Target, lambda exporter: Target(), takes="table")  # type: ignore[arg-type]
    ad.register_target(made, Target)  # type: ignore[arg-type]


def streams(stream: ad.ArrayStream, pushed: ad.AsyncArrayStream) -> None:
    assert_type(stream.into(Target), ConvertedStream[Target])
    assert_type(stream.into(ad.Tensor), ConvertedStream[ad.Tensor])
    assert_type(stream.into(ad.Array), ConvertedStream[ad.Array])
    assert_type(stream.into(ArrowStreamer), ArrowStreamer)
    assert_type(stream.into({"a": Target, "b": Producer}), ConvertedStream[dict[str, Any]])
    assert_type([made for made in stream.into(Target)], list[Target])  # noqa: C416
    with stream.into(Target) as converted:
        assert_type(next(converted), Target)
    assert_type(pushed.into(Target), AsyncConvertedStream[Any])
    stream.into("Target")  # type: ignore[call-overload]


def tensors(tensor: ad.Tensor, array: ad.Array) -> None:
    assert_type(ad.tensor(array, nulls="fill", fill_value=0, order="F"), ad.Tensor)
    assert_type(ad.from_dlpack(tensor), ad.Tensor)
    assert_type(ad.from_dlpack(array), ad.Tensor)
    assert_type(ad.Tensor.from_pointer(64, (2, 3), "int8", ("cpu")), ad.Tensor)
    assert_type(tensor.shape, tuple[int, ...])
    assert_type(tensor.nbytes, int)
    assert_type(tensor[..., 1:, None, -1], ad.Tensor)
    assert_type(tensor[0], ad.Tensor)
    assert_type([row.shape for row in tensor], list[tuple[int, ...]])
    memoryview(tensor)


def exchange(array: ad.Array, tensor: ad.Tensor, buffer: ad.Buffer) -> None:
    takes_arrow: Callable[[SupportsArrowDeviceArray], None] = print
    takes_dlpack: Callable[[SupportsDLPack], None] = print
    for thing in (array, tensor, buffer, ad.as_device(array)):
        takes_arrow(thing)
    takes_dlpack(array)
    takes_dlpack(tensor)
    ad.array(ad.as_host(array))
    ad.schema(tensor)


def errors(error: ad.ExchangeError, other: ad.InvalidArrowError) -> None:
    assert_type(error.reason, str | None)
    assert_type(error.device, ad.Device | None)
    assert_type(other.path, str | None)
    assert_type(ad.device("cuda:0").id, int)


async def async_streams(array: ad.Array) -> None:
    stream, handler = ad.aio.consumer(queue_size=5)
    assert_type(stream, ad.AsyncArrayStream)
    assert_type(await stream.get_schema(), ad.Schema)
    assert_type(stream.metadata, dict[bytes, bytes] | None)
    async with stream:
        async for batch in stream:
            assert_type(batch, ad.Array)
        async for pair in stream.with_metadata():
            assert_type(pair, tuple[ad.Array, dict[bytes, bytes] | None])
    assert_type(stream.to_stream(), ad.ArrayStream)
    await ad.aio.produce(handler, [array, (array, {"key": b"value"})], "int64")
    await ad.aio.produce(handler, stream, metadata={b"key": "value"})
    await ad.aio.produce(handler, array)
    assert_type(ad.aio.connect(ad.array_stream(array), queue_size=1), ad.AsyncArrayStream)
    ad.aio.connect([array])  # type: ignore[arg-type]


def mistakes(array: ad.Array, tensor: ad.Tensor) -> None:
    ad.array(5)  # type: ignore[arg-type]
    ad.array([1, 2])  # type: ignore[arg-type]
    ad.array(array, copy="no")  # type: ignore[arg-type]
    ad.array(array, type="int8")  # type: ignore[call-arg]
    ad.tensor(array, nulls="drop")  # type: ignore[arg-type]
    ad.tensor(array, order="K")  # type: ignore[arg-type]
    ad.from_dlpack(b"bytes")  # type: ignore[arg-type]
    ad.device(2)  # type: ignore[arg-type]
    array.offset = 3  # type: ignore[misc]
    array[1.0]  # type: ignore[call-overload]
    array.dtype  # type: ignore[attr-defined]
    tensor[0.5]  # type: ignore[index]
    array.equals([1, 2])  # type: ignore[arg-type]

    class Sub(ad.Array):  # type: ignore[misc]
        pass
