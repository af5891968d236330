/* Adapters: streams over other streams. They copy the batches to a device, cut
 * them to another length, or concatenate streams.
 *
 * An adapter holds a reference on the stream that it reads and releases it
 * with the last batch at the latest. It reads a batch only when one is
 * requested; ad_array_stream_to() also reads `prefetch` batches ahead. A
 * failure is reported after the batches that preceded it, with the text and
 * the errno of the stream that failed.
 */
#ifndef AD_STREAM_ADAPTERS_H
#define AD_STREAM_ADAPTERS_H

#include "stream/array_stream.h"
#include "order/streams.h"

/* A larger number of batches would be a table on a device, not a stream. */
#define AD_MAX_PREFETCH 1024

/* A stream of the batches of `source` on `target`, moved as by
 * ad_array_move(). The copies run on the stream that `choice` names; without
 * one they run on arrowdev's own stream, not on the current one. When a batch
 * is returned, the copies of the next `prefetch` batches, and of no others,
 * have begun. The host waits only for a batch that is returned in host memory,
 * as far as ad_array_move_begin() allows. The new stream takes a reference on
 * `choice->keep`. AD_ERR_VALUE for a `prefetch` out of range. */
AD_MUST_CHECK ad_status ad_array_stream_to(ad_array_stream *source,
                                           ad_device target, int64_t prefetch,
                                           const ad_stream_ref *choice,
                                           ad_array_stream **out,
                                           ad_error *err);

/* A stream of batches of `rows` rows; the last batch has the remaining rows.
 * AD_ERR_VALUE for `rows` below 1. Slices share their memory; joined batches
 * are copied, as by ad_concat(). Only a stream without rows has an empty
 * batch, and that batch is its only one. */
AD_MUST_CHECK ad_status ad_array_stream_rechunk(ad_array_stream *source,
                                                int64_t rows,
                                                ad_array_stream **out,
                                                ad_error *err);

/* Streams that are read one after the other. next() is not called again after
 * an end or a failure. */
typedef struct ad_array_stream_list ad_array_stream_list;
struct ad_array_stream_list {
    /* The next stream, a new reference; NULL at the end. */
    ad_status (*next)(ad_array_stream_list *self, ad_array_stream **out,
                      ad_error *err);
    /* As in ad_batch_source. */
    const char *(*last_error)(ad_array_stream_list *self, int *code);
    void (*destroy)(ad_array_stream_list *self);
    struct ad_saved_exception *saved_exception;
};

/* A stream of the batches of all streams in the list. On success it owns the
 * list. The first stream is taken now: all others must have its schema and its
 * device type. If `schema` (borrowed) has a node, all must have that schema
 * instead. AD_ERR_VALUE for an empty list without a schema. AD_ERR_EXCHANGE,
 * "schema" or "device", for a stream that differs. */
AD_MUST_CHECK ad_status ad_array_stream_chain(ad_array_stream_list *list,
                                              ad_schema schema,
                                              ad_array_stream **out,
                                              ad_error *err);

/* The list of a chain; NULL for a source of another kind. */
ad_array_stream_list *ad_array_stream_chain_list(ad_batch_source *source);

#endif /* AD_STREAM_ADAPTERS_H */
