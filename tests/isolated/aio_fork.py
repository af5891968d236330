"""A child that is forked in the middle of async streams exits; its parent goes on.

Outside of the event loop: a child shares its parent's epoll.
"""

import asyncio
import os
import sys
import warnings

import async_peer
import common

import arrowdev as ad
from arrowdev import aio

warnings.simplefilter("ignore")  # 3.12 warns of fork in a process with threads
async_peer.library(sys.argv[1])
way = sys.argv[2]


def for_ever():
    while True:
        yield ad.array(common.Owner())


async def read_one(stream):
    return await anext(stream)


producer = async_peer.Producer(-1)
streams = [aio.connect(producer), aio.connect(ad.array_stream(for_ever()))]
for _ in range(20):
    for stream in streams:
        assert len(asyncio.run(read_one(stream))) > 0
    child = os.fork()
    if child == 0:
        if way == "os._exit":
            os._exit(7)
        sys.exit(7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7, status
for stream in streams:
    asyncio.run(stream.aclose())
producer.join()
common.end()
