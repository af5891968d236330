# An extension in Cython: rows() counts the rows of any stream, batch after batch.
# cython: language_level=3

from arrowdev cimport (
    ArrowDeviceArray,
    ArrowDeviceArrayStream,
    ArrowDev_ExportDeviceStream,
    ArrowDev_Import,
)

ArrowDev_Import()


def rows(obj):
    """The number of rows of a stream, a table or a column."""
    cdef ArrowDeviceArrayStream stream
    cdef ArrowDeviceArray batch
    cdef const char *text
    cdef int code = 0
    cdef long long n = 0
    ArrowDev_ExportDeviceStream(obj, NULL, &stream)
    try:
        while True:
            with nogil:
                code = stream.get_next(&stream, &batch)
            if code != 0:
                text = stream.get_last_error(&stream)
                raise OSError(code, text.decode() if text else "the stream failed")
            if batch.array.release == NULL:
                return n
            n += batch.array.length
            batch.array.release(&batch.array)
    finally:
        stream.release(&stream)
