"""ArrowDev_StreamWait() and ArrowDev_LastError(): without the GIL, with errno and text."""

import ctypes
import errno
import threading

import arrow_ctypes as ac
import pytest
from c_api import Column

import arrowdev as ad
from arrowdev.testing import EXT_DEV


def exported(capi, obj):
    column = Column()
    capi.export_array(obj, 0, *column.addresses)
    return column


def wait(capi, column, stream, on_thread=False):
    return capi.stream_wait(ctypes.addressof(column.data), stream, on_thread)


def handle_of(queue):
    return queue.__arrowdev_queue__[1]


def pending_on(device_type):
    """A struct with an event, on a device of that type."""
    column = Column()
    column.data = ac.ArrowDeviceArray()
    column.data.array.release = 1
    column.data.device_type = device_type
    column.data.sync_event = 1
    return column


@pytest.mark.parametrize("on_thread", [False, True])
def test_stream_waits_for_the_event(capi, world, on_thread):
    column = exported(capi, world.pending())
    assert wait(capi, column, handle_of(world.consumer), on_thread)[0] == 0
    assert world.waits(world.consumer)
    column.release()


def test_host_does_not_wait(capi, world):
    column = exported(capi, world.pending())
    wait(capi, column, handle_of(world.consumer))
    assert not ad.array(world.pending()).is_ready()
    world.finish()
    column.release()


def test_ready_data_need_no_wait(capi):
    column = exported(capi, b"abc")
    assert wait(capi, column, 0)[0] == 0
    column.release()


def test_event_of_host_memory_is_ignored(capi):
    assert wait(capi, pending_on(ac.CPU), 0)[0] == 0


def test_null_and_released(capi):
    assert capi.stream_wait(0, 0, False) == (errno.EINVAL, "the array is NULL")
    column = Column()
    column.data = ac.ArrowDeviceArray()
    assert wait(capi, column, 0) == (errno.EINVAL, "the array is released")


def test_no_runtime(capi):
    code, text = wait(capi, pending_on(8), 0)
    assert code == errno.EINVAL
    assert "no runtime is loaded with which ArrowDev_StreamWait() could wait" in text


def test_invalid_stream_is_an_error_with_a_text(capi, world):
    column = exported(capi, world.pending())
    for stream in (0, 12345):
        code, text = wait(capi, column, stream)
        assert code in (errno.EINVAL, errno.EIO)
        assert text
    world.finish()
    column.release()


def test_text_belongs_to_the_thread(capi):
    assert capi.stream_wait(0, 0, False)[1] == "the array is NULL"
    column = Column()
    column.data = ac.ArrowDeviceArray()
    assert wait(capi, column, 0, on_thread=True)[1] == "the array is released"
    ready = exported(capi, b"abc")
    assert wait(capi, ready, 0) == (0, "the array is NULL")  # of the last failure here
    assert wait(capi, ready, 0, on_thread=True) == (0, "")
    ready.release()


def test_many_threads(capi, software):
    queues = [software.queue() for _ in range(4)]
    column = exported(capi, software.array([1, 2, 3], queue=queues[0]))
    assert column.data.device_type == EXT_DEV
    codes = []

    def run(queue):
        codes.extend(wait(capi, column, handle_of(queue), on_thread=True)[0] for _ in range(200))

    threads = [threading.Thread(target=run, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    column.release()
    assert codes == [0] * 800
