"""Arrays in other processes of this machine: share() and attach().

`import arrowdev` imports this module, and what takes long to import only its functions do. The
core has memory files, and a thread that hands their descriptors to processes of the same
user that know a token. Here is what goes with them: the description of an array, as a pickle has
it, in JSON, which runs no code when it is read.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import functools
import os
import struct
import threading
import time
import zlib

from arrowdev import _core, _trace
from arrowdev._core import Array, ArrayStream, Buffer, DeviceType, InvalidArrowError, Tensor
from arrowdev._errors import described, exchange_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from typing import Any

    from typing_extensions import CapsuleType, Self

    from arrowdev._core import Device, ExchangeError, Schema
    from arrowdev._user_files import Mappings

# The first word of a text, with the version of texts, messages and descriptions.
_PREFIX = "arrowdev1"
_TIMEOUT = 5.0  # seconds, for an answer of the other process
_MAX_FILES = 250  # of one message, and that of a long description
_MAX_MESSAGE = 59_000  # bytes
_ANSWER_SENT, _ANSWER_UNKNOWN, _ANSWER_FULL, _ANSWER_BUSY, _ANSWER_COUNTED = 1, 2, 3, 4, 5
_ATTACHED = b"\1"  # what the server wants to hear if it counts uses
_READONLY = 1  # among the flags of a tensor's parts; the mapping says it here
_MAX_DESCRIPTION = 1 << 30  # bytes
_RELEASE = "release some of what was shared or attached, or raise the limit (ulimit -n)"
_MIN_LOOKUP = 4 << 20  # bytes: the copy takes four times as long as a look at /proc/self/maps


def _failed(message: str, hint: str) -> ExchangeError:
    return exchange_error(message, reason="share", hint=hint)


@functools.lru_cache(1)
def _network_of(pid: int) -> str:
    """A short name of what the sockets of this process reach: this machine, up to a reboot.

    A child may be in another network than the process that it was forked from.
    """
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read()
    network = os.stat("/proc/self/ns/net").st_ino
    return f"{zlib.crc32(f'{boot} {network}'.encode()):08x}"


# --- share() -------------------------------------------------------------------------------------


class Shared:
    """Memory that other processes of this machine can attach to. :func:`share` makes it.

    ``str(shared)`` is the text for :func:`attach`. Whoever has it can read the memory, if it is a
    process of the same user. The memory stays as long as a process uses it.

    Attributes
    ----------
    how : tuple of str
        How each allocation goes: "memory file", or "copied into a memory file"; memory of a GPU
        as "pool descriptor", "VMM descriptor" or "legacy IPC", after "copied on the device, " if
        it was copied; a stream goes "batch by batch".
    """

    __slots__ = ("__weakref__", "_published", "_text", "how")

    def __init__(self, published: CapsuleType, text: str, how: tuple[str, ...]) -> None:
        self._published = published
        self._text = text
        self.how = how

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        is_open, users = _core._published_state(self._published)
        state = "open" if is_open else "closed"
        return f"<arrowdev.Shared, {state}, connections: {users}>"

    def close(self) -> None:
        """Let nobody else attach. Who has attached goes on, and so does the memory."""
        _core._unpublish(self._published)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (self._text,)


def share(
    x: Any, *, uses: int | None = None, writable: bool = False, copy: bool | None = None
) -> Shared:
    """Let other processes of this machine use the memory of an array.

    Memory of ``Device.empty(..., shared=True)``, and of what :func:`attach` returned, goes
    without a copy; so does memory in a shared mapping of what ``memfd_create`` made, if it can be
    sealed against shrinking. All other memory of the host is copied once, into a memory file.
    Memory of a device stays where it is, and an event goes with it if work on it is pending.

    Parameters
    ----------
    x : object
        Whatever ``array()`` or ``tensor()`` takes; or an ArrayStream, which is handed over: a
        thread reads it as fast as the other process asks for batches.
    uses : int, optional
        How many times the memory can be attached to. By default any number of times, and once
        for a stream. An attempt that fails in the other process, because it has no descriptor
        left, cannot copy to `device` or ends, does not count; while it is under way, it does.
    writable : bool, default False
        Whether those who attach may write to the memory.
    copy : bool, optional
        False: never copy. True: always, so that later changes of `x` are not seen; memory of a
        device is copied on the device.

    Returns
    -------
    Shared
        Keep it until the others have attached.

    Raises
    ------
    ExchangeError
        The memory is of a kind, or on a device, that no other process can open; needs a copy that
        was ruled out; is read-only here, and `writable` is true; or descriptors have run out.
    TypeError
        `x` has no protocol.
    ValueError
        `uses` is less than 1, or more than 1 for a stream.

    Examples
    --------
    >>> shared = ad.share(b"abc")
    >>> bytes(ad.attach(str(shared)))
    b'abc'
    """
    if uses is not None and (isinstance(uses, bool) or not isinstance(uses, int)):
        raise TypeError(f"uses must be an int or None, not {type(uses).__name__}")
    if uses is not None and not 1 <= uses < 2**63:
        raise ValueError(f"uses must be at least 1, not {uses}")
    start = time.monotonic_ns()
    shared = _shared(x, uses, writable, copy)
    _record("share", "export", start, str(shared), {"from": type(x), "how": shared.how})
    return shared


def _shared(x: Any, uses: int | None, writable: bool, copy: bool | None) -> Shared:
    if isinstance(x, ArrayStream):
        return _share_stream(x, uses, writable, copy)
    value = _importable(x)
    if value.device_type != DeviceType.CPU:
        return _share_on_device(value, uses, writable, copy)
    schema, numbers, buffers = _parts(value)
    files, sizes, rows, how = _files_of(buffers, writable, copy)
    keep = value if "memory file" in how else None
    description = [type(value).__name__, bool(writable), sizes, schema, numbers, rows, None]
    return _published(description, files, keep, uses, how)


def _record(name: str, category: str, start: int, text: str, about: dict[str, Any]) -> None:
    """Put the call of a user into the trace, if one is on. `shared` is equal at both ends."""
    recorder = _trace.current()
    if recorder is not None:
        shared = f"{zlib.crc32(text.encode()):08x}"  # the text is a secret
        recorder.exchange(name, category, start, {**about, "shared": shared})


def _published(
    description: list[Any],
    files: list[Buffer | CapsuleType | int],
    keep: object,
    uses: int | None,
    how: tuple[str, ...],
) -> Shared:
    """files: a Buffer in each memory file, a capsule with a descriptor, or a descriptor."""
    import json

    message = json.dumps(description, separators=(",", ":")).encode("ascii")
    if len(message) > _MAX_MESSAGE:
        text = _core.device("cpu").empty(len(message), shared=True)
        memoryview(text)[:] = message
        files = [*files, text]
        message = json.dumps(len(message)).encode("ascii")
    try:
        network = _network_of(os.getpid())
        published, server, token = _core._publish(
            tuple(files), description[1], message, keep, -1 if uses is None else uses
        )
    except OSError as error:
        raise _failed_call("sharing", error) from error
    name = server[len("arrowdev") :]
    return Shared(published, "-".join((_PREFIX, network, name, token.hex())), how)


def _importable(x: Any) -> Any:
    """The Array, Tensor or Buffer of an object: a Tensor if it has dimensions."""
    if isinstance(x, (Array, Tensor, Buffer)):
        return x
    names = _core.protocols(x)
    if any("arrow" in name for name in names):
        return _core.array(x)
    try:
        return _core.tensor(x)
    except _core.ExchangeError:
        return _core.array(x)


def _parts(value: Any) -> tuple[str, list[Any], list[Buffer | None]]:
    """The type and the numbers of the description, and the memory."""
    parts = _core._parts(value)
    if isinstance(value, Array):
        schema, numbers, buffers = parts
        return _text_of(schema), list(numbers), list(buffers)
    dtype, shape, order, flags, buffer = parts
    return dtype, [shape, order, flags & ~_READONLY], [buffer]


def _schema_text(schema: Schema) -> str:
    return _text_of(_core._schema_parts(schema))


def _text_of(schema_parts: Any) -> str:
    import json

    return json.dumps(schema_parts, default=lambda data: bytes(data).decode("latin-1"))


def _files_of(
    buffers: list[Buffer | None], writable: bool, copy: bool | None
) -> tuple[list[Buffer | CapsuleType | int], list[int], list[Any], tuple[str, ...]]:
    """Where the buffers lie.

    A Buffer in each memory file; the sizes of these files; (file, offset, nbytes) of each buffer,
    None for one that is not there; how each file is made.
    """
    files: list[Buffer | CapsuleType | int] = []
    sizes: list[int] = []
    numbers: dict[int, int] = {}  # of the files, by address
    rows: list[Any] = [None] * len(buffers)
    others: list[tuple[int, Buffer]] = []
    lookup = _Lookup(writable, copy)
    for i, buffer in enumerate(buffers):
        if buffer is None:
            continue
        found = lookup.find(buffer) if buffer.nbytes and not copy else None
        if found is None:
            others.append((i, buffer))
            continue
        file, address, offset, nbytes, is_writable = found
        if writable:
            _require_writable(is_writable and not buffer.readonly)
        if address not in numbers:
            numbers[address] = len(files)
            files.append(file)
            sizes.append(nbytes)
        rows[i] = numbers[address], offset, buffer.nbytes
    if len(files) >= _MAX_FILES:
        if copy is False:
            raise exchange_error(
                f"the memory lies in {len(files)} memory files, and {_MAX_FILES - 1} go at a time",
                reason="copy",
                hint="put the columns into fewer files, or leave copy=False out",
            )
        return _files_of(buffers, writable, True)
    how = ("memory file",) * len(files)
    offset = 0
    for i, buffer in others:
        nbytes = buffer.nbytes or 0
        rows[i] = len(files), offset, nbytes
        offset += -(-nbytes // 64) * 64
    if offset:
        files.append(_copied([buffer for _, buffer in others], copy, lookup.reason))
        sizes.append(offset)
        how += ("copied into a memory file",)
    return files, sizes, rows, how


def _require_writable(is_writable: bool) -> None:
    if not is_writable:
        raise exchange_error(
            "the memory is read-only here, and others cannot be allowed to write to it",
            reason="readonly",
            hint="share a copy: copy=True",
        )


class _Lookup:
    """The memory files of buffers; `reason` is why one of the user's cannot be handed over."""

    def __init__(self, writable: bool, copy: bool | None) -> None:
        self.reason = "is in no memory file"
        self._writable = writable
        self._min = 1 if copy is False else _MIN_LOOKUP
        self._mappings: Mappings | None = None

    def find(self, buffer: Buffer) -> tuple[Buffer | int, int, int, int, bool] | None:
        """What makes the descriptor, an identity of the file, and where the buffer is in it.

        Then the size of the file, and whether it is writable here.
        """
        found = _core._find_file(buffer)
        if found is not None:
            return buffer, *found
        nbytes = buffer.nbytes or 0
        if nbytes < self._min:
            return None
        from arrowdev import _user_files

        if self._mappings is None:
            self._mappings = _user_files.Mappings()
        try:
            mapped = self._mappings.find(buffer.data_ptr, nbytes, self._writable)
        except _user_files.NotSafe as error:
            self.reason = str(error)
            return None
        except OSError as error:
            self.reason = f"cannot be looked up in /proc/self/maps ({error.strerror})"
            return None
        if mapped is None:
            return None
        return mapped[0], -mapped[0], *mapped[1:]


def _copied(buffers: list[Buffer], copy: bool | None, reason: str) -> Buffer:
    nbytes = sum(buffer.nbytes or 0 for buffer in buffers)
    if copy is False:
        raise exchange_error(
            f"the memory {reason}, and {nbytes} bytes would have to be copied into one",
            reason="copy",
            hint='allocate it by arrowdev.device("cpu").empty(nbytes, shared=True), or leave '
            "copy=False out",
        )
    _core._log(f"share: copied {nbytes} bytes into a memory file: the memory {reason}")
    return _core._copy_to_file(tuple(buffers))


# --- memory of devices ---------------------------------------------------------------------------

# By ad_ipc_kind.
_HOW = ("memory file", "pool descriptor", "VMM descriptor", "legacy IPC")


def _share_on_device(
    value: Array | Tensor | Buffer, uses: int | None, writable: bool, copy: bool | None
) -> Shared:
    """Export the allocations, and an event behind the work on them. Nothing waits."""
    name = type(value).__name__
    device = value.device
    is_copied = bool(copy)
    if copy:
        import_ = _core.array if isinstance(value, Array) else _core.tensor
        value = import_(value, copy=True)  # a Tensor of a Buffer
    schema, numbers, buffers = _parts_on_device(value)
    block = None if isinstance(value, Array) else buffers[0]
    address = None if isinstance(value, Array) else value.data_ptr
    if block is not None and block.nbytes and block.data_ptr != address:
        is_copied = True
        if copy is False:
            raise exchange_error(
                "the elements are not contiguous, and would have to be copied on the device",
                reason="copy",
                hint="share the whole tensor, or leave copy=False out",
            )
    if writable and not is_copied:
        _require_writable(not _core._is_readonly(value))
    try:
        allocations, rows, files, how = _allocations_of(buffers)
        event = _core._export_event(value if block is None else block)
        uuid = _core._device_uuid(device).hex()
    except _core.ExchangeError as error:
        if error.reason != "share":
            raise
        raise _failed(
            f"memory of {device} cannot be shared with another process: "
            + str(error).removesuffix(f"; {error.hint}"),
            error.hint or 'copy it to the host: arrowdev.share(x.to("cpu"))',
        ) from error
    event_number = None
    if event is not None and event[1] is not None:
        event_number = len(files)
        files.append(event[1])
    named = event and [event_number, event[0].hex()]
    place = [int(device.type), uuid, allocations, named]
    # A runtime opens no memory of its own process: attach() returns this one there.
    views = tuple(
        buffer and _core._view_buffer(buffer, row[2], writable)
        for buffer, row in zip(buffers, rows, strict=True)
    )
    here = _made_on(device, name, schema, numbers, views)
    description = [name, bool(writable), [], schema, numbers, rows, place]
    if is_copied:
        how = tuple(f"copied on the device, {way}" for way in how)
    return _published(description, files, (here, event), uses, how)


def ways(x: Any) -> tuple[str, ...]:
    """How :func:`share` would hand over each allocation of memory on a device; () on the host."""
    value = _importable(x)
    if value.device_type == DeviceType.CPU:
        return ()
    return _allocations_of(_parts_on_device(value)[2])[3]


def _parts_on_device(
    value: Array | Tensor | Buffer,
) -> tuple[str, list[Any], list[Buffer | None]]:
    """As :func:`_parts`; an array with all of its buffers, since their rows are not read here."""
    if not isinstance(value, Array):
        return _parts(value)
    numbers: list[Any] = []
    buffers: list[Buffer | None] = []

    def add(array: Array) -> None:
        own = array.buffers
        known = array.null_count
        numbers.extend([len(array), array.offset, -1 if known is None else known, len(own)])
        buffers.extend(own)
        for child in array.children:
            add(child)
        if array.dictionary is not None:
            add(array.dictionary)

    add(value)
    return _schema_text(value.schema), numbers, buffers


def _allocations_of(
    buffers: list[Buffer | None],
) -> tuple[list[Any], list[Any], list[Buffer | CapsuleType | int], tuple[str, ...]]:
    """Where the buffers lie, with what other processes need to open it.

    [kind, number of the file or -1, offset in it, nbytes, name] of each allocation; (allocation,
    offset, nbytes) of each buffer; the files; how each allocation goes.
    """
    allocations: list[Any] = []
    starts: list[int] = []
    rows: list[Any] = []
    files: list[Buffer | CapsuleType | int] = []
    for buffer in buffers:
        if buffer is None or buffer.nbytes == 0:
            rows.append(buffer and (0, 0, 0))
            continue
        address = buffer.data_ptr
        number = next(
            (i for i, start in enumerate(starts) if 0 <= address - start < allocations[i][3]),
            len(starts),
        )
        if number == len(starts):
            start, nbytes, kind, offset, name, file = _core._export_memory(buffer)
            allocations.append(
                [kind, -1 if file is None else len(files), offset, nbytes, name.hex()]
            )
            starts.append(start)
            files.extend(() if file is None else (file,))
        if address < starts[number]:
            raise _failed(
                "the runtime names an allocation that begins behind the buffer in it",
                "report it to the package that has the backend",
            )
        room = allocations[number][3] - (address - starts[number])
        size = room if buffer.nbytes is None else buffer.nbytes
        if size > room:
            raise _failed(
                f"a buffer of {size} bytes reaches beyond its allocation, which has {room} there",
                "share a copy, in one allocation: copy=True",
            )
        rows.append((number, address - starts[number], size))
    if len(files) >= _MAX_FILES:
        raise _failed(
            f"the memory lies in {len(files)} allocations with descriptors, and {_MAX_FILES - 1} "
            "go at a time",
            "share a copy, or fewer columns",
        )
    return allocations, rows, files, tuple(_HOW[kind] for kind, *_ in allocations)


def _opened_on_device(description: list[Any], files: CapsuleType, connection: int) -> Any:
    """The object of a description, in memory of a device that another process has exported."""
    kind, writable, _, schema, numbers, rows, (type_, uuid, allocations, event) = description
    device = _core._device_of_uuid(type_, bytes.fromhex(uuid))
    sync = None
    if event is not None:
        number, name = event
        sync = _core._open_event(
            files, -1 if number is None else number, bytes.fromhex(name), device, connection
        )
    opened = [
        _core._open_memory(
            files,
            number,
            how,
            offset,
            nbytes,
            bytes.fromhex(name),
            device,
            sync,
            writable,
            connection,
        )
        for how, number, offset, nbytes, name in allocations
    ]
    buffers = _core._buffers_in_files(tuple(opened), rows, device)
    return _made_on(device, kind, schema, numbers, buffers)


def _made_on(
    device: Device, kind: str, schema: str, numbers: list[Any], buffers: tuple[Any, ...]
) -> Any:
    from itertools import islice

    if kind != "Array":
        return _made(kind, schema, numbers, buffers)
    of_nodes = iter(numbers)
    of_buffers = iter(buffers)

    def make(type_: Schema) -> Array:
        length, offset, null_count, n = islice(of_nodes, 4)
        own = list(islice(of_buffers, n))
        return Array.from_buffers(
            type_,
            length,
            own,
            null_count=null_count,
            offset=offset,
            children=[make(child) for child in type_.children],
            dictionary=None if type_.dictionary is None else make(type_.dictionary),
        )

    array = make(_core._schema_of_parts(_schema_of(schema)))
    _require(not list(of_nodes) and not list(of_buffers))
    return array if array.device_type == device.type else array.to(device)


# --- streams -------------------------------------------------------------------------------------

# The first byte of an answer to a request for a batch.
_BATCH, _END, _ERROR = b"b", b"e", b"!"
_MAX_ANSWER = 4096  # bytes

_serving: set[socket.socket] = set()  # those of the threads that read streams


def _on_fork() -> None:
    """The child shares nothing. The other ends of its streams see when the parent ends."""
    global _lock, _n_waiting
    _lock = threading.Lock()
    while _serving:
        _serving.pop().close()
    _waiting.clear()
    _n_waiting = 0
    if _switches:
        _switches.clear()
        _switch()


os.register_at_fork(after_in_child=_on_fork)


def _share_stream(
    stream: ArrayStream, uses: int | None, writable: bool, copy: bool | None
) -> Shared:
    """Hand over one end of a pair of sockets; a thread at the other one reads the stream."""
    import socket

    if uses not in (None, 1):
        raise ValueError(f"a stream can be attached to once, not {uses} times")
    schema = _schema_text(stream.schema)
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        raise _failed_call("a pair of sockets for the stream", error) from error
    _serving.add(ours)
    ours.settimeout(None)  # the other process may take long
    try:
        with theirs:
            type_ = int(stream.device_type)
            description = ["ArrayStream", bool(writable), [], schema, [], [], type_]
            shared = _published(description, [theirs.fileno()], None, 1, ("batch by batch",))
        taken = _core.concat_streams([stream])
        # Thread.start() waits in Python: a signal handler that raises there would leave it locked.
        _thread.start_new_thread(_serve, (ours, taken, writable, copy))
    except BaseException:
        _serving.discard(ours)
        ours.close()
        raise
    return shared


def _serve(
    connection: socket.socket, stream: ArrayStream, writable: bool, copy: bool | None
) -> None:
    """Answer each request with the text of a batch, until the other end is closed."""
    shared: Shared | None = None  # until the next request: the consumer has attached by then
    with _served(connection), connection, stream, contextlib.suppress(OSError):
        while connection.recv(1):
            try:
                shared = share(next(stream), uses=1, writable=writable, copy=copy)
                answer = _BATCH + str(shared).encode("ascii")
            except StopIteration:
                answer = _END
            except BaseException as error:
                text = described(error)
                _core._log(f"share: a stream failed: {_core._shown(text)}")
                answer = (_ERROR + text.encode(errors="backslashreplace"))[:_MAX_ANSWER]
            connection.send(answer)
            if answer[:1] != _BATCH:
                break


@contextlib.contextmanager
def _served(connection: socket.socket) -> Iterator[None]:
    try:
        yield
    finally:
        _serving.discard(connection)


class _Batches:
    """The batches that the thread of another process hands over, as an iterator."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            self._connection.send(b"n")
            answer = self._connection.recv(_MAX_ANSWER)
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        except OSError as error:
            raise _failed_connection(error) from error
        if answer[:1] == _BATCH:
            return attach(answer[1:].decode("ascii", "replace"))
        self._connection.close()
        if answer == _END:
            raise StopIteration
        if answer[:1] == _ERROR:
            raise _failed(
                "the stream failed in the process that shared it: "
                + answer[1:].decode(errors="replace"),
                "see its log, with ARROWDEV_LOG=1",
            )
        raise _failed(
            "the process that shared the stream has ended before the stream",
            "share the stream again",
        )

    def __del__(self) -> None:
        self._connection.close()


# --- pickles -------------------------------------------------------------------------------------


class _Sharing:
    """What :func:`sharing` returns: a context manager."""

    __slots__ = ("_is_entered", "_on")

    def __init__(self, on: bool) -> None:
        self._on = on
        self._is_entered = False

    def __enter__(self) -> None:
        with _lock:
            self._is_entered = True
            if self not in _switches:
                _switches.append(self)
            _switch()

    def __exit__(self, *args: object) -> None:
        with _lock:
            if self in _switches:  # not in a child that was forked in the block
                _switches.remove(self)
            _switch()


# The last one holds. Blocks of several threads may end in any order. Of calls without a block,
# only the last one is kept.
_switches: list[_Sharing] = []
# What was pickled and not attached to yet; how many there were after the last look at them all.
_waiting: list[Shared] = []
_n_waiting = 0
_lock = threading.Lock()


def _switch() -> None:
    from arrowdev import _pickle

    _pickle.share_once = _share_once if _switches and _switches[-1]._on else None


def sharing(on: bool = True) -> _Sharing:
    """Let pickles of Array, Tensor and Buffer hold the text of :func:`share` in place of the data.

    That is for processes of this machine: ``multiprocessing``, ``concurrent.futures``, and Ray or
    Dask on one host. A pickle can be loaded once. Until then, the data stay in memory files of
    this process, also if the pickle is never loaded. A forked child starts with it off.

    Parameters
    ----------
    on : bool, default True
        Whether the pickles of this process are made like that from now on.

    Returns
    -------
    context manager
        At the end of a ``with`` block, what was before holds again.

    Examples
    --------
    >>> import pickle
    >>> with ad.sharing():
    ...     data = pickle.dumps(ad.array(bytes(1_000_000)))
    >>> len(data) < 300, len(pickle.loads(data))
    (True, 1000000)
    """
    if not isinstance(on, bool):
        raise TypeError(f"on must be a bool, not {type(on).__name__}")
    made = _Sharing(on)
    with _lock:
        _switches[:] = [each for each in _switches if each._is_entered]
        _switches.append(made)
        _switch()
    return made


def _share_once(value: Array | Tensor | Buffer) -> str:
    """The text of what is shared once; of a copy on the host, if no process can open it."""
    global _n_waiting
    try:
        shared = share(value, uses=1)
    except _core.ExchangeError as error:
        if error.reason != "share" or value.device_type == DeviceType.CPU:
            raise
        from arrowdev._pickle import on_host

        shared = share(on_host(value)[0], uses=1)
    with _lock:
        _waiting.append(shared)
        if len(_waiting) > 2 * _n_waiting + 8:
            _waiting[:] = [x for x in _waiting if _core._published_state(x._published)[0]]
            _n_waiting = len(_waiting)
    return str(shared)


# --- attach() ------------------------------------------------------------------------------------


def attach(text: str | Shared, *, device: object = None, stream: object = None) -> Any:
    """Return what another process of this machine has shared.

    The result is in the memory of the other process, which stays as long as a view of it lives,
    also if the other process ends.

    Parameters
    ----------
    text : str or Shared
        ``str()`` of what :func:`share` returned.
    device, stream : optional
        Where to copy it, and on which stream, as of ``to()``.

    Returns
    -------
    Array, Tensor, Buffer or ArrayStream
        As was shared. It is flagged read-only unless ``writable=True`` was passed to ``share()``.

    Raises
    ------
    ExchangeError
        Nothing is shared under this text any more; its process has ended, belongs to another
        user or does not answer within 5 seconds; or what it sent is damaged.
    TypeError
        `text` is of another type; or `stream` without `device`.
    ValueError
        `text` is not a text of ``share()``.

    Examples
    --------
    >>> with ad.share(b"abc") as shared:
    ...     found = ad.attach(str(shared))
    >>> bytes(found)
    b'abc'
    """
    if device is None and stream is not None:
        raise TypeError("stream is that of a copy: pass device=, too")
    start = time.monotonic_ns()
    plain = str(text) if isinstance(text, Shared) else text  # a Shared stays alive
    name, token = _parsed(plain)
    with _connected(name) as connection:
        code, message, files, n = _received(connection, token)
        is_own = _peer(connection)[0] == os.getpid()
        value = _built(message, files, n, connection.fileno(), token if is_own else None)
        if device is not None:
            try:
                value = value.to(device, stream=stream)
            except BaseException:
                del value  # its connection is the attempt, and a traceback may be kept
                raise
        if code == _ANSWER_COUNTED:
            with contextlib.suppress(ConnectionError):  # it has ended: nothing to count
                connection.send(_ATTACHED)
    _record("attach", "import", start, plain, {"to": type(value)})
    return value


def _parsed(text: str) -> tuple[str, bytes]:
    """The name of the server and the token in a text."""
    if not isinstance(text, str):
        raise TypeError(
            f"expected the text of a Shared, as str(arrowdev.share(x)), not {type(text).__name__}"
        )
    try:
        prefix, network, name, token = text.split("-")
        result = f"arrowdev{int(name, 16):016x}", bytes.fromhex(token)
        if prefix != _PREFIX or len(name) != 16 or len(result[1]) != 16:
            raise ValueError
    except ValueError:
        raise ValueError(
            f"{_core._shown(text)} is not a text of arrowdev.share(), or of another version"
        ) from None
    try:
        is_here = network == _network_of(os.getpid())
    except OSError as error:
        raise _failed_call("the look at what machine this is", error) from error
    if not is_here:
        raise _failed(
            "the memory is shared on another machine, before a reboot of this one, or in a "
            "container with a network of its own",
            "send the array itself, as a pickle",
        )
    return result


def _peer(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end."""
    import socket

    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return struct.unpack("3i", credentials)[:2]


def _connected(name: str) -> socket.socket:
    """A connection to the server of a process of this user."""
    import socket

    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        raise _failed_connection(error) from error
    connection.settimeout(_TIMEOUT)
    try:
        connection.connect("\0" + name)
        user = _peer(connection)[1]
    except OSError as error:
        connection.close()
        if error.errno == errno.ECONNREFUSED:
            raise _failed(
                "the process that shared the memory has ended",
                "share it again, from one that lives",
            ) from error
        raise _failed_connection(error) from error
    if user != os.geteuid():
        connection.close()
        raise _failed(
            "the process that answers belongs to another user",
            "share it as the user that attaches",
        )
    return connection


def _failed_call(what: str, error: OSError) -> ExchangeError:
    """The error of a call of the system. `what`: "the connection to ..."."""
    if isinstance(error, TimeoutError):
        return _failed(
            f"the process that shared the memory does not answer within {_TIMEOUT:g} seconds",
            "see whether it is stopped",
        )
    is_full = error.errno in (errno.EMFILE, errno.ENFILE)
    hint = _RELEASE if is_full else "see whether the other process lives, and /proc is mounted"
    return _failed(f"{what} failed: {error.strerror}", hint)


def _failed_connection(error: OSError) -> ExchangeError:
    return _failed_call("the connection to the process that shared the memory", error)


def _received(connection: socket.socket, token: bytes) -> tuple[int, bytes, CapsuleType, int]:
    """The code and the message of the server, its descriptors, and their number."""
    try:
        message, files, n, flags = _answer(connection, token)
    except OSError as error:
        raise _failed_connection(error) from error
    _check_answer(message, flags)
    return message[0], message[1:], files, n


def _answer(connection: socket.socket, token: bytes) -> tuple[bytes, CapsuleType, int, int]:
    """A server without descriptors answers and closes, before it has read the token."""
    import socket

    try:
        connection.send(token)
        connection.recv(1, socket.MSG_PEEK)  # waits, up to the timeout
    except (BrokenPipeError, ConnectionResetError):
        pass  # what it has said is still there
    try:
        return _core._receive(connection.fileno())
    except ConnectionResetError:  # closed since then: reported once, before what it has said
        return _core._receive(connection.fileno())


def _check_answer(message: bytes, flags: int) -> None:
    import socket

    if not message:
        raise _failed(
            "the process that shared the memory has ended, or let the connection go",
            "share it again, from one that lives",
        )
    code = message[0]
    if code == _ANSWER_UNKNOWN:
        raise _failed(
            "nothing is shared under this text any more: the Shared was closed or deleted, or "
            "used as often as `uses` said, by attempts that are under way, too",
            "keep the Shared until the others have attached",
        )
    if code == _ANSWER_FULL:
        raise _failed(
            "the process that shared the memory has no file descriptor left",
            "release some arrays there, or raise its limit (ulimit -n)",
        )
    if code == _ANSWER_BUSY:
        raise _failed(
            "the process that shared the memory cannot send it now: the system has too many file "
            "descriptors on their way",
            "attach again",
        )
    if flags & socket.MSG_CTRUNC:
        raise _failed("this process has no file descriptor left for what was shared", _RELEASE)
    if code not in (_ANSWER_SENT, _ANSWER_COUNTED) or flags & socket.MSG_TRUNC:
        raise _damaged()


def _damaged() -> ExchangeError:
    return _failed(
        "the description that the other process sent is damaged",
        "use one version of arrowdev in both processes",
    )


def _built(message: bytes, files: CapsuleType, n: int, connection: int, own: bytes | None) -> Any:
    """The object of a message, in the memory of its files. `own`: the token, if it is of this
    process."""
    import json

    try:
        description = json.loads(message)
        if isinstance(description, int):
            n -= 1
            _require(description <= _MAX_DESCRIPTION)
            text = _core._map_file(files, n, description, False, connection)
            description = json.loads(bytes(memoryview(text)))
        kind, writable, sizes, schema, numbers, rows, device = description
        if kind == "ArrayStream":
            return _built_stream(schema, files, device)
        if device is not None:
            if own is not None:
                return _core._published_object(own)[0]
            return _opened_on_device(description, files, connection)
        _require(len(sizes) == n)
        mapped = [
            _core._map_file(files, i, size, bool(writable), connection)
            for i, size in enumerate(sizes)
        ]
        parts = _core._buffers_in_files(tuple(mapped), rows, "cpu")
        return _made(kind, schema, numbers, parts)
    except (
        AttributeError,
        IndexError,
        InvalidArrowError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise _damaged() from error
    except OSError as error:
        raise _failed_call("a mapping of what was shared", error) from error


def _require(is_so: bool) -> None:
    if not is_so:
        raise ValueError


def _built_stream(schema: str, files: CapsuleType, device_type: int) -> ArrayStream:
    import socket

    type_ = _core._schema_of_parts(_schema_of(schema))
    _require(type(device_type) is int)
    place = DeviceType(device_type)
    file = _core._take_file(files, 0)
    try:
        connection = socket.socket(fileno=file)
    except OSError as error:  # no socket
        os.close(file)
        raise ValueError from error
    connection.settimeout(None)  # a batch may take long
    return _core.array_stream(_Batches(connection), schema=type_, device_type=place)


def _made(kind: str, schema: str, numbers: list[Any], memories: tuple[Any, ...]) -> Any:
    if kind == "Array":
        return _core._array_of_parts(_schema_of(schema), tuple(numbers), memories)
    shape, order, flags = numbers
    if kind not in ("Tensor", "Buffer"):
        raise ValueError(f"no kind of object: {kind!r}")
    (memory,) = memories
    return _core._tensor_of_parts(kind == "Buffer", schema, tuple(shape), order, flags, memory)


@functools.lru_cache(64)
def _schema_of(text: str) -> tuple[Any, ...]:
    """The parts of a type, whose text is the same for all batches of a stream."""
    import json

    return _type_of(json.loads(text))


def _type_of(parts: Any) -> tuple[Any, ...]:
    format_, name, metadata, flags, children, dictionary = parts
    pairs = metadata and [tuple(x.encode("latin-1") for x in pair) for pair in metadata]
    return (
        format_.encode("latin-1"),
        name.encode("latin-1"),
        pairs,
        flags,
        tuple(map(_type_of, children)),
        None if dictionary is None else _type_of(dictionary),
    )
