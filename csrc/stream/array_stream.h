/* stream/: pull streams.
 *
 * A stream read from a foreign struct or from a source of our own, both
 * structs it can leave as, and streams made of streams: chain, rechunk,
 * transfer. Streams are counted but not thread-safe: one caller at a time, as
 * the specification has it. Foreign callbacks run without a lock of ours.
 * Batches and schema outlive their stream.
 */

/* ad_array_stream: arrays of one schema and one device type, pulled one at a
 * time. It is read from a foreign ArrowDeviceArrayStream or ArrowArrayStream,
 * or from a source of our own, and leaves as either struct.
 *
 * Each batch is checked against the schema and the device type; the device id
 * is the batch's own, and so is its event. A stream that was exported and
 * comes back is taken out of its struct: nothing is wrapped twice.
 *
 * Counted, but as the specification has it not thread-safe: one caller at a
 * time. Schema and batches outlive it.
 */
#ifndef AD_STREAM_ARRAY_STREAM_H
#define AD_STREAM_ARRAY_STREAM_H

#include <stdbool.h>

#include "abi/arrow_c.h"
#include "model/array.h"
#include "base/status.h"

typedef struct ad_array_stream ad_array_stream;

/* --- sources of our own ---------------------------------------------------- */

/* What makes batches in this process. After an end or a failure it is not
 * called again. */
typedef struct ad_batch_source ad_batch_source;
struct ad_batch_source {
    /* The next batch, whose schema has the layout of the stream's; *is_end
     * where there is none. May be called on any thread. */
    ad_status (*next)(ad_batch_source *self, ad_array *out, bool *is_end,
                      ad_error *err);
    /* The whole text of the failure and its errno, where an ad_error is too
     * small for it. NULL: err->message is all. Valid as long as the source.
     * *code is set only where next() told a failure of what the source reads,
     * which is its `upstream` where it has one; else the status says it. */
    const char *(*last_error)(ad_batch_source *self, int *code);
    /* Called once, on any thread; frees self. */
    void (*destroy)(ad_batch_source *self);
    /* Optional: the stream that it reads itself, borrowed; NULL: none now. */
    ad_array_stream *(*upstream)(ad_batch_source *self);
    /* What Python raised and ended it, for support/; NULL: it keeps none. */
    struct ad_saved_exception *saved_exception;
    /* Host memory of a batch may be filled again before it is released: who
     * asks for the next one has read it. */
    bool is_borrowed;
};

/* --- making one ------------------------------------------------------------ */

/* Take over a stream, which is read by calls to foreign code that may block:
 * its schema at once. On failure it is released as well. */
AD_MUST_CHECK ad_status
ad_array_stream_from_device(struct ArrowDeviceArrayStream *stream,
                            ad_array_stream **out, ad_error *err);

/* The same for a stream of host arrays: CPU, without events. */
AD_MUST_CHECK ad_status ad_array_stream_from_host(
    struct ArrowArrayStream *stream, ad_array_stream **out, ad_error *err);

/* A stream over `source`, which is taken over on success. `schema` gains a
 * reference. */
AD_MUST_CHECK ad_status ad_array_stream_from_source(ad_batch_source *source,
                                                    ad_schema schema,
                                                    int32_t device_type,
                                                    ad_array_stream **out,
                                                    ad_error *err);

/* What gives batches to one stream has one type: formats, names, nullability
 * and extensions; other metadata may differ, since pandas writes row numbers
 * there. Else AD_ERR_EXCHANGE, "schema": "`what` is utf8, but `whole` is
 * int64". */
AD_MUST_CHECK ad_status ad_array_stream_require_schema(
    const struct ArrowSchema *found, const struct ArrowSchema *wanted,
    const char *what, const char *whole, const char *hint, ad_error *err);

/* A stream that gives `array` once. */
AD_MUST_CHECK ad_status ad_array_stream_from_array(const ad_array *array,
                                                   ad_array_stream **out,
                                                   ad_error *err);

ad_array_stream *ad_array_stream_ref(ad_array_stream *stream);
void ad_array_stream_unref(ad_array_stream *stream); /* NULL allowed */

/* --- reading --------------------------------------------------------------- */

/* Borrowed. */
ad_schema ad_array_stream_schema(const ad_array_stream *stream);

int32_t ad_array_stream_device_type(const ad_array_stream *stream);

/* The source that was given; NULL for any other stream, and once closed. */
ad_batch_source *ad_array_stream_source(const ad_array_stream *stream);

/* Is the source's memory borrowed, or what it reads itself? */
bool ad_array_stream_is_borrowed(const ad_array_stream *stream);

/* The next batch, or *is_end. AD_ERR_EXCHANGE, "stream", with the errno in
 * err->code, where the producer failed; ad_array_stream_last_error has all of
 * its text. After a failure of the producer the producer decides what comes
 * next; after any other one the stream stays failed, since a batch is lost. */
AD_MUST_CHECK ad_status ad_array_stream_next(ad_array_stream *stream,
                                             ad_array *out, bool *is_end,
                                             ad_error *err);

/* The errno by which others are told of an error that has none. */
int ad_array_stream_errno(const ad_error *err);

/* The text of the last failure, complete; valid until the next call. NULL
 * where there is none. */
const char *ad_array_stream_last_error(ad_array_stream *stream);

/* Read to the end: *out is a malloc'ed list of the *n batches, which the
 * caller clears and frees; empty batches are left out but for the only one. */
AD_MUST_CHECK ad_status ad_array_stream_collect(ad_array_stream *stream,
                                                ad_array **out, size_t *n,
                                                ad_error *err);
void ad_array_list_free(ad_array *arrays, size_t n);

/* Release the producer now; reading gives the end from here on. */
void ad_array_stream_close(ad_array_stream *stream);

/* --- export ---------------------------------------------------------------- */

/* Whoever gets the struct reads `stream` from here on; the struct takes a
 * reference. Holders as in schema.h: the consumer moves the struct out or
 * leaves it, and the holder is freed in either case. */
AD_MUST_CHECK ad_status ad_array_stream_export_device(
    ad_array_stream *stream, struct ArrowDeviceArrayStream **holder,
    ad_error *err);
void ad_device_stream_holder_free(struct ArrowDeviceArrayStream *holder);

/* As host arrays: waits for each batch's event. AD_ERR_EXCHANGE, "device",
 * where the host cannot read the memory. */
AD_MUST_CHECK ad_status ad_array_stream_export_host(
    ad_array_stream *stream, struct ArrowArrayStream **holder, ad_error *err);
void ad_stream_holder_free(struct ArrowArrayStream *holder);

#endif /* AD_STREAM_ARRAY_STREAM_H */
