/* ArrayStream.to(), .rechunk(), .map(), arrowdev.concat_streams(); and the
 * Python objects that a stream holds below its adapters.
 */
#ifndef AD_PYTHON_TYPES_STREAM_ADAPTERS_H
#define AD_PYTHON_TYPES_STREAM_ADAPTERS_H

#include "stream/array_stream.h"
#include "support/saved_exception.h"

PyObject *ad_array_stream_to(PyObject *self, PyObject *const *args,
                             Py_ssize_t n_args, PyObject *kwnames);
PyObject *ad_array_stream_rechunk(PyObject *self, PyObject *rows);
PyObject *ad_array_stream_map(PyObject *self, PyObject *const *args,
                              Py_ssize_t n_args, PyObject *kwnames);

/* For garbage collection. The caller must be the only owner of the stream, and
 * the stream must not be read at the time. */
int ad_stream_traverse(ad_array_stream *stream, visitproc visit, void *arg);

/* Whether a read calls Python first, so that releasing the GIL for it is of no
 * use. */
bool ad_stream_is_python(const ad_array_stream *stream);

#endif /* AD_PYTHON_TYPES_STREAM_ADAPTERS_H */
