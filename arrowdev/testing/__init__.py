"""Test device code without a GPU.

``software_device()`` is a real asynchronous device made of threads: its memory cannot be touched
by the host, its queues run behind the caller's back, its events fire when the work is done. Arrays
on it are Arrow device arrays of type ``EXT_DEV``, so that code that forgets a wait, or reads
device memory on the host, fails here as it would on a GPU. Linux only.

``ScriptedStream``, ``ScriptedReader``, ``ScriptedAsyncProducer`` and ``ScriptedAsyncHandler`` are
the other end for tests of streams: they do what a script says, record every call, and name the
rule of the specification that was broken.

The guide is docs/testing.md.
"""

from arrowdev.testing import step
from arrowdev.testing._async_handler import ScriptedAsyncHandler
from arrowdev.testing._async_producer import ScriptedAsyncProducer
from arrowdev.testing._conformance import check_consumer, check_producer
from arrowdev.testing._engine import EXT_DEV
from arrowdev.testing._producers import ArrayProducer
from arrowdev.testing._queue import DeviceMemory, Event, Queue
from arrowdev.testing._recording import Call
from arrowdev.testing._report import ConformanceError, Finding, Report
from arrowdev.testing._rules import RULES, Broken, BrokenRule, Rule
from arrowdev.testing._software import Live, SoftwareDevice, software_device
from arrowdev.testing._streams import ScriptedReader, ScriptedStream

__all__ = [
    "EXT_DEV",
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
    "Report",
    "Rule",
    "ScriptedAsyncHandler",
    "ScriptedAsyncProducer",
    "ScriptedReader",
    "ScriptedStream",
    "SoftwareDevice",
    "check_consumer",
    "check_producer",
    "software_device",
    "step",
]
