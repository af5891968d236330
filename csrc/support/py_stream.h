/* What Python needs of a stream: it comes in a capsule, its failures are raised,
 * its references are dropped.
 */
#ifndef AD_SUPPORT_PY_STREAM_H
#define AD_SUPPORT_PY_STREAM_H

#include "stream/array_stream.h"
#include "support/capsule.h"
#include "support/state.h"

/* Take over the struct in a stream capsule (`pointer`, of `kind`), which is
 * released in the capsule afterwards, on failure too. Call without the GIL:
 * foreign code is run that may block. */
AD_MUST_CHECK ad_status ad_stream_take(void *pointer, ad_capsule_kind kind,
                                       ad_array_stream **out, ad_error *err);

/* Raise what a call on `stream` (NULL: it could not be made) failed with: the
 * producer's text in full, its errno as `code`, and what its Python code raised
 * as the cause. Returns NULL. */
PyObject *ad_stream_raise(ad_state *state, ad_array_stream *stream,
                          const ad_error *err);

/* Drop a reference while an exception may be set. NULL allowed. */
void ad_stream_drop(ad_array_stream *stream);

#endif /* AD_SUPPORT_PY_STREAM_H */
