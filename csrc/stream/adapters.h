/* Streams that are made of streams: their batches brought to a device, cut to
 * another length, or put behind those of other streams.
 *
 * Each takes a reference on what it reads, and releases it with its last batch
 * at the latest. No more is read than is asked for, but for what
 * ad_stream_to() is told to read ahead. A failure comes out after the batches
 * that preceded it, with the text and the errno of the stream that failed.
 */
#ifndef AD_STREAM_ADAPTERS_H
#define AD_STREAM_ADAPTERS_H

#include "stream/array_stream.h"
#include "order/streams.h"

/* More would be no stream, but a table on a device. */
#define AD_MAX_PREFETCH 1024

/* Every batch on `target`, as by ad_array_move(), copied on the stream that
 * `choice` names, else on arrowdev's own, whatever is current. When a batch is
 * handed out, the copies of the next `prefetch` have begun, and those of no
 * others. The host waits for the batch that it gets in host memory, and for no
 * other one, as far as ad_array_move_begin() lets it. A reference on what
 * keeps the stream is taken. AD_ERR_VALUE for a `prefetch` out of range. */
AD_MUST_CHECK ad_status ad_stream_to(ad_array_stream *source, ad_device target,
                                     int64_t prefetch,
                                     const ad_stream_choice *choice,
                                     ad_array_stream **out, ad_error *err);

/* Batches of `rows` rows (at least 1, else AD_ERR_VALUE), the last of the rest.
 * What is cut is shared, what is put together is copied, as by ad_concat().
 * No batch is empty but the only one of a stream without rows. */
AD_MUST_CHECK ad_status ad_stream_rechunk(ad_array_stream *source,
                                          int64_t rows, ad_array_stream **out,
                                          ad_error *err);

/* Streams to be read one after the other. After an end or a failure it is not
 * asked again. */
typedef struct ad_stream_list ad_stream_list;
struct ad_stream_list {
    /* The next one, a new reference; NULL: there is none. */
    ad_status (*next)(ad_stream_list *self, ad_array_stream **out,
                      ad_error *err);
    /* As in ad_batch_source. */
    const char *(*last_error)(ad_stream_list *self, int *code);
    void (*destroy)(ad_stream_list *self);
    struct ad_saved_exception *saved_exception;
};

/* The batches of all of them. The list is taken over on success. The first
 * stream is taken now: its schema and its device type are those of the others,
 * too. A `schema` with a node (borrowed) is what all have to have instead;
 * without it, AD_ERR_VALUE where there is no stream. AD_ERR_EXCHANGE,
 * "schema" or "device", for a stream that differs. */
AD_MUST_CHECK ad_status ad_stream_chain(ad_stream_list *list, ad_schema schema,
                                        ad_array_stream **out, ad_error *err);

/* The list behind ad_stream_chain(); NULL for a source of another kind. */
ad_stream_list *ad_stream_chain_list(ad_batch_source *source);

#endif /* AD_STREAM_ADAPTERS_H */
