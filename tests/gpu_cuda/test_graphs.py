"""Exchanges inside a graph that a library captures.

Inside a capture, DLPack's methods are imported with `stream=`: without it, a stream of
arrowdev's would join the graph. test_capture.py has the rules of each call, by the driver alone.
"""

import contextlib
import gc
import subprocess
import sys
import threading

import gpu
import libraries
import numpy as np
import pytest
from gpu import NEW, OLD, Memory, Pinned, ask, begin_capture, cu

import arrowdev as ad

GLOBAL = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL


class DriversGraph:
    """Captured and launched by the driver."""

    @contextlib.contextmanager
    def capture(self, library, stream):
        with library.on(stream):
            begin_capture(stream.handle, GLOBAL)
            try:
                yield
            finally:
                graph = ask(cu.cuStreamEndCapture, stream.handle)
        self.executable = ask(cu.cuGraphInstantiate, graph, 0)

    def launch(self, library, stream):
        ask(cu.cuGraphLaunch, self.executable, stream.handle)
        stream.synchronize()


class TorchGraph:
    @contextlib.contextmanager
    def capture(self, library, stream):
        self.graph = library.api.cuda.CUDAGraph()
        with library.api.cuda.graph(self.graph, stream=stream):
            yield

    def launch(self, library, stream):
        with library.on(stream):
            self.graph.replay()
        stream.synchronize()


class CuPyGraph:
    @contextlib.contextmanager
    def capture(self, library, stream):
        with library.on(stream):
            stream.begin_capture()
            try:
                yield
            finally:
                self.graph = stream.end_capture()

    def launch(self, library, stream):
        self.graph.launch(stream)
        stream.synchronize()


GRAPHS = {
    "interface": DriversGraph,
    "dlpack": DriversGraph,
    "torch": TorchGraph,
    "cupy": CuPyGraph,
}


@pytest.fixture(params=GRAPHS)
def captured(request):
    """A library, a stream of it and a graph to be captured there."""
    library = libraries.get(request.param)
    return library, library.stream(), GRAPHS[request.param]()


def imported(library, source, stream):
    says_its_stream = isinstance(library, (libraries.Interface, libraries.Torch))
    return ad.tensor(source) if says_its_stream else ad.tensor(source, stream=stream)


def taken_by_dlpack(library, source, stream):
    """The stream of the CUDA Array Interface would join the graph, too."""
    if isinstance(library, libraries.Interface):
        return libraries.Dlpack.take(library, source, stream)
    return library.take(source, stream)


def upload(pointer, values):
    ask(cu.cuMemcpyHtoD, pointer, values.ctypes.data, values.nbytes)


def download(pointer):
    values = np.zeros_like(OLD)
    ask(cu.cuMemcpyDtoH, values.ctypes.data, pointer, values.nbytes)
    return values.tolist()


def test_exchange_is_part_of_the_graph(captured):
    """The copy of what was exchanged runs at each launch, with the values of that time.

    Everything that was exchanged is dropped inside the capture.
    """
    library, stream, graph = captured
    source, target = library.make(OLD, stream), Memory(OLD - 1)
    with graph.capture(library, stream):
        tensor = imported(library, source, stream)
        taken = taken_by_dlpack(library, tensor, stream)
        ask(
            cu.cuMemcpyDtoDAsync,
            target.pointer,
            library.pointer(taken),
            OLD.nbytes,
            library.handle(stream),
        )
        del tensor, taken
        gc.collect()
    assert download(target.pointer) == (OLD - 1).tolist()
    for values in (NEW, OLD, NEW):
        upload(library.pointer(source), values)
        graph.launch(library, stream)
        assert download(target.pointer) == values.tolist()


def test_unrelated_work_does_not_break_the_graph(captured):
    """On the thread that captures, and on another one."""
    library, stream, graph = captured
    there, pinned = ad.tensor(NEW).to("cuda:0"), Pinned(NEW)
    there.synchronize()
    target = Memory(OLD)

    def work():
        assert np.asarray(there.to("cpu")).tolist() == NEW.tolist()
        sent = ad.tensor(NEW).to("cuda:0")
        sent.synchronize()
        copy = ad.array(sent, copy=True)
        assert copy.to("cpu").to_pylist() == NEW.tolist()
        assert ad.device("cuda:0").empty(64).nbytes == 64

    errors = []

    def guarded():
        try:
            work()
        except BaseException as error:
            errors.append(error)

    with graph.capture(library, stream):
        work()
        thread = threading.Thread(target=guarded)
        thread.start()
        thread.join(60)
        ask(
            cu.cuMemcpyHtoDAsync,
            target.pointer,
            int(pinned.pointer),
            NEW.nbytes,
            library.handle(stream),
        )
        gc.collect()
    assert errors == []
    graph.launch(library, stream)
    assert download(target.pointer) == NEW.tolist()


def test_data_of_a_graph_cannot_be_read_outside(captured):
    """They exist when the graph is launched; the refusal does not break the capture."""
    library, stream, graph = captured
    source, pinned = library.make(OLD, stream), Pinned(NEW)
    with graph.capture(library, stream):
        pointer = library.pointer(source)
        ask(cu.cuMemcpyHtoDAsync, pointer, int(pinned.pointer), NEW.nbytes, library.handle(stream))
        tensor = imported(library, source, stream)
        with pytest.raises(ad.ExchangeError) as caught:
            tensor.to("cpu")
        assert caught.value.reason == "capture"
        del tensor
    graph.launch(library, stream)
    assert np.asarray(ad.tensor(source).to("cpu")).tolist() == NEW.tolist()


@pytest.mark.parametrize("name", GRAPHS)
def test_first_use_of_all_in_a_capture(name):
    """A new process, where streams, events and kernels are made inside the capture."""
    libraries.get(name)
    done = subprocess.run(
        [sys.executable, str(gpu.FOLDER / "first_use.py"), name],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and done.stdout.split() == ["end"], done.stdout + done.stderr
