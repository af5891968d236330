"""Shared by the scripted ends: structs with Python callbacks, and the record of the calls."""

from __future__ import annotations

import atexit
import ctypes
import errno
import functools
import gc
import itertools
import sys
import threading
from contextlib import contextmanager
from ctypes import Structure, c_int64, c_void_p
from types import SimpleNamespace
from weakref import WeakValueDictionary

from arrowdev.testing import _device
from arrowdev.testing._abi import CALLBACKS, ArrowSchema, address_of, call
from arrowdev.testing._rules import RULES, Broken, BrokenRule
from arrowdev.testing.step import Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from typing import Any

TIMEOUT = 20.0
"""Seconds that a wait of a scripted end takes, unless told otherwise."""


class Call:
    """One call between the two ends. A record lists them in the order in which they began."""

    __slots__ = ("about", "name", "result", "thread")

    def __init__(self, name: str, about: str = "") -> None:
        self.name = name
        """The callback: ``"get_next"``, ``"request"``, ..."""
        self.about = about
        """What it was about: ``"batch 0"``, ``"n=5"``, ..."""
        self.result: int | None = None
        """What it returned, where it returns a number and is over."""
        self.thread = threading.get_ident()
        """Who called."""

    def __repr__(self) -> str:
        result = "" if self.result is None else f" -> {self.result}"
        return f"{self.name}({self.about}){result}"


class Spans:
    """The calls of the peer that are in progress, by thread."""

    def __init__(self) -> None:
        self._names: dict[int, list[str]] = {}

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        stack = self._names.setdefault(threading.get_ident(), [])
        stack.append(name)
        try:
            yield
        finally:
            stack.pop()

    def now(self) -> str | None:
        """The innermost call of this thread."""
        stack = self._names.get(threading.get_ident())
        return stack[-1] if stack else None


class Recorder:
    """The record of one scripted end, and the rules that the other end has broken."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self.calls: list[Call] = []
        self.timeout = timeout
        self._changed = threading.Condition()
        self._broken: list[Broken] = []
        self._outputs: list[Output] = []
        self._failure: BaseException | None = None
        self._running: dict[int, str] = {}

    @property
    def names(self) -> list[str]:
        """The names of all calls so far, in order."""
        return [one.name for one in self.calls]

    @property
    def broken(self) -> list[Broken]:
        """The rules that the other end has broken so far."""
        return list(self._broken)

    @property
    def is_all_released(self) -> bool:
        """Whether every exported struct was released."""
        return all(output.n_released for output in self._outputs)

    def check(self, *, ignore: Collection[str] = ()) -> None:
        """Raise BrokenRule if the other end has broken a rule of the specification.

        Call it at the end: a struct that is not released by then counts as leaked.

        ignore
            Ids of rules that are known to be broken.

        An error of the script itself, such as a wait that timed out, is raised, too.
        """
        unknown = set(ignore) - set(RULES)
        if unknown:
            raise ValueError(f"no rules are called {sorted(unknown)}; they are {sorted(RULES)}")
        self._before_check()
        if self._failure is not None:
            raise self._failure
        with self._changed:
            found = [*self._broken, *self._leaks()]
        found = [one for one in found if one.rule not in ignore]
        if found:
            raise BrokenRule(found)

    def _before_check(self) -> None:
        if not self.is_all_released:
            gc.collect()

    def _leaks(self) -> Iterator[Broken]:
        for output in self._outputs:
            if output.n_released == 0:
                yield Broken(output.rule, f"{output.about} was never released")

    # --- for the ends ------------------------------------------------------------------------

    def _record(self, name: str, about: str = "") -> Call:
        one = Call(name, about)
        with self._changed:
            self.calls.append(one)
            self._changed.notify_all()
        return one

    def _violated(self, rule: str, what: str) -> None:
        with self._changed:
            self._broken.append(Broken(rule, what))

    def _failed(self, error: BaseException) -> None:
        """The first error of the script itself; check() raises it."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def _perform(self, one: Step | Callable[[Any], object]) -> None:
        """Do one step of the script, or call a function in its place."""
        if not isinstance(one, Step):
            one(self)
            return
        action = getattr(self, f"_do_{one.name}", None)
        if action is None:
            known = sorted(name[4:] for name in dir(self) if name.startswith("_do_"))
            raise ValueError(f"{type(self).__name__} has no step {one}; it has {', '.join(known)}")
        action(**one.options)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition that another thread fulfils; TimeoutError names it."""
        with self._changed:
            if not self._changed.wait_for(condition, self.timeout):
                raise TimeoutError(f"{what} did not come within {self.timeout} seconds")

    @contextmanager
    def _without_overlap(self, name: str, rule: str) -> Iterator[None]:
        """The span of a call that must not overlap with a call of another thread."""
        me = threading.get_ident()
        with self._changed:
            other = [running for thread, running in self._running.items() if thread != me]
            if other:
                self._violated(rule, f"{name} was called while another thread is in {other[0]}")
            before = self._running.get(me)
            self._running[me] = name
        try:
            yield
        finally:
            with self._changed:
                if before is None:
                    del self._running[me]
                else:
                    self._running[me] = before


# --- structs with callbacks in Python ------------------------------------------------------------

# By number, which the struct's cell carries: those that may be called, and those that somebody
# still remembers.
_numbers = itertools.count(1)
_open: dict[int, CallbackStruct] = {}
_known: WeakValueDictionary[int, CallbackStruct] = WeakValueDictionary()
_is_over: list[bool] = []
# Callbacks that destructors call have a guard in C.
_guards = _device.callbacks()

atexit.register(_is_over.append, True)


class _Cell(Structure):
    """The ``private_data``; csrc/test_device/callbacks.c has the same struct in C."""

    _fields_ = [("callbacks", c_void_p * 2), ("number", c_int64)]


_CELLS = 1024
_blocks: list[ctypes.Array[_Cell]] = []  # never freed, so that a late call finds its cell
_blocks_lock = threading.Lock()


def _new_cell(number: int) -> _Cell:
    block, index = divmod(number - 1, _CELLS)
    with _blocks_lock:
        while len(_blocks) <= block:
            _blocks.append((_Cell * _CELLS)())
    cell = _blocks[block][index]
    cell.number = number
    return cell


@functools.cache
def _callback(struct_type: type[Structure], member: str) -> int:
    """Return the C function that finds the CallbackStruct and calls its method of this name.

    There is one for each member of each struct. It lives as long as the process, since a foreign
    library may call it after all other objects of this module are gone.
    """
    offset = struct_type.private_data.offset
    release_offset = struct_type.release.offset if member == "release" else 0
    known, is_over, pointer, cell = _known, _is_over, c_void_p, _Cell
    on_failure = errno.EIO if CALLBACKS[member]._restype_ is ctypes.c_int else None

    def answer(address: int, *arguments: Any) -> Any:
        if is_over:  # at the exit of the interpreter Python code may be half gone
            if member == "release":
                pointer.from_address(address + release_offset).value = None
            return on_failure
        where = pointer.from_address(address + offset).value
        given = known.get(cell.from_address(where).number) if where else None
        try:
            if given is None:
                raise RuntimeError(
                    f"{member} of an {struct_type.__name__} was called after the scripted end "
                    "that it came from was over, and gone"
                )
            return getattr(given, member)(address, *arguments)
        except BaseException as error:
            if given is not None:
                given.recorder._failed(error)
            else:
                told = {"exc_type": type(error), "exc_value": error, "exc_traceback": None}
                sys.unraisablehook(SimpleNamespace(**told, err_msg=None, object=answer))
            return on_failure

    callback = CALLBACKS[member](answer)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(callback))
    return address_of(callback)


class CallbackStruct:
    """An exported struct, whose callbacks are the methods of the same names."""

    def __init__(self, recorder: Recorder, struct_type: type[Structure], about: str) -> None:
        self.recorder = recorder
        self.struct_type = struct_type
        self.about = about
        self.number = next(_numbers)
        self.cell = _new_cell(self.number)
        _known[self.number] = self

    def write(self, address: int) -> None:
        """Set the callbacks of the struct at this address; its other members stay.

        Its callbacks may be called from now on, until ``close``.
        """
        _open[self.number] = self
        struct = self.struct_type.from_address(address)
        n_guarded = 0
        for member, *_ in self.struct_type._fields_:
            if member not in CALLBACKS or not hasattr(type(self), member):
                continue
            callback = _callback(self.struct_type, member)
            guard = _guards.get(f"{self.struct_type.__name__}.{member}")
            if guard is not None:
                self.cell.callbacks[n_guarded] = callback
                n_guarded += 1
            setattr(struct, member, guard or callback)
        struct.private_data = ctypes.addressof(self.cell)

    def close(self) -> None:
        """Forbid further calls. They are detected as long as the recorder lives."""
        _open.pop(self.number, None)


class Output(CallbackStruct):
    """An exported schema or array that counts its releases."""

    def __init__(self, recorder: Recorder, struct: Structure, about: str) -> None:
        self.struct = struct
        is_schema = isinstance(struct, ArrowSchema)
        self.rule = "consumer.release_schema" if is_schema else "consumer.release"
        self.base: Structure = getattr(struct, "array", struct)
        self.n_released = 0
        super().__init__(recorder, type(self.base), about)

    def give(self, address: int) -> None:
        """Move the output to the consumer's struct."""
        ctypes.memmove(address, ctypes.addressof(self.struct), ctypes.sizeof(self.struct))
        self.write(address)
        with self.recorder._changed:
            self.recorder._outputs.append(self)

    def drop(self) -> None:
        """Release the output without a consumer."""
        self.close()
        call(self.base, "release")

    def release(self, address: int) -> None:
        self.recorder._record("release", self.about)
        self.struct_type.from_address(address).release = None
        with self.recorder._changed:
            self.n_released += 1
            is_first = self.n_released == 1
            self.recorder._changed.notify_all()
        if is_first:
            self.close()
            call(self.base, "release")
        else:
            self.recorder._violated(self.rule, f"{self.about} was released again")
