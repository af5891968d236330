"""Bytes that arrowdev holds per imported column, beyond the producer's own.

Run by run.py in a process of its own, with PYTHONMALLOC=malloc, so that
malloc sees everything. The pair is made before and kept alive, so all that
is counted belongs to arrowdev.
"""

import ctypes
import gc
import sys

COUNT = 100_000


class Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd",
            "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def bytes_in_use():
    """Bytes in use in all arenas and in blocks from mmap; needs glibc 2.33."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Mallinfo2
    info = mallinfo2()
    return info.uordblks + info.hblkhd


def main():
    from paths import columns

    import arrowdev as ad

    source = columns(COUNT)
    ad.array(columns(1))  # allocated once per process
    bytes_in_use()
    gc.collect()
    pair = source.__arrow_c_device_array__()
    before = bytes_in_use()
    array = ad.array(pair)
    held = bytes_in_use() - before
    exported = array.__arrow_c_device_array__()
    print(held / COUNT, (bytes_in_use() - before) / COUNT)
    del exported
    return 0


if __name__ == "__main__":
    sys.exit(main())
