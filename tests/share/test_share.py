"""share() and attach(): arrays in other processes of this machine."""

import contextlib
import errno
import fcntl
import gc
import json
import multiprocessing
import os
import pickle
import random
import signal
import socket
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest
from lifetimes import is_gone
from sharing import VALUES, connections, descriptors, process, run, wait_until

import arrowdev as ad
from arrowdev import _core, _pickle, _share
from arrowdev.testing import software_device

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")


def mappings():
    with open("/proc/self/maps", encoding="utf-8") as file:
        return sum("memfd:arrowdev" in line for line in file)


def stop(child):
    """Stop a process, whose threads may go on for a while after the signal."""
    child.send_signal(signal.SIGSTOP)
    for task in Path(f"/proc/{child.pid}/task").iterdir():
        wait_until(lambda task=task: (task / "stat").read_text().split()[2] == "T")


def shared_array(values):
    """An Array in a memory file, and the memory as a NumPy array."""
    values = np.asarray(values)
    memory = ad.device("cpu").empty(values.nbytes, shared=True)
    view = np.frombuffer(memory, values.dtype)
    view[:] = values
    return ad.array(view), view


@pytest.mark.parametrize("name", VALUES)
def test_values(name):
    with ad.share(VALUES[name]) as shared:
        found = ad.attach(str(shared))
        expected = ad.array(VALUES[name]) if isinstance(found, ad.Array) else VALUES[name]
        expected = ad.tensor(expected) if isinstance(found, ad.Tensor) else expected
        if isinstance(found, ad.Buffer):
            assert bytes(found) == bytes(expected)
        else:
            assert found.equals(expected)
            assert isinstance(found, ad.Tensor) or found.schema == expected.schema


def test_another_process():
    handles = [ad.share(value) for value in VALUES.values()]
    code = "for text in sys.argv[1:]: sys.stdout.buffer.write(pickle.dumps(ad.attach(text)))"
    out = run(code, *handles)
    start = 0
    for name, handle in zip(VALUES, handles, strict=True):
        data = out[start:]
        found = pickle.loads(data)
        start += len(pickle.dumps(found))
        ours = ad.attach(handle)
        assert type(found) is type(ours), name
        assert bytes(found) == bytes(ours) if isinstance(ours, ad.Buffer) else found.equals(ours)


# --- memory ------------------------------------------------------------------------------------


def test_memory_file_goes_without_a_copy():
    column, memory = shared_array(np.arange(1000))
    shared = ad.share(column, copy=False)
    assert shared.how == ("memory file",)
    found = ad.attach(str(shared))
    memory[7] = -1
    assert found[7] == -1
    with process(
        "x = ad.attach(sys.argv[1]); print(x[7]); sys.stdout.flush(); sys.stdin.readline()\n"
        "print(x[8])",
        shared,
    ) as child:
        assert child.line == "-1"
        memory[8] = -2
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"-2\n"


@pytest.mark.parametrize("nbytes", [4096, 8192])
def test_neighbours(nbytes):
    """One mapping begins where another one ends."""
    memories = [ad.device("cpu").empty(nbytes, shared=True) for _ in range(20)]
    for i, memory in enumerate(memories):
        memoryview(memory)[:] = bytes([i]) * nbytes
    for i, memory in enumerate(memories):
        assert bytes(ad.attach(ad.share(memory, copy=False))) == bytes([i]) * nbytes


def test_parts_of_a_memory_file():
    column, memory = shared_array(np.arange(100))
    other, _ = shared_array(np.arange(100.0))
    batch = ad.record_batch({"a": column, "b": other, "again": column, "c": pa.array(["x"] * 100)})
    shared = ad.share(batch[10:20])
    assert shared.how == ("memory file", "memory file", "copied into a memory file")
    found = ad.attach(shared)
    assert found.equals(batch[10:20])
    memory[15] = 0
    assert found["a"][5] == found["again"][5] == 0


def test_other_memory_is_copied_once():
    values = np.arange(10)
    shared = ad.share(values)
    assert shared.how == ("copied into a memory file",)
    values[0] = 9
    assert ad.attach(shared).tolist()[0] == 0
    with pytest.raises(ad.ExchangeError, match="80 bytes would have to be copied") as info:
        ad.share(values, copy=False)
    assert info.value.reason == "copy" and "shared=True" in info.value.hint
    assert ad.share(np.empty(0), copy=False).how == ()


def test_copy_of_a_memory_file():
    column, memory = shared_array(np.arange(3))
    found = ad.attach(ad.share(column, copy=True))
    memory[0] = 9
    assert found.to_pylist() == [0, 1, 2]


def test_received_memory_is_passed_on():
    first = ad.attach(ad.share(pa.record_batch({"a": [1, 2], "b": ["x", "y"]})))
    second = ad.share(first, copy=False)
    assert second.how == ("memory file",)
    out = run("print(ad.attach(sys.argv[1]).to_pylist())", second)
    assert eval(out) == first.to_pylist()


def test_memory_is_read_only():
    column, memory = shared_array(np.arange(3))
    assert ad.tensor(ad.attach(ad.share(column))).readonly
    assert ad.attach(ad.share(memory)).readonly
    shared = ad.share(memory, writable=True)
    with pytest.raises(ad.ExchangeError, match="read-only here") as info:
        ad.share(ad.attach(ad.share(column)), writable=True)
    assert info.value.reason == "readonly" and "copy=True" in info.value.hint
    with process("x = np.from_dlpack(ad.attach(sys.argv[1])); x[1] = 7; print()", shared):
        assert memory.tolist() == [0, 7, 2]
    copied = ad.share(ad.attach(ad.share(memory)), writable=True, copy=True)
    assert not ad.attach(copied).readonly
    assert ad.tensor(ad.attach(ad.share(column, writable=True))).readonly  # as all of Arrow


def test_a_read_only_file_admits_no_writable_mapping():
    """Whatever the other process asks of the system."""
    message, files = exchange(ad.share(np.arange(3)))
    description = json.loads(message[1:])
    description[1] = True
    wanted = message[:1] + json.dumps(description).encode()
    with server(wanted, files) as text, pytest.raises(ad.ExchangeError, match="Permission denied"):
        ad.attach(text)
    assert os.fstat(files[0]).st_mode & 0o777 == 0o400
    os.close(files[0])


def test_memory_files_are_on_the_host():
    with software_device():
        with pytest.raises(ad.ExchangeError, match="only memory of the host") as info:
            ad.device("ext_dev:0").empty(4, shared=True)
        assert info.value.reason == "device"
        del info


def test_attached_memory_on_a_device():
    with software_device():
        found = ad.attach(ad.share(np.arange(3)), device="ext_dev:0")
        assert str(found.device) == "ext_dev:0" and found.to("cpu").tolist() == [0, 1, 2]
        del found


def test_empty():
    memory = ad.device("cpu").empty(10, shared=True)
    assert bytes(memory) == bytes(10) and not memory.readonly
    assert ad.device("cpu").empty(0, shared=True).nbytes == 0
    for wrong in (1, None, "yes"):
        with pytest.raises(TypeError, match="shared"):
            ad.device("cpu").empty(1, shared=wrong)


def test_many_columns():
    """The description does not fit into one message."""
    batch = ad.record_batch({f"column {i}": np.arange(3) + i for i in range(2000)})
    assert ad.attach(ad.share(batch)).equals(batch)


def test_more_files_than_a_message_holds():
    columns = {str(i): shared_array(np.arange(3) + i)[0] for i in range(260)}
    batch = ad.record_batch(columns)
    shared = ad.share(batch)
    assert shared.how == ("copied into a memory file",)
    assert ad.attach(shared).equals(batch)
    with pytest.raises(ad.ExchangeError, match="260 memory files") as info:
        ad.share(batch, copy=False)
    assert info.value.reason == "copy"


# --- the handle --------------------------------------------------------------------------------


def test_text():
    shared = ad.share(np.arange(3))
    assert pickle.loads(pickle.dumps(shared)) == str(shared)
    assert "open, connections: 0" in repr(shared)
    found = ad.attach(shared)
    assert "open, connections: 1" in repr(shared)
    shared.close()
    shared.close()
    assert "closed" in repr(shared)
    assert found.tolist() == [0, 1, 2]


@pytest.mark.parametrize("end", ["close", "with", "delete", "uses"])
def test_end_of_a_handle(end):
    shared = ad.share(np.arange(3), uses=2 if end == "uses" else None)
    text = str(shared)
    found = [ad.attach(text), ad.attach(text)]
    if end == "close":
        shared.close()
    elif end == "with":
        with shared:
            pass
    elif end == "delete":
        del shared
    with pytest.raises(ad.ExchangeError, match="nothing is shared under this text") as info:
        ad.attach(text)
    assert info.value.reason == "share"
    assert [each.tolist() for each in found] == [[0, 1, 2]] * 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"uses": 0}, ValueError),
        ({"uses": 2**63}, ValueError),
        ({"uses": True}, TypeError),
        ({"uses": "one"}, TypeError),
    ],
)
def test_wrong_arguments(arguments, error):
    with pytest.raises(error, match="uses"):
        ad.share(np.arange(3), **arguments)


def test_what_cannot_be_shared():
    with pytest.raises(TypeError, match="protocol"):
        ad.share(object())
    with pytest.raises(TypeError, match="must be a bool"):
        ad.sharing(1)


# --- what attach() refuses ---------------------------------------------------------------------


def changed(text, **parts):
    names = ("prefix", "network", "name", "token")
    return "-".join(parts.get(n, old) for n, old in zip(names, text.split("-"), strict=True))


def test_texts_that_are_refused():
    text = str(ad.share(np.arange(3)))
    for wrong in (
        "",
        "abc",
        text[:-1],
        text + "0",
        changed(text, prefix="arrowdev9"),
        changed(text, name="../../etc/passwd"),
        changed(text, name="0" * 15 + "g"),
        changed(text, token="z" * 32),
        text[:-2] + "  ",
        "é" * 60,
    ):
        with pytest.raises(ValueError, match=r"is not a text of arrowdev\.share"):
            ad.attach(wrong)
    for wrong in (b"abc", None, 5, np.arange(3)):
        with pytest.raises(TypeError, match="the text of a Shared"):
            ad.attach(wrong)


@pytest.mark.parametrize(
    ("part", "value", "text"),
    [
        ("network", "0" * 8, "another machine"),
        ("name", "0" * 16, "has ended"),
        ("token", "0" * 32, "nothing is shared"),
    ],
)
def test_text_of_nothing(part, value, text):
    shared = ad.share(np.arange(3))
    with pytest.raises(ad.ExchangeError, match=text) as info:
        ad.attach(changed(str(shared), **{part: value}))
    assert info.value.reason == "share" and info.value.hint


def test_process_that_has_ended():
    text = run("print(ad.share(np.arange(3)))").decode().strip()
    with pytest.raises(ad.ExchangeError, match="has ended"):
        ad.attach(text)


def test_attempt_that_was_not_answered_does_not_count():
    code = "s = ad.share(np.arange(3), uses=1); print(s)"
    with process(code) as child:
        name, token = _share._parsed(child.line)
        stop(child)
        with _share._connected(name) as connection:
            connection.send(token)
        child.send_signal(signal.SIGCONT)
        assert ad.attach(child.line).tolist() == [0, 1, 2]
        with pytest.raises(ad.ExchangeError, match="nothing is shared"):
            ad.attach(child.line)


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_attempt_that_ends_after_the_answer_does_not_count(stream, reads):
    """The process ends before it has read the answer, or before it has attached."""
    values = np.arange(3)
    shared = ad.share(ad.array_stream([values]) if stream else values, uses=1)
    name, token = _share._parsed(str(shared))
    with _share._connected(name) as connection:
        connection.send(token)
        connection.recv(1, socket.MSG_PEEK)
        if reads:
            for file in socket.recv_fds(connection, 100_000, 253)[1]:
                os.close(file)
        with pytest.raises(ad.ExchangeError, match="by attempts that are under way"):
            ad.attach(shared)
        assert "open" in repr(shared)
    found = ad.attach(shared)
    found = next(found) if stream else ad.array(found)
    assert found.to_pylist() == [0, 1, 2]
    with pytest.raises(ad.ExchangeError, match="nothing is shared"):
        ad.attach(shared)
    wait_until(lambda: "closed" in repr(shared))


def test_failed_attempt_does_not_count(monkeypatch):
    shared = ad.share(np.arange(3), uses=1)
    with monkeypatch.context() as patch:
        patch.setattr(_core, "_map_file", lambda *_: os.stat("/nothing"))
        with pytest.raises(ad.ExchangeError, match="a mapping of what was shared failed"):
            ad.attach(shared)
    assert ad.attach(shared).tolist() == [0, 1, 2]


def test_attempt_that_cannot_copy_does_not_count():
    shared = ad.share(np.arange(3), uses=1)
    with pytest.raises(ValueError, match="unknown device"):
        ad.attach(shared, device="nowhere")
    with pytest.raises(ad.ExchangeError, match="no runtime") as kept:
        ad.attach(shared, device=(27, 0))
    assert ad.attach(shared, device="cpu").tolist() == [0, 1, 2], kept
    with pytest.raises(ad.ExchangeError, match="nothing is shared"):
        ad.attach(shared)


def test_attempts_that_end_after_a_close():
    """Neither an attempt that fails nor one that succeeds opens or keeps anything."""
    before = descriptors()
    for attached in (b"", _share._ATTACHED, _share._ATTACHED * 2, b"?"):
        shared = ad.share(np.arange(3), uses=1)
        name, token = _share._parsed(str(shared))
        with _share._connected(name) as connection:
            connection.send(token)
            connection.recv(1, socket.MSG_PEEK)
            shared.close()
            if attached:
                connection.send(attached)
        wait_until(lambda shared=shared: connections(shared) == 0)
        with pytest.raises(ad.ExchangeError, match="nothing is shared"):
            ad.attach(shared)
        del shared
    wait_until(lambda: descriptors() <= before)


def test_process_that_ends_while_it_is_told_of_the_use():
    batch, message, files = sound_message()
    with server(bytes([_share._ANSWER_COUNTED]) + message[1:], files) as text:
        assert ad.attach(text).equals(batch)
    for file in files:
        os.close(file)


def test_system_that_sends_no_more(monkeypatch):
    monkeypatch.setattr(_share, "_answer", lambda *_: (bytes([_share._ANSWER_BUSY]), None, 0, 0))
    with pytest.raises(ad.ExchangeError, match="on their way") as info:
        ad.attach(ad.share(b"abc"))
    assert info.value.reason == "share" and info.value.hint == "attach again"


def test_system_without_proc_cannot_attach(monkeypatch):
    shared = ad.share(b"abc")

    def fail(pid):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(_share, "_network_of", fail)
    with pytest.raises(ad.ExchangeError, match="what machine this is") as info:
        ad.attach(str(shared))
    assert info.value.reason == "share" and "/proc" in info.value.hint


def test_stream_without_a_device():
    with pytest.raises(TypeError, match="pass device="):
        ad.attach(ad.share(b"abc"), stream=1)


def test_process_that_is_stopped(monkeypatch):
    monkeypatch.setattr(_share, "_TIMEOUT", 0.3)
    with process("s = ad.share(np.arange(3)); print(s)") as child:
        stop(child)
        with pytest.raises(ad.ExchangeError, match=r"does not answer within 0\.3 seconds"):
            ad.attach(child.line)
        child.send_signal(signal.SIGCONT)
        monkeypatch.setattr(_share, "_TIMEOUT", 5.0)
        assert ad.attach(child.line).tolist() == [0, 1, 2]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user():
    shared = ad.share(np.arange(3))
    with process("print(ad.share(np.arange(3)))") as child:
        child_text = child.line
        pid = os.fork()
        if pid == 0:
            status = 9
            with contextlib.suppress(BaseException):
                os.setuid(65534)
                status = 0
                for text in (str(shared), child_text):
                    try:
                        ad.attach(text)
                        status = 1
                    except ad.ExchangeError:
                        pass
            os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
    assert ad.attach(shared).tolist() == [0, 1, 2]


# --- hostile peers -----------------------------------------------------------------------------


def exchange(shared, token=None):
    """What the server answers, and the descriptors."""
    name, ours = _share._parsed(str(shared))
    with _share._connected(name) as connection:
        connection.send(ours if token is None else token)
        message, files, _, _ = socket.recv_fds(connection, 100_000, 253)
    return message, files


@contextlib.contextmanager
def server(message, files):
    """A text whose server answers with these."""
    name = f"{random.getrandbits(64):016x}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind("\0arrowdev" + name)
        listening.listen(1)

        def serve():
            connection, _ = listening.accept()
            with connection:
                connection.recv(100)
                socket.send_fds(connection, [message], files)

        thread = threading.Thread(target=serve)
        thread.start()
        text = "-".join((_share._PREFIX, _share._network_of(os.getpid()), name, "0" * 32))
        yield text
        thread.join()


def sound_message():
    batch = pa.record_batch(
        {"a": [1, None, 3], "b": ["x", "yy", None], "c": pa.array([[1], [], None])}
    ).replace_schema_metadata({"k": "v"})
    message, files = exchange(ad.share(batch))
    return batch, message, files


def mutated(generator, value):
    """The same JSON with one part changed."""
    paths = [()]

    def walk(x, path):
        for i, part in enumerate(x if isinstance(x, list) else ()):
            paths.append((*path, i))
            walk(part, (*path, i))

    walk(value, ())
    copy = json.loads(json.dumps(value))
    path = generator.choice(paths[1:])
    at = copy
    for i in path[:-1]:
        at = at[i]
    old = at[path[-1]]
    choices = [None, -1, 0, 1, 7, 2**31, 2**62, 2**63, 1e300, True, "", "x", [], [[]], {}, [0] * 3]
    if isinstance(old, int):
        choices += [old + 1, old - 1, old * 2, -old]
    if isinstance(old, list) and old:
        choices += [old[:-1], old + old]
    at[path[-1]] = generator.choice(choices)
    if isinstance(old, str) and old[:1] == "[":
        at[path[-1]] = json.dumps(mutated(generator, json.loads(old)))
    return copy


@pytest.mark.parametrize("seed", range(4))
def test_damaged_descriptions(seed):
    """They are refused, or describe an array of which each value can be read."""
    generator = random.Random(seed)
    _, message, files = sound_message()
    n_refused = 0
    reasons = set()
    for _ in range(100):
        text = json.dumps(mutated(generator, json.loads(message[1:])))
        try:
            with server(message[:1] + text.encode(), files) as where:
                found = ad.attach(where)
        except (ad.ExchangeError, MemoryError) as error:
            n_refused += 1
            reasons.add(getattr(error, "reason", "memory"))
        else:
            with contextlib.suppress(ad.InvalidArrowError):  # a wrong null count, for instance
                ad.validate(found, level="full")
                found.to_pylist()
    assert n_refused > 30 and reasons <= {"share", "memory"}
    for file in files:
        os.close(file)


@pytest.mark.parametrize(
    "message",
    [
        b"\x07",
        b"\x01",
        b"\x01{",
        b"\x01[]",
        b"\x01\xff\xfe",
        b"\x01" + b"[" * 20_000,
        b"\x015",
    ],
)
def test_damaged_messages(message):
    gc.collect()
    before = descriptors()
    with server(message, []) as text, pytest.raises(ad.ExchangeError) as info:
        ad.attach(text)
    assert info.value.reason == "share" and "is damaged" in str(info.value)
    del info
    gc.collect()
    wait_until(lambda: descriptors() <= before)  # the end of an earlier test may take some away


@pytest.mark.parametrize("size", ["x", None, 1.5, [1], 2**70, -1, 1e300])
def test_damaged_sizes(size):
    _, message, files = sound_message()
    description = json.loads(message[1:])
    description[2] = [size]
    before = descriptors()
    with server(b"\x01" + json.dumps(description).encode(), files) as text:
        with pytest.raises(ad.ExchangeError) as info:
            ad.attach(text)
    assert info.value.reason == "share"
    del info
    gc.collect()
    wait_until(lambda: descriptors() <= before)
    for file in files:
        os.close(file)


def test_server_that_says_nothing():
    with server(b"", []) as text, pytest.raises(ad.ExchangeError, match="let the connection go"):
        ad.attach(text)


def test_truncated_messages():
    batch, message, files = sound_message()
    with server(message, files) as text:
        assert ad.attach(text).equals(batch)
    for n in range(1, len(message), 7):
        with server(message[:n], files) as text, pytest.raises(ad.ExchangeError, match="damaged"):
            ad.attach(text)
    for wrong in ([], files * 2):
        with server(message, wrong) as text, pytest.raises(ad.ExchangeError, match="damaged"):
            ad.attach(text)
    for file in files:
        os.close(file)


def test_files_that_could_shrink():
    """A read of what is gone would end the process."""
    _, message, files = sound_message()
    size = os.fstat(files[0]).st_size
    unsealed = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, size)
    small = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    seals = 2 | 4  # F_SEAL_SHRINK, F_SEAL_GROW
    fcntl.fcntl(small, 1033, seals)  # F_ADD_SEALS
    pipe = os.pipe()
    for wrong, text in (
        (unsealed, "made smaller"),
        (small, "smaller than its description"),
        (pipe[0], "made smaller"),
    ):
        with server(message, [wrong]) as where, pytest.raises(ad.ExchangeError, match=text):
            ad.attach(where)
    for file in (*files, unsealed, small, *pipe):
        os.close(file)


def test_server_that_meets_strangers():
    shared = ad.share(np.arange(3))
    name, token = _share._parsed(str(shared))
    kept = []
    for data in (None, b"", b"x", token[:-1], token + b"x", bytes(16), b"x" * 10_000):
        connection = _share._connected(name)
        if data is not None:
            connection.send(data)
        kept.append(connection)
    late = _share._connected(name)
    late.send(token)
    late.send(b"more")
    assert ad.attach(shared).tolist() == [0, 1, 2]
    for connection in (*kept, late):
        connection.close()
    wait_until(lambda: connections(shared) == 0)
    assert ad.attach(shared).tolist() == [0, 1, 2]


def test_connections_without_a_token_are_dropped():
    shared = ad.share(np.arange(3))
    name, _ = _share._parsed(str(shared))
    silent = [_share._connected(name) for _ in range(5)]
    for connection in silent:
        connection.settimeout(20)
        assert connection.recv(1) == b""
        connection.close()
    assert ad.attach(shared).tolist() == [0, 1, 2]


def test_interrupted_attaches():
    class Interruption(BaseException):
        pass

    def interrupt(*_):
        raise Interruption

    shared = ad.share(np.arange(3))
    gc.collect()
    before = descriptors()
    handler = signal.signal(signal.SIGALRM, interrupt)
    generator = random.Random(0)
    try:
        for _ in range(300):
            with contextlib.suppress(Interruption):
                signal.setitimer(signal.ITIMER_REAL, generator.uniform(1e-5, 4e-4))
                ad.attach(shared)
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    gc.collect()
    wait_until(lambda: connections(shared) == 0)
    assert descriptors() - before <= 2  # a socket just made, a stream's


# --- lifetime ----------------------------------------------------------------------------------


def owned():
    """An array in a memory file, and a weak reference to what owns it."""

    class Owned(np.ndarray):
        pass

    memory = ad.device("cpu").empty(24, shared=True)
    view = np.frombuffer(memory, "i8").view(Owned)
    return weakref.ref(view), ad.array(view)


def test_owner_stays_as_long_as_a_connection():
    alive, column = owned()
    shared = ad.share(column)
    del column
    with process("x = ad.attach(sys.argv[1]); print()", str(shared)) as child:
        shared.close()
        del shared
        gc.collect()
        assert alive() is not None
        child.stdin.close()
        child.wait()
        wait_until(lambda: is_gone(alive))


def test_owner_is_released_when_the_other_process_is_killed():
    alive, column = owned()
    shared = ad.share(column)
    with process("x = ad.attach(sys.argv[1]); print()", str(shared)) as child:
        assert connections(shared) == 1
        child.kill()
        while connections(shared):
            time.sleep(0.01)
    del column, shared
    wait_until(lambda: is_gone(alive))


def test_memory_outlives_its_process():
    with process("s = ad.share(np.arange(1000)); print(s)") as child:
        found = ad.attach(child.line)
        child.kill()
        child.wait()
        assert found.tolist() == list(range(1000))
        assert ad.attach(ad.share(found, copy=False)).tolist() == list(range(1000))


def test_views_keep_the_connection():
    shared = ad.share(pa.record_batch({"a": [1, 2], "b": ["x", "y"]}))
    batch = ad.attach(shared)
    column = np.asarray(ad.tensor(batch["a"]))
    del batch
    gc.collect()
    assert connections(shared) == 1
    del column
    gc.collect()
    wait_until(lambda: connections(shared) == 0)


def test_nothing_leaks():
    def once():
        column, _ = shared_array(np.arange(100))
        batch = ad.record_batch({"a": column, "b": np.arange(100.0)})
        with ad.share(batch) as shared:
            found = ad.attach(shared)
            assert found["a"][99] == 99
            with contextlib.suppress(ad.ExchangeError):
                ad.attach(changed(str(shared), token="0" * 32))
            del found
            wait_until(lambda: connections(shared) == 0)

    once()
    gc.collect()
    before = descriptors(), mappings()
    for _ in range(100):
        once()
    gc.collect()
    wait_until(lambda: descriptors() <= before[0] and mappings() <= before[1])


def test_producers_that_are_killed():
    code = "s = ad.share(np.arange(1000)); print(s)"
    before = descriptors()
    for i in range(5):
        with process(code) as child:
            found = [ad.attach(child.line) for _ in range(3)]
            if i % 2:
                child.kill()
                child.wait()
                with pytest.raises(ad.ExchangeError, match="has ended"):
                    ad.attach(child.line)
            assert all(each.tolist()[999] == 999 for each in found)
        del found
    gc.collect()
    wait_until(lambda: descriptors() <= before)


@pytest.mark.parametrize("n", [50, pytest.param(1250, marks=pytest.mark.slow)])
def test_many_at_once(n):
    batch = ad.record_batch({"a": np.arange(100), "b": np.arange(100.0)})
    shared = ad.share(batch)
    wrong = []

    def attach():
        for _ in range(n):
            if not ad.attach(shared).equals(batch):
                wrong.append(1)

    threads = [threading.Thread(target=attach) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    wait_until(lambda: connections(shared) == 0)


def test_fork():
    column, memory = shared_array(np.arange(3))
    shared = ad.share(column)
    found = ad.attach(shared)
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(BaseException):
            ours = ad.share(ad.attach(shared), copy=False)
            good = ad.attach(ours).to_pylist() == found.to_pylist() == [0, 1, 2]
            shared.close()  # the child's, which nobody can attach to
            status = 0 if good and not ad._core._published_state(shared._published)[0] else 2
        os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    memory[0] = 5
    assert ad.attach(shared).to_pylist() == [5, 1, 2]


def test_child_gives_up_what_the_parent_shares():
    """A second child is there while the connection of the first one ends."""
    shared = ad.share(np.arange(3))
    found = ad.attach(shared)
    code = "x = ad.attach(sys.argv[1]); print()"
    for _ in range(3):
        with process(code, str(shared)) as child:
            ready, ended = os.pipe(), os.pipe()
            pid = os.fork()
            if pid == 0:
                n = descriptors()
                os.write(ready[1], str(n).encode())
                os.read(ended[0], 1)
                os._exit(0)
            os.read(ready[0], 10)
            child.kill()
            child.wait()
            wait_until(lambda: connections(shared) == 1)
            assert ad.attach(shared).tolist() == [0, 1, 2]
            os.write(ended[1], b"x")
            assert os.waitpid(pid, 0)[1] == 0
        for end in (*ready, *ended):
            os.close(end)
    assert found.tolist() == [0, 1, 2]


def test_stream_ends_with_its_consumer_while_a_child_lives():
    released = []
    stream = ad.array_stream(batches(9, released), schema=next(batches()).schema)
    shared = ad.share(stream)
    ended = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(ended[0], 1)
        os._exit(0)
    found = ad.attach(shared)
    next(found)
    del found
    gc.collect()
    wait_until(lambda: released == [1])
    os.write(ended[1], b"x")
    os.waitpid(pid, 0)


def test_release_waits_for_the_gil_elsewhere():
    """Others can attach meanwhile."""
    code = (
        "import re\n"
        "memory = ad.device('cpu').empty(100, shared=True)\n"
        "a, b = ad.share(memory), ad.share(b'other')\n"
        "print(a, b); sys.stdout.flush(); sys.stdin.readline()\n"
        "a.close(); del a, memory\n"
        "print('busy'); sys.stdout.flush()\n"
        "re.match(r'(a+)+$', 'a' * 29 + 'b')\n"
    )
    with process(code) as child:
        first, second = child.line.split()
        found = ad.attach(first)
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"busy\n"
        del found
        gc.collect()
        time.sleep(0.05)
        started = time.monotonic()
        assert bytes(ad.attach(second)) == b"other"
        assert time.monotonic() - started < 4


def test_end_of_a_process():
    """While it shares, is attached, or both; also with a thread that attaches."""
    shared = ad.share(np.arange(3))
    run(
        "import threading\n"
        "s = [ad.share(np.arange(3)) for _ in range(3)]\n"
        "x = [ad.attach(sys.argv[1]), ad.attach(s[0])]\n"
        "def go():\n"
        "    while True: ad.attach(sys.argv[1])\n"
        "threading.Thread(target=go, daemon=True).start()\n",
        shared,
    )
    wait_until(lambda: connections(shared) == 0)


# --- streams -----------------------------------------------------------------------------------


def batches(n=3, released=None):
    try:
        for i in range(n):
            yield ad.record_batch({"a": np.arange(3) + i, "b": pa.array(["x", None, "y"])})
    finally:
        if released is not None:
            released.append(1)


def test_stream():
    source = ad.array_stream(batches())
    shared = ad.share(source)
    assert shared.how == ("batch by batch",) and "handed over" in repr(source)
    out = run("for x in ad.attach(sys.argv[1]): print(x.to_pylist())", shared)
    assert [eval(line) for line in out.splitlines()] == [x.to_pylist() for x in batches()]
    with pytest.raises(ad.ExchangeError, match="nothing is shared"):
        ad.attach(shared)


def test_stream_without_batches():
    schema = ad.schema({"a": "int64"})
    found = ad.attach(ad.share(ad.array_stream(iter(()), schema=schema)))
    assert found.schema == schema and list(found) == []


def test_stream_of_memory_files():
    columns = [shared_array(np.arange(3) + i) for i in range(3)]
    found = ad.attach(ad.share(ad.array_stream([each for each, _ in columns]), copy=False))
    first = next(found)
    columns[0][1][0] = 9
    assert first.to_pylist() == [9, 1, 2]
    assert [each.to_pylist() for each in found] == [[1, 2, 3], [2, 3, 4]]


def test_stream_of_a_wide_schema():
    batch = ad.record_batch({f"column {i}": np.arange(2) for i in range(2000)})
    (found,) = ad.attach(ad.share(ad.array_stream([batch])))
    assert found.equals(batch)


def test_stream_that_fails():
    def source():
        yield np.array([1])
        raise ValueError("it broke")

    found = ad.attach(ad.share(ad.array_stream(source())))
    assert next(found).to_pylist() == [1]
    for _ in range(2):
        with pytest.raises(ad.ExchangeError, match="it broke") as info:
            next(found)
        assert info.value.reason == "share"


def test_stream_that_needs_a_copy_that_was_ruled_out():
    found = ad.attach(ad.share(ad.array_stream([np.arange(3)]), copy=False))
    with pytest.raises(ad.ExchangeError, match="24 bytes would have to be copied"):
        next(found)


@pytest.mark.parametrize("end", ["close", "delete", "kill", "nobody"])
def test_end_of_a_consumer_releases_the_stream(end):
    released = []
    shared = ad.share(ad.array_stream(batches(100, released), schema=next(batches()).schema))
    if end == "nobody":
        del shared
    elif end == "kill":
        code = "s = ad.attach(sys.argv[1]); next(s); print()"
        with process(code, shared) as child:
            child.kill()
    else:
        found = ad.attach(shared)
        next(found)
        if end == "close":
            found.close()
        del found
    gc.collect()
    wait_until(lambda: not _share._serving)
    assert released == [1] or end == "nobody"  # a generator that never ran


@pytest.mark.parametrize("has_child", [False, True])
def test_end_of_a_producer(has_child):
    code = "s = ad.share(ad.array_stream(np.arange(3) for _ in range(9))); print(s)"
    if has_child:
        code += "\nif os.fork() == 0:\n    import time; time.sleep(20); os._exit(0)"
    with process(code) as child:
        found = ad.attach(child.line)
        first = next(found)
        child.kill()
        child.wait()
        started = time.monotonic()
        with pytest.raises(ad.ExchangeError, match="has ended before the stream"):
            for _ in range(3):
                next(found)
        assert time.monotonic() - started < 15 and first.to_pylist() == [0, 1, 2]


def test_streams_that_are_refused():
    with pytest.raises(ValueError, match="attached to once"):
        ad.share(ad.array_stream([np.arange(3)]), uses=2)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_stream_that_fails_with_a_long_message(n):
    """A character is not cut in two where the message ends."""

    def batches():
        yield np.arange(3)
        raise ValueError("a" * n + "漢" * 1900 + "\ud800")

    found = ad.attach(ad.share(ad.array_stream(batches())))
    next(found)
    with pytest.raises(ad.ExchangeError, match="ValueError: a"):
        next(found)


def test_stream_stays_if_it_cannot_be_shared(monkeypatch):
    def fail(*arguments):
        raise ad.ExchangeError("no")

    stream = ad.array_stream([np.arange(3)])
    monkeypatch.setattr(_share, "_published", fail)
    before = descriptors()
    with pytest.raises(ad.ExchangeError):
        ad.share(stream)
    assert descriptors() <= before and next(stream).to_pylist() == [0, 1, 2]


def test_stream_is_not_subject_to_the_default_timeout():
    socket.setdefaulttimeout(0.05)
    try:
        shared = ad.share(ad.array_stream([np.arange(3)]))
        time.sleep(0.2)
        assert len(list(ad.attach(shared))) == 1
    finally:
        socket.setdefaulttimeout(None)


@pytest.mark.parametrize("device_type", [None, 99, True, "1", -1])
def test_stream_of_no_device(device_type):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    schema = _share._schema_text(ad.schema("int8"))
    description = ["ArrayStream", False, [], schema, [], [], device_type]
    with ours, theirs:
        shared = _share._published(description, [theirs.fileno()], None, None, ())
        with pytest.raises(ad.ExchangeError, match="damaged"):
            ad.attach(shared)


def test_stream_without_a_socket():
    schema = _share._schema_text(ad.schema("int8"))
    description = ["ArrayStream", False, [], schema, [], [], 1]
    with open("/dev/null", "rb") as file:
        shared = _share._published(description, [file.fileno()], None, None, ())
        before = descriptors()
        for _ in range(5):
            with pytest.raises(ad.ExchangeError, match="damaged"):
                ad.attach(shared)
        wait_until(lambda: descriptors() <= before)


# --- full tables of descriptors ----------------------------------------------------------------


FILL = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
def fill():
    files = []
    try:
        while True: files.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return files
"""


def test_producer_without_descriptors():
    code = FILL + (
        "s = ad.share(np.arange(3)); files = fill()\n"
        "print(s)\nsys.stdout.flush()\nsys.stdin.readline()\n"
        "for file in files: os.close(file)\nprint()"
    )
    with process(code) as child:
        for _ in range(3):
            with pytest.raises(ad.ExchangeError, match="no file descriptor left") as info:
                ad.attach(child.line)
            assert "ulimit" in info.value.hint
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        assert ad.attach(child.line).tolist() == [0, 1, 2]


def test_consumer_without_descriptors():
    shared = ad.share(np.arange(3))
    code = FILL + (
        "ad.attach(sys.argv[1])\nfiles = fill()\n"
        "for n in range(4):\n"
        "    try: print(ad.attach(sys.argv[1]).tolist())\n"
        "    except ad.ExchangeError as error: print(error.reason, 'ulimit' in error.hint)\n"
        "    os.close(files.pop())\n"
        "for _ in range(2): os.close(files.pop())\n"
        "print(ad.attach(sys.argv[1]).tolist())\n"
        "try:\n    fill(); ad.device('cpu').empty(5, shared=True)\n"
        "except ad.ExchangeError as error: print(error.reason, 'ulimit' in error.hint)\n"
    )
    lines = run(code, shared).decode().splitlines()
    assert lines[0] == "share True" and set(lines[1:4]) <= {"share True", "[0, 1, 2]"}
    assert lines[4:] == ["[0, 1, 2]", "share True"]


# --- pickles -----------------------------------------------------------------------------------


def test_pickles_hold_the_text():
    batch = ad.record_batch({"a": np.arange(100_000), "b": pa.array(["x"] * 100_000)})
    with ad.sharing():
        data = pickle.dumps([batch, ad.tensor(np.arange(3))])
        with ad.sharing(False):
            assert len(pickle.dumps(batch)) > 800_000
        assert len(pickle.dumps(batch)) < 300
    assert len(data) < 500 and len(pickle.dumps(batch)) > 800_000
    found, tensor = pickle.loads(data)
    assert found.equals(batch) and tensor.tolist() == [0, 1, 2]
    with pytest.raises(ad.ExchangeError, match="nothing is shared"):
        pickle.loads(data)
    assert pickle.loads(pickle.dumps(batch.schema)) == batch.schema


def test_pickles_that_were_loaded_keep_nothing():
    _share._waiting.clear()
    with ad.sharing():
        for _ in range(50):
            assert pickle.loads(pickle.dumps(ad.array(np.arange(3)))).to_pylist() == [0, 1, 2]
            assert len(_share._waiting) < 20
    _share._waiting.clear()


def test_blocks_end_in_any_order():
    is_on = lambda: _pickle.share_once is not None  # noqa: E731
    first, second = ad.sharing(), ad.sharing()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert is_on()
    second.__exit__(None, None, None)
    assert not is_on()
    for _ in range(3):
        ad.sharing(True)
    assert is_on() and len(_share._switches) == 1
    with ad.sharing(False):
        assert not is_on()
    ad.sharing(False)
    assert not is_on()


def test_pickles_of_several_threads():
    lost = []

    def pickled():
        for _ in range(50):
            try:
                lost.append(pickle.loads(pickle.dumps(ad.array(np.arange(3)))) is None)
            except ad.ExchangeError:
                lost.append(True)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ad.sharing():
            threads = [threading.Thread(target=pickled) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert lost == [False] * 200


def total(batch):
    return ad.tensor(batch["a"]).tolist()[-1], batch["a"].buffers[1].readonly


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_multiprocessing(method):
    batches = [ad.record_batch({"a": np.arange(1000) + i}) for i in range(4)]
    with ad.sharing(), multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(total, batches) == [(999 + i, True) for i in range(4)]


def made(n):
    return ad.array(np.arange(n))


def test_forked_worker_does_not_share():
    """What it returns would end with it."""
    with ad.sharing(), multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        results = pool.map_async(made, range(3), chunksize=1).get(timeout=30)
        assert [len(array) for array in results] == [0, 1, 2]
        assert len(pickle.dumps(made(10_000))) < 300  # still on here
