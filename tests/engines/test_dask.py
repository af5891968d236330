"""What Dask sends of an array, without a cluster: headers, frames, sizes."""

import os
import pickle
import random
import subprocess
import sys
import time

import numpy as np
import pytest
from concat_checks import ALL
from engine_samples import samples, values
from pickle_mutations import changed, has_large_memo, use

import arrowdev as ad
import compiler
from arrowdev import _dask_sizes

pa = pytest.importorskip("pyarrow")
distributed = pytest.importorskip("distributed")
msgpack = pytest.importorskip("msgpack")

import dask  # noqa: E402
from distributed.protocol import (  # noqa: E402
    deserialize,
    deserialize_bytes,
    serialize,
    serialize_bytes,
)

import arrowdev.dask  # noqa: E402


def address(buffer):
    return np.frombuffer(buffer, "u1").ctypes.data


class TestFrames:
    """What Dask puts into a message, without a cluster."""

    def test_are_the_memory_of_the_array(self):
        array = ad.array(np.arange(1000))
        header, frames = serialize(array)
        assert header["serializer"] == "pickle"
        assert len(frames[0]) < 300 and len(frames) == 2
        assert address(frames[1]) == array.buffers[1].data_ptr
        again = deserialize(header, frames)
        assert again.buffers[1].data_ptr == array.buffers[1].data_ptr

    def test_of_a_batch_of_slices_have_its_rows(self):
        x = np.arange(1000)
        _, frames = serialize(ad.record_batch({"a": x, "b": x})[500:504])
        assert [len(bytes(frame)) for frame in frames[1:]] == [32]  # one memory, once

    def test_of_a_list_share_memory(self):
        array = ad.array(np.arange(1000))
        header, frames = serialize([array, array[10:]])
        first, second = deserialize(header, frames)
        assert second.to_pylist() == array[10:].to_pylist()
        assert first.to_pylist() == array.to_pylist()

    @pytest.mark.parametrize("protocol", [4, 5])
    def test_keep_values_and_flags(self, protocol):
        for name, sample in samples().items():
            header, frames = serialize(sample, context={"pickle-protocol": protocol})
            found = deserialize(header, [bytearray(frame) for frame in frames])
            assert values(found) == values(sample), name
            if isinstance(sample, (ad.Tensor, ad.Buffer)):
                assert memoryview(found).readonly == memoryview(sample).readonly, name

    def test_are_memory_where_dask_asks_for_protocol_4(self):
        array = ad.array(np.arange(1000))
        for sample in (array, ad.tensor(array), array.buffers[1]):
            header, frames = serialize(sample, context={"pickle-protocol": 4})
            assert header["serializer"] == "dask"
            assert [address(frame) for frame in frames] == [array.buffers[1].data_ptr]
            assert msgpack.loads(msgpack.dumps(header)) == header
            again = deserialize(header, frames)
            assert ad.tensor(again).data_ptr == array.buffers[1].data_ptr

    def test_may_start_at_any_address(self):
        header, frames = serialize(ad.array(np.arange(99)))
        again = deserialize(header, [memoryview(bytearray(b"x") + frame)[1:] for frame in frames])
        assert again.buffers[1].data_ptr % 8 and again.to_pylist() == list(range(99))
        copied = ad.array(again, copy=True)
        assert copied.buffers[1].data_ptr % 64 == 0 and copied.to_pylist() == list(range(99))

    def test_that_are_read_only_are_flagged(self):
        header, frames = serialize(ad.array(np.arange(9)), context={"pickle-protocol": 4})
        again = deserialize(header, [bytes(frame) for frame in frames])
        with pytest.raises(ad.ExchangeError, match="read-only"):
            again.__dlpack__()


def test_array_beside_what_only_dask_can_pickle(monkeypatch):
    class Local:
        """No pickle can name it."""

        def __reduce__(self):
            raise RuntimeError("not by pickle")

    monkeypatch.setitem(distributed.protocol.dask_serialize._lookup, Local, lambda x: ({}, [b"y"]))
    monkeypatch.setitem(distributed.protocol.dask_deserialize._lookup, Local, np.size)
    array = ad.array(np.arange(99))
    frames = []
    data = distributed.protocol.pickle.dumps([Local(), array], buffer_callback=frames.append)
    assert [address(frame.raw()) for frame in frames] == [array.buffers[1].data_ptr]
    monkeypatch.delitem(distributed.protocol.dask_serialize._lookup, Local)
    with pytest.raises(RuntimeError, match="not by pickle"):
        distributed.protocol.pickle.dumps([Local(), array])
    assert len(data) < 1000


def test_what_is_written_to_disk_is_read_again():
    for name, sample in samples().items():
        assert values(deserialize_bytes(serialize_bytes(sample))) == values(sample), name


def test_token_is_that_of_the_values():
    x = np.arange(1000)
    token = dask.base.tokenize(ad.array(x))
    assert token == dask.base.tokenize(ad.array(x.copy()))
    assert token != dask.base.tokenize(ad.array(x[::-1].copy()))
    assert token != dask.base.tokenize(ad.array(x)[1:])
    assert token != dask.base.tokenize(ad.tensor(x))


def replaced(value, rng):
    """A header or its part, with one of its bytes, numbers or texts changed or left out."""
    if isinstance(value, dict) and value:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return value | {key: replaced(value[key], rng)}
    if isinstance(value, bytes) and value:
        return changed(value, rng)
    return rng.choice((None, 0, -1, b"", "", [], {}, 2**70))


def replaced_frames(frames, rng):
    out = list(frames)
    i = rng.randrange(len(out)) if out else 0
    out[i : i + 1] = rng.choice(
        ([], [b""], [changed(bytes(out[i]) or b"x", rng)], [out[i], out[i]])
        if out
        else ([], [b"x"])
    )
    return out


def load_and_use(header, frames):
    """Without what makes CPython itself ask for gigabytes."""
    data = header.get("sub-header", {})
    data = data.get("pickle") if isinstance(data, dict) else None
    data = data if header.get("serializer") == "dask" else frames and bytes(frames[0])
    if not isinstance(data, bytes) or not has_large_memo(data):
        use(deserialize(header, frames))


def fuzz(seconds, seed):
    rng = random.Random(seed)
    messages = [
        serialize(ad.array(sample)[i : i + 20], context={"pickle-protocol": protocol})
        for sample in ALL.values()
        for i in (0, 3)
        for protocol in (4, 5)
    ]
    end, n, n_refused = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        header, frames = rng.choice(messages)
        if rng.random() < 0.5:
            header = replaced(header, rng)
        else:
            frames = replaced_frames(frames, rng)
        n += 1
        try:
            load_and_use(header, [memoryview(frame) for frame in frames])
        except Exception:  # anything but a crash
            n_refused += 1
    return n, n_refused


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pickletools has one of its own
@pytest.mark.parametrize("seconds", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_changed_messages_do_not_crash(seconds, caplog):
    caplog.set_level("CRITICAL")
    n, n_refused = fuzz(seconds, seed=time.time_ns() if seconds > 1 else 1)
    assert n > 10 and n_refused > n // 4


def test_cut_frames_are_refused():
    for protocol in (4, 5):
        header, frames = serialize(ad.array(np.arange(9)), context={"pickle-protocol": protocol})
        for cut in (frames[:-1], [*frames[:-1], frames[-1][:-1]]):
            with pytest.raises((pickle.UnpicklingError, ValueError)):
                deserialize(header, cut)


ENTRY_POINT = "arrowdev = arrowdev._dask_sizes:register"


def test_dask_finds_the_sizes_by_an_entry_point(tmp_path):
    """With the entry point of pyproject.toml in metadata that Dask sees, installed or not."""
    info = tmp_path / "arrowdev_of_this_test-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: arrowdev_of_this_test\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[dask.sizeof]\n{ENTRY_POINT}\n")
    project = (compiler.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    name, target = ENTRY_POINT.split(" = ")
    assert f'[project.entry-points."dask.sizeof"]\n{name} = "{target}"\n' in project
    code = "import arrowdev as ad, dask.sizeof; print(dask.sizeof.sizeof(ad.array(bytes(999))))"
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stdout == "999\n", done.stderr


def test_sizes_are_the_bytes_of_the_memory():
    sizeof = dask.utils.Dispatch("sizeof")
    _dask_sizes.register(sizeof)
    x = np.arange(1000)
    for sample in (ad.array(x), ad.tensor(x), ad.array(x).buffers[1]):
        assert sizeof(sample) == 8000
    assert sizeof(ad.record_batch({"a": x, "b": x.astype("i4")})) == 12_000
    assert sizeof(ad.tensor(x[::2])) == 4000


def test_sizes_need_no_wait_for_a_device(software):
    numbers = software.array([1, 2, 3], queue=software.queue())
    with numbers.queue.held():
        assert _dask_sizes._array_size(ad.array(numbers)) == 24
    words = ad.array(pa.array(["word"] * 100)).to("ext_dev:0")
    if words.nbytes is None:
        assert _dask_sizes._array_size(words) == 101 * 4  # the offsets
    else:
        assert _dask_sizes._array_size(words) == words.nbytes
