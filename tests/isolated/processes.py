"""Children of multiprocessing use arrowdev, fail and exit; so does their parent around them."""

import array
import multiprocessing
import signal
import sys
import time
import warnings
from multiprocessing import shared_memory

import common

from arrowdev.testing import software_device

ad = common.ad
VALUES = [1, 2, 3]
inherited = None


def host_values():
    alive = common.everything()
    column = ad.array(array.array("q", VALUES))
    read = [batch.to_pylist() for batch in ad.array_stream([column, column]).to("cpu", prefetch=1)]
    assert read == [VALUES, VALUES] and len(alive["batch"]) == 3
    return column.to_pylist()


def device_values():
    with software_device() as device:
        return ad.array(device.array(VALUES)).to("cpu").to_pylist()


def use_of_the_inherited(name):
    """In a forked child the runtime is the parent's."""
    getattr(inherited, name)(*(["cpu"] if name == "to" else []))


def copy_to_device():
    an_array().to("ext_dev:0")


def no_runtime():
    ad.array(array.array("q", VALUES), device="cuda:0")


def an_array(_=None):
    return ad.array(array.array("q", VALUES))


def double_shared(name):
    shared = shared_memory.SharedMemory(name=name)
    column = ad.array(memoryview(shared.buf)[:24].cast("q"))
    shared.buf[:24] = array.array("q", [2 * value for value in column.to_pylist()]).tobytes()
    del column
    shared.close()


def exit_with_all_alive():
    host_values()
    common.alive = common.everything(), list(map(an_array, VALUES))
    sys.exit(7)


def read_forever(started):
    def batches():
        while True:
            started.set()
            yield an_array()

    for _ in ad.array_stream(batches()).to("cpu", prefetch=1):
        pass


def raised(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return error
    raise AssertionError("no exception was raised")


def check_children(context, is_usable):
    """A pool: its results, errors and arrays come back."""
    # The tracker of shared memory starts now, so that a forked child uses the same one.
    shared = shared_memory.SharedMemory(create=True, size=24)
    with context.Pool(1) as pool:
        assert pool.apply(host_values) == VALUES
        if is_usable:
            assert pool.apply(device_values) == VALUES
        else:
            calls = [(copy_to_device, ())]
            calls += [(use_of_the_inherited, (name,)) for name in ("to", "synchronize")]
            for call in calls:
                error = raised(pool.apply, *call)
                assert type(error) is ad.ExchangeError and error.reason == "runtime", repr(error)
                assert "fork" in str(error) and "spawn" in error.hint, error
        error = raised(pool.apply, no_runtime)
        assert type(error) is ad.ExchangeError and error.reason == "runtime" and error.hint
        assert pool.apply(len, (an_array(),)) == len(an_array())
        assert pool.apply(an_array).to_pylist() == an_array().to_pylist()
        assert pool.apply(host_values) == VALUES

        shared.buf[:24] = array.array("q", VALUES).tobytes()
        column = ad.array(memoryview(shared.buf)[:24].cast("q"))
        pool.apply(double_shared, (shared.name,))
        assert column.to_pylist() == [2, 4, 6]
        assert isinstance(raised(shared.close), BufferError)
        del column
        shared.close()
        shared.unlink()
        pool.close()
        pool.join()


def check_exits(context):
    child = context.Process(target=exit_with_all_alive)
    child.start()
    child.join(60)
    assert child.exitcode == 7, child.exitcode

    started = context.Event()
    child = context.Process(target=read_forever, args=(started,))
    child.start()
    assert started.wait(60)
    time.sleep(0.05)
    child.terminate()
    child.join(60)
    assert child.exitcode == -signal.SIGTERM, child.exitcode


def main(method, when):
    global inherited
    context = multiprocessing.get_context(method)
    if when == "unused":
        check_children(context, is_usable=True)
        check_exits(context)
    else:
        with software_device() as device:
            queue = device.queue()
            pending = ad.array(device.array(VALUES, queue=queue))
            stream = ad.array_stream([pending] * 4).to("cpu", prefetch=1)
            assert next(stream).to_pylist() == VALUES
            queue.hold()
            copied = pending.to("ext_dev:1")
            inherited = copied
            del pending
            check_children(context, is_usable=method != "fork")
            check_exits(context)
            queue.release()
            inherited = None
            assert copied.to("cpu").to_pylist() == VALUES
            assert len(list(stream)) == 3
    assert device_values() == VALUES == host_values()
    common.end()


if __name__ == "__main__":
    # 3.12 warns about a fork in a process with threads.
    warnings.simplefilter("ignore", DeprecationWarning)
    main(*sys.argv[1:])
