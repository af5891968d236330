/* ArrayStream.to(), .rechunk(), .map(), arrowdev.concat_streams(); and what is
 * of Python in a stream, however many adapters are around it.
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

/* For garbage collection, of whoever owns the stream alone, and while nobody
 * reads it. */
int ad_stream_traverse(ad_array_stream *stream, visitproc visit, void *arg);

/* Does reading it call Python before all else, so that giving the GIL up would
 * be for nothing? */
bool ad_stream_is_python(const ad_array_stream *stream);

#endif /* AD_PYTHON_TYPES_STREAM_ADAPTERS_H */
