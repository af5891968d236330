"""The logger "arrowdev": each copy, wait and refusal, with its reason."""

import copy
import logging
import os
import pickle
import subprocess
import sys
import threading

import pytest

import arrowdev as ad
from arrowdev import _log
from arrowdev._given import from_start, take_array, take_for_old_capsules
from arrowdev.testing import software_device

np = pytest.importorskip("numpy")
LOGGER = logging.getLogger("arrowdev")


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)

    def take(self):
        lines = [record.getMessage() for record in self.records]
        self.records.clear()
        return lines


@pytest.fixture
def lines():
    handler = Lines()
    level = LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)
    yield handler
    LOGGER.setLevel(level)
    LOGGER.removeHandler(handler)


@pytest.fixture
def device():
    with software_device() as device:
        yield device


def column_with_null():
    return ad.array(np.ma.masked_array([1.0, 2.0], mask=[False, True]))


def strided_mask():
    return np.array([True, False] * 8)[::2]


BOOLS = np.array([True] * 16)
MATRIX = np.zeros((3, 2), order="F")
LABELS = ad.Array.from_buffers("utf8", 2, [None, np.array([0, 1, 2], "i4"), b"ab"])

COPIES = {
    "strides": (
        lambda: ad.array(np.arange(20.0)[::2]),
        "copy: 80 bytes, cpu -> cpu, because the tensor's strides have no equivalent in Arrow",
    ),
    "bytes to bits": (
        lambda: ad.array(BOOLS, "bool"),
        "copy: 2 bytes, cpu -> cpu, because flags of a byte become bits",
    ),
    "bits to bytes": (
        lambda: ad.tensor(ad.array(BOOLS, "bool")),
        "copy: 16 bytes, cpu -> cpu, because a tensor has a byte per bool, not a bit",
    ),
    "nulls": (
        lambda: ad.tensor(column_with_null(), nulls="fill", fill_value=0),
        "copy: 16 bytes, cpu -> cpu, because nulls are filled",
    ),
    "validity": (
        lambda: ad.array(np.arange(16), validity=BOOLS),
        "copy: 2 bytes, cpu -> cpu, because flags of a byte become bits",
    ),
    "strided validity": (
        lambda: ad.array(np.arange(8), validity=strided_mask()),
        "copy: 8 bytes, cpu -> cpu, because the mask's strides leave gaps between its elements",
    ),
    "byte order": (
        lambda: ad.tensor(np.arange(2000, dtype=">i4")),
        "copy: 8,000 bytes, cpu -> cpu, because the elements have the other byte order",
    ),
    "array, copy=True": (
        lambda: ad.array(np.arange(3.0), copy=True),
        "copy: 24 bytes, cpu -> cpu, because copy=True was passed",
    ),
    "tensor, copy=True": (
        lambda: ad.tensor(np.arange(3.0), copy=True),
        "copy: 24 bytes, cpu -> cpu, because copy=True was passed",
    ),
    "consumer, copy=True": (
        lambda: ad.tensor(np.zeros(1, "u1")).__dlpack__(max_version=(1, 0), copy=True),
        "copy: 1 byte, cpu -> cpu, because the consumer of __dlpack__ passed copy=True",
    ),
    "concat": (
        lambda: ad.concat([np.arange(3.0), np.arange(2.0)]),
        "copy: 40 bytes, cpu -> cpu, because the rows of several arrays are joined",
    ),
    "compact": (
        lambda: ad.array(BOOLS, "bool")[3:].compact(),
        "copy: 64 bytes, cpu -> cpu, because the rows of a compact array begin where its "
        "memory does",
    ),
    "columns": (
        lambda: ad.record_batch(np.zeros((3, 2)), names=["a", "b"]),
        "copy: 48 bytes, cpu -> cpu, because the rows of each column have to lie next to "
        "each other",
    ),
    "matrix": (
        lambda: ad.tensor(ad.record_batch({"b": MATRIX[:, 1], "a": MATRIX[:, 0]})),
        "copy: 48 bytes, cpu -> cpu, because the columns are no matrix as they are: they are not "
        "stored one after the other",
    ),
    "matrix of another order": (
        lambda: ad.tensor(ad.record_batch(MATRIX, names=["a", "b"]), order="C"),
        "copy: 48 bytes, cpu -> cpu, because the columns are no matrix as they are: they are "
        'stored in order "F", not order="C"',
    ),
    "matrix, copy=True": (
        lambda: ad.tensor(ad.record_batch({"a": np.zeros(3)}), copy=True),
        "copy: 24 bytes, cpu -> cpu, because copy=True was passed",
    ),
    "order": (
        lambda: ad.tensor(MATRIX, order="C"),
        'copy: 48 bytes, cpu -> cpu, because the elements are not in the order "C"',
    ),
    "negative strides": (
        lambda: ad.convert(np.arange(4.0)[::-1], pytest.importorskip("torch").Tensor),
        "copy: 32 bytes, cpu -> cpu, because the class takes no negative strides",
    ),
    "read-only memory, stream=-1": (
        lambda: take_for_old_capsules(np.frombuffer(b"12345678"), None, -1),
        "copy: 8 bytes, cpu -> cpu, because the library knows no read-only memory",
    ),
    "rows of a slice, stream=-1": (
        lambda: from_start(take_array, "u")(LABELS[1:], None, -1),
        "copy: 128 bytes, cpu -> cpu, because the library misreads slices of string",
    ),
    "read-only memory": (
        lambda: take_for_old_capsules(np.frombuffer(b"12345678"), None, None),
        "copy: 8 bytes, cpu -> cpu, because the library knows no read-only memory",
    ),
    "rows of a slice": (
        lambda: from_start(take_array, "u")(LABELS[1:], None, None),
        "copy: 128 bytes, cpu -> cpu, because the library misreads slices of string",
    ),
    "deepcopy": (
        lambda: copy.deepcopy(ad.tensor(np.arange(3.0))),
        "copy: 24 bytes, cpu -> cpu, because copy.deepcopy was called",
    ),
    "pickle": (
        lambda: pickle.dumps(ad.tensor(np.arange(20.0)[::2]), protocol=5),
        "copy: 80 bytes, cpu -> cpu, because a pickle has contiguous memory",
    ),
}


@pytest.mark.parametrize("kind", COPIES)
def test_copy_is_reported_with_bytes_and_reason(kind, lines):
    action, expected = COPIES[kind]
    action()
    assert [line for line in lines.take() if line.startswith(expected)] != []


def test_copy_in_another_order_is_one_copy(lines):
    matrix = np.arange(6.0).reshape(3, 2)
    tensor = ad.tensor(matrix, order="F", copy=True)
    assert tensor.strides == (1, 3) and np.array_equal(np.from_dlpack(tensor), matrix)
    assert lines.take() == ["copy: 48 bytes, cpu -> cpu, because copy=True was passed"]


def test_shared_memory_is_no_copy(lines):
    x = np.arange(10.0)
    ad.array(x), ad.tensor(x), np.from_dlpack(ad.tensor(x)), ad.array(x)[2:]
    assert lines.take() == []


def test_record_names_the_line_of_the_caller(lines):
    ad.tensor(np.arange(3.0), copy=True)
    (record,) = lines.records
    assert record.filename == "test_log.py" and record.levelno == logging.DEBUG
    assert record.funcName == "test_record_names_the_line_of_the_caller"


@pytest.mark.parametrize("take", [ad.array, ad.tensor])
def test_comparison_of_a_device_is_reported(lines, device, take):
    there = take(np.arange(3.0)).to("ext_dev:0")
    lines.take()
    assert there.equals(take(np.arange(3.0)))
    (line,) = [line for line in lines.take() if line.startswith("copy: ")]
    assert line.endswith(f"{there.device} -> cpu, because the host compares the values")


def test_copy_to_a_device_and_back_is_reported(lines, device):
    there = ad.array(np.arange(1000.0), device="ext_dev:0")
    there.to("cpu")
    ad.tensor(there).to("cpu")
    copies = [line for line in lines.take() if line.startswith("copy: ")]
    name = f"{there.device}"
    assert copies == [
        f"copy: 8,000 bytes, cpu -> {name}, because the array was asked for on that device",
        f"copy: 8,000 bytes, {name} -> cpu, because the array was asked for on that device",
        f"copy: 8,000 bytes, {name} -> cpu, because the tensor was asked for on that device",
    ]


def test_wait_of_a_stream_is_reported(lines, device):
    producer = device.array([1, 2, 3], queue=device.queue())
    with producer.queue.held():
        column = ad.array(producer, stream=device.queue())
        (line,) = lines.take()
    assert line.startswith("wait: stream 0x") and line.endswith("the host does not wait")
    assert f" of {column.device} waits for an event of {column.device}, for " in line


def test_wait_of_the_host_is_reported(lines, device):
    producer = device.array([1, 2, 3], queue=device.queue())
    producer.queue.hold()
    column = ad.array(producer)
    lines.take()
    timer = threading.Timer(0.05, producer.queue.release)
    timer.start()
    column.synchronize()
    timer.join()
    assert lines.take() == [f"wait: the host waits for work on {column.device}, for synchronize()"]


def test_data_that_are_ready_take_no_wait(lines, device):
    column = ad.array(device.array([1, 2, 3], queue=device.queue()))
    column.synchronize()
    lines.take()
    column.synchronize()
    assert lines.take() == []


def test_refusal_is_reported_with_its_reason(lines):
    column = column_with_null()
    lines.take()
    with pytest.raises(ad.ExchangeError) as refusal:
        ad.tensor(column)
    assert lines.take() == [f"refusal (nulls): {refusal.value}"]


def test_function_of_a_convention_is_reported(lines):
    class Thing:
        @classmethod
        def from_arrow(cls, array):
            return cls()

    ad.convert(b"abc", Thing)
    name = f"{__name__}.test_function_of_a_convention_is_reported.<locals>.Thing"
    assert lines.take() == [f"convert: {name} by {name}.from_arrow"]
    assert lines.records == []


def test_refusal_of_a_python_helper_is_reported(lines, device):
    there = ad.array(device.array([1]))
    with pytest.raises(ad.ExchangeError) as refusal:
        there.to_pylist()
    assert lines.take()[-1] == f"refusal (device): {refusal.value}"


def test_refusal_before_the_next_protocol_is_reported(lines):
    class Column:
        def __init__(self, values):
            self.__array_interface__ = values.__array_interface__
            self.values = values

        def __arrow_c_array__(self, requested_schema=None):
            raise ValueError("not today")

    assert ad.array(Column(np.arange(3))).to_pylist() == [0, 1, 2]
    assert lines.take() == ["refusal: __arrow_c_array__ of Column raised ValueError: not today"]


def copies_are_reported(lines):
    ad.tensor(np.arange(3.0), copy=True)
    return lines.take() != []


def test_messages_follow_the_level(lines):
    root = logging.getLogger()
    level = root.level
    try:
        for change, expected in [
            (lambda: None, True),
            (lambda: LOGGER.setLevel(logging.INFO), False),
            (lambda: LOGGER.setLevel(logging.NOTSET), False),
            (lambda: root.setLevel(logging.DEBUG), True),
            (lambda: root.setLevel(logging.WARNING), False),
            (lambda: LOGGER.setLevel(logging.DEBUG), True),
            (lambda: logging.disable(logging.DEBUG), False),
            (lambda: logging.disable(logging.NOTSET), True),
        ]:
            change()
            assert copies_are_reported(lines) == expected
    finally:
        logging.disable(logging.NOTSET)
        root.setLevel(level)


@pytest.mark.parametrize("n", [1, 2])
def test_level_that_another_thread_changes_during_the_first_use(n, lines, monkeypatch):
    """After the n-th time that this thread has asked for the level."""
    asked = _log.is_on
    times = iter(range(1, 10))

    def is_on():
        found = asked()
        if next(times) == n:
            monkeypatch.setattr(_log, "is_on", asked)
            LOGGER.setLevel(logging.DEBUG)
        return found

    LOGGER.setLevel(logging.WARNING)
    vars(LOGGER)["_cache"] = {}  # connect() makes another one
    monkeypatch.setattr(_log, "is_on", is_on)
    _log.connect()
    assert copies_are_reported(lines)


def test_messages_follow_a_logger_without_a_cache(lines, monkeypatch):
    monkeypatch.setattr(LOGGER, "_cache", None)
    monkeypatch.setattr(LOGGER, "isEnabledFor", lambda level: level >= LOGGER.level)
    ad._core._log_turn(None)  # ask again
    assert copies_are_reported(lines)


def test_handler_that_uses_arrowdev_causes_no_messages(lines):
    class Copying(logging.Handler):
        def emit(self, record):
            ad.tensor(np.arange(3.0), copy=True)

    handler = Copying()
    LOGGER.addHandler(handler)
    try:
        ad.tensor(np.arange(3.0), copy=True)
    finally:
        LOGGER.removeHandler(handler)
    assert len(lines.take()) == 1
    assert copies_are_reported(lines)


class Raising(logging.Handler):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def emit(self, record):
        raise self.error


@pytest.fixture
def raising():
    handlers = []

    def add(error):
        handlers.append(Raising(error))
        LOGGER.addHandler(handlers[-1])

    yield add
    for handler in handlers:
        LOGGER.removeHandler(handler)


def test_error_of_a_handler_does_not_stop_the_copy(lines, raising, monkeypatch):
    found = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: found.append(str(args.exc_value)))
    raising(ValueError("full"))
    assert ad.tensor(np.arange(3.0), copy=True).shape == (3,)
    assert found == ["full"]


def test_error_of_a_handler_does_not_replace_a_refusal(lines, raising, monkeypatch):
    found = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: found.append(str(args.exc_value)))
    raising(ValueError("full"))
    with pytest.raises(ad.ExchangeError, match="nulls"):
        ad.tensor(column_with_null())
    assert "full" in found


def test_interruption_in_a_handler_is_raised(lines, raising):
    raising(KeyboardInterrupt("now"))
    with pytest.raises(KeyboardInterrupt, match="now"):
        ad.tensor(np.arange(3.0), copy=True)
        for _ in range(1000):
            pass


def test_thread_without_the_gil_reports(lines, device):
    pa = pytest.importorskip("pyarrow")
    batch = ad.record_batch({"a": np.arange(3.0)})
    batches = [batch.to("ext_dev:0") for _ in range(2)]
    reader = pa.RecordBatchReader.from_stream(ad.array_stream(batches).to("cpu"))
    lines.take()
    assert reader.read_all().num_rows == 6  # pyarrow releases the GIL
    copies = [line for line in lines.take() if line.startswith("copy: ")]
    assert len(copies) == 2 and "-> cpu" in copies[0]


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


COPY = "import arrowdev as ad; ad.tensor(bytearray(8), copy=True)\n"


def test_environment_writes_to_stderr():
    line = "<string>:1: arrowdev: copy: 8 bytes, cpu -> cpu, because copy=True was passed\n"
    assert run(COPY, ARROWDEV_LOG="debug") == line
    assert run(COPY, ARROWDEV_LOG="") == ""


def test_refusal_with_a_text_that_is_not_unicode_is_written():
    code = """
import arrowdev as ad
class Column:
    def __arrow_c_array__(self, requested_schema=None):
        raise ValueError(chr(0xd800))
try:
    ad.array(Column())
except ad.ExchangeError:
    pass
"""
    expected = "refusal: __arrow_c_array__ of Column raised ValueError: \\ud800\n"
    assert expected in run(code, ARROWDEV_LOG="debug")


def test_environment_with_another_word_warns():
    assert "ARROWDEV_LOG is 'info', expected 'debug'" in run(COPY, ARROWDEV_LOG="info")


def test_copy_without_the_logger_does_not_import_logging():
    code = "import sys; assert not {'logging', 'arrowdev._log'} & {*sys.modules}"
    assert run(COPY + code, ARROWDEV_LOG="") == ""


def test_messages_of_a_finalizing_interpreter_go_to_stderr():
    code = """
import arrowdev as ad
class Last:
    def __init__(self, tensor):
        self.tensor = tensor
    def __del__(self):
        self.tensor(copy=True)
"""
    code += "import functools\nlast = Last(functools.partial(ad.tensor, bytearray(8)))\n"
    lines = run(code, ARROWDEV_LOG="debug").splitlines()
    assert lines == ["arrowdev: copy: 8 bytes, cpu -> cpu, because copy=True was passed"]
