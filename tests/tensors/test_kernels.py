"""The kernels: one source, compiled as C on the host, as OpenCL C and as PTX."""

import ctypes
import mmap
from ctypes import c_int64, c_void_p

import c_library
import numpy as np
import ptx
import pytest
from kernel_library import OPENCL, load, load_library, ptx_modules, text_of
from loops import looped

import compiler

UNPACK, COUNT, PACK, COPY, FILL, GATHER, CHECK, ADD, RUNS, REDUCE = range(10)
BITS_COPY, BITS_AND, BITS_ONES, BITS_ZEROS = range(4)
LENGTHS = [1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 128, 129, 500, 1023, 1031, 4096, 5001]


library = pytest.fixture(scope="module")(load_library)


def built_ptx(library, folder):
    """The committed PTX, translated to C and built for the host."""
    source = folder / "ptx.c"
    source.write_text(ptx.to_c("".join(ptx_modules(library))), encoding="utf-8")
    done = compiler.run(
        [*compiler.command(), "-O1", "-fPIC", "-shared", source, "-o", folder / "ptx.so"]
    )
    assert done.returncode == 0, done.stderr
    return load(folder / "ptx.so")


@pytest.fixture(scope="module", params=["host", "device", "ptx"])
def runner(library, request, tmp_path_factory):
    """What runs the kernels: the code for the host, that for devices, or the translated PTX."""
    if request.param != "ptx":
        flags = compiler.KERNELS_OF_DEVICES
        is_host = request.param == "host"
        yield library if is_host else load(c_library.build("kernels", flags=flags))
        return
    found = built_ptx(library, tmp_path_factory.mktemp("ptx"))
    yield found
    assert found.helper_misaligned() == 0


def run(
    runner, kernel, source, target, numbers=(), *, bits=0, length, items=1, at=(0, 0), values=None
):
    """Runs one kernel on the host. `source`, `target` and `values` are arrays or addresses."""
    source, target, values = (
        x.ctypes.data if isinstance(x, np.ndarray) else x for x in (source, target, values)
    )
    padded = (c_int64 * 4)(*numbers)
    runner.helper_run(kernel, source, at[0], target, at[1], bits, length, items, padded, values)


class GuardedPage:
    """Memory in front of an inaccessible page."""

    def __init__(self, nbytes=16384):
        self.nbytes = nbytes
        self.map = mmap.mmap(-1, nbytes + mmap.PAGESIZE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(c_void_p(self.address + nbytes), mmap.PAGESIZE, 0) == 0
        self.array = np.frombuffer(self.map, np.uint8, nbytes)

    def end(self, data):
        """Copies `data` to the end of the memory and returns its address."""
        self.array[self.nbytes - len(data) :] = data
        return self.address + self.nbytes - len(data)


@pytest.fixture(scope="module")
def guarded():
    return GuardedPage()


def random_bits(bit_offset, length):
    rng = np.random.default_rng([bit_offset, length])
    bitmap = rng.integers(0, 256, (bit_offset + length + 7) // 8, np.uint8)
    bits = np.unpackbits(bitmap, bitorder="little")[bit_offset : bit_offset + length]
    return bitmap, bits


# --- on the host --------------------------------------------------------------------------------


@pytest.mark.parametrize("n_items", [1, -1, 3, 256])
@looped("bit_offset", range(64))
def test_host_unpack(runner, guarded, bit_offset, n_items):
    for length in LENGTHS:
        bitmap, bits = random_bits(bit_offset, length)
        source = guarded.end(bitmap)
        for target_offset in (0, 1, 5):
            target = np.full(length + target_offset + 9, 0xA5, np.uint8)
            run(
                runner,
                UNPACK,
                source,
                target,
                bits=bit_offset,
                length=length,
                items=n_items,
                at=(0, target_offset),
            )
            found = target[target_offset : target_offset + length]
            assert np.array_equal(found, bits), length
            assert set(target[:target_offset]) | set(target[target_offset + length :]) == {0xA5}


@pytest.mark.parametrize("n_items", [1, 3, 256])
@looped("bit_offset", range(64))
def test_host_count(runner, guarded, bit_offset, n_items):
    for length in LENGTHS:
        bitmap, bits = random_bits(bit_offset, length)
        target = np.full(n_items + 2, -7, np.int64)
        source = guarded.end(bitmap)
        run(
            runner,
            COUNT,
            source,
            target,
            bits=bit_offset,
            length=length,
            items=n_items,
            at=(0, 8),
        )
        assert target[0] == target[-1] == -7
        assert target[1:-1].sum() == bits.sum(), length


@pytest.mark.parametrize("value", [0, 0xFF])
def test_host_count_of_equal_bits(runner, value):
    bitmap = np.full(1 << 16, value, np.uint8)
    target = np.zeros(1, np.int64)
    for bit_offset in range(9):
        length = bitmap.size * 8 - bit_offset - 3
        run(runner, COUNT, bitmap, target, bits=bit_offset, length=length)
        assert target[0] == (length if value else 0)


def test_host_count_without_popcnt(library):
    library.helper_popcount.restype = c_int64
    words = np.random.default_rng(5).integers(0, 2**63, 500, np.uint64)
    for n in range(500):
        expected = np.unpackbits(words[:n].view(np.uint8)).sum()
        assert library.helper_popcount(c_void_p(words.ctypes.data), c_int64(n)) == expected


def test_source_offset(runner):
    bitmap, bits = random_bits(24, 999)
    target = np.zeros(999, np.uint8)
    run(runner, UNPACK, bitmap, target, bits=8, length=999, at=(2, 0))
    assert np.array_equal(target, bits)


def random_bytes(length, seed):
    return np.random.default_rng([length, seed]).integers(0, 256, length, np.uint8)


def bits_of(data):
    return np.unpackbits(data, bitorder="little")


@pytest.mark.parametrize("n_items", [1, -1, 3, 256])
@looped("bit_offset", range(64))
def test_host_pack(runner, guarded, bit_offset, n_items):
    for length in LENGTHS:
        mask = random_bytes(length, bit_offset)
        mask[:: 1 + bit_offset % 3] = 0
        source = guarded.end(mask)
        for flip in (0, 1):
            nbytes = (bit_offset + length + 7) // 8
            target = np.full(nbytes + 9, 0xA5, np.uint8)
            run(
                runner,
                PACK,
                source,
                target,
                [flip],
                bits=bit_offset,
                length=length,
                items=n_items,
            )
            found = bits_of(target[:nbytes])[bit_offset : bit_offset + length]
            assert np.array_equal(found, (mask != 0) ^ flip), length
            around = bits_of(target[bit_offset // 8 : nbytes])
            assert not around[: bit_offset % 8].any()
            assert not around[bit_offset % 8 + length :].any()
            assert set(target[: bit_offset // 8]) | set(target[nbytes:]) == {0xA5}


def merged(old, new, at, operation):
    result = old.copy()
    window = slice(at, at + new.size)
    result[window] = {
        BITS_COPY: new,
        BITS_AND: old[window] & new,
        BITS_ONES: 1,
        BITS_ZEROS: 0,
    }[operation]
    return result


@pytest.mark.parametrize("n_items", [1, -1, 3])
@pytest.mark.parametrize("operation", [BITS_COPY, BITS_AND, BITS_ONES, BITS_ZEROS])
@looped("bit_offset", range(64))
def test_host_copy_of_bits(runner, guarded, bit_offset, operation, n_items):
    for length in LENGTHS:
        bitmap, bits = random_bits(bit_offset, length)
        source = guarded.end(bitmap)
        for to in (0, 7, 9, (bit_offset * 5 + length) % 64):
            target = random_bytes((to + length + 7) // 8 + 8, bit_offset)
            cleared = -(to + length) % 8 + (0, 8, 56)[length % 3]
            expected = merged(bits_of(target), bits, to, operation)
            expected[to + length : to + length + cleared] = 0
            run(
                runner,
                COPY,
                source,
                target,
                [to, operation, cleared],
                bits=bit_offset,
                length=length,
                items=n_items,
            )
            assert np.array_equal(bits_of(target), expected), (length, to)


def test_fill_of_ones_needs_no_source(runner):
    target = np.zeros(100, np.uint8)
    run(runner, COPY, 0, target, [3, BITS_ONES], length=700)
    assert bits_of(target).sum() == 700


def two_words(value):
    """A value as launch parameters; short values are repeated."""
    repeated = np.frombuffer(bytes(value) * (16 // len(value)), np.int64)
    return int(repeated[0]), int(repeated[1])


@looped("n_items", [1, -1, 3])
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@looped("bit_offset", range(64))
def test_host_fill(runner, guarded, bit_offset, size, n_items):
    value = np.arange(1, size + 1, dtype=np.uint8)
    for length in (1, 7, 63, 64, 65, 128, 500):
        bitmap, bits = random_bits(bit_offset, length)
        target = random_bytes(length * size + 8, bit_offset)
        expected = target.copy()
        expected[: length * size].reshape(length, size)[bits == 0] = value
        apart = np.zeros_like(target)
        numbers = [size, 1, *two_words(value)]
        how = {"bits": bit_offset, "length": length, "items": n_items}
        run(runner, FILL, guarded.end(bitmap), apart, numbers, values=target, **how)
        assert np.array_equal(apart[:-8], expected[:-8]) and not apart[-8:].any(), length
        run(runner, FILL, guarded.end(bitmap), target, numbers, **how)
        assert np.array_equal(target, expected), length


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_host_fill_of_rows_and_partial_rows(runner, size):
    value = np.arange(1, size + 1, dtype=np.uint8)
    bitmap, bits = random_bits(5, 90)
    for per_row in (2, 3, -2, -3):
        n = 90 * per_row if per_row > 0 else 90 // -per_row
        target = random_bytes(n * size, per_row % 7)
        expected = target.copy().reshape(n, size)
        nulls = np.flatnonzero(bits == 0)
        if per_row > 0:
            expected.reshape(90, per_row, size)[nulls] = value
        else:
            expected[nulls // -per_row] = value
        run(runner, FILL, bitmap, target, [size, per_row, *two_words(value)], bits=5, length=90)
        assert np.array_equal(target, expected.reshape(-1)), per_row


@looped("n_items", [1, 3, 256])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 16])
def test_host_gather(runner, size, n_items):
    whole = random_bytes(40 * 30 * size, size).reshape(40, 30, size)
    for view in (
        whole,
        whole[:, ::3],
        whole[::2, 5:6],
        whole[::-1, ::-2],
        whole[3::7].swapaxes(0, 1),
    ):
        rows, columns = view.shape[:2]
        target = np.zeros(rows * columns * size, np.uint8)
        first = view.__array_interface__["data"][0]
        numbers = [columns, view.strides[0], view.strides[1], size]
        run(runner, GATHER, first, target, numbers, length=rows * columns, items=n_items)
        assert np.array_equal(target, view.reshape(-1))


@pytest.mark.parametrize("n_items", [1, 3, 256])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_host_offsets(runner, guarded, dtype, n_items):
    good = np.cumsum(np.random.default_rng(1).integers(0, 5, 400)).astype(dtype)
    limit = int(good[-1])

    def first_bad(offsets, limit):
        found = np.zeros(n_items, np.int64)
        source = guarded.end(offsets.view(np.uint8))
        numbers = [offsets.itemsize, limit]
        run(runner, CHECK, source, found, numbers, length=len(offsets) - 1, items=n_items)
        return found.min()

    assert first_bad(good, limit) == 400
    assert first_bad(good, limit - 1) == np.searchsorted(good, limit) - 1
    for row in (0, 1, 63, 64, 200, 398):
        bad = good.copy()
        bad[row + 1] = bad[row] - 1
        assert first_bad(bad, limit) == row
    assert first_bad(good - 10, limit) == 0
    largest = np.array([0, np.iinfo(dtype).max], dtype)
    assert first_bad(largest, int(largest[1])) == 2


@pytest.mark.parametrize("n_items", [1, 3, 256])
@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8"])
def test_host_add(runner, dtype, n_items):
    numbers = random_bytes(999 * 8, 3).view(dtype)[:999]
    for delta in (0, 1, -1, 77, 2**40 + 3):
        target = np.zeros(999, dtype)
        size = numbers.itemsize
        run(runner, ADD, numbers, target, [size, delta], length=999, items=n_items)
        expected = (numbers.astype("i8") + np.int64(delta)).astype(dtype)
        assert np.array_equal(target, expected)
        again = numbers.copy()
        run(runner, ADD, again, again, [size, delta], length=999, items=n_items)
        assert np.array_equal(again, expected)


def clipped_sum(numbers, most, delta):
    return (np.minimum(numbers.astype("i8"), most) + delta).astype(numbers.dtype)


@pytest.mark.parametrize("n_items", [1, 3, 256])
@pytest.mark.parametrize("dtype", ["i2", "i4", "i8"])
def test_host_add_stops_at_limit(runner, dtype, n_items):
    numbers = random_bytes(999 * 8, 3).view(dtype)[:999]
    for most, delta in ((100, -3), (-5, 7), (np.iinfo(dtype).max, 0)):
        target = np.zeros(999, dtype)
        how = [numbers.itemsize, delta, int(most), 1]
        run(runner, ADD, numbers, target, how, length=999, items=n_items)
        assert np.array_equal(target, clipped_sum(numbers, int(most), delta))


def check_run_ends(launch):
    """`launch(source, target, numbers, length)` returns the target."""
    n = 500
    for dtype in ("i2", "i4", "i8"):
        ends = np.cumsum(np.random.default_rng(0).integers(1, 4, n)).astype(dtype)
        last = int(ends[-1])
        for first, stop in ((0, 1), (0, last), (5, 6), (37, last - 9), (last - 1, last)):
            found = launch(ends, np.zeros(3, "i8"), [ends.itemsize, first, stop], n)
            expected = [np.searchsorted(ends, first, "right"), np.searchsorted(ends, stop)]
            assert found.view("i8").tolist() == [0, *(np.array(expected) + 1)]
        found = launch(ends, np.zeros(3, "i8"), [ends.itemsize, 3, last + 1], n)
        assert found.view("i8")[2] == 0
        for row in (0, 1, n - 1):
            bad = ends.copy()
            bad[row] = ends[row - 1] if row > 0 else 0
            found = launch(bad, np.zeros(3, "i8"), [ends.itemsize, 0, 1], row + 1)
            assert found.view("i8")[0] == row + 1


@pytest.mark.parametrize("n_items", [1, 3, 256])
def test_host_finds_runs(runner, guarded, n_items):
    def launch(source, target, numbers, length):
        source = guarded.end(source.view(np.uint8).reshape(-1))
        run(runner, RUNS, source, target, numbers, length=length, items=n_items)
        return target

    check_run_ends(launch)


# --- every alignment ----------------------------------------------------------------------------

TAILS = [*range(1, 36), 47, 48, 49, 63, 64, 65, 127, 129, 301]


class Placed:
    """Bytes at an address that leaves a given remainder when divided by 16, between guards."""

    def __init__(self, data, remainder):
        data = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        self.whole = np.full(data.size + 64, 0xA5, np.uint8)
        first = 16 + (remainder - self.whole.ctypes.data) % 16
        self.inside = self.whole[first : first + data.size]
        self.inside[:] = data
        self.address = self.inside.ctypes.data
        self.guards = self.whole[:first], self.whole[first + data.size :]

    def equals(self, expected):
        expected = np.ascontiguousarray(expected).view(np.uint8).reshape(-1)
        is_kept = all((guard == 0xA5).all() for guard in self.guards)
        return is_kept and np.array_equal(self.inside, expected)


def align_unpack(launch, n, source, target):
    bitmap, bits = random_bits(target, n)
    launch(UNPACK, Placed(bitmap, source), Placed(np.zeros(n, "u1"), target), bits, bits=target)


def align_pack(launch, n, source, target):
    mask = random_bytes(n, source) & 1
    expected = np.packbits(np.concatenate([np.zeros(target % 8, "u1"), mask]), bitorder="little")
    start = Placed(np.zeros_like(expected), target)
    launch(PACK, Placed(mask, source), start, expected, bits=target % 8)


def align_copy(launch, n, source, target):
    for operation in (BITS_COPY, BITS_AND, BITS_ONES):
        bitmap, bits = random_bits(source, n)
        old = random_bytes((target + n + 7) // 8, 9)
        expected = np.packbits(merged(bits_of(old), bits, target, operation), bitorder="little")
        numbers = [target, operation]
        start = Placed(old, target)
        launch(COPY, Placed(bitmap, source), start, expected, numbers, bits=source)


def align_fill(launch, n, source, target):
    bitmap, bits = random_bits(target, n)
    bits[: n // 2] = source % 3 != 0  # whole steps without nulls
    bitmap = np.packbits(np.concatenate([np.zeros(target, "u1"), bits]), bitorder="little")
    for size in (1, 2, 4, 8, 16):
        old = random_bytes(n * size, source).reshape(n, size)
        value = np.arange(1, size + 1, dtype=np.uint8)
        expected = np.where(bits[:, None] != 0, old, value)
        numbers = [size, 1, *two_words(value)]
        how = {"numbers": numbers, "bits": target}
        values = Placed(old, source)
        start = Placed(np.zeros_like(old), target)
        launch(FILL, Placed(bitmap, target), start, expected, values=values, **how)
        launch(FILL, Placed(bitmap, target), Placed(old, source), expected, **how)


def align_gather(launch, n, source, target):
    for size in (1, 2, 3, 4, 8, 16):
        whole = random_bytes(n * 3 * size, size).reshape(-1, size)
        steps = ((5, 5, 1), (5, 6, 1), (5, 6, 2), (5, 1, -(-n // 5)), (17, 20, 1), (17, 4, 1))
        for columns, row_step, column_step in steps:
            rows = -(-n // columns)
            index = np.arange(rows)[:, None] * row_step + np.arange(columns) * column_step
            index = index.reshape(-1)[:n]
            if index.max() >= len(whole):
                continue
            numbers = [columns, row_step * size, column_step * size, size]
            start = Placed(np.zeros(n * size, "u1"), target)
            launch(GATHER, Placed(whole, source), start, whole[index], numbers)


def align_add(launch, n, source, target):
    for dtype in ("i1", "i2", "i4", "i8"):
        numbers = random_bytes(n * 8, source).view(dtype)[:n]
        for delta in (-1, 77, 2**40 + 3):
            expected = (numbers.astype("i8") + np.int64(delta)).astype(dtype)
            start = Placed(np.zeros_like(numbers), target)
            how = [numbers.itemsize, delta]
            launch(ADD, Placed(numbers, source), start, expected, how)
        if dtype != "i1":
            start = Placed(np.zeros_like(numbers), target)
            how = [numbers.itemsize, -3, 100, 1]
            launch(ADD, Placed(numbers, source), start, clipped_sum(numbers, 100, -3), how)


def align_check(launch, n, source, target):
    for dtype in ("i4", "i8"):
        for bad in (n, 0, n // 2, n - 1):
            offsets = np.arange(n + 1, dtype=dtype)
            offsets[bad + 1 :] -= bad + 2
            results = launch(CHECK, Placed(offsets, source), None, None, [offsets.itemsize, n])
            assert results.min() == (n + 1 if bad == n else bad)
        offsets = np.arange(n + 1, dtype=dtype)
        results = launch(CHECK, Placed(offsets, source), None, None, [offsets.itemsize, n - 1])
        assert results.min() == n - 1


def align_count(launch, n, source, target):
    bitmap, bits = random_bits(source, 9 * n)
    results = launch(COUNT, Placed(bitmap, target), None, None, bits=source, length=9 * n)
    assert results.sum() == bits.sum()


def align_reduce(launch, n, source, target):
    numbers = random_bytes(n * 8, source).view("i8") >> 20  # no sum overflows
    for how, expected in ((0, np.add), (1, np.minimum)):
        results = launch(REDUCE, Placed(numbers, 8 * (source % 2)), None, None, [how])
        assert expected.reduce(results) == expected.reduce(numbers)


def align_runs(launch, n, source, target):
    for dtype in ("i2", "i4", "i8"):
        ends = np.cumsum(1 + np.arange(n) % 3).astype(dtype)
        last = int(ends[-1])
        first, stop = source % last, last - source % last
        found = [0, np.searchsorted(ends, first, "right") + 1, np.searchsorted(ends, stop) + 1]
        expected = np.array(found, "i8")
        numbers = [ends.itemsize, first, stop]
        launch(RUNS, Placed(ends, source), Placed(np.zeros(3, "i8"), 8), expected, numbers)


ALIGNED = [value for name, value in sorted(globals().items()) if name.startswith("align_")]


class Launch:
    """Runs a kernel on placed bytes and compares the target, or returns the items' results."""

    def __init__(self, runner, n, n_items):
        self.runner, self.n, self.n_items = runner, n, n_items

    def __call__(self, kernel, source, target, expected, numbers=(), *, values=None, **how):
        results = np.zeros(abs(self.n_items), np.int64)
        where = results if target is None else target.address
        values = None if values is None else values.address
        how = {"length": self.n, "items": self.n_items, "values": values} | how
        run(self.runner, kernel, source.address, where, numbers, **how)
        assert expected is None or target.equals(expected), (kernel, numbers, how)
        return results


@looped("n_items", [-1, 5])
@pytest.mark.parametrize("check", ALIGNED, ids=lambda check: check.__name__.split("_")[1])
def test_every_alignment_and_tail(runner, check, n_items):
    """Source and target leave any remainder when divided by 16; lengths are around each step."""
    for n in TAILS:
        for source in range(16):
            check(Launch(runner, n, n_items), n, source, (source * 5 + n) % 16)


class BoundedLaunch(Launch):
    """Also checks that the PTX reads the first byte of the source and none around it."""

    def __call__(self, kernel, source, *rest, **how):
        results = super().__call__(kernel, source, *rest, **how)
        begin, end = self.runner.helper_read_begin(), self.runner.helper_read_end()
        assert begin == source.address, (kernel, self.n)
        assert end <= source.address + source.inside.size, (kernel, self.n)
        return results


@pytest.mark.parametrize("check", [align_add, align_check, align_gather, align_pack, align_runs])
def test_ptx_reads_nothing_around_the_source(library, tmp_path, check):
    """Words that are read whole to be joined hold no bytes before or after those of the source."""
    runner = built_ptx(library, tmp_path)
    runner.helper_read_begin.restype = runner.helper_read_end.restype = ctypes.c_uint64
    for n in (1, 3, 16, 31, 32, 33, 48, 49, 97, 301):
        for source in range(16):
            check(BoundedLaunch(runner, n, 5), n, source, 0)


# --- OpenCL -------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["", "-DAD_ON_PROCESSOR"])
def opencl(library, request):
    cl = pytest.importorskip("pyopencl")
    try:
        context = cl.create_some_context(interactive=False)
    except cl.Error as error:
        pytest.skip(f"no OpenCL device: {error}")
    program = cl.Program(context, text_of(library, OPENCL)).build(request.param)
    return cl, context, cl.CommandQueue(context), program


def run_opencl(opencl, kernel, source, target, numbers=(), *, bits=0, length, items, values=None):
    """Runs one kernel and returns the target's bytes after the first 8, which it does not touch.

    `values` None means the target.
    """
    cl, context, queue, program = opencl
    copied = cl.mem_flags.COPY_HOST_PTR
    source = cl.Buffer(context, cl.mem_flags.READ_ONLY | copied, hostbuf=source)
    padded = np.concatenate([np.zeros(8, np.uint8), np.ascontiguousarray(target).view(np.uint8)])
    memory = cl.Buffer(context, cl.mem_flags.READ_WRITE | copied, hostbuf=padded)
    inside = (memory, np.int64(8))
    if values is not None:
        values = cl.Buffer(context, cl.mem_flags.READ_ONLY | copied, hostbuf=values)
        inside = (values, np.int64(0))
    numbers = [*numbers, 0, 0, 0, 0][:4]
    wide = [np.int64(number) for number in (8, bits, length, *numbers)]
    spans = (source, np.int64(0), *inside, memory)
    cl.Kernel(program, kernel)(queue, (items,), None, *spans, *wide)
    found = np.empty_like(padded)
    cl.enqueue_copy(queue, found, memory)
    assert not found[:8].any()
    return found[8:]


@pytest.mark.parametrize("n_items", [1, 77, 512])
@looped("bit_offset", [0, 1, 7, 8, 13, 63])
def test_opencl(opencl, bit_offset, n_items):
    how = {"bits": bit_offset, "items": n_items}
    for length in (1, 9, 64, 1031, 5001):
        how["length"] = length
        bitmap, bits = random_bits(bit_offset, length)
        found = run_opencl(opencl, "ad_unpack_bits", bitmap, np.zeros(length, np.uint8), **how)
        assert np.array_equal(found, bits), length
        sums = run_opencl(opencl, "ad_count_bits", bitmap, np.zeros(n_items, np.int64), **how)
        assert sums.view(np.int64).sum() == bits.sum(), length
        mask = random_bytes(length, 2) & 1
        empty = np.zeros((bit_offset + length + 7) // 8, np.uint8)
        found = run_opencl(opencl, "ad_pack_bits", mask, empty, [1], **how)
        assert np.array_equal(bits_of(found)[bit_offset : bit_offset + length], mask ^ 1), length


@pytest.mark.parametrize("n_items", [1, 77, 512])
@looped("bit_offset", [0, 1, 7, 8, 13, 63])
def test_opencl_copies_bits(opencl, bit_offset, n_items):
    for length in (1, 9, 64, 1031, 5001):
        bitmap, bits = random_bits(bit_offset, length)
        for to in (0, 3, 64, 77):
            for operation in (BITS_COPY, BITS_AND, BITS_ONES, BITS_ZEROS):
                target = random_bytes((to + length + 7) // 8 + 8, to)
                cleared = -(to + length) % 8 + 56
                found = run_opencl(
                    opencl,
                    "ad_copy_bits",
                    bitmap,
                    target,
                    [to, operation, cleared],
                    bits=bit_offset,
                    length=length,
                    items=n_items,
                )
                expected = merged(bits_of(target), bits, to, operation)
                expected[to + length : to + length + cleared] = 0
                assert np.array_equal(bits_of(found), expected), (length, to, operation)


@pytest.mark.parametrize("n_items", [1, 77, 512])
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_opencl_fills_and_gathers(opencl, size, n_items):
    value = np.arange(1, size + 1, dtype=np.uint8)
    for bit_offset in (0, 5, 63):
        bitmap, bits = random_bits(bit_offset, 1031)
        target = random_bytes(1031 * size, bit_offset)
        expected = target.copy().reshape(1031, size)
        expected[bits == 0] = value
        numbers = [size, 1, *two_words(value)]
        how = {"bits": bit_offset, "length": 1031, "items": n_items}
        for to, values in ((target, None), (np.zeros_like(target), target)):
            found = run_opencl(opencl, "ad_fill_nulls", bitmap, to, numbers, values=values, **how)
            assert np.array_equal(found.reshape(1031, size), expected)
    whole = random_bytes(40 * 30 * size, size).reshape(40, 30, size)
    view = whole[::3, ::2]
    numbers = [view.shape[1], view.strides[0], view.strides[1], size]
    empty = np.zeros(view.size, np.uint8)
    length = view.size // size
    found = run_opencl(opencl, "ad_gather", whole, empty, numbers, length=length, items=n_items)
    assert np.array_equal(found, view.reshape(-1))


@pytest.mark.parametrize("n_items", [1, 77, 512])
def test_opencl_offsets_and_sums(opencl, n_items):
    for dtype in ("i4", "i8"):
        offsets = np.cumsum(np.arange(900) % 4).astype(dtype)
        empty = np.zeros(n_items, np.int64)
        for bad in (None, 0, 500):
            offsets[-1 if bad is None else bad + 1] += 0 if bad is None else -9
            limit = int(offsets.max())
            size = offsets.itemsize
            found = run_opencl(
                opencl,
                "ad_check_offsets",
                offsets,
                empty,
                [size, limit],
                length=899,
                items=n_items,
            )
            assert found.view(np.int64).min() == (900 if bad is None else min(bad, 500))
            offsets = np.cumsum(np.arange(900) % 4).astype(dtype)
    for dtype in ("i1", "i2", "i4", "i8"):
        numbers = random_bytes(999 * 8, 3).view(dtype)[:999].copy()
        size = numbers.itemsize
        found = run_opencl(
            opencl, "ad_add", numbers, np.zeros(999, dtype), [size, 77], length=999, items=n_items
        )
        assert np.array_equal(found.view(dtype), (numbers.astype("i8") + 77).astype(dtype))
    for dtype in ("i2", "i4", "i8"):
        numbers = random_bytes(999 * 8, 3).view(dtype)[:999].copy()
        how = [numbers.itemsize, -3, 100, 1]
        zeros = np.zeros(999, dtype)
        found = run_opencl(opencl, "ad_add", numbers, zeros, how, length=999, items=n_items)
        assert np.array_equal(found.view(dtype), clipped_sum(numbers, 100, -3))


@pytest.mark.parametrize("n_items", [1, 77, 512])
def test_opencl_finds_runs(opencl, n_items):
    def launch(source, target, numbers, length):
        how = {"length": length, "items": n_items}
        return run_opencl(opencl, "ad_find_runs", source, target, numbers, **how)

    check_run_ends(launch)
