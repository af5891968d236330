"""Test device code without a GPU.

``software_device()`` is a real asynchronous device made of threads: the host cannot access its
memory, its queues run in the background, and its events fire when the work is done. Arrays on it
are Arrow device arrays of type ``EXT_DEV``, so that a missing wait, or a read of device memory on
the host, fails here as it would on a GPU. Linux only.

``ScriptedStream``, ``ScriptedReader``, ``ScriptedAsyncProducer`` and ``ScriptedAsyncHandler`` are
the other end for tests of streams: they follow a script, record every call, and report the rule
of the specification that was broken.

The guide is docs/testing.md.
"""

import os as _os

try:
    from arrowdev.testing._device import start as _start  # noqa: F401
except ModuleNotFoundError as _error:
    raise ImportError(
        f"{_os.path.dirname(__file__)} has no extension arrowdev.testing._device for this Python; "
        "run `pip install .` in the checkout"
    ) from _error

from arrowdev.testing import step
from arrowdev.testing._async_handler import ScriptedAsyncHandler
from arrowdev.testing._async_producer import ScriptedAsyncProducer
from arrowdev.testing._check_backend import check_backend
from arrowdev.testing._conformance import check_consumer, check_producer
from arrowdev.testing._engine import EXT_DEV
from arrowdev.testing._producers import ArrayProducer
from arrowdev.testing._queue import DeviceMemory, Event, Queue
from arrowdev.testing._races import Access, Race, RaceError
from arrowdev.testing._recording import Call
from arrowdev.testing._report import ConformanceError, Finding, Report
from arrowdev.testing._rules import RULES, Broken, BrokenRule, Rule
from arrowdev.testing._software import Live, SoftwareDevice, software_device
from arrowdev.testing._streams import ScriptedReader, ScriptedStream

__all__ = [
    "EXT_DEV",
    "Access",
    "RULES",
    "ArrayProducer",
    "Broken",
    "BrokenRule",
    "Call",
    "ConformanceError",
    "DeviceMemory",
    "Event",
    "Finding",
    "Live",
    "Queue",
    "Race",
    "RaceError",
    "Report",
    "Rule",
    "ScriptedAsyncHandler",
    "ScriptedAsyncProducer",
    "ScriptedReader",
    "ScriptedStream",
    "SoftwareDevice",
    "check_backend",
    "check_consumer",
    "check_producer",
    "software_device",
    "step",
]
