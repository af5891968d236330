"""Arrow Flight: a server in a process of its own serves an ArrayStream and takes one."""

import subprocess
import sys

import numpy as np
import pytest

import arrowdev as ad

pa = pytest.importorskip("pyarrow")
flight = pytest.importorskip("pyarrow.flight")

SERVER = """
import pyarrow as pa
import pyarrow.flight as flight

import arrowdev as ad

def batches(n):
    for i in range(n):
        yield ad.record_batch({"i": ad.array(pa.array([i, None])), "word": pa.array(["ab", "c"])})

class Server(flight.FlightServerBase):
    def do_get(self, context, ticket):
        stream = ad.array_stream(batches(int(ticket.ticket)))
        if ticket.ticket == b"7":
            stream = stream.map(lambda batch: 1 / 0)
        return flight.RecordBatchStream(pa.RecordBatchReader.from_stream(stream))

    def do_put(self, context, descriptor, reader, writer):
        rows = sum(len(batch) for batch in ad.array_stream(reader.to_reader()))
        writer.write(str(rows).encode())

with Server("grpc://127.0.0.1:0") as server:
    print(server.port, flush=True)
    server.serve()
"""


@pytest.fixture(scope="module")
def client():
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        with flight.connect(f"grpc://127.0.0.1:{int(server.stdout.readline())}") as client:
            yield client
    finally:
        server.kill()
        server.communicate()


def read(client, ticket):
    return ad.array_stream(client.do_get(flight.Ticket(ticket)).to_reader())


def test_stream_is_served(client):
    stream = read(client, b"3")
    assert [field.name for field in stream.schema.children] == ["i", "word"]
    assert [batch.to_pylist()[0] for batch in stream] == [{"i": i, "word": "ab"} for i in range(3)]


def test_stream_is_left_early(client):
    stream = read(client, b"1000000")
    assert next(stream)["i"].to_pylist() == [0, None]
    stream.close()
    assert len(read(client, b"2").read_all()) == 4


def test_failure_of_the_server_reaches_the_reader(client):
    with pytest.raises(Exception, match="ZeroDivisionError"):
        read(client, b"7").read_all()
    assert len(read(client, b"2").read_all()) == 4


def test_stream_is_put(client):
    stream = ad.array_stream(ad.record_batch({"x": np.arange(n)}) for n in (3, 5))
    reader = pa.RecordBatchReader.from_stream(stream)
    descriptor = flight.FlightDescriptor.for_path("x")
    writer, metadata = client.do_put(descriptor, reader.schema)
    with writer:
        for batch in reader:
            writer.write_batch(batch)
        writer.done_writing()
        assert metadata.read().to_pybytes() == b"8"


def test_batches_on_a_device_go_through_the_host(client, software):
    def batches():
        return ad.array_stream(
            ad.record_batch({"x": np.arange(n)}).to("ext_dev:0") for n in (3, 5)
        )

    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        pa.RecordBatchReader.from_stream(batches())
    reader = pa.RecordBatchReader.from_stream(batches().to("cpu"))
    writer, metadata = client.do_put(flight.FlightDescriptor.for_path("x"), reader.schema)
    with writer:
        for batch in reader:
            writer.write_batch(batch)
        writer.done_writing()
        assert metadata.read().to_pybytes() == b"8"
