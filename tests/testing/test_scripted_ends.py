"""arrowdev.testing's scripted ends: invalid scripts, records, the end of the process."""

import ctypes
import errno
import gc
import subprocess
import sys
import textwrap
import threading
import weakref
from ctypes import addressof
from pathlib import Path

import pytest
from scripted_samples import LIMIT, TABLE, Handler, Struct, broken_by, rows

import arrowdev as ad
from arrowdev.testing import (
    ScriptedAsyncHandler,
    ScriptedAsyncProducer,
    ScriptedReader,
    ScriptedStream,
    _abi,
    step,
)

# --- invalid scripts are reported ----------------------------------------------------------------


def test_unsupported_steps():
    with pytest.raises(ValueError, match=r"cannot request\(n=1\)"):
        ScriptedStream([[1], step.request(1)])
    with pytest.raises(ValueError, match="get_next, get_schema, on_thread, read_to_end, release"):
        ScriptedReader([step.cancel()]).read(ScriptedStream([[1]]))
    producer = ScriptedAsyncProducer([step.schema(), step.extract()], type="int64")
    handler = ScriptedAsyncHandler(timeout=LIMIT).connect(producer)
    with pytest.raises(ValueError, match="has no step extract"):
        producer.wait()
    handler.wait_for_release()  # the consumer does not wait for an invalid script
    assert handler.error[:2] == (errno.EIO, str(handler.error[1])) and "script" in handler.error[1]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ScriptedStream([]), "pass type="),
        (lambda: ScriptedStream([[1]]).check(ignore=["no-rule"]), "no-rule"),
        (lambda: ScriptedReader([step.release()] * 2).read(ScriptedStream([[1]])), "anyway=True"),
        (
            lambda: ScriptedReader([step.release(), step.get_next()]).read(ScriptedStream([[1]])),
            "after release",
        ),
        (lambda: ScriptedAsyncHandler().request(1), "before on_schema"),
        (lambda: ScriptedAsyncHandler().extract(), "no task"),
    ],
)
def test_invalid_scripts(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_reader_without_source():
    with pytest.raises(TypeError, match="is no stream"):
        ScriptedReader().read(5)
    with pytest.raises(RuntimeError, match="read"):
        ScriptedReader().run(step.get_next())
    stream = ScriptedStream([[1]])
    reader = ScriptedReader().read(stream)
    with pytest.raises(RuntimeError, match="another one"):
        reader.read(stream)


def test_one_consumer_per_producer():
    producer = ScriptedAsyncProducer.of([[1]], timeout=LIMIT)
    ScriptedAsyncHandler(timeout=LIMIT).connect(producer).wait_for_release()
    with pytest.raises(RuntimeError, match="another one"):
        ScriptedAsyncHandler().connect(producer)


def test_waits_have_a_limit():
    handler = ScriptedAsyncHandler(on_schema=[], timeout=0.05)
    producer = ScriptedAsyncProducer.of([[1]], timeout=0.05)
    handler.connect(producer)
    handler.timeout = LIMIT
    handler.wait_for_release()  # by a script that timed out
    handler.timeout = 0.05
    with pytest.raises(TimeoutError, match="task 0"):
        handler.wait_for_tasks(1)
    producer.timeout = LIMIT
    for call in (producer.wait, producer.check):
        with pytest.raises(TimeoutError, match="request for batch 0"):
            call()


def test_exported_methods():
    both, device, host = (
        ScriptedStream([[1]], device=d, host=h)
        for d, h in ((True, True), (True, False), (False, True))
    )
    shown = [
        [hasattr(s, "__arrow_c_device_stream__"), hasattr(s, "__arrow_c_stream__")]
        for s in (both, device, host)
    ]
    assert shown == [[True, True], [True, False], [False, True]]
    with pytest.raises(NotImplementedError, match="later"):
        both.__arrow_c_device_stream__(later=1)


# --- scripted ends with each other ---------------------------------------------------------------


def test_record_of_a_stream():
    stream = ScriptedStream([[1, 2], step.error(errno.EIO, "the disk is gone"), [3]])
    reader = ScriptedReader([step.get_schema(), step.get_next(4), step.release()]).read(stream)
    assert reader.errors == [(errno.EIO, "the disk is gone")]
    assert rows(reader.batches) == [1, 2, 3]
    assert [str(one) for one in stream.calls] == [
        "get_schema() -> 0",
        "get_next(batch 0) -> 0",
        f"get_next(error) -> {errno.EIO}",
        "get_last_error()",
        "get_next(batch 1) -> 0",
        "get_next(end) -> 0",
        "release(stream 0)",
    ]
    assert {one.thread for one in stream.calls} == {threading.get_ident()}
    assert not stream.is_all_released
    reader.check()
    del reader
    stream.check()
    assert stream.is_all_released


def test_calls_from_another_thread():
    stream = ScriptedStream([[1], [2]])
    steps = [step.get_next(), step.on_thread(step.get_next(2), step.release())]
    reader = ScriptedReader(steps, timeout=LIMIT).read(stream)
    threads = [one.thread for one in stream.calls if one.name == "get_next"]
    assert threads[0] == threading.get_ident() != threads[1] == threads[2]
    assert rows(reader.batches) == [1, 2] and reader.is_at_end
    reader.check()


def test_text_of_an_error_is_valid_until_the_next_call():
    struct = Struct(ScriptedStream([step.error(5, "gone")], type="int64"))
    assert struct("get_next", addressof(_abi.ArrowDeviceArray())) == 5
    text = struct("get_last_error")
    assert ctypes.string_at(text) == b"gone"
    _abi.call(struct.schema(), "release")
    assert ctypes.string_at(text) == b"????"
    struct("release")


def test_second_export_restarts_the_script():
    stream = ScriptedStream([[1], [2]])
    for _ in range(2):
        assert rows(ScriptedReader().read(stream).batches) == [1, 2]
    assert stream.n_exports == 2
    stream.check()


def test_functions_create_batches_on_request():
    made = []

    def batch(i):
        return step.batch(lambda: made.append(i) or [i])

    stream = ScriptedStream([batch(0), batch(1)])
    assert made == [0]  # for the schema
    assert rows(ScriptedReader().read(stream).batches) == [0, 1]
    ScriptedStream([batch(2)], type="int64", device_type=1)
    assert made == [0, 0, 1]


def test_unconsumed_capsule():
    stream = ScriptedStream([[1]])
    stream.__arrow_c_stream__()
    stream.__arrow_c_device_stream__()
    assert stream.names == ["release", "release"]
    stream.check()


def test_columns_and_nulls():
    stream = ScriptedStream([TABLE, TABLE])
    batches = ScriptedReader(host=True).read(stream).batches
    assert rows(batches) == [{"a": 1, "s": "x"}, {"a": 2, "s": None}] * 2


def pair(steps, *, on_schema=None, on_task=None, **options):
    producer = ScriptedAsyncProducer(steps, timeout=LIMIT, **options)
    handler = ScriptedAsyncHandler(on_schema, on_task, timeout=LIMIT)
    handler.connect(producer)
    return producer, handler


def test_record_of_an_async_stream():
    steps = [step.schema(), step.wait_for_request(), step.batch([1], metadata={"k": "v"})]
    steps += [step.error(errno.EIO, "broken", {"at": "1"}), step.release()]
    producer, handler = pair(steps, on_schema=[step.request(2)], metadata={"rows": "1"})
    handler.wait_for_release()
    producer.wait()
    assert handler.metadata == {b"rows": b"1"} and handler.batch_metadata == [{b"k": b"v"}]
    assert handler.error == (errno.EIO, "broken", {b"at": b"1"})
    assert rows(handler.batches) == [1] and not handler.is_ended
    assert [str(one) for one in handler.calls] == [
        "on_schema() -> 0",
        "request(n=2)",
        "on_next_task(task 0) -> 0",
        "request(n=1)",
        "extract_data(task 0) -> 0",
        f"on_error(code={errno.EIO})",
        "release()",
    ]
    assert producer.n_requested == 3 and producer.n_sent == 1
    handler.check()


def test_cancel_ends_a_script():
    producer = ScriptedAsyncProducer.of([[i] for i in range(100)], timeout=LIMIT)
    script = [step.request(1), step.extract(), step.at(3, step.cancel())]
    handler = ScriptedAsyncHandler([step.request(1)], script, timeout=LIMIT).connect(producer)
    handler.wait_for_release()
    producer.wait()
    assert 4 <= handler.n_tasks < 100 and producer.is_cancelled
    assert producer.names[-1] == "release" and handler.error is None and not handler.is_ended
    handler.check()


@pytest.mark.parametrize("where", ["on_schema", "on_task"])
def test_refusal_ends_a_script(where):
    producer = ScriptedAsyncProducer.of([[1], [2]], timeout=LIMIT)
    handler = ScriptedAsyncHandler(**{where: [step.refuse(7)]}, timeout=LIMIT).connect(producer)
    handler.wait_for_release()
    producer.wait()
    assert producer.refusal == 7 and producer.names[-1] == "release"
    assert handler.batches == [] and handler.error is None
    handler.check()
    handler.schema = None
    producer.check()


def test_script_that_ignores_cancel():
    steps = [step.schema(), [1], step.error(errno.EINVAL, "refused"), step.release()]
    producer, handler = pair(steps, on_schema=[step.refuse(7)], on_task=[], obey=False)
    producer.wait()
    assert handler.names == ["on_schema", "on_next_task", "on_error", "release"]
    assert broken_by(handler)[0] == "async.over"


def test_tasks_are_kept_until_extracted():
    producer = ScriptedAsyncProducer.of([[1], [2], [3]], timeout=LIMIT)
    handler = ScriptedAsyncHandler([step.request(3)], on_task=[], timeout=LIMIT).connect(producer)
    handler.wait_for_tasks(3)
    assert handler.extract().to_pylist() == [1]
    handler.discard()
    handler.wait_for_release()
    held = ["consumer.release", "consumer.release_schema"]
    assert broken_by(producer, ignore=held) == ["consumer.async_extract"]
    assert handler.extract().to_pylist() == [3]  # a task outlives the handler
    handler.check()
    handler.batches.clear()
    handler.schema = None
    producer.check()


def test_metadata_is_valid_during_the_call():
    kept = []

    class Keeps(Handler):
        def on_error(self, _, code, message, metadata):
            kept.append((message, ctypes.string_at(message)))

    steps = [step.schema(), step.error(5, "gone"), step.release()]
    producer = ScriptedAsyncProducer(steps, type="int64", on_thread=False)
    handler = Keeps()
    producer.connect_address(handler.address)
    address, text = kept[0]
    assert text == b"gone" and ctypes.string_at(address) == b""


# --- processes that end --------------------------------------------------------------------------


def test_exit_with_live_structs():
    """Foreign libraries release their structs during or after Python's finalization."""
    pytest.importorskip("pyarrow")
    script = """
    import builtins, sys, threading
    import pyarrow as pa
    from arrowdev.testing import *

    stream = ScriptedStream([{"a": [1]}, {"a": [2]}])
    builtins.reader = pa.RecordBatchReader.from_stream(stream)
    builtins.batch = builtins.reader.read_next_batch()
    pa.kept = pa.table(ScriptedStream([{"a": [1]}]))
    builtins.handler = ScriptedAsyncHandler([step.request(1)], [])
    producer = ScriptedAsyncProducer.of([[1], [2]], timeout=600)
    builtins.handler.connect(producer)
    builtins.handler.wait_for_tasks(1)
    print("end of the script", flush=True)
    """
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(ad.__file__).parent.parent,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end of the script\n", "")


def test_call_after_the_end_is_collected():
    """A stale struct is detected even though no end exists to report it."""
    stream = ScriptedStream([[1]])
    struct = Struct(stream)
    struct("release")
    del stream
    gc.collect()
    told = []
    hook, sys.unraisablehook = sys.unraisablehook, told.append
    try:
        assert struct("get_next", addressof(_abi.ArrowDeviceArray())) == errno.EIO
    finally:
        sys.unraisablehook = hook
    assert "get_next" in str(told[0].exc_value)


def test_finished_ends_are_collected():
    """A script is collected once its structs are released or if none was exported."""
    producer = ScriptedAsyncProducer.of([[1]], timeout=LIMIT)
    handler = ScriptedAsyncHandler(timeout=LIMIT).connect(producer)
    handler.wait_for_release()
    producer.wait()
    stream = ScriptedStream([[1]])
    reader = ScriptedReader().read(stream)
    unused = [ScriptedAsyncHandler(), ScriptedAsyncProducer.of([[1]]), ScriptedStream([[1]])]
    references = [weakref.ref(end) for end in (producer, handler, stream, reader, *unused)]
    del producer, handler, stream, reader, unused
    for _ in range(2):  # a consumer may hold a producer
        gc.collect()
    assert [reference() for reference in references] == [None] * 7
