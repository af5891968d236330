"""share() of memory that the user has mapped from a file of their own."""

import contextlib
import ctypes
import errno
import fcntl
import gc
import mmap
import os
import tempfile
from multiprocessing import shared_memory

import pytest
from sharing import descriptors, process, run, wait_until

import arrowdev as ad
from arrowdev import _share, _user_files

np = pytest.importorskip("numpy")

SIZE = 4 << 20  # of which a lookup is worth its time
PAGE = mmap.PAGESIZE


@contextlib.contextmanager
def memory_file(nbytes=SIZE, flags=os.MFD_ALLOW_SEALING):
    file = os.memfd_create("users", flags | os.MFD_CLOEXEC)
    try:
        os.ftruncate(file, nbytes)
        yield file
    finally:
        os.close(file)


def mapped(file, nbytes=SIZE, **options):
    return np.frombuffer(mmap.mmap(file, nbytes, **options), "u1")


libc = ctypes.CDLL(None)
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mmap.restype = ctypes.c_void_p
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
MAP_FIXED = 0x10


def reason_of(value):
    """Why share() has to copy; also that it does, and that the copy has the values."""
    with pytest.raises(ad.ExchangeError, match="would have to be copied") as info:
        ad.share(value, copy=False)
    assert info.value.reason == "copy"
    shared = ad.share(value)
    assert shared.how == ("copied into a memory file",)
    assert np.array_equal(np.asarray(ad.attach(shared)), value)
    return str(info.value)


def test_memory_file_of_the_user():
    with memory_file() as file:
        values = mapped(file)
    ad.share(b"starts the server")
    before = descriptors()
    shared = ad.share(values)
    assert shared.how == ("memory file",)
    found = ad.attach(str(shared))
    values[5] = 7
    assert found[5].item() == 7 and found.readonly
    with process("x = ad.attach(sys.argv[1]); print(x[5].item(), x.shape[0])", shared) as child:
        assert child.line == f"7 {SIZE}"
    del found, shared
    wait_until(lambda: descriptors() <= before)


def test_file_cannot_shrink_from_then_on():
    with memory_file() as file:
        values = mapped(file)
        shared = ad.share(values)
        with pytest.raises(PermissionError):
            os.ftruncate(file, PAGE)
        os.ftruncate(file, 2 * SIZE)  # it may grow
        os.pwrite(file, b"\5", 3)  # and be written to
        assert ad.attach(shared)[3].item() == 5


def test_a_column_in_the_file():
    with memory_file(2 * SIZE) as file:
        memory = mapped(file, SIZE, offset=SIZE)
        memory[:] = np.arange(SIZE) % 251
        other = mapped(file, SIZE, offset=0)
        other[:] = 3
    batch = ad.record_batch({"a": memory[10:], "b": other[10:]})
    shared = ad.share(batch, copy=False)
    assert shared.how == ("memory file",)  # one descriptor
    assert ad.attach(shared).equals(batch)


def test_small_memory_is_looked_up_only_on_request():
    with memory_file(PAGE) as file:
        values = mapped(file, PAGE)
    assert ad.share(values).how == ("copied into a memory file",)
    assert ad.share(values, copy=False).how == ("memory file",)


def test_known_memory_is_not_looked_up(monkeypatch):
    memory = ad.device("cpu").empty(SIZE, shared=True)
    monkeypatch.setattr(_user_files, "Mappings", None)
    assert ad.share(memory).how == ("memory file",)
    with pytest.raises(TypeError):
        ad.share(np.zeros(SIZE, "u1"))


def test_copy_is_not_looked_up():
    with memory_file() as file:
        values = mapped(file)
        assert ad.share(values, copy=True).how == ("copied into a memory file",)
        assert fcntl.fcntl(file, fcntl.F_GET_SEALS) == 0


def test_attached_memory_is_read_only():
    with memory_file() as file:
        values = mapped(file)
        shared = ad.share(values)
        assert os.fstat(file).st_mode & 0o222 == 0  # nobody opens it to write
        received, own = _share._parsed(str(shared))
        with _share._connected(received) as connection:
            _, _, files, n = _share._received(connection, own)
            sent = _user_files.File(ad._core._take_file(files, 0))
        assert n == 1 and fcntl.fcntl(sent, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        with pytest.raises(PermissionError):
            mmap.mmap(sent, SIZE)


def test_writable():
    with memory_file() as file:
        values = mapped(file)
        # Also after the permission to open the file anew has been taken away.
        ad.share(values)
        shared = ad.share(values, writable=True)
    with process("x = np.from_dlpack(ad.attach(sys.argv[1])); x[1] = 7; print()", shared):
        assert values[1] == 7


@pytest.mark.parametrize("what", ["mapping", "descriptor"])
def test_read_only_memory_is_not_given_out_writable(what):
    with memory_file() as file:
        os.fchmod(file, 0o600)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        if what == "mapping":
            values = mapped(file, prot=mmap.PROT_READ)
        else:
            values = mapped(file)
            values.flags.writeable = False
        with pytest.raises(ad.ExchangeError, match="read-only here") as info:
            ad.share(values, writable=True)
        assert info.value.reason == "readonly"


def test_sealed_by_the_user():
    flags = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    with memory_file() as file:
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, flags)
        assert ad.share(mapped(file), copy=False).how == ("memory file",)


def test_mapping_that_ends_while_it_is_shared():
    with memory_file() as file:
        values = mapped(file)
        values[:] = 4
        address = values.ctypes.data
        shared = ad.share(values)
    # Another one in its place, so that the end of the object unmaps nothing else.
    anonymous = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED
    assert libc.mmap(address, SIZE, mmap.PROT_READ, anonymous, -1, 0) == address
    assert values[0] == 0
    found = ad.attach(shared)
    assert np.all(np.asarray(found) == 4)


def test_object_is_kept_while_it_is_shared():
    with memory_file() as file:
        memory = mmap.mmap(file, SIZE)
    shared = ad.share(memory)
    with pytest.raises(BufferError):
        memory.close()
    found = ad.attach(shared)
    del shared
    with pytest.raises(BufferError):
        memory.close()
    del found
    wait_until(lambda: is_closed(memory))


def is_closed(memory):
    gc.collect()
    with contextlib.suppress(BufferError):
        memory.close()
    return memory.closed


def test_memory_of_two_mappings():
    """One after the other, of one file, but not in its order."""
    with memory_file() as file:
        values = mapped(file)
        values[: SIZE // 2] = 1
        half = values.ctypes.data + SIZE // 2
        at_half = mmap.MAP_SHARED | MAP_FIXED
        assert libc.mmap(half, SIZE // 2, mmap.PROT_READ, at_half, file, 0) == half
        assert values[-1] == 1
        assert "spans two mappings" in reason_of(values)
        first = values[: SIZE // 2]
        assert ad.share(first, copy=False).how == ("memory file",)


def test_private_mapping():
    with memory_file() as file:
        values = mapped(file, flags=mmap.MAP_PRIVATE)
        values[0] = 9  # a page of its own
        assert "is in no memory file" in reason_of(values)
        assert fcntl.fcntl(file, fcntl.F_GET_SEALS) == 0


def test_file_that_cannot_be_sealed():
    with memory_file(flags=0) as file:
        reason = reason_of(mapped(file))
    assert "/memfd:users, which can be made smaller" in reason and "MFD_ALLOW_SEALING" in reason


def test_shared_memory_of_multiprocessing():
    memory = shared_memory.SharedMemory(create=True, size=SIZE)
    try:
        values = np.frombuffer(memory.buf, "u1")
        reason = reason_of(values)
        # /dev/shm is a tmpfs, but not in every container.
        kinds = "in a tmpfs and cannot be sealed", "a file on a disk"
        assert memory.name in reason and any(kind in reason for kind in kinds)
        del values
        gc.collect()
    finally:
        memory.close()
        memory.unlink()


def test_anonymous_shared_memory():
    assert "can be made smaller" in reason_of(mapped(-1))


def test_file_on_a_disk(tmp_path):
    with tempfile.TemporaryFile(dir=tmp_path) as file:
        os.ftruncate(file.fileno(), SIZE)
        reason = reason_of(mapped(file.fileno()))
        assert "a file on a disk" in reason or "in a tmpfs" in reason


def test_huge_pages():
    """The file is there also if the system has no huge page to give."""
    with memory_file(2 << 20, os.MFD_ALLOW_SEALING | os.MFD_HUGETLB) as file:
        state = os.fstat(file)
        assert state.st_dev != _user_files._memory_file_device()
        mapping = _user_files._Mapping(0, 1, b"rw-s", 0, state.st_dev, state.st_ino, "users")
        assert _user_files._kind(mapping) == "of huge pages"
        try:
            values = mapped(file, 2 << 20)
        except OSError:
            return
        assert "of huge pages" in reason_of(values)


def test_memory_beyond_the_end_of_its_file():
    with memory_file() as file:
        values = mapped(file)
        os.ftruncate(file, SIZE // 2)
        with pytest.raises(ad.ExchangeError, match="lies beyond the end of /memfd:users"):
            ad.share(values, copy=False)
        assert ad.share(values[: SIZE // 2], copy=False).how == ("memory file",)


def test_beside_other_memory():
    with memory_file() as file:
        values = mapped(file)
    batch = ad.record_batch({"a": values, "b": np.arange(SIZE), "c": np.zeros(SIZE, "i1")})
    shared = ad.share(batch)
    assert shared.how == ("memory file", "copied into a memory file")
    assert ad.attach(shared).equals(batch)


def test_file_of_somebody_else(monkeypatch):
    """Its permissions are not this user's to change."""

    def refused(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refused)
    with memory_file() as file:
        assert "to which others could write (Operation not" in reason_of(mapped(file))
        assert ad.share(mapped(file), writable=True).how == ("memory file",)


@pytest.mark.parametrize("mode", [os.O_RDONLY, os.O_RDWR])
def test_file_that_cannot_be_opened(monkeypatch, mode):
    found = _user_files._descriptor
    monkeypatch.setattr(
        _user_files, "_descriptor", lambda x, wanted: None if wanted == mode else found(x, wanted)
    )
    with memory_file() as file:
        assert "cannot open" in reason_of(mapped(file))


def test_without_descriptors():
    code = (
        "import mmap, resource\n"
        "from arrowdev import _user_files\n"
        "ad.share(b'imports'); _user_files._memory_file_device()\n"
        "file = os.memfd_create('users', os.MFD_ALLOW_SEALING)\n"
        f"os.ftruncate(file, {SIZE})\n"
        f"values = np.frombuffer(mmap.mmap(file, {SIZE}), 'u1')\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))\n"
        "files = []\n"
        "while True:\n"
        "    try: files.append(os.dup(file))\n"
        "    except OSError: break\n"
        "for n in range(3):\n"
        "    try: print(ad.share(values).how)\n"
        "    except ad.ExchangeError as error: print(error.reason, 'ulimit' in error.hint)\n"
        "    os.close(files.pop())\n"
        "for _ in range(5): os.close(files.pop())\n"
        "print(ad.share(values).how)\n"
    )
    *lines, last = run(code).decode().splitlines()
    assert lines[0] == "share True" and last == "('memory file',)"
    assert set(lines) <= {"share True", "('copied into a memory file',)", last}


def test_file_that_the_user_has_closed():
    """Found by the mapping, which needs a right of root's; or else it is copied, and said why."""
    with memory_file() as file:
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        address = libc.mmap(None, SIZE, protection, mmap.MAP_SHARED, file, 0)
    try:
        values = np.frombuffer((ctypes.c_char * SIZE).from_address(address), "u1")
        values[9] = 9
        shared = ad.share(values)
        assert ad.attach(shared)[9].item() == 9
        if shared.how != ("memory file",):
            assert "cannot open" in reason_of(values)
    finally:
        libc.munmap(address, SIZE)


def test_forked_child_of_a_memory_file():
    """The core of the child does not know the memory of the parent; its mapping is found."""
    values = np.frombuffer(ad.device("cpu").empty(SIZE, shared=True), "u1")
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(BaseException):
            shared = ad.share(values, copy=False)
            values[3] = 8
            status = 0 if ad.attach(shared)[3].item() == 8 else 2
        os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0 and values[3] == 8


def test_system_without_proc(monkeypatch):
    def missing(*_, **__):
        raise FileNotFoundError("/proc/self/maps")

    monkeypatch.setattr(_user_files, "open", missing, raising=False)
    with memory_file() as file:
        assert "is in no memory file" in reason_of(mapped(file))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_user_without_rights_of_root():
    """Finds the file by its descriptor."""
    code = (
        "import mmap; from arrowdev import _user_files\n"
        "ad.attach(ad.share(b'imports what it needs', copy=True)); import fcntl\n"
        "if os.fork(): os._exit(os.wait()[1])\n"  # the child has no server yet
        "os.setuid(65534)\n"
        "file = os.memfd_create('users', os.MFD_ALLOW_SEALING)\n"
        f"os.ftruncate(file, {SIZE})\n"
        f"values = np.frombuffer(mmap.mmap(file, {SIZE}), 'u1')\n"
        "first = ad.share(values)\n"
        "second = ad.share(values, writable=True)\n"
        "values[3] = 3\n"
        "print(first.how, second.how, ad.attach(first)[3].item(), ad.attach(second).readonly)\n"
        "try: open(f'/proc/self/fd/{file}', 'r+b')\n"
        "except PermissionError: print('refused')"
    )
    expected = "('memory file',) ('memory file',) 3 False\nrefused\n"
    assert run(code).decode() == expected
