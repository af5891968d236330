"""A child forked during async streams exits; its parent continues.

The fork is outside the event loop, because a child shares its parent's epoll.
"""

import asyncio
import os
import select
import signal
import sys
import warnings

import async_peer
import common

import arrowdev as ad
from arrowdev import aio

warnings.simplefilter("ignore")  # 3.12 warns about a fork in a process with threads
async_peer.library(sys.argv[1])
way = sys.argv[2]
REFUSED = "stream: this async stream was made before this process was forked"


def for_ever():
    while True:
        yield ad.array(common.Owner())


async def read_one(stream):
    return await anext(stream)


def refusal(read):
    try:
        read()
    except ad.ExchangeError as error:
        return f"{error.reason}: {error}"
    return "it was not refused"


def is_woken(descriptor):
    return select.select([descriptor], [], [], 0)[0] == [descriptor]


def check_child():
    """In the child no batch arrives, and no call waits for one."""
    signal.alarm(60)
    for read in (lambda: next(pull), lambda: asyncio.run(read_one(streams[0])), waiting.to_stream):
        assert REFUSED in refusal(read), refusal(read)
    assert REFUSED in refusal(lambda: mine.put([1], None))
    assert mine.is_ended  # an event loop checks it
    assert not woken.clear_waker()
    reader.close()
    assert not is_woken(idle)
    waiting.cancel()
    pull.close()


producer = async_peer.Producer(-1)
pull = aio.connect(ad.array_stream(for_ever())).to_stream()
assert len(next(pull)) > 0
waiting, handler = aio.consumer()
mine = aio._async_producer(aio.consumer()[1])
unread, handler = aio.consumer()
woken = aio._async_producer(handler)
woken.put(common.Owner(), None)
woken.flush()
unread._consumer.cancel()
reader = aio.consumer()[0]._consumer
idle = reader.begin_wait()
streams = [aio.connect(producer), aio.connect(ad.array_stream(for_ever()))]
for _ in range(20):
    for stream in streams:
        assert len(asyncio.run(read_one(stream))) > 0
    child = os.fork()
    if child == 0:
        check_child()
        if way == "os._exit":
            os._exit(7)
        sys.exit(7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7, status
    assert len(next(pull)) > 0
    assert is_woken(woken.fileno()) and not is_woken(idle)  # the child woke neither
assert not mine.is_ended and woken.clear_waker()
for stream in streams:
    asyncio.run(stream.aclose())
pull.close()
producer.join()
common.end()
