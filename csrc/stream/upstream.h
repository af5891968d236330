/* The base of an adapter: the stream that it reads, and its outcome. For the
 * files of stream/adapters.h only.
 */
#ifndef AD_STREAM_UPSTREAM_H
#define AD_STREAM_UPSTREAM_H

#include "stream/array_stream.h"

/* First member of an adapter. */
typedef struct ad_upstream {
    ad_batch_source base; /* base.upstream: NULL once the stream ended */
    bool is_over;         /* no more batches come */
    bool is_foreign;      /* the stream failed, not the adapter */
    bool is_told;         /* ad_upstream_finish() reported the outcome */
    ad_error error;       /* the failure; status AD_OK: the stream ended */
} ad_upstream;

/* Begins to read `stream` and takes a reference. `base` has been set. */
void ad_upstream_init(ad_upstream *self, ad_array_stream *stream);
void ad_upstream_clear(ad_upstream *self);

/* Reads the next batch; false at the end and after a failure. */
bool ad_upstream_next(ad_upstream *self, ad_array *out);

/* Stops reading because the adapter failed. */
void ad_upstream_fail(ad_upstream *self, const ad_error *err);

/* Whether a signal ended a wait. The failure is then reported before the
 * batches that preceded it. */
bool ad_upstream_is_interrupted(const ad_upstream *self);

/* Reports the outcome, once `is_over` is set and all batches were returned. */
AD_MUST_CHECK ad_status ad_upstream_finish(ad_upstream *self, ad_error *err);

/* The `last_error` of an adapter. NULL also if the stream failed but
 * ad_upstream_finish() has not reported it yet: the failure that the caller
 * saw is then the adapter's. */
const char *ad_upstream_last_error(ad_batch_source *base, int *code);

/* A stream over the adapter, whose batches have `schema` and `device_type`. On
 * failure the adapter is destroyed. */
AD_MUST_CHECK ad_status ad_upstream_open(ad_upstream *self, ad_schema schema,
                                         int32_t device_type,
                                         ad_array_stream **out, ad_error *err);

#endif /* AD_STREAM_UPSTREAM_H */
