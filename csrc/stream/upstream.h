/* The stream that an adapter reads, and how it ended. For the files of
 * stream/adapters.h only.
 */
#ifndef AD_STREAM_UPSTREAM_H
#define AD_STREAM_UPSTREAM_H

#include "stream/array_stream.h"

typedef struct ad_upstream {
    ad_array_stream *stream; /* NULL: it ended, and was released */
    bool is_over;            /* no more batches come ... */
    bool is_foreign;         /* ... for a failure of the stream's ... */
    bool is_told;            /* ... that ad_upstream_finish told */
    ad_error error;          /* why; status AD_OK: it ended */
} ad_upstream;

/* Takes a reference. */
void ad_upstream_init(ad_upstream *self, ad_array_stream *stream);
void ad_upstream_clear(ad_upstream *self);

/* The next batch; false: from now on there is none. */
bool ad_upstream_next(ad_upstream *self, ad_array *out);

/* It is over, for a failure of the adapter's own. */
void ad_upstream_fail(ad_upstream *self, const ad_error *err);

/* A signal ended a wait: nobody waits for the batches that preceded it. */
bool ad_upstream_is_interrupted(const ad_upstream *self);

/* Once it is over and all batches are given: did it end, or why not? */
AD_MUST_CHECK ad_status ad_upstream_finish(ad_upstream *self, ad_error *err);

/* What a source's `last_error` answers. NULL also where the stream failed
 * ahead of batches that are still to be given: what failed is the adapter. */
const char *ad_upstream_last_error(const ad_upstream *self, int *code);

/* A stream over a source whose making has got as far as `status`; on failure
 * the source is destroyed. Schema and type are those of its batches. */
AD_MUST_CHECK ad_status ad_upstream_open(ad_batch_source *source,
                                         ad_schema schema, int32_t device_type,
                                         ad_array_stream **out, ad_error *err);

#endif /* AD_STREAM_UPSTREAM_H */
