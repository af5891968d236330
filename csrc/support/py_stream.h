/* Streams in Python: import from a capsule, failures as exceptions, releases.
 */
#ifndef AD_SUPPORT_PY_STREAM_H
#define AD_SUPPORT_PY_STREAM_H

#include "stream/array_stream.h"
#include "support/capsule.h"
#include "support/state.h"

/* Take over the struct in a stream capsule (`pointer`, of `kind`). The struct
 * in the capsule is marked as released afterwards, on failure too. Call
 * without the GIL, because foreign code runs that may block. */
AD_MUST_CHECK ad_status ad_stream_take(void *pointer, ad_capsule_kind kind,
                                       ad_array_stream **out, ad_error *err);

/* Raise the failure of a call on `stream` (NULL if the stream could not be
 * made), with the producer's full text, its errno as `code`, and the exception
 * of its Python code as the cause. Returns NULL. */
PyObject *ad_stream_raise(ad_state *state, ad_array_stream *stream,
                          const ad_error *err);

#endif /* AD_SUPPORT_PY_STREAM_H */
