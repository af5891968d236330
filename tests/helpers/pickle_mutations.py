"""Changes to pickles, and every reader of what is unpickled all the same."""

import copy
import pickle
import pickletools

import pyarrow as pa

import arrowdev as ad


def longest(array):
    """The rows of the longest node: a column of nulls may have any number of them."""
    below = [*array.children, *([array.dictionary] if array.dictionary else [])]
    return max([len(array) + array.offset, *map(longest, below)])


def use(array):
    """Every reader of the memory; an error is fine."""
    for read in (
        ()
        if longest(array) > 10_000
        else (
            lambda: array.validate("full"),
            lambda: array.to_pylist(),
            lambda: array.compact(),
            lambda: ad.concat([array, array]),
            lambda: copy.deepcopy(array[1:]),
            lambda: pickle.dumps(array[1:]),
            lambda: pa.array(array).to_pylist(),
        )
    ):
        try:
            read()
        except (ValueError, BufferError, pa.ArrowException, OverflowError, NotImplementedError):
            pass


def has_large_memo(data):
    """CPython makes room for as many objects as the index of a memo says: gigabytes."""
    try:
        return any(
            op.name.endswith("PUT") and int(argument) > len(data)
            for op, argument, _ in pickletools.genops(data)
        )
    except ValueError:  # refused there, too
        return False


def changed(data, rng):
    """`data`, cut or with some of its bytes changed."""
    if rng.random() < 0.1:
        return data[: rng.randrange(len(data))]
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        out[rng.randrange(len(out))] = rng.choice((rng.randrange(256), 0, 0x7F, 0xFF))
    return bytes(out)
