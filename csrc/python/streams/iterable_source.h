/* Python iterators as sources: of batches, what array_stream() makes of
 * generators, lists and the like; and of streams, which concat_streams() puts
 * one after the other.
 *
 * It may be asked on any thread, with or without the GIL. What the iterator
 * raises becomes the failure of the stream, and is kept for a consumer who can
 * raise it again.
 */
#ifndef AD_PYTHON_STREAMS_ITERABLE_SOURCE_H
#define AD_PYTHON_STREAMS_ITERABLE_SOURCE_H

#include "stream/adapters.h"
#include "support/saved_exception.h"

/* A stream over `iterable`, or over what `function` (NULL: none) makes of each
 * of its elements. `wanted` (borrowed, may be without a node) is the
 * type that all elements get; without it, it is the first one's. Without
 * `given` the device type is the first element's, or `device_type` where there
 * is none. The first element is taken now, unless both are given. NULL with an
 * exception. */
ad_array_stream *ad_iterable_stream(ad_state *state, PyObject *iterable,
                                    PyObject *function, ad_schema wanted,
                                    const int32_t *given, int32_t device_type);

bool ad_is_iterable_source(const ad_batch_source *source);

/* A list of whatever array_stream() takes. NULL with an exception. */
ad_stream_list *ad_iterable_stream_list(ad_state *state, PyObject *iterable);

/* For garbage collection; sources of another kind have nothing to visit. */
int ad_iterable_traverse(ad_batch_source *source, visitproc visit, void *arg);

#endif /* AD_PYTHON_STREAMS_ITERABLE_SOURCE_H */
