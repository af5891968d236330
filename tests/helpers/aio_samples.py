"""Shared functions of the arrowdev.aio tests."""

import asyncio
import struct

import numpy as np

LIMIT = 60


def run(main):
    return asyncio.run(asyncio.wait_for(main, LIMIT))


def blob(**pairs):
    """Metadata in the encoding of the C data interface."""
    parts = [struct.pack("=i", len(pairs))]
    for key, value in pairs.items():
        for text in (key.encode(), value.encode()):
            parts.append(struct.pack("=i", len(text)) + text)
    return b"".join(parts)


def numbers(arrays):
    return [array.to_pylist()[0] for array in arrays]


async def until(condition):
    for _ in range(LIMIT * 100):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


async def count_up(n, pause=0.0):
    for i in range(n):
        if pause or i % 3 == 0:
            await asyncio.sleep(pause)
        yield np.array([i])
