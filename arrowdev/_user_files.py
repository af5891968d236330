"""Memory files that a user has mapped: found by the mapping, and made safe for others to map.

A process that maps a file gets SIGBUS where the file has been cut off, so only a file that is
sealed against shrinking is handed over. The system says what is mapped where in /proc/self/maps.
To read it takes a millisecond, which is why only large memory is looked up.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class _Mapping(NamedTuple):
        begin: int
        end: int
        flags: bytes
        offset: int
        device: int
        inode: int
        name: str
else:
    from collections import namedtuple

    _Mapping = namedtuple("_Mapping", "begin end flags offset device inode name")


class NotSafe(Exception):
    """Why memory in a shared mapping has to be copied: "... /dev/shm/x, which ..."."""


class File(int):
    """A descriptor, which is closed with its last reference."""

    __slots__ = ()

    def __del__(self) -> None:
        os.close(self)


class Mappings:
    """Those of this process, when this was made."""

    def __init__(self) -> None:
        try:
            with open("/proc/self/maps", "rb") as file:
                self._lines = file.read().splitlines()
        except OSError:  # no /proc: nothing is known
            self._lines = []
        self._files: dict[tuple[int, int], tuple[File, bool, int]] = {}

    def find(
        self, address: int, nbytes: int, writable: bool
    ) -> tuple[File, int, int, bool] | None:
        """A descriptor of the memory file, the offset in it, its size, whether it is writable.

        None if the memory is not in a shared mapping of a file; NotSafe if it is, and others
        could meet a fault, or write to it.
        """
        mapping = self._at(address)
        if mapping is None or mapping.flags[3:4] != b"s":
            return None
        if nbytes > mapping.end - address:
            raise NotSafe(f"spans two mappings, the first one of {mapping.name}")
        if _memory_file_device() != mapping.device:
            raise NotSafe(f"is in {mapping.name}, which is {_kind(mapping)}, not a memory file")
        key = mapping.device, mapping.inode
        if key not in self._files:
            self._files[key] = _opened(mapping, writable)
        file, is_writable, size = self._files[key]
        offset = mapping.offset + address - mapping.begin
        if nbytes > size - offset:
            raise NotSafe(f"lies beyond the end of {mapping.name}")
        return file, offset, size, is_writable and mapping.flags[1:2] == b"w"

    def _at(self, address: int) -> _Mapping | None:
        i = bisect.bisect_right(self._lines, address, key=_begin) - 1
        mapping = _parsed(self._lines[i]) if i >= 0 else None
        return mapping if mapping is not None and address < mapping.end else None


def _begin(line: bytes) -> int:
    return int(line.partition(b"-")[0], 16)


def _parsed(line: bytes) -> _Mapping:
    """A line: begin-end flags offset major:minor inode name."""
    range_, flags, offset, device, inode, *name = line.split(maxsplit=5)
    begin, end = range_.split(b"-")
    major, minor = device.split(b":")
    return _Mapping(
        int(begin, 16),
        int(end, 16),
        flags,
        int(offset, 16),
        os.makedev(int(major, 16), int(minor, 16)),
        int(inode),
        name[0].decode(errors="replace").removesuffix(" (deleted)") if name else "no file",
    )


@functools.lru_cache(1)
def _memory_file_device() -> int:
    """The file system of what memfd_create() makes."""
    file = File(os.memfd_create("arrowdev"))
    return os.fstat(file).st_dev


def _kind(mapping: _Mapping) -> str:
    """What a file is that memfd_create() has not made, or has made of huge pages."""
    import fcntl

    file = _descriptor(mapping, os.O_RDONLY)
    if file is None:
        return "a file without a descriptor"
    try:
        seals = fcntl.fcntl(file, fcntl.F_GET_SEALS)
    except OSError:  # EINVAL: the file system has no seals
        return "a file on a disk"
    # A file in a tmpfs is sealed against seals from the beginning.
    return "in a tmpfs and cannot be sealed" if seals == fcntl.F_SEAL_SEAL else "of huge pages"


def _opened(mapping: _Mapping, writable: bool) -> tuple[File, bool, int]:
    """A descriptor of the file, whether others may write, and the size, which cannot shrink.

    Unless others may, the permission to write is taken away: whoever has a descriptor could open
    the file anew.
    """
    _seal(mapping)
    file = _descriptor(mapping, os.O_RDWR) if writable and _admits_writes(mapping) else None
    is_writable = file is not None
    if file is None:
        file = _descriptor(mapping, os.O_RDONLY)
    if file is None:
        raise NotSafe(f"is in {mapping.name}, which this process cannot open")
    state = os.fstat(file)
    if not writable and state.st_mode & 0o222:
        try:
            os.fchmod(file, state.st_mode & 0o555)
        except OSError as error:
            raise NotSafe(
                f"is in {mapping.name}, to which others could write ({error.strerror})"
            ) from None
    return file, is_writable, state.st_size


def _admits_writes(mapping: _Mapping) -> bool:
    """Whether a seal does not forbid new writable mappings."""
    import fcntl

    file = _descriptor(mapping, os.O_RDONLY)
    # F_SEAL_FUTURE_WRITE of Linux, which CPython does not name.
    forbidden = fcntl.F_SEAL_WRITE | 0x10
    return file is not None and not fcntl.fcntl(file, fcntl.F_GET_SEALS) & forbidden


def _seal(mapping: _Mapping) -> None:
    """Nobody can make the file smaller any more. The seal needs a descriptor to write."""
    import fcntl

    file = _descriptor(mapping, os.O_RDONLY)
    if file is not None and fcntl.fcntl(file, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
        return
    file = _descriptor(mapping, os.O_RDWR)
    reason = "this process cannot open it to write"
    if file is not None:
        try:
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            return
        except OSError:
            reason = "MFD_ALLOW_SEALING allows it"
    raise NotSafe(
        f"is in {mapping.name}, which can be made smaller while others read it, and cannot be "
        f"sealed ({reason})"
    )


def _descriptor(mapping: _Mapping, mode: int) -> File | None:
    """A new descriptor of the file, by one that this process has, or else by the mapping.

    The way by the mapping needs a right of root's.
    """
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, or not of this mode
            if _is_of(mapping, os.fstat(int(name))) and not _is_path(int(name)):
                return _opened_as(mapping, int(name), f"/proc/self/fd/{name}", mode)
    with contextlib.suppress(OSError):
        return _opened_as(
            mapping, -1, f"/proc/self/map_files/{mapping.begin:x}-{mapping.end:x}", mode
        )
    return None


def _is_path(file: int) -> bool:
    """Whether the descriptor is good for its path only."""
    import fcntl

    return bool(fcntl.fcntl(file, fcntl.F_GETFL) & os.O_PATH)


def _opened_as(mapping: _Mapping, number: int, path: str, mode: int) -> File:
    import fcntl

    # A file whose permission was taken away can be written to through this one only.
    is_same = number >= 0 and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == mode
    file = File(os.dup(number) if is_same else os.open(path, mode | os.O_CLOEXEC))
    if not _is_of(mapping, os.fstat(file)):
        raise FileNotFoundError(path)
    return file


def _is_of(mapping: _Mapping, state: os.stat_result) -> bool:
    return (state.st_dev, state.st_ino) == (mapping.device, mapping.inode)
