/* stream/: pull streams.
 *
 * The folder owns ad_array_stream, its import from and export to both structs
 * of the specification, and the adapters: chain, rechunk, transfer. Streams
 * are reference-counted but not thread-safe: the specification allows one
 * caller at a time. Foreign callbacks run without a lock of ours. Batches and
 * schema outlive their stream.
 */

/* ad_array_stream: arrays of one schema, accessible from one device type,
 * pulled one at a time. It reads a foreign ArrowDeviceArrayStream or
 * ArrowArrayStream, or a source of our own, and can be exported as either
 * struct.
 *
 * Each batch is checked against the schema and the device type. Each batch has
 * its own device id and its own event. The import of our own export returns
 * the original stream: a stream is never wrapped twice.
 */
#ifndef AD_STREAM_ARRAY_STREAM_H
#define AD_STREAM_ARRAY_STREAM_H

#include <stdbool.h>

#include "abi/arrow_c.h"
#include "model/array.h"
#include "base/status.h"

typedef struct ad_array_stream ad_array_stream;

/* --- sources of our own -------------------------------------------------- */

/* A producer of batches in this process. next() is not called again after an
 * end or a failure. */
typedef struct ad_batch_source ad_batch_source;
struct ad_batch_source {
    /* The next batch, or *is_end. The batch's schema has the layout of the
     * stream's schema. May be called on any thread. */
    ad_status (*next)(ad_batch_source *self, ad_array *out, bool *is_end,
                      ad_error *err);
    /* Optional: the complete text of the failure, if an ad_error is too small
     * for it; NULL: err->message is complete. Valid as long as the source.
     * *code is set to the errno only if next() reported a failure of the
     * stream that the source reads; otherwise the status gives the errno. */
    const char *(*last_error)(ad_batch_source *self, int *code);
    /* Called once, on any thread; frees self. */
    void (*destroy)(ad_batch_source *self);
    ad_array_stream *upstream; /* the stream that the source reads, or NULL */
    /* The Python exception that ended the source, for support/; NULL: the
     * source saves none. */
    struct ad_saved_exception *saved_exception;
    /* The source may overwrite the host memory of a batch before the batch is
     * released: it assumes that the caller of next() has read the last one. */
    bool is_borrowed;
};

/* --- construction -------------------------------------------------------- */

/* Takes ownership of a foreign stream and reads its schema now. The foreign
 * callbacks may block. On failure the foreign stream is released. The
 * callbacks are called without the GIL; `interpreter` is for the batches, see
 * ad_array_import(). */
AD_MUST_CHECK ad_status ad_array_stream_from_device(
    struct ArrowDeviceArrayStream *stream, void *interpreter,
    ad_array_stream **out, ad_error *err);

/* The same for a stream of host arrays, which have no events. */
AD_MUST_CHECK ad_status ad_array_stream_from_host(
    struct ArrowArrayStream *stream, ad_array_stream **out, ad_error *err);

/* A stream over `source`, which it owns on success. It takes a reference on
 * `schema`. */
AD_MUST_CHECK ad_status ad_array_stream_from_source(ad_batch_source *source,
                                                    ad_schema schema,
                                                    int32_t device_type,
                                                    ad_array_stream **out,
                                                    ad_error *err);

/* Checks that two schemas have the same formats, names, nullability and
 * extensions. Other metadata may differ, since pandas writes row numbers
 * there. AD_ERR_EXCHANGE, "schema", otherwise: "`what` is utf8, but `whole`
 * is int64". */
AD_MUST_CHECK ad_status ad_array_stream_require_schema(
    const struct ArrowSchema *found, const struct ArrowSchema *wanted,
    const char *what, const char *whole, const char *hint, ad_error *err);

/* A stream with `array` as its only batch. */
AD_MUST_CHECK ad_status ad_array_stream_from_array(const ad_array *array,
                                                   ad_array_stream **out,
                                                   ad_error *err);

ad_array_stream *ad_array_stream_ref(ad_array_stream *stream);
void ad_array_stream_unref(ad_array_stream *stream); /* NULL allowed */

/* --- reading ------------------------------------------------------------- */

/* Borrowed. */
ad_schema ad_array_stream_schema(const ad_array_stream *stream);

int32_t ad_array_stream_device_type(const ad_array_stream *stream);

/* The source of ad_array_stream_from_source(); NULL for any other stream, and
 * once closed. */
ad_batch_source *ad_array_stream_source(const ad_array_stream *stream);

/* Whether the stream's source, or one upstream of it, has `is_borrowed`. */
bool ad_array_stream_is_borrowed(const ad_array_stream *stream);

/* The next batch, or *is_end. If the producer failed: AD_ERR_EXCHANGE,
 * "stream", with the errno in err->code; ad_array_stream_last_error() returns
 * the complete text. After a failure of the producer the next call asks the
 * producer again. After any other failure the stream stays failed, since a
 * batch is lost. */
AD_MUST_CHECK ad_status ad_array_stream_next(ad_array_stream *stream,
                                             ad_array *out, bool *is_end,
                                             ad_error *err);

/* The errno that stands for an error without one. */
int ad_array_stream_errno(const ad_error *err);

/* The complete text of the last failure; valid until the next call. NULL if
 * there is none. */
const char *ad_array_stream_last_error(ad_array_stream *stream);

/* Reads to the end. *out is a malloc'ed list of *n batches, which the caller
 * passes to ad_array_list_free(). Empty batches are left out; if all are
 * empty, one stays. */
AD_MUST_CHECK ad_status ad_array_stream_collect(ad_array_stream *stream,
                                                ad_array **out, size_t *n,
                                                ad_error *err);
void ad_array_list_free(ad_array *arrays, size_t n);

/* Releases the producer now. Later reads report the end. */
void ad_array_stream_close(ad_array_stream *stream);

/* --- export -------------------------------------------------------------- */

/* The consumer of the struct reads `stream` from now on; the struct takes a
 * reference. Holders as in schema.h: the consumer may move the struct out, and
 * the holder is freed in either case. */
AD_MUST_CHECK ad_status ad_array_stream_export_device(
    ad_array_stream *stream, struct ArrowDeviceArrayStream **holder,
    ad_error *err);
void ad_device_stream_holder_free(struct ArrowDeviceArrayStream *holder);

/* The same as host arrays: get_next waits for the event of each batch.
 * AD_ERR_EXCHANGE, "device", if the host cannot read the memory. */
AD_MUST_CHECK ad_status ad_array_stream_export_host(
    ad_array_stream *stream, struct ArrowArrayStream **holder, ad_error *err);
void ad_array_stream_holder_free(struct ArrowArrayStream *holder);

#endif /* AD_STREAM_ARRAY_STREAM_H */
