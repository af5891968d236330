/* What concat_streams() puts one after the other: a Python iterator of whatever
 * array_stream() takes.
 */
#ifndef AD_PYTHON_STREAMS_STREAM_LIST_H
#define AD_PYTHON_STREAMS_STREAM_LIST_H

#include "stream/adapters.h"
#include "support/saved_exception.h"

/* NULL with an exception. */
ad_stream_list *ad_py_stream_list_new(ad_state *state, PyObject *iterable);

/* For garbage collection; lists of another kind have nothing to visit. */
int ad_py_stream_list_traverse(ad_stream_list *list, visitproc visit,
                               void *arg);

#endif /* AD_PYTHON_STREAMS_STREAM_LIST_H */
